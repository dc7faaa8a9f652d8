/*
 * The window of a lane: operations under way, of which the oldest must end before another is posted.
 */
#ifndef HAWSER_PERF_WINDOW_H
#define HAWSER_PERF_WINDOW_H

#include "perf.h"

/** The operation that was posted `size` ago must have ended before another one is. */
static inline __attribute__((always_inline)) int32_t perf_window_room(perf_window *w)
{
    hws_id op = w->ops[w->next];

    if (op == 0) {
        return HWS_OK;
    }
    w->ops[w->next] = 0;
    return hws_wait(op, HWS_FOREVER, NULL);
}

/** Remember what was posted. */
static inline __attribute__((always_inline)) void perf_window_put(perf_window *w, hws_id op)
{
    w->ops[w->next] = op;
    w->next = w->next + 1 == w->size ? 0 : w->next + 1;
}

/** Wait for all of it. */
static inline int32_t perf_window_drain(perf_window *w)
{
    for (uint32_t i = 0; i < w->size; i++) {
        int32_t r = perf_window_room(w);

        if (r < 0) {
            return r;
        }
        perf_window_put(w, 0);
    }
    return HWS_OK;
}

#endif
