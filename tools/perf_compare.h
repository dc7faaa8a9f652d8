/*
 * A comparison with ucx_perftest: the figures of its rounds, and what is made of them.
 */
#ifndef HAWSER_PERF_COMPARE_H
#define HAWSER_PERF_COMPARE_H

#include "perf_json.h"

/** One round's figures. */
struct perf_round {
    perf_result ours, raw;
};

struct perf_comparison {
    const perf_options *o;
    perf_raw raw;
    json_t *setting; /* what our first run printed */
    struct perf_round *rounds;
};

/* perf_table.c */
void perf_table_head(const struct perf_comparison *c);
void perf_table_round(const struct perf_comparison *c, uint32_t i);
void perf_table_summary(const struct perf_comparison *c);
void perf_table_json(struct perf_comparison *c);

#endif
