/*
 * Counts what is allocated per operation in steady state: this program's malloc() and friends stand
 * in front of the C library's, for the libraries too. Two counts: calls made by libhawser itself,
 * and all (UCX has pools of its own that grow now and then).
 */
#include "bench.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static void *(*real_aligned_alloc)(size_t, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);

static uintptr_t hawser_low, hawser_high; /* the code of libhawser, as good as we can know it */
static _Atomic bool counting;
static _Atomic uint64_t by_hawser, by_all;

/* dlsym() itself may call calloc(): what it gets comes from here and is never given back. */
static _Alignas(16) char early[4096];
static size_t early_used;

static void *early_take(size_t size)
{
    void *p = early + early_used;

    early_used += (size + 15) & ~(size_t)15;
    if (early_used > sizeof early) {
        abort();
    }
    return p;
}

static bool finding;

static void find_real(void)
{
    finding = true;
    *(void **)&real_malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&real_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&real_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    *(void **)&real_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    *(void **)&real_free = dlsym(RTLD_NEXT, "free");
    *(void **)&real_calloc = dlsym(RTLD_NEXT, "calloc");
    finding = false;
}

static void count(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;

    if (atomic_load_explicit(&counting, memory_order_relaxed)) {
        atomic_fetch_add(&by_all, 1);
        if (at >= hawser_low && at < hawser_high) {
            atomic_fetch_add(&by_hawser, 1);
        }
    }
}

void *malloc(size_t size)
{
    if (real_malloc == NULL) {
        find_real();
    }
    count(__builtin_return_address(0));
    return real_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    if (finding) {
        return early_take(n * size);
    }
    if (real_calloc == NULL) {
        find_real();
    }
    count(__builtin_return_address(0));
    return real_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    if (real_realloc == NULL) {
        find_real();
    }
    count(__builtin_return_address(0));
    return real_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    if (real_aligned_alloc == NULL) {
        find_real();
    }
    count(__builtin_return_address(0));
    return real_aligned_alloc(alignment, size);
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
    if (real_posix_memalign == NULL) {
        find_real();
    }
    count(__builtin_return_address(0));
    return real_posix_memalign(p, alignment, size);
}

void free(void *p)
{
    if ((char *)p >= early && (char *)p < early + sizeof early) {
        return;
    }
    if (real_free == NULL) {
        find_real();
    }
    real_free(p);
}

/* The mapped range of the library that a function of it lies in. */
static void find_hawser(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[1024];

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long low, high;

        if (strstr(line, "libhawser.so") != NULL && sscanf(line, "%lx-%lx", &low, &high) == 2) {
            hawser_low = hawser_low == 0 ? low : hawser_low;
            hawser_high = high;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
}

/* ---- the operations that are counted --------------------------------------------------------- */

#define ROUND 16

struct run {
    bench_pair pair;
    hws_id queue;
    char *out, *in;
    uint64_t size;
    int arrived;
};

static void on_arrived(void *arg, const hws_event *event)
{
    struct run *r = arg;
    const hws_am_detail *detail = event->detail;

    if (event->status == 0 && (event->flags & HWS_EVENT_FLAG_BUFFER) != 0) {
        hws_close(detail->buffer);
    }
    r->arrived++;
}

static void settle(hws_id *ops, int count)
{
    for (int i = 0; i < count; i++) {
        if (ops[i] != 0) {
            bench_check(hws_wait(ops[i], 10 * BENCH_SECOND, NULL), "waiting");
        }
    }
}

/* ROUND messages with hws_wait(). */
static void by_wait(struct run *r)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE};
    hws_id sends[ROUND] = {0}, receives[ROUND] = {0};

    for (int i = 0; i < ROUND; i++) {
        bench_check(hws_tag_recv(r->pair.right, r->in, r->size, 1, UINT64_MAX, &opts, &receives[i]),
                    "receiving");
        bench_check(hws_tag_send(r->pair.left, r->out, r->size, 1, &opts, &sends[i]), "sending");
    }
    settle(receives, ROUND);
    settle(sends, ROUND);
}

