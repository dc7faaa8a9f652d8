/*
 * Waiting for operations: one, any, all; what has ended, what never does; wrong use.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define ALL UINT64_MAX
#define MANY 64

static hws_id receive(hws_id source, uint64_t *buffer, uint64_t tag)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .user = tag + 1000};
    hws_id op = 0;

    CHECK_OK(hws_tag_recv(source, buffer, 8, tag, ALL, &opts, &op));
    return op;
}

static void send_tag(t_pair *pair, uint64_t tag)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_send(pair->endpoint[0], &tag, 8, tag, NULL, &op));
    WAIT_OK(pair, op);
}

CASE(one)
{
    t_pair pair;
    uint64_t buffer = 0, start;
    hws_event event;

    t_pair_open(&pair, NULL);
    hws_id op = receive(pair.endpoint[1], &buffer, 5);
    CHECK_CODE(hws_wait(op, 0, &event), HWS_E_TIMED_OUT);
    start = t_now();
    CHECK_CODE(hws_wait(op, 30 * T_MS, &event), HWS_E_TIMED_OUT);
    CHECK(t_now() - start >= 30 * T_MS);
    CHECK_EQ(hws_kind(op), HWS_KIND_OP);
    send_tag(&pair, 5);
    /* The waiter makes the progress. */
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_OK(event.status);
    CHECK(event.op == op);
    CHECK(event.source == pair.endpoint[1]);
    CHECK_EQ(event.user, 1005);
    CHECK_EQ(event.size, sizeof(event));
    CHECK_EQ(buffer, 5);
    CHECK_CODE(hws_wait(op, 0, &event), HWS_E_STALE);
    CHECK_EQ(hws_kind(op), HWS_E_STALE);
    t_pair_close(&pair);
}

CASE(without_an_event_gives_the_status)
{
    t_pair pair;
    uint64_t buffer = 0;
    hws_error error = {.struct_size = sizeof(error)};

    t_pair_open(&pair, NULL);
    hws_id op = receive(pair.endpoint[1], &buffer, 5);
    CHECK_OK(hws_cancel(op));
    int32_t code;
    UNTIL(&pair, (code = hws_wait(op, 0, NULL)) != HWS_E_TIMED_OUT);
    CHECK_CODE(code, HWS_E_CANCELED);
    CHECK_OK(hws_last_error(&error));
    CHECK_EQ(error.code, HWS_E_CANCELED);
    CHECK(error.id == op);
    op = receive(pair.endpoint[1], &buffer, 5);
    send_tag(&pair, 5);
    UNTIL(&pair, (code = hws_wait(op, 0, NULL)) != HWS_E_TIMED_OUT);
    CHECK_OK(code);
    t_pair_close(&pair);
}

CASE(any)
{
    t_pair pair;
    uint64_t buffers[MANY];
    hws_id ops[MANY], copy[MANY];
    hws_event events[MANY];
    uint32_t left = MANY;

    t_pair_open(&pair, NULL);
    for (uint64_t i = 0; i < MANY; i++) {
        copy[i] = ops[i] = receive(i % 2 ? pair.endpoint[1] : pair.worker[1], &buffers[i], i);
    }
    CHECK_CODE(hws_wait_many(ops, MANY, HWS_WAIT_ANY, 0, events), HWS_E_TIMED_OUT);
    CHECK_CODE(hws_wait_many(ops, MANY, HWS_WAIT_ANY, 10 * T_MS, events), HWS_E_TIMED_OUT);
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t tag = (i * 37) % MANY;
        CHECK(ops[tag] == copy[tag]);
        send_tag(&pair, tag);
        memset(events, 0, sizeof(events));
        CHECK_EQ(hws_wait_many(ops, MANY, HWS_WAIT_ANY, t_patience(), events), 1);
        CHECK_EQ(ops[tag], 0);
        CHECK(events[tag].op == copy[tag]);
        CHECK_OK(events[tag].status);
        CHECK_EQ(events[tag].user, tag + 1000);
        CHECK_EQ(events[(tag + 1) % MANY].op, 0);
        CHECK_EQ(buffers[tag], tag);
        left--;
    }
    CHECK_EQ(left, 0);
    t_pair_close(&pair);
}

