/*
 * Time in nanoseconds of the monotonic clock.
 */
#ifndef HWS_CORE_TIME_H
#define HWS_CORE_TIME_H

#include <stdint.h>
#include <time.h>

static inline uint64_t hws__now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/** The end of a span that may be endless. */
static inline uint64_t hws__deadline(uint64_t now, uint64_t timeout_ns)
{
    return timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

/** What is left until `end`. */
static inline uint64_t hws__left(uint64_t end)
{
    uint64_t now = end == UINT64_MAX ? 0 : hws__now();

    return end == UINT64_MAX ? UINT64_MAX : end > now ? end - now : 0;
}

#endif
