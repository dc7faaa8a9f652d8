/*
 * Options of `hawser perf` that are words, and the values of those that have one.
 */
#ifndef HAWSER_PERF_VALUES_H
#define HAWSER_PERF_VALUES_H

#include "perf.h"

enum {
    OPT_SELF = 256,
    OPT_COMPARE,
    OPT_MODE,
    OPT_PAUSE,
    OPT_TCP,
    OPT_RAW,
    OPT_PERCENTILES,
    OPT_JSON,
    OPT_PORT_FD
};

/* Take the value of an option: 0, or the exit code to leave with. */
int perf_value(perf_options *o, int letter, const char *value);

/* A whole number within bounds. */
bool perf_value_number(const char *text, uint64_t low, uint64_t high, uint64_t *out);

#endif