/* The same through a queue. */
static void by_queue(struct run *r)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .queue = r->queue};
    hws_event events[ROUND];
    int left = 2 * ROUND;
    hws_id op;

    for (int i = 0; i < ROUND; i++) {
        bench_check(hws_tag_recv(r->pair.right, r->in, r->size, 1, UINT64_MAX, &opts, &op),
                    "receiving");
        bench_check(hws_tag_send(r->pair.left, r->out, r->size, 1, &opts, &op), "sending");
    }
    while (left > 0) {
        left -= bench_check(hws_queue_pop(r->queue, events, ROUND, BENCH_SECOND), "popping");
    }
}

static void by_stream(struct run *r)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE};
    hws_op_opts all = {.struct_size = sizeof all, .flags = HWS_OP_INLINE | HWS_OP_WAIT_ALL};
    hws_id sends[ROUND] = {0}, receives[ROUND] = {0};

    for (int i = 0; i < ROUND; i++) {
        bench_check(hws_stream_send(r->pair.left, r->out, r->size, &opts, &sends[i]), "sending");
        bench_check(hws_stream_recv(r->pair.right, r->in, r->size, &all, &receives[i]),
                    "receiving");
    }
    settle(receives, ROUND);
    settle(sends, ROUND);
}

static void by_message(struct run *r)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE | HWS_OP_EAGER};
    hws_id sends[ROUND] = {0};
    uint64_t header = 1;

    r->arrived = 0;
    for (int i = 0; i < ROUND; i++) {
        bench_check(
            hws_am_send(r->pair.left, 3, &header, sizeof header, r->out, r->size, &opts, &sends[i]),
            "sending");
    }
    while (r->arrived < ROUND) {
        bench_check(hws_worker_wait(r->pair.worker, BENCH_SECOND), "waiting");
    }
    settle(sends, ROUND);
}

static void measure(struct run *r, const char *name, void (*work)(struct run *), uint64_t rounds)
{
    static bool first = true;
    uint64_t operations = rounds * ROUND * 2;

    for (uint64_t i = 0; i < rounds / 4 + 100; i++) {
        work(r);
    }
    by_hawser = by_all = 0;
    counting = true;
    for (uint64_t i = 0; i < rounds; i++) {
        work(r);
    }
    counting = false;
    printf("%s\"%s %llu B\": {\"operations\": %llu, \"hawser\": %llu, \"all\": %llu}",
           first ? "" : ", ", name, (unsigned long long)r->size, (unsigned long long)operations,
           (unsigned long long)by_hawser, (unsigned long long)by_all);
    first = false;
}

int main(int argc, char **argv)
{
    static const uint64_t sizes[] = {8, 4096, 65536};
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    struct run r = {.out = calloc(1, 65536), .in = calloc(1, 65536)};
    hws_am_opts am = {.struct_size = sizeof am,
                      .sink = {.callback = on_arrived, .callback_arg = &r}};

    if (r.out == NULL || r.in == NULL || rounds == 0) {
        fputs("Usage: allocs [ROUNDS]\n", stderr);
        return 2;
    }
    bench_pair_open(&r.pair, HWS_PROGRESS_MANUAL, 0);
    bench_check(hws_queue_open(NULL, &r.queue), "opening a queue");
    bench_check(hws_am_handler(r.pair.worker, 3, &am), "setting a handler");
    find_hawser();
    putchar('{');
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        r.size = sizes[i];
        measure(&r, "tag, wait", by_wait, rounds);
        measure(&r, "tag, queue", by_queue, rounds);
        measure(&r, "stream", by_stream, rounds);
        measure(&r, "active message", by_message, rounds);
    }
    puts("}");
    bench_pair_close(&r.pair);
    return 0;
}
