/*
 * Turns: threads that wait on the same worker and share a core. Only one of them runs at a time, so while it
 * spins the others cannot go on, though what they wait for may be there. Giving way is for them alone: to other
 * processes it would give the core for a whole slice of the scheduler's.
 *
 * A waiter leaves its mark at the core that it runs on. Who finds the mark of another has shared the core with it
 * since it left its own.
 */
#ifndef HWS_CORE_TURN_H
#define HWS_CORE_TURN_H

#include "own.h"
#include <sched.h>

/* The mark of a thread that was woken, and may need this core to run. */
#define HWS__TURN_WOKEN ((uintptr_t)1)

static inline _Atomic uintptr_t *hws__turn_mark(struct hws__worker *w)
{
    return &w->turns[(unsigned)sched_getcpu() % HWS__TURNS];
}

/**
 * Whether another waiter of the worker should run now on this core. Asked by waiters only, with or without
 * ownership.
 */
static inline bool hws__turn_over(struct hws__worker *w)
{
    _Atomic uintptr_t *mark;
    uintptr_t last;

    if (atomic_load_explicit(&w->waiters, memory_order_relaxed) < 2) {
        return false;
    }
    mark = hws__turn_mark(w);
    last = atomic_load_explicit(mark, memory_order_relaxed);
    if (last == hws__self()) {
        return false;
    }
    atomic_store_explicit(mark, hws__self(), memory_order_relaxed);
    return last != 0;
}

/** A waiter of the worker was woken. */
static inline void hws__turn_woken(struct hws__worker *w)
{
    atomic_store_explicit(hws__turn_mark(w), HWS__TURN_WOKEN, memory_order_relaxed);
}

#endif
