/*
 * Multi-buffer messages against one active message of as many bytes, in turns, between two
 * processes.
 *
 *   multi latency|read|bandwidth ROUNDS COUNT [tcp]
 *
 * latency: 10 x 100 B against 1 kB, half a round trip; read: the same, and whoever receives a message
 * reads its data before it answers. bandwidth: 64 x 1 MiB against 64 MiB, both fetched into memory that
 * is there and answered by a short message. Prints the median ns of one message, a value of each kind a
 * round.
 */
#include "bench.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define PIECES 64
#define SMALL 10
#define AM 7
#define AM_ANSWER 8
#define TAG 1

static const hws_op_opts forget = {.struct_size = sizeof(hws_op_opts),
                                   .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
static hws_id context, worker, peer;
static char *from, *to;
static hws_segment out[PIECES], in[PIECES];
static int latency, reading, serving, answers;
static volatile uint64_t seen; /* of the data that was read */

static void read_data(const void *data, uint64_t length)
{
    const char *at = data;
    uint64_t sum = 0, word;

    for (uint64_t i = 0; reading && i + sizeof word <= length; i += sizeof word) {
        memcpy(&word, at + i, sizeof word);
        sum += word;
    }
    seen = sum;
}

static void answer(void)
{
    hws_id op;

    bench_check(hws_am_send(peer, AM_ANSWER, NULL, 0, from, 8, &forget, &op), "sending");
}

static void send_am(void)
{
    hws_id op;

    bench_check(
        hws_am_send(peer, AM, NULL, 0, from, latency ? 100 * SMALL : PIECES * MIB, &forget, &op),
        "sending");
}

static void send_multi(void)
{
    hws_id op;

    bench_check(hws_multi_send(peer, TAG, out, latency ? SMALL : PIECES, NULL, &forget, &op),
                "sending");
}

static void on_multi(void *arg, const hws_event *event);

static void receive_multi(void)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_multi};
    hws_multi_recv_opts list = {.struct_size = sizeof list, .flags = latency ? 0 : HWS_MULTI_LIST};
    hws_id op;

    bench_check(hws_multi_recv(peer, TAG, UINT64_MAX, &list, &opts, &op), "receiving");
}

static void on_fetched(void *arg, const hws_event *event)
{
    (void)arg;
    bench_check(event->status, "fetching");
    if (event->kind == HWS_EVENT_AM_RECV) {
        hws_close((hws_id)event->user);
    } else {
        receive_multi();
    }
    answer();
}

static void on_multi(void *arg, const hws_event *event)
{
    const hws_multi_detail *detail = event->detail;
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_fetched};
    hws_id op;

    (void)arg;
    if (event->status < 0) {
        return; /* the peer has left */
    }
    if (!latency) {
        bench_check(hws_multi_fetch(detail->buffer, in, PIECES, &opts, &op), "fetching");
        return;
    }
    for (uint64_t i = 0; reading && i < detail->count; i++) {
        read_data(detail->segments[i].base, detail->segments[i].length);
    }
    if (serving) {
        send_multi();
    }
    hws_close(detail->buffer);
    receive_multi();
    answers++;
}

static void on_am(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_fetched, .user = detail->buffer};
    hws_id op;

    (void)arg;
    if (event->tag == AM && !latency) {
        bench_check(hws_am_recv(detail->buffer, to, PIECES * MIB, &opts, &op), "fetching");
        return;
    }
    read_data(detail->data, detail->data_length);
    if (event->tag == AM && serving) {
        send_am();
    }
    answers++;
}

static void on_peer(void *arg, const hws_event *event)
{
    (void)arg;
    if (event->kind == HWS_EVENT_ACCEPTED) {
        peer = event->source;
        receive_multi();
    } else if (event->kind == HWS_EVENT_DISCONNECTED) {
        _exit(0);
    }
}

