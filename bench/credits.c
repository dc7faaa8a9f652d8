/*
 * The rate of messages of 8 bytes with credits and without, in turns, between two processes.
 *
 *   credits ROUNDS COUNT [tcp] [swapped]
 *
 * The server has a worker with the default window and one without limit; a connection leads to each. Which
 * of the two is opened first moves the ratio by up to 6 %, as where their memory lies does: swapped, it is
 * the one without limit.
 * Tagged messages, receives posted ahead; a round ends with a short message back. Prints messages a
 * second, both ways, a value of each a round, and how many sends waited for credit.
 */
#include "bench.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define AHEAD 128u
#define UNDER_WAY 256u
#define TAG 1
#define DONE 2
#define START 3

/* One connection; the same on both sides. */
struct lane {
    hws_id worker, peer;
    uint64_t left; /* messages of the round, the server's */
    uint64_t pending;
    int done;
};

static struct lane lanes[2];
static int limited; /* the index of the lane with credits */
static hws_id context;

static void reply(struct lane *lane, uint64_t tag, uint64_t value)
{
    const hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    static uint64_t kept[2];
    uint64_t *at = &kept[lane - lanes];
    hws_id op;

    *at = value;
    bench_check(hws_am_send(lane->peer, (uint32_t)tag, NULL, 0, at, sizeof *at, &opts, &op),
                "sending");
}

static void receive(struct lane *lane);

static void on_received(void *arg, const hws_event *event)
{
    struct lane *lane = arg;

    if (event->status < 0) {
        return; /* the peer has left */
    }
    if (--lane->left == 0) {
        reply(lane, DONE, 0);
    }
    receive(lane);
}

static void receive(struct lane *lane)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_received, .callback_arg = lane};
    static char in[8];
    hws_id op;

    bench_check(hws_tag_recv(lane->peer, in, sizeof in, TAG, UINT64_MAX, &opts, &op), "receiving");
}

static void on_start(void *arg, const hws_event *event)
{
    struct lane *lane = arg;

    memcpy(&lane->left, ((const hws_am_detail *)event->detail)->data, sizeof lane->left);
    reply(lane, START, 0);
}

static void on_flag(void *arg, const hws_event *event)
{
    (void)event;
    ((struct lane *)arg)->done = 1;
}

static void on_peer(void *arg, const hws_event *event)
{
    struct lane *lane = arg;

    if (event->kind == HWS_EVENT_ACCEPTED) {
        lane->peer = event->source;
        for (unsigned i = 0; i < AHEAD; i++) {
            receive(lane);
        }
    } else if (event->kind == HWS_EVENT_DISCONNECTED) {
        _exit(0);
    }
}

static void open_lane(struct lane *lane, int server)
{
    hws_worker_opts opts = {.struct_size = sizeof opts,
                            .credit_messages = lane == &lanes[limited] ? 0 : UINT32_MAX};
    hws_am_opts am = {.struct_size = sizeof am,
                      .sink = {.callback = server ? on_start : on_flag, .callback_arg = lane}};

    bench_check(hws_worker_open(context, &opts, &lane->worker), "opening a worker");
    bench_check(hws_am_handler(lane->worker, START, &am), "setting a handler");
    am.sink.callback = on_flag;
    bench_check(hws_am_handler(lane->worker, DONE, &am), "setting a handler");
}

static void serve(int say)
{
    bench_check(hws_context_open(NULL, &context), "opening a context");
    for (int i = 0; i < 2; i++) {
        struct lane *lane = &lanes[i];
        hws_listener_opts opts = {.struct_size = sizeof opts,
                                  .sink = {.callback = on_peer, .callback_arg = lane},
                                  .endpoint_sink = {.callback = on_peer, .callback_arg = lane}};
        hws_listener_info info = {.struct_size = sizeof info};
        hws_id listener;

        open_lane(lane, 1);
        bench_check(hws_listen(lane->worker, "127.0.0.1", 0, &opts, &listener), "listening");
        bench_check(hws_listener_query(listener, &info), "asking for the port");
        if (write(say, &info.port, sizeof info.port) != sizeof info.port) {
            exit(1);
        }
    }
    /* The lane of the round gets nearly all the time. */
    for (;;) {
        for (int i = 0; i < 2; i++) {
            do {
                hws_worker_progress(lanes[i].worker);
            } while (lanes[i].left != 0);
        }
    }
}

