/*
 * A fixed number of messages inside the function measured(), for callgrind to count instructions
 * (--toggle-collect=measured). raw_ucx_instructions.c does the same without Hawser.
 *
 *     instructions [tag|callback|am] [COUNT] [hello]
 *
 * One process, manual mode, a worker connected to its own address, without a hello; by shared memory, since UCX has
 * no peer error handling over its self transport. With "hello": usual endpoints by a listener.
 */
#include "bench.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG 9
#define AM_ID 5
/* More messages than UCX workers without work are swept for: those that only began the connection rest then. */
#define WARM_UP 20000

struct test {
    bench_pair pair;
    uint64_t out, in;
    uint64_t arrived;
};

static void on_event(void *arg, const hws_event *event)
{
    struct test *t = arg;

    t->arrived += event->status == HWS_OK;
}

/* A receive and a send; their ends are waited for. */
static void tag_wait(struct test *t)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE};
    hws_id receive, send;
    int32_t r, s;

    r = hws_tag_recv(t->pair.right, &t->in, sizeof t->in, TAG, UINT64_MAX, &opts, &receive);
    s = hws_tag_send(t->pair.left, &t->out, sizeof t->out, TAG, &opts, &send);
    bench_check(r == HWS_OK ? hws_wait(receive, HWS_FOREVER, NULL) : r, "receiving");
    bench_check(s == HWS_OK ? hws_wait(send, HWS_FOREVER, NULL) : s, "sending");
}

/* The same, told of by a callback. */
static void tag_callback(struct test *t)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_event, .callback_arg = t};
    hws_op_opts done = {.struct_size = sizeof done, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    uint64_t before = t->arrived;

    bench_check(hws_tag_recv(t->pair.right, &t->in, sizeof t->in, TAG, UINT64_MAX, &opts, NULL),
                "receiving");
    bench_check(hws_tag_send(t->pair.left, &t->out, sizeof t->out, TAG, &done, NULL), "sending");
    while (t->arrived == before) {
        hws_worker_progress(t->pair.worker);
    }
}

static void am(struct test *t)
{
    hws_op_opts done = {.struct_size = sizeof done, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    uint64_t before = t->arrived;

    bench_check(hws_am_send(t->pair.left, AM_ID, NULL, 0, &t->out, sizeof t->out, &done, NULL),
                "sending");
    while (t->arrived == before) {
        hws_worker_progress(t->pair.worker);
    }
}

/* Both sides are one endpoint: without a hello there is no other. */
static void open_to_itself(bench_pair *pair)
{
    hws_endpoint_opts raw = {.struct_size = sizeof raw, .flags = HWS_ENDPOINT_RAW};
    uint32_t flags = HWS_ADDRESS_UNSAFE_SHARED_MEMORY;
    unsigned char address[4096];
    uint64_t length = 0;
    hws_id op;

    bench_check(hws_context_open(NULL, &pair->context), "opening a context");
    bench_check(hws_worker_open(pair->context, NULL, &pair->worker), "opening a worker");
    bench_check(hws_worker_address(pair->worker, flags, address, sizeof address, &length),
                "asking for the address");
    bench_check(hws_connect_address(pair->worker, address, length, &raw, NULL, &pair->left, &op),
                "connecting");
    bench_check(hws_wait(op, 10 * BENCH_SECOND, NULL), "connecting");
    pair->right = pair->left;
    pair->info.struct_size = sizeof pair->info;
    hws_endpoint_query(pair->left, &pair->info);
}

void measured(struct test *t, void (*one)(struct test *), uint64_t count);

__attribute__((noinline)) void measured(struct test *t, void (*one)(struct test *), uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        one(t);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "tag";
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
    void (*one)(struct test *) = strcmp(what, "am") == 0         ? am
                                 : strcmp(what, "callback") == 0 ? tag_callback
                                                                 : tag_wait;
    struct test t = {0};
    hws_am_opts handler = {.struct_size = sizeof handler,
                           .sink = {.callback = on_event, .callback_arg = &t}};

    if (argc > 3) {
        bench_pair_open(&t.pair, HWS_PROGRESS_MANUAL, 0);
    } else {
        open_to_itself(&t.pair);
    }
    bench_check(hws_am_handler(t.pair.worker, AM_ID, &handler), "setting a handler");
    for (uint64_t i = 0; i < WARM_UP; i++) {
        one(&t);
    }
    measured(&t, one, count);
    printf("{\"what\": \"%s\", \"count\": %llu, \"lanes\": \"%s\"}\n", what,
           (unsigned long long)count, t.pair.info.lanes);
    bench_pair_close(&t.pair);
    return 0;
}