CASE(all)
{
    t_pair pair;
    uint64_t buffers[MANY];
    hws_id ops[MANY], copy[MANY];
    hws_event events[MANY];

    t_pair_open(&pair, NULL);
    for (uint64_t i = 0; i < MANY; i++) {
        copy[i] = ops[i] = receive(pair.endpoint[1], &buffers[i], i);
    }
    for (uint64_t i = 0; i < MANY; i += 2) {
        send_tag(&pair, i);
    }
    /* Late: what has ended is taken all the same. */
    CHECK_CODE(hws_wait_many(ops, MANY, HWS_WAIT_ALL, 50 * T_MS, events), HWS_E_TIMED_OUT);
    for (uint64_t i = 0; i < MANY; i++) {
        CHECK(ops[i] == (i % 2 ? copy[i] : 0));
        if (i % 2 == 0) {
            CHECK(events[i].op == copy[i]);
            CHECK_CODE(hws_wait(copy[i], 0, NULL), HWS_E_STALE);
        }
    }
    for (uint64_t i = 1; i < MANY; i += 2) {
        send_tag(&pair, i);
    }
    CHECK_EQ(hws_wait_many(ops, MANY, HWS_WAIT_ALL, t_patience(), events), MANY / 2);
    for (uint64_t i = 0; i < MANY; i++) {
        CHECK_EQ(ops[i], 0);
        CHECK_OK(events[i].status);
        CHECK_EQ(events[i].user, i + 1000);
        CHECK_EQ(buffers[i], i);
    }
    /* Nothing is left to wait for. */
    CHECK_EQ(hws_wait_many(ops, MANY, HWS_WAIT_ALL, t_patience(), events), 0);
    t_pair_close(&pair);
}

CASE(all_without_events)
{
    t_pair pair;
    uint64_t buffers[2];
    hws_id ops[3];

    t_pair_open(&pair, NULL);
    ops[0] = receive(pair.endpoint[1], &buffers[0], 0);
    ops[1] = 0;
    ops[2] = receive(pair.endpoint[1], &buffers[1], 1);
    send_tag(&pair, 0);
    send_tag(&pair, 1);
    CHECK_EQ(hws_wait_many(ops, 3, HWS_WAIT_ALL, t_patience(), NULL), 2);
    CHECK_EQ(ops[0], 0);
    CHECK_EQ(ops[2], 0);
    t_pair_close(&pair);
}

/* As many operations as a program may well have. */
CASE(thousands)
{
    enum { COUNT = 5000 };
    t_pair pair;
    static uint64_t buffers[COUNT];
    static hws_id ops[COUNT];
    static hws_event events[COUNT];

    t_pair_open(&pair, NULL);
    for (uint64_t i = 0; i < COUNT; i++) {
        ops[i] = receive(pair.endpoint[1], &buffers[i], 7);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_DETACHED};
        CHECK_OK(hws_tag_send(pair.endpoint[0], &ops[i], 8, 7, &opts, NULL));
        t_pair_step(&pair);
    }
    CHECK_EQ(hws_wait_many(ops, COUNT, HWS_WAIT_ALL, t_patience(), events), COUNT);
    t_pair_close(&pair);
}

