/*
 * Completion queues: the descriptor, the places, what does not fit, and the end.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALL UINT64_MAX

static hws_id open_queue(uint32_t capacity)
{
    hws_queue_opts opts = {.struct_size = sizeof(opts), .capacity = capacity};
    hws_id queue = 0;

    CHECK_OK(hws_queue_open(&opts, &queue));
    CHECK_EQ(hws_kind(queue), HWS_KIND_QUEUE);
    return queue;
}

static int readable(hws_id queue)
{
    int32_t fd = -1;

    CHECK_OK(hws_queue_fd(queue, &fd));
    CHECK(fd >= 0);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int n = poll(&ready, 1, 0);
    CHECK(n >= 0);
    CHECK_EQ(ready.revents & (POLLERR | POLLNVAL), 0);
    return n == 1;
}

static int32_t recv_into(hws_id queue, hws_id source, void *buffer, uint64_t user, hws_id *op)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .queue = queue, .user = user};

    return hws_tag_recv(source, buffer, 8, 1, ALL, &opts, op);
}

static void send_some(t_pair *pair, int count)
{
    static uint64_t value;
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_DETACHED};

    for (int i = 0; i < count; i++) {
        CHECK_OK(hws_tag_send(pair->endpoint[0], &value, 8, 1, &opts, NULL));
    }
}

/* Progress without touching the queue. */
static void delivered(t_pair *pair, uint64_t events)
{
    UNTIL(pair, t_stats(pair->worker[1]).events >= events);
}

