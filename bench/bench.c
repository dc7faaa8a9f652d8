#include "bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int32_t bench_check(int32_t code, const char *what)
{
    if (code < 0) {
        hws_error error = {.struct_size = sizeof error};

        hws_last_error(&error);
        fprintf(stderr, "%s: %s (%s)\n", what,
                error.code == code ? error.text : hws_error_text(code), hws_error_name(code));
        exit(1);
    }
    return code;
}

uint64_t bench_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * BENCH_SECOND + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

uint64_t bench_percentile(uint64_t *values, uint64_t count, double rank)
{
    uint64_t i = (uint64_t)(rank / 100.0 * (double)count);

    qsort(values, count, sizeof *values, compare);
    return values[i < count ? i : count - 1];
}

/* Runs on whatever thread makes progress. */
static void on_listener(void *arg, const hws_event *event)
{
    _Atomic hws_id *right = arg;

    if (event->kind == HWS_EVENT_ACCEPTED) {
        atomic_store(right, event->source);
    }
}

void bench_pair_open(bench_pair *pair, uint32_t mode, uint32_t endpoint_flags)
{
    hws_worker_opts worker = {.struct_size = sizeof worker, .mode = mode, .spin_ns = UINT64_MAX};
    hws_endpoint_opts endpoint = {.struct_size = sizeof endpoint, .flags = endpoint_flags};
    hws_listener_info where = {.struct_size = sizeof where};
    _Atomic hws_id right = 0;
    hws_listener_opts listener = {.struct_size = sizeof listener,
                                  .flags = HWS_LISTENER_RAW,
                                  .sink = {.callback = on_listener, .callback_arg = &right}};
    hws_id op;

    bench_check(hws_context_open(NULL, &pair->context), "opening a context");
    bench_check(hws_worker_open(pair->context, &worker, &pair->worker), "opening a worker");
    bench_check(hws_listen(pair->worker, "127.0.0.1", 0, &listener, &pair->listener), "listening");
    bench_check(hws_listener_query(pair->listener, &where), "asking for the port");
    bench_check(hws_connect(pair->worker, "127.0.0.1", (uint16_t)where.port, &endpoint, NULL,
                            &pair->left, &op),
                "connecting");
    bench_check(hws_wait(op, 10 * BENCH_SECOND, NULL), "connecting");
    while (atomic_load(&right) == 0) {
        hws_worker_progress(pair->worker); /* BUSY where a thread of the library is at it */
    }
    pair->right = atomic_load(&right);
    pair->info.struct_size = sizeof pair->info;
    hws_endpoint_query(pair->left, &pair->info);
}

void bench_pair_close(bench_pair *pair)
{
    hws_close_wait(pair->context, 10 * BENCH_SECOND);
}