CASE(wrong_use)
{
    t_pair pair;
    uint64_t buffer;
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = t_record_event};
    hws_event events[2];
    hws_id ops[2], told = 0, queue = 0, queued = 0;

    t_pair_open(&pair, NULL);
    opts.callback_arg = &pair.record[1];
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &buffer, 8, 1, ALL, &opts, &told));
    CHECK_CODE(hws_wait(told, 0, NULL), HWS_E_INVALID);
    CHECK_OK(hws_queue_open(NULL, &queue));
    opts.callback = NULL;
    opts.queue = queue;
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &buffer, 8, 1, ALL, &opts, &queued));
    CHECK_CODE(hws_wait(queued, 0, NULL), HWS_E_INVALID);
    /* Without a callback or a queue the id is the only way to the result. */
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], &buffer, 8, 1, ALL, NULL, NULL), HWS_E_INVALID);

    ops[0] = receive(pair.endpoint[0], &buffer, 1);
    ops[1] = receive(pair.endpoint[1], &buffer, 1);
    CHECK_CODE(hws_wait_many(ops, 2, HWS_WAIT_ANY, 0, events), HWS_E_INVALID);
    CHECK(ops[0] != 0 && ops[1] != 0);
    CHECK_CODE(hws_wait_many(NULL, 2, HWS_WAIT_ANY, 0, events), HWS_E_INVALID);
    CHECK_CODE(hws_wait_many(ops, 1, 7, 0, events), HWS_E_INVALID);
    CHECK_CODE(hws_wait(pair.endpoint[0], 0, NULL), HWS_E_KIND);
    CHECK_OK(hws_cancel(ops[1]));
    WAIT(&pair, ops[1]);
    CHECK_CODE(hws_wait_many(ops, 2, HWS_WAIT_ANY, 0, events), HWS_E_STALE);
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASE(forgotten_operation)
{
    t_pair pair;
    uint64_t buffer = 0, other = 0;

    t_pair_open(&pair, NULL);
    /* Ended, then forgotten; and forgotten while it goes on. */
    hws_id op = receive(pair.endpoint[1], &buffer, 1);
    send_tag(&pair, 1);
    t_pair_idle(&pair, 5 * T_MS);
    CHECK_OK(hws_close(op));
    CHECK_CODE(hws_wait(op, 0, NULL), HWS_E_STALE);
    op = receive(pair.endpoint[1], &other, 2);
    CHECK_OK(hws_close(op));
    CHECK(hws_wait(op, 0, NULL) < 0);
    UNTIL(&pair, buffer == 1);
    send_tag(&pair, 2);
    UNTIL(&pair, other == 2);
    UNTIL(&pair, t_stats(pair.context).ops_pending == 0);
    CHECK_EQ(hws_kind(op), HWS_E_STALE);
    t_pair_close(&pair);
}

CASE(ends_with_its_endpoint)
{
    t_pair pair;
    uint64_t buffer;
    hws_event event;

    t_pair_open(&pair, NULL);
    hws_id op = receive(pair.endpoint[1], &buffer, 1);
    CHECK_OK(hws_close(pair.endpoint[1]));
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_CODE(event.status, HWS_E_CANCELED);
    /* A result that nobody fetched may outlive its endpoint. */
    t_pair_connect(&pair, NULL, &pair.endpoint[0], &pair.endpoint[1]);
    op = receive(pair.endpoint[1], &buffer, 1);
    send_tag(&pair, 1);
    t_pair_idle(&pair, 5 * T_MS);
    CHECK_OK(hws_close(pair.endpoint[1]));
    UNTIL(&pair, hws_kind(pair.endpoint[1]) == HWS_E_STALE);
    CHECK_OK(hws_wait(op, 0, &event));
    CHECK_OK(event.status);
    CHECK_EQ(buffer, 1);
    t_pair_close(&pair);
}

/* Several threads wait on one worker, each for its own: every one is served. */
struct waiter {
    t_pair *pair;
    uint64_t tag, rounds;
};

static void *wait_often(void *arg)
{
    struct waiter *w = arg;
    hws_event event;

    for (uint64_t i = 0; i < w->rounds; i++) {
        uint64_t in = 0, out = i;
        hws_id recv = 0, send = 0;
        CHECK_OK(hws_tag_recv(w->pair->endpoint[1], &in, 8, w->tag, ALL, NULL, &recv));
        CHECK_OK(hws_tag_send(w->pair->endpoint[0], &out, 8, w->tag, NULL, &send));
        CHECK_OK(hws_wait(send, t_patience(), &event));
        CHECK_OK(event.status);
        CHECK_OK(hws_wait(recv, t_patience(), &event));
        CHECK_OK(event.status);
        CHECK_EQ(in, i);
    }
    return NULL;
}

