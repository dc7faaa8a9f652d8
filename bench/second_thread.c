/*
 * How long it takes from posting a send to its receipt, in one process: posted by the thread that
 * makes progress itself (manual mode), and by a second thread while the library's progress thread
 * spins on another core (thread-polling mode). The difference is the price of the hand-over.
 */
#include "bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define WARMUP 2000
#define TAG 7

static void on_received(void *arg, const hws_event *event)
{
    _Atomic int *done = arg;

    atomic_store_explicit(done, event->status < 0 ? event->status : 1, memory_order_release);
}

/* One message from left to right; ns from the call to the callback. */
static uint64_t one(const bench_pair *pair, int manual)
{
    uint64_t in = 0, out = 1, start;
    _Atomic int done = 0;
    hws_op_opts receive = {
        .struct_size = sizeof receive, .callback = on_received, .callback_arg = &done};
    hws_op_opts send = {.struct_size = sizeof send, .flags = HWS_OP_INLINE};
    hws_id op = 0;
    int32_t r;

    bench_check(hws_tag_recv(pair->right, &in, sizeof in, TAG, UINT64_MAX, &receive, NULL),
                "receiving");
    start = bench_now_ns();
    r = bench_check(hws_tag_send(pair->left, &out, sizeof out, TAG, &send, &op), "sending");
    while (atomic_load_explicit(&done, memory_order_acquire) == 0) {
        if (manual) {
            hws_worker_progress(pair->worker);
        }
    }
    start = bench_now_ns() - start;
    if (r == HWS_OK) {
        bench_check(hws_wait(op, BENCH_SECOND, NULL), "sending");
    }
    bench_check(atomic_load(&done), "receiving");
    return start;
}

static void run(uint32_t mode, const char *name, uint64_t count, uint64_t *ns)
{
    bench_pair pair = {0};

    bench_pair_open(&pair, mode, 0);
    for (uint64_t i = 0; i < WARMUP; i++) {
        one(&pair, mode == HWS_PROGRESS_MANUAL);
    }
    for (uint64_t i = 0; i < count; i++) {
        ns[i] = one(&pair, mode == HWS_PROGRESS_MANUAL);
    }
    printf("\"%s\": {\"p50_ns\": %llu, \"p99_ns\": %llu}", name,
           (unsigned long long)bench_percentile(ns, count, 50),
           (unsigned long long)bench_percentile(ns, count, 99));
    bench_pair_close(&pair);
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    uint64_t *ns = count != 0 ? calloc(count, sizeof *ns) : NULL;

    if (ns == NULL) {
        fputs("Usage: second_thread [COUNT]\n", stderr);
        return 2;
    }
    putchar('{');
    run(HWS_PROGRESS_MANUAL, "manual", count, ns);
    fputs(", ", stdout);
    run(HWS_PROGRESS_THREAD_POLLING, "second_thread", count, ns);
    puts("}");
    free(ns);
    return 0;
}