static void open_worker(void)
{
    hws_am_opts am = {
        .struct_size = sizeof am, .flags = latency ? 0 : HWS_AM_DEFER, .sink = {.callback = on_am}};

    bench_check(hws_context_open(NULL, &context), "opening a context");
    bench_check(hws_worker_open(context, NULL, &worker), "opening a worker");
    bench_check(hws_am_handler(worker, AM, &am), "setting a handler");
    am.flags = 0;
    bench_check(hws_am_handler(worker, AM_ANSWER, &am), "setting a handler");
}

static void serve(int say)
{
    hws_listener_opts opts = {.struct_size = sizeof opts,
                              .sink = {.callback = on_peer},
                              .endpoint_sink = {.callback = on_peer}};
    hws_listener_info info = {.struct_size = sizeof info};
    hws_id listener;

    serving = 1;
    open_worker();
    bench_check(hws_listen(worker, "127.0.0.1", 0, &opts, &listener), "listening");
    bench_check(hws_listener_query(listener, &info), "asking for the port");
    if (write(say, &info.port, sizeof info.port) != sizeof info.port) {
        exit(1);
    }
    for (;;) {
        hws_worker_progress(worker);
    }
}

/* The median time of one exchange, in ns. */
static double median(void (*fn)(void), uint64_t count, uint64_t *times)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t start = bench_now_ns();
        int before = answers;

        fn();
        while (answers == before) {
            hws_worker_progress(worker);
        }
        times[i] = bench_now_ns() - start;
    }
    return (double)bench_percentile(times, count, 50) / (latency ? 2 : 1);
}

static void dial(uint32_t port, int tcp)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts, .flags = tcp ? HWS_ENDPOINT_TCP_ONLY : 0};
    hws_id op;

    open_worker();
    bench_check(hws_connect(worker, "127.0.0.1", (uint16_t)port, &opts, NULL, &peer, &op),
                "connecting");
    bench_check(hws_wait(op, 10 * BENCH_SECOND, NULL), "connecting");
    receive_multi();
}

static void measure(uint64_t rounds, uint64_t count, uint64_t *times)
{
    hws_endpoint_info info = {.struct_size = sizeof info};

    median(send_am, count / 10 + 1, times);
    median(send_multi, count / 10 + 1, times);
    bench_check(hws_endpoint_query(peer, &info), "asking for the lanes");
    printf("{\"lanes\": \"%s\", \"rounds\": [", info.lanes);
    for (uint64_t i = 0; i < rounds; i++) {
        double am = median(send_am, count, times);

        printf("%s{\"am_ns\": %.1f, \"multi_ns\": %.1f}", i == 0 ? "" : ", ", am,
               median(send_multi, count, times));
    }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 3 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t count = argc > 3 ? strtoull(argv[3], NULL, 10) : 0, *times;
    uint32_t port;
    int pipes[2];
    pid_t child;

    if (rounds == 0 || count == 0 || pipe(pipes) != 0) {
        fprintf(stderr, "usage: multi latency|read|bandwidth ROUNDS COUNT [tcp]\n");
        return 2;
    }
    reading = strcmp(argv[1], "read") == 0;
    latency = reading || strcmp(argv[1], "latency") == 0;
    from = calloc(PIECES, MIB);
    to = calloc(PIECES, MIB);
    times = calloc(count, sizeof *times);
    if (from == NULL || to == NULL || times == NULL) {
        return 1;
    }
    memset(from, 1, PIECES * MIB);
    memset(to, 2, PIECES * MIB);
    for (uint64_t i = 0; i < PIECES; i++) {
        uint64_t length = latency ? 100 : MIB;

        out[i] = (hws_segment){.base = from + i * length, .length = length};
        in[i] = (hws_segment){.base = to + i * length, .length = length};
    }
    if ((child = fork()) == 0) {
        serve(pipes[1]);
    }
    if (child < 0 || read(pipes[0], &port, sizeof port) != sizeof port) {
        return 1;
    }
    dial(port, argc > 4);
    measure(rounds, count, times);
    hws_close_wait(context, 10 * BENCH_SECOND);
    kill(child, SIGTERM);
    waitpid(child, NULL, 0);
    free(from);
    free(to);
    free(times);
    return 0;
}
