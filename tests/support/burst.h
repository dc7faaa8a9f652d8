/*
 * Bursts on a machine that is as slow as it likes, and whether what came of them rests at its receiver.
 */
#ifndef TESTS_SUPPORT_BURST_H
#define TESTS_SUPPORT_BURST_H

#include <hawser.h>

#include "endpoint.h"
#include "progress.h"
#include "time.h"

/* What is sent now is a burst, however slow the machine is: as if no time had passed since it began. */
static inline void t_hurry(hws_id worker)
{
    struct hws__worker *w = hws__obj_find(&hws__objects, worker);
    bool nested = hws__own(w);

    w->bundles.timed_at = hws__now();
    w->bundles.timed_burst = 0;
    hws__disown(w, nested);
}

/* Messages that wait at an endpoint, those that rest among them. */
static inline uint32_t t_waiting(hws_id endpoint)
{
    const struct hws__endpoint *ep = hws__obj_find(&hws__objects, endpoint);

    return atomic_load(&ep->scope.messages);
}

static inline int t_rests(hws_id endpoint)
{
    const struct hws__endpoint *ep = hws__obj_find(&hws__objects, endpoint);
    bool nested = hws__own(ep->worker), some = !hws__list_empty(&ep->scope.rests);

    hws__disown(ep->worker, nested);
    return some;
}

#endif
