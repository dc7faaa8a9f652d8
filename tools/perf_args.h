/*
 * Command lines of children, word by word.
 */
#ifndef HAWSER_PERF_ARGS_H
#define HAWSER_PERF_ARGS_H

#include "perf.h"

#define PERF_ARGS_MAX 64

typedef struct perf_args {
    char *words[PERF_ARGS_MAX + 1]; /* null at the end, as execv() wants it */
    uint32_t count;
    bool failed; /* no memory: nothing must be run */
} perf_args;

void perf_args_add(perf_args *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void perf_args_test(perf_args *a, const perf_options *o, bool raw);
void perf_args_free(perf_args *a);

#endif