CASE(descriptor_is_readable_exactly_while_there_are_events)
{
    t_pair pair;
    hws_id queue = open_queue(0), op = 0;
    hws_event events[8];
    uint64_t buffers[6], before;
    int32_t fd = -1;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_queue_fd(queue, &fd));
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    for (int round = 0; round < 20; round++) {
        CHECK(!readable(queue));
        for (uint64_t i = 0; i < 6; i++) {
            CHECK_OK(recv_into(queue, pair.endpoint[1], &buffers[i], i, &op));
        }
        CHECK(!readable(queue));
        before = t_stats(pair.worker[1]).events;
        send_some(&pair, 6);
        delivered(&pair, before + 6);
        CHECK(readable(queue));
        CHECK_EQ(hws_queue_pop(queue, events, 1, 0), 1);
        CHECK_EQ(events[0].user, 0);
        CHECK(readable(queue));
        CHECK_EQ(hws_queue_pop(queue, events, 4, 0), 4);
        CHECK_EQ(events[3].user, 4);
        CHECK(readable(queue));
        CHECK_EQ(hws_queue_pop(queue, events, 8, 0), 1);
        CHECK_EQ(events[0].user, 5);
        CHECK(!readable(queue));
        CHECK_EQ(hws_queue_pop(queue, events, 8, 0), 0);
    }
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASE(places_are_reserved_when_posting)
{
    t_pair pair;
    hws_id queue = open_queue(20), ops[40], over = 1; /* rounded up to 32 */
    hws_event events[40];
    uint64_t buffer;

    t_pair_open(&pair, NULL);
    for (uint64_t i = 0; i < 32; i++) {
        CHECK_OK(recv_into(queue, pair.endpoint[1], &buffer, i, &ops[i]));
    }
    CHECK_CODE(recv_into(queue, pair.endpoint[1], &buffer, 99, &over), HWS_E_QUEUE_FULL);
    CHECK_EQ(over, 0);
    CHECK_CODE(recv_into(queue, pair.worker[1], &buffer, 99, &over), HWS_E_QUEUE_FULL);
    /* An event that waits to be popped keeps its place. */
    CHECK_OK(hws_cancel(ops[3]));
    UNTIL(&pair, readable(queue));
    CHECK_CODE(recv_into(queue, pair.endpoint[1], &buffer, 99, &over), HWS_E_QUEUE_FULL);
    CHECK_EQ(hws_queue_pop(queue, events, 40, 0), 1);
    CHECK_CODE(events[0].status, HWS_E_CANCELED);
    CHECK(events[0].op == ops[3]);
    CHECK_OK(recv_into(queue, pair.endpoint[1], &buffer, 100, &ops[3]));
    CHECK_CODE(recv_into(queue, pair.endpoint[1], &buffer, 99, &over), HWS_E_QUEUE_FULL);
    /* A call that fails gives its place back. */
    for (int i = 0; i < 32; i++) {
        CHECK_OK(hws_cancel(ops[i]));
    }
    int got = 0;
    UNTIL(&pair, (got += hws_queue_pop(queue, events, 40, 0)) == 32);
    hws_op_opts opts = {.struct_size = sizeof(opts), .queue = queue};
    for (int i = 0; i < 100; i++) {
        CHECK(hws_tag_recv(0, &buffer, 8, 1, ALL, &opts, &over) < 0);
        CHECK(hws_tag_recv(pair.endpoint[1], NULL, 8, 1, ALL, &opts, &over) < 0);
    }
    /* And so does one that is done inline. */
    opts.flags = HWS_OP_INLINE;
    for (int i = 0; i < 100; i++) {
        int32_t code = hws_tag_send(pair.endpoint[0], &buffer, 8, 2, &opts, &over);
        CHECK(code == HWS_OK || code == HWS_DONE);
        if (code == HWS_OK) {
            UNTIL(&pair, hws_queue_pop(queue, events, 1, 0) == 1);
        }
    }
    for (uint64_t i = 0; i < 32; i++) {
        CHECK_OK(recv_into(queue, pair.endpoint[1], &buffer, i, &ops[i]));
    }
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASE(nothing_is_dropped_when_it_is_full)
{
    enum { COUNT = 3000 };
    t_pair pair;
    hws_id queue = open_queue(16), ops[8];
    hws_am_opts handler = {.struct_size = sizeof(handler), .sink = {.queue = queue, .user = 5}};
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_DETACHED};
    hws_event events[32];
    uint64_t next = 0, buffers[8];
    int tags = 0;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_am_handler(pair.worker[1], 1, &handler));
    for (uint64_t i = 0; i < 8; i++) {
        CHECK_OK(recv_into(queue, pair.endpoint[1], &buffers[i], i, &ops[i]));
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK_OK(hws_am_send(pair.endpoint[0], 1, &i, 8, NULL, 0, &opts, NULL));
        if (i % 400 == 0) {
            send_some(&pair, 1);
        }
        t_pair_step(&pair);
    }
    CHECK(readable(queue));
    UNTIL(&pair, t_stats(pair.worker[1]).events >= COUNT + 8);
    CHECK(t_stats(pair.worker[1]).queue_overflows > 0);
    while (next < COUNT || tags < 8) {
        int32_t n = hws_queue_pop(queue, events, 32, 0);
        CHECK(n > 0);
        for (int32_t i = 0; i < n; i++) {
            if (events[i].kind == HWS_EVENT_TAG_RECV) {
                CHECK_OK(events[i].status);
                CHECK_EQ(events[i].user, (uint64_t)tags);
                tags++;
            } else {
                const hws_am_detail *detail = events[i].detail;
                CHECK_EQ(memcmp(detail->header, &next, 8), 0);
                CHECK_OK(hws_close(detail->buffer));
                next++;
            }
        }
    }
    CHECK(!readable(queue));
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASE(pop_waits)
{
    t_pair pair;
    hws_id queue = open_queue(0), op = 0;
    hws_event event;
    uint64_t buffer, start = t_now();

    /* A queue that nobody feeds. */
    CHECK_EQ(hws_queue_pop(queue, &event, 1, 0), 0);
    CHECK_EQ(hws_queue_pop(queue, &event, 1, 30 * T_MS), 0);
    CHECK(t_now() - start >= 30 * T_MS);

    t_pair_open(&pair, NULL);
    CHECK_OK(recv_into(queue, pair.endpoint[1], &buffer, 1, &op));
    start = t_now();
    CHECK_EQ(hws_queue_pop(queue, &event, 1, 30 * T_MS), 0);
    CHECK(t_now() - start >= 30 * T_MS);
    /* Popping makes progress on the worker that feeds it: the message needs no other. */
    send_some(&pair, 1);
    while (t_stats(pair.worker[0]).ops_pending > 0) {
        CHECK(hws_worker_progress(pair.worker[0]) >= 0);
    }
    CHECK_EQ(hws_queue_pop(queue, &event, 1, t_patience()), 1);
    CHECK(event.op == op);
    CHECK_CODE(hws_queue_pop(queue, NULL, 1, 0), HWS_E_INVALID);
    CHECK_CODE(hws_queue_pop(queue, &event, 0, 0), HWS_E_INVALID);
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASE(deadline_wakes_a_sleeping_pop)
{
    t_pair pair;
    hws_id queue = open_queue(0), op = 0;
    hws_op_opts opts = {.struct_size = sizeof(opts), .queue = queue, .timeout_ns = 80 * T_MS};
    hws_event event;
    uint64_t buffer;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &buffer, 8, 1, ALL, &opts, &op));
    CHECK_EQ(hws_queue_pop(queue, &event, 1, t_patience()), 1);
    CHECK_CODE(event.status, HWS_E_TIMED_OUT);
    CHECK(event.detail != NULL && *(const char *)event.detail != '\0');
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASE(one_for_several_workers_and_kinds_of_events)
{
    t_pair pair;
    hws_id queue = open_queue(0), listener = 0, client = 0, server = 0;
    hws_sink sink = {.queue = queue, .user = 50};
    hws_listener_opts listen = {.struct_size = sizeof(listen), .sink = sink, .endpoint_sink = sink};
    hws_endpoint_opts endpoint = {.struct_size = sizeof(endpoint), .sink = sink};
    hws_op_opts opts = {.struct_size = sizeof(opts), .queue = queue, .user = 51};
    hws_listener_info info = {.struct_size = sizeof(info)};
    hws_event event;
    uint32_t seen[64] = {0};

    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_listen(pair.worker[1], "127.0.0.1", 0, &listen, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", (uint16_t)info.port, &endpoint, &opts,
                         &client, NULL));
    uint64_t start = t_now();
    while (seen[HWS_EVENT_CLOSED] < 3) {
        int32_t n = hws_queue_pop(queue, &event, 1, 0);
        CHECK(n >= 0);
        if (n == 1) {
            CHECK(event.kind < 64);
            seen[event.kind]++;
            if (event.kind == HWS_EVENT_CONNECT) {
                CHECK_OK(event.status);
                CHECK_EQ(event.user, 51);
            } else {
                CHECK_EQ(event.user, 50);
            }
            if (event.kind == HWS_EVENT_ACCEPTED) {
                server = event.source;
            } else if (event.kind == HWS_EVENT_DISCONNECTED) {
                CHECK(event.source == server);
                CHECK_CODE(event.status, HWS_E_PEER_CLOSED);
                CHECK_OK(hws_close(server));
                CHECK_OK(hws_close(listener));
            }
        }
        if (seen[HWS_EVENT_CONNECT] && server != 0 && hws_kind(client) > 0) {
            CHECK_OK(hws_close(client));
        }
        t_pair_step(&pair);
        t_check_patience(__FILE__, __LINE__, start, "all events");
    }
    CHECK_EQ(seen[HWS_EVENT_CONNECT], 1);
    CHECK_EQ(seen[HWS_EVENT_ACCEPTED], 1);
    CHECK_EQ(seen[HWS_EVENT_DISCONNECTED], 1);
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASE(closed_with_operations_outstanding)
{
    t_pair pair;
    hws_id queue = open_queue(16), ops[16];
    hws_event event;
    uint64_t buffers[16];
    int32_t fd = -1;

    t_pair_open(&pair, NULL);
    for (uint64_t i = 0; i < 16; i++) {
        CHECK_OK(recv_into(queue, pair.endpoint[1], &buffers[i], i, &ops[i]));
    }
    send_some(&pair, 4);
    UNTIL(&pair, readable(queue));
    CHECK_OK(hws_close(queue));
    CHECK_CODE(hws_queue_pop(queue, &event, 1, 0), HWS_E_STALE);
    CHECK_CODE(hws_queue_fd(queue, &fd), HWS_E_STALE);
    CHECK_CODE(hws_close(queue), HWS_E_STALE);
    CHECK_CODE(recv_into(queue, pair.endpoint[1], buffers, 0, &ops[0]), HWS_E_STALE);
    /* The operations end all the same, unheard. */
    send_some(&pair, 4);
    for (int i = 8; i < 12; i++) {
        CHECK_OK(hws_cancel(ops[i]));
    }
    UNTIL(&pair, t_stats(pair.worker[1]).ops_pending == 4);
    t_pair_close(&pair);
}

