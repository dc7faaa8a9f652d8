/*
 * What the benchmark programs share. Each prints one JSON object; bench/run.py makes the table.
 */
#ifndef HAWSER_BENCH_H
#define HAWSER_BENCH_H

#include <hawser.h>

#include <stdint.h>

#define BENCH_SECOND UINT64_C(1000000000)

/** One process connected to itself: what `left` sends `right` receives, and the other way round. */
typedef struct bench_pair {
    hws_id context, worker, listener;
    hws_id left, right;
    hws_endpoint_info info; /* of `left` */
} bench_pair;

/** Leave with a text if a call of the library failed. */
int32_t bench_check(int32_t code, const char *what);

/** endpoint_flags: HWS_ENDPOINT_*. */
void bench_pair_open(bench_pair *pair, uint32_t mode, uint32_t endpoint_flags);
void bench_pair_close(bench_pair *pair);

uint64_t bench_now_ns(void);

/** Sorts the values; the one at a rank of 0 to 100. */
uint64_t bench_percentile(uint64_t *values, uint64_t count, double rank);

#endif
