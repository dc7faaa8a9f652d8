/*
 * What a process uses: memory, descriptors, time of the processor.
 */
#ifndef HAWSER_BENCH_USAGE_H
#define HAWSER_BENCH_USAGE_H

#include <stdint.h>

typedef struct bench_usage {
    uint64_t rss; /* bytes; shared memory counts in full */
    uint64_t pss; /* bytes; shared memory counts by its share: what both processes use adds up */
    uint64_t fds;
    uint64_t cpu_ns; /* all threads, user and system */
    uint64_t now_ns;
} bench_usage;

void bench_usage_get(bench_usage *u);

#endif