CASE(wrong_kind_of_id)
{
    t_pair pair;
    uint64_t buffer;
    hws_id op = 1;

    t_pair_open(&pair, NULL);
    CHECK_CODE(recv_into(pair.worker[1], pair.endpoint[1], &buffer, 0, &op), HWS_E_KIND);
    CHECK_CODE(recv_into(12345, pair.endpoint[1], &buffer, 0, &op), HWS_E_BAD_ID);
    t_pair_close(&pair);
}

/* One consumer sleeps in pop while another thread posts, with and without a progress thread. */
struct consumer {
    hws_id queue;
    uint32_t wanted, seen;
    uint64_t sum;
};

static void *consume(void *arg)
{
    struct consumer *c = arg;
    hws_event events[16];

    while (c->seen < c->wanted) {
        int32_t n = hws_queue_pop(c->queue, events, 16, t_patience());
        CHECK(n > 0);
        for (int32_t i = 0; i < n; i++) {
            CHECK_OK(events[i].status);
            c->sum += events[i].user;
        }
        c->seen += (uint32_t)n;
    }
    return NULL;
}

static void consumed_elsewhere(uint32_t mode)
{
    enum { COUNT = 2000 };
    t_pair_opts opts = {.mode = mode};
    t_pair pair;
    struct consumer consumer = {.wanted = 2 * COUNT, .queue = open_queue(0)};
    hws_op_opts told = {.struct_size = sizeof(told), .queue = consumer.queue};
    static uint64_t buffers[COUNT], value;
    uint64_t sum = 0;
    pthread_t thread;
    hws_id op;

    t_pair_open(&pair, &opts);
    CHECK_EQ(pthread_create(&thread, NULL, consume, &consumer), 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        told.user = 1 + 2 * i;
        sum += told.user;
        CHECK_OK(hws_tag_recv(pair.endpoint[1], &buffers[i], 8, 1, ALL, &told, &op));
        told.user = 2 + 2 * i;
        sum += told.user;
        CHECK_OK(hws_tag_send(pair.endpoint[0], &value, 8, 1, &told, &op));
        if (i % 100 == 99) {
            t_sleep(T_MS); /* lets the consumer fall asleep: that is what is tested */
        }
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(consumer.seen, 2 * COUNT);
    CHECK_EQ(consumer.sum, sum);
    CHECK(!readable(consumer.queue));
    CHECK_EQ(t_stats(pair.context).safety_wakeups, 0);
    CHECK_OK(hws_close(consumer.queue));
    t_pair_close(&pair);
}

CASE(consumed_by_another_thread_manual)
{
    consumed_elsewhere(HWS_PROGRESS_MANUAL);
}

CASE(consumed_by_another_thread_with_progress_thread)
{
    consumed_elsewhere(HWS_PROGRESS_THREAD);
}

CASES_MAIN
