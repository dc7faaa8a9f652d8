/*
 * The one piece of `hawser perf` that runs inside the measured loops besides the calls themselves:
 * read the processor's counter once an iteration, as ucx_perftest does, so that neither side of a
 * comparison pays for more.
 */
#ifndef HAWSER_PERF_CLOCK_H
#define HAWSER_PERF_CLOCK_H

#include "perf.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline uint64_t perf_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return perf_now_ns();
#endif
}

/** An iteration ended. */
static inline void perf_clock_tick(perf_lane *lane)
{
    perf_clock *c = &lane->clock;
    uint64_t now = perf_ticks();

    c->ring[c->count++ & c->mask] = now - c->previous;
    c->previous = now;
    if (__builtin_expect(now >= c->report_at, 0)) {
        perf_clock_report(lane);
    }
}

#endif