static void on_sent(void *arg, const hws_event *event)
{
    (void)event;
    ((struct lane *)arg)->pending--;
}

static void wait_for(struct lane *lane)
{
    while (!lane->done) {
        hws_worker_progress(lane->worker);
    }
    lane->done = 0;
}

/* Messages a second. */
static double run(struct lane *lane, uint64_t count)
{
    hws_op_opts opts = {.struct_size = sizeof opts,
                        .flags = HWS_OP_INLINE,
                        .callback = on_sent,
                        .callback_arg = lane};
    static char out[8];
    uint64_t start;
    hws_id op;

    reply(lane, START, count);
    wait_for(lane);
    start = bench_now_ns();
    for (uint64_t i = 0; i < count; i++) {
        lane->pending += bench_check(hws_tag_send(lane->peer, out, sizeof out, TAG, &opts, &op),
                                     "sending") == HWS_OK;
        while (lane->pending >= UNDER_WAY) {
            hws_worker_progress(lane->worker);
        }
    }
    wait_for(lane);
    return (double)count * 1e9 / (double)(bench_now_ns() - start);
}

static void dial(struct lane *lane, uint32_t port, int tcp)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts, .flags = tcp ? HWS_ENDPOINT_TCP_ONLY : 0};
    hws_id op;

    open_lane(lane, 0);
    bench_check(
        hws_connect(lane->worker, "127.0.0.1", (uint16_t)port, &opts, NULL, &lane->peer, &op),
        "connecting");
    bench_check(hws_wait(op, 10 * BENCH_SECOND, NULL), "connecting");
}

static void measure(uint64_t rounds, uint64_t count)
{
    hws_stats stats = {.struct_size = sizeof stats};

    run(&lanes[0], count / 10 + 1);
    run(&lanes[1], count / 10 + 1);
    printf("{\"rounds\": [");
    for (uint64_t i = 0; i < rounds; i++) {
        /* Whoever is first changes, so that a trend falls on both. */
        double rates[2];

        rates[i % 2] = run(&lanes[i % 2], count);
        rates[1 - i % 2] = run(&lanes[1 - i % 2], count);
        printf("%s{\"on\": %.0f, \"off\": %.0f}", i == 0 ? "" : ", ", rates[limited],
               rates[1 - limited]);
    }
    bench_check(hws_stats_get(context, &stats), "asking for statistics");
    printf("], \"waits\": %llu}\n", (unsigned long long)stats.credit_waits);
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 2 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint32_t ports[2];
    int pipes[2];
    pid_t child;
    int tcp = 0;

    for (int i = 3; i < argc; i++) {
        tcp |= strcmp(argv[i], "tcp") == 0;
        limited |= strcmp(argv[i], "swapped") == 0;
    }
    if (rounds == 0 || count == 0 || pipe(pipes) != 0) {
        fprintf(stderr, "usage: credits ROUNDS COUNT [tcp] [swapped]\n");
        return 2;
    }
    if ((child = fork()) == 0) {
        serve(pipes[1]);
    }
    if (child < 0 || read(pipes[0], &ports[0], sizeof ports[0]) != sizeof ports[0] ||
        read(pipes[0], &ports[1], sizeof ports[1]) != sizeof ports[1]) {
        return 1;
    }
    bench_check(hws_context_open(NULL, &context), "opening a context");
    for (int i = 0; i < 2; i++) {
        dial(&lanes[i], ports[i], tcp);
    }
    measure(rounds, count);
    hws_close_wait(context, 10 * BENCH_SECOND);
    kill(child, SIGTERM);
    waitpid(child, NULL, 0);
    return 0;
}