static void waiting_threads(uint32_t mode)
{
    t_pair_opts opts = {.mode = mode};
    t_pair pair;
    struct waiter waiters[4];
    pthread_t threads[4];

    t_pair_open(&pair, &opts);
    for (int i = 0; i < 4; i++) {
        waiters[i] = (struct waiter){.pair = &pair, .tag = (uint64_t)i, .rounds = 500};
        CHECK_EQ(pthread_create(&threads[i], NULL, wait_often, &waiters[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    CHECK_EQ(t_stats(pair.context).safety_wakeups, 0);
    CHECK_EQ(t_stats(pair.context).ops_pending, 0);
    t_pair_close(&pair);
}

CASE(many_threads_manual)
{
    waiting_threads(HWS_PROGRESS_MANUAL);
}

CASE(many_threads_with_progress_thread)
{
    waiting_threads(HWS_PROGRESS_THREAD);
}

struct speaker {
    t_pair *pair;
    int side;
    uint64_t tag;
    hws_id queue; /* 0: waits for the operations */
};

#define TURNS 2000

static void receive_one(const struct speaker *s, hws_id op, hws_event *event)
{
    if (s->queue != 0) {
        CHECK_EQ(hws_queue_pop(s->queue, event, 1, t_patience()), 1);
    } else {
        CHECK_OK(hws_wait(op, t_patience(), event));
    }
    CHECK_OK(event->status);
}

static void say(const struct speaker *s, const uint64_t *what)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_INLINE | HWS_OP_DETACHED};

    CHECK(hws_tag_send(s->pair->endpoint[s->side], what, 8, s->tag, &opts, NULL) >= 0);
}

static void *speak(void *arg)
{
    const struct speaker *s = arg;
    hws_op_opts opts = {.struct_size = sizeof(opts), .queue = s->queue};
    uint64_t in = 0;
    hws_event event;

    for (uint64_t i = 0; i < TURNS; i++) {
        hws_id op = 0;

        CHECK_OK(hws_tag_recv(s->pair->endpoint[s->side], &in, 8, s->tag, ALL, &opts, &op));
        if (s->side == 0) {
            say(s, &i);
        }
        receive_one(s, op, &event);
        CHECK_EQ(in, i);
        if (s->side == 1) {
            say(s, &in);
        }
    }
    return NULL;
}

/*
 * Two conversations, the threads of which have one core: how often one of them sleeps. They give way to each other, and
 * need not sleep for each message.
 */
static long sleeps_on_one_core(bool queues)
{
    t_pair pair;
    pthread_t threads[4];
    struct speaker speakers[4];
    struct rusage before, after;
    cpu_set_t all, one;

    t_pair_open(&pair, NULL);
    CHECK_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 4; i++) {
        speakers[i] = (struct speaker){.pair = &pair, .side = i % 2, .tag = (uint64_t)i / 2};
        if (queues) {
            CHECK_OK(hws_queue_open(NULL, &speakers[i].queue));
        }
        CHECK_EQ(pthread_create(&threads[i], NULL, speak, &speakers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK(!queues || hws_close(speakers[i].queue) == HWS_OK);
    }
    getrusage(RUSAGE_SELF, &after);
    CHECK_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
    printf("slept %ld times, gave way %ld times\n", after.ru_nvcsw - before.ru_nvcsw,
           after.ru_nivcsw - before.ru_nivcsw);
    t_pair_close(&pair);
    return after.ru_nvcsw - before.ru_nvcsw;
}

/* Where another process has that core for a while they do sleep: once of three times it has not. */
static void take_turns(bool queues, long most_sleeps)
{
    for (int i = 0; i < 3; i++) {
        if (sleeps_on_one_core(queues) < most_sleeps) {
            return;
        }
    }
    t_fail(__FILE__, __LINE__, "they sleep instead of giving way");
}

CASE(waiters_on_one_core_take_turns)
{
    take_turns(false, TURNS / 4);
}

CASE(poppers_on_one_core_take_turns)
{
    take_turns(true, 2L * TURNS);
}

CASES_MAIN
