/*
 * Several threads, or one list, that want the same thing: exactly one gets it, the others are told
 * so, and nobody touches what has become another's.
 *
 * TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define ALL UINT64_MAX
#define WAITERS 3

static t_pair pair;
static hws_id shared[4];
static _Atomic uint32_t got, stale;
static _Atomic int stop;

static hws_id receive(uint64_t *buffer, uint64_t tag)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_recv(pair.endpoint[1], buffer, 8, tag, ALL, NULL, &op));
    return op;
}

static void send_one(uint64_t tag)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    static uint64_t data;
    hws_id op;

    CHECK(hws_tag_send(pair.endpoint[0], &data, 8, tag, &opts, &op) >= 0);
}

/* ---- Waiting -------------------------------------------------------------------------------- */

CASE(one_operation_twice_in_a_list)
{
    uint64_t in[2];
    hws_event events[4];
    hws_id op, other, ops[4];

    t_pair_open(&pair, NULL);
    op = receive(&in[0], 1);
    other = receive(&in[1], 2);
    send_one(1);
    send_one(2);
    UNTIL(&pair, t_stats(pair.worker[1]).ops_pending == 0);
    ops[0] = ops[1] = ops[3] = op;
    ops[2] = other;
    CHECK_EQ(hws_wait_many(ops, 4, HWS_WAIT_ALL, t_patience(), events), 4);
    CHECK(events[0].op == op && events[0].status == HWS_OK);
    CHECK(events[1].op == op && events[1].status == HWS_E_STALE);
    CHECK(events[2].op == other && events[2].status == HWS_OK);
    CHECK(events[3].op == op && events[3].status == HWS_E_STALE);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(ops[i], 0);
    }
    /* Nothing was given back twice: two operations have two slots. */
    op = receive(&in[0], 3);
    other = receive(&in[1], 4);
    CHECK(op != other);
    CHECK_OK(hws_cancel(op));
    CHECK_EQ(WAIT(&pair, op).status, HWS_E_CANCELED);
    CHECK_PENDING(other);
    t_pair_close(&pair);
}

static void *wait_shared(void *arg)
{
    hws_event event;
    int32_t r = hws_wait(*(hws_id *)arg, t_patience(), &event);

    if (r == HWS_OK) {
        CHECK(event.op == *(hws_id *)arg);
        CHECK_OK(event.status);
        atomic_fetch_add(&got, 1);
    } else {
        /* INVALID: forgotten before it ended, so that there is nothing to wait for. */
        CHECK(r == HWS_E_STALE || r == HWS_E_INVALID);
        atomic_fetch_add(&stale, 1);
    }
    return NULL;
}

/* `closing`: meanwhile hws_close() forgets the operation; then nobody or one gets the result. */
static void one_operation_many_waiters(uint32_t mode, int closing)
{
    t_pair_opts opts = {.mode = mode};
    const int rounds = t_sanitized() ? 100 : 300;

    t_pair_open(&pair, &opts);
    for (int round = 0; round < rounds; round++) {
        pthread_t threads[WAITERS];
        uint64_t in[2];
        hws_id op, check;

        atomic_store(&got, 0);
        atomic_store(&stale, 0);
        shared[0] = receive(&in[0], 1);
        for (int i = 0; i < WAITERS; i++) {
            pthread_create(&threads[i], NULL, wait_shared, &shared[0]);
        }
        send_one(1);
        if (closing) {
            int32_t r = hws_close(shared[0]);

            CHECK(r == HWS_OK || r == HWS_E_STALE);
        }
        for (int i = 0; i < WAITERS; i++) {
            pthread_join(threads[i], NULL);
        }
        CHECK(closing ? got <= 1 : got == 1);
        CHECK_EQ(got + stale, WAITERS);
        op = receive(&in[0], 2);
        check = receive(&in[1], 3);
        CHECK((op & 0xfffff) != (check & 0xfffff));
        CHECK_OK(hws_cancel(op));
        CHECK_EQ(WAIT(&pair, op).status, HWS_E_CANCELED);
        CHECK_OK(hws_cancel(check));
        CHECK_EQ(WAIT(&pair, check).status, HWS_E_CANCELED);
    }
    t_pair_close(&pair);
}

CASE(many_wait_for_one_manual)
{
    one_operation_many_waiters(HWS_PROGRESS_MANUAL, 0);
}

CASE(many_wait_for_one_thread)
{
    one_operation_many_waiters(HWS_PROGRESS_THREAD, 0);
}

CASE(many_wait_for_one_that_is_forgotten)
{
    one_operation_many_waiters(HWS_PROGRESS_THREAD, 1);
}

static void *wait_worker(void *arg)
{
    for (;;) {
        int32_t r = hws_worker_wait(*(hws_id *)arg, HWS_FOREVER);

        if (r < 0) {
            CHECK_EQ(r, HWS_E_STALE);
            return NULL;
        }
    }
}

/* Who waits in a worker without end hears that it is gone, also when its memory is used again. */
CASE(a_worker_closed_under_its_waiters)
{
    for (int round = 0; round < 20; round++) {
        hws_worker_opts opts = {.struct_size = sizeof opts,
                                .mode = round % 2 ? HWS_PROGRESS_THREAD : HWS_PROGRESS_MANUAL,
                                .spares = UINT32_MAX};
        pthread_t threads[WAITERS];
        hws_id context, worker, next;

        CHECK_OK(hws_context_open(NULL, &context));
        CHECK_OK(hws_worker_open(context, &opts, &worker));
        for (int i = 0; i < WAITERS; i++) {
            pthread_create(&threads[i], NULL, wait_worker, &worker);
        }
        t_sleep((uint64_t)round * T_MS / 4);
        CHECK_OK(hws_close_wait(worker, t_patience()));
        CHECK_OK(hws_worker_open(context, &opts, &next));
        for (int i = 0; i < WAITERS; i++) {
            pthread_join(threads[i], NULL);
        }
        CHECK_EQ(hws_kind(next), HWS_KIND_WORKER);
        CHECK_OK(hws_close_wait(context, t_patience()));
    }
}

/* ---- Posting -------------------------------------------------------------------------------- */

static _Atomic uint32_t accepted, finals;

static void on_final(void *arg, const hws_event *event)
{
    (void)arg;
    CHECK_EQ(event->kind, HWS_EVENT_TAG_RECV);
    CHECK(event->status < 0);
    atomic_fetch_add(&finals, 1);
}

static void *post_all_the_time(void *arg)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_final};
    static uint64_t in;

    while (!atomic_load(&stop)) {
        hws_id op;
        int32_t r;

        if (atomic_load(&accepted) - atomic_load(&finals) > 1000) {
            sched_yield(); /* there are a million slots, and it is not them that are tested here */
            continue;
        }
        r = hws_tag_recv(*(_Atomic hws_id *)arg, &in, 8, 1, ALL, &opts, &op);

        CHECK(r == HWS_OK || r == HWS_E_STALE || r == HWS_E_CLOSING || r == HWS_E_BAD_ID);
        atomic_fetch_add(&accepted, r == HWS_OK);
    }
    return NULL;
}

/* What is accepted ends, also what comes at the very moment at which the worker ends. */
CASE(posting_to_a_worker_that_closes)
{
    static _Atomic hws_id current;
    pthread_t threads[2];
    hws_id context;

    CHECK_OK(hws_context_open(NULL, &context));
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, post_all_the_time, &current);
    }
    for (int round = 0; round < (t_sanitized() ? 10 : 40); round++) {
        hws_worker_opts opts = {.struct_size = sizeof opts,
                                .mode = round % 2 ? HWS_PROGRESS_THREAD : HWS_PROGRESS_MANUAL,
                                .spares = UINT32_MAX};
        hws_id worker;

        CHECK_OK(hws_worker_open(context, &opts, &worker));
        atomic_store(&current, worker);
        t_sleep(T_MS);
        CHECK_OK(hws_close_wait(worker, t_patience()));
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_OK(hws_close_wait(context, t_patience()));
    for (uint64_t start = t_now(); atomic_load(&finals) < atomic_load(&accepted);) {
        t_check_patience(__FILE__, __LINE__, start, "every operation ends");
    }
    CHECK_EQ(finals, accepted);
}

static void on_sent(void *arg, const hws_event *event)
{
    CHECK_OK(event->status);
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

/*
 * A close completes what the same thread posted before, while another makes the progress: also what waits for that
 * thread's turn. `worker`: the worker is closed, and the endpoint with it.
 */
static void posted_then_closed(uint32_t flags, int worker)
{
    enum { SENDS = 3000, ROUNDS = 8 };
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD, .endpoint_flags = flags};
    _Atomic uint32_t sent;
    hws_op_opts told = {
        .struct_size = sizeof told, .callback = on_sent, .callback_arg = (void *)&sent};
    static uint64_t data;

    for (int round = 0; round < ROUNDS; round++) {
        hws_id closed;

        t_pair_open(&pair, &opts);
        closed = worker ? pair.worker[0] : pair.endpoint[0];
        atomic_store(&sent, 0);
        for (int i = 0; i < SENDS; i++) {
            CHECK_OK(hws_tag_send(pair.endpoint[0], &data, sizeof data, 1, &told, NULL));
        }
        CHECK_OK(hws_close_wait(closed, t_patience()));
        UNTIL(&pair, atomic_load(&sent) == SENDS); /* the id may be gone before all are told */
        UNTIL(&pair, t_stats(pair.endpoint[1]).received[HWS_TRAFFIC_TAG] == SENDS);
        t_pair_close(&pair);
    }
}

CASE_BOTH(posted_then_closed_endpoint)
{
    posted_then_closed(flags, 0);
}

CASE_BOTH(posted_then_closed_worker)
{
    posted_then_closed(flags, 1);
}

/* ---- Opening and closing -------------------------------------------------------------------- */

static void *open_workers(void *arg)
{
    while (!atomic_load(&stop)) {
        hws_worker_opts opts = {.struct_size = sizeof opts, .spares = UINT32_MAX};
        hws_id worker;
        int32_t r = hws_worker_open(*(_Atomic hws_id *)arg, &opts, &worker);

        CHECK(r == HWS_OK || r == HWS_E_STALE || r == HWS_E_CLOSING || r == HWS_E_BAD_ID);
    }
    return NULL;
}

CASE(opening_workers_of_a_context_that_closes)
{
    static _Atomic hws_id current;
    pthread_t threads[2];

    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, open_workers, &current);
    }
    for (int round = 0; round < (t_sanitized() ? 5 : 10); round++) {
        hws_context_opts opts = {.struct_size = sizeof opts, .flags = HWS_CONTEXT_NO_SHARED_MEMORY};
        uint64_t start;
        hws_id context;

        CHECK_OK(hws_context_open(&opts, &context));
        atomic_store(&current, context);
        t_sleep((uint64_t)(5 + round) * T_MS);
        start = t_now();
        CHECK_OK(hws_close(context));
        while (hws_kind(context) == HWS_KIND_CONTEXT) {
            (void)hws_close_wait(context, T_MS);
            t_check_patience(__FILE__, __LINE__, start, "the context closes");
        }
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void *ask_for_the_address(void *arg)
{
    static _Thread_local unsigned char address[16384];
    uint64_t length = 0;
    int32_t r = hws_worker_address(*(hws_id *)arg, 0, address, sizeof address, &length);

    CHECK(r == HWS_OK || r == HWS_E_STALE || r == HWS_E_CLOSING);
    return NULL;
}

CASE(the_first_address_of_a_worker_that_closes)
{
    for (uint64_t round = 0; round < (t_sanitized() ? 6 : 24); round++) {
        hws_worker_opts opts = {.struct_size = sizeof opts, .spares = UINT32_MAX};
        pthread_t threads[2];
        hws_id context, worker;

        CHECK_OK(hws_context_open(NULL, &context));
        CHECK_OK(hws_worker_open(context, &opts, &worker));
        for (int i = 0; i < 2; i++) {
            pthread_create(&threads[i], NULL, ask_for_the_address, &worker);
        }
        t_sleep(round * T_MS / 4);
        CHECK_OK(hws_close_wait(context, t_patience()));
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
        }
    }
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* A message whose data is at the sender, taken out by a probe; then the sender goes. */
CASE_BOTH(a_probed_message_outlives_its_sender)
{
    t_pair_opts opts = {.endpoint_flags = flags, .close_timeout_ns = 200 * T_MS};
    hws_op_opts detached = {.struct_size = sizeof detached, .flags = HWS_OP_DETACHED};
    hws_message_info info = {.struct_size = sizeof info};
    const uint64_t length = 1 << 20;
    char *out = t_alloc(length), *in = t_alloc(length);
    hws_id message = 0, op = 0;
    t_seen seen;
    int32_t r;

    t_pair_open(&pair, &opts);
    CHECK_OK(hws_tag_send_sync(pair.endpoint[0], out, length, 1, &detached, &op));
    UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 1, ALL, &info, &message) == HWS_OK);
    CHECK_EQ(info.flags, HWS_EVENT_FLAG_RNDV);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair,
          t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1], 0, &seen));
    r = hws_message_recv(message, in, length, NULL, &op);
    if (r == HWS_OK) {
        CHECK(WAIT(&pair, op).status < 0);
    } else {
        CHECK(r < 0);
    }
    (void)hws_close(message);
    t_pair_close(&pair);
    free(out);
    free(in);
}

/* Small, kept by UCX, and still at the sender: each is dropped, outside UCX. */
CASE_BOTH(active_messages_for_a_queue_that_was_closed)
{
    const uint64_t lengths[] = {8, 3000, 7000, 300000};
    t_pair_opts opts = {.endpoint_flags = flags};
    hws_am_opts am = {.struct_size = sizeof am};
    hws_op_opts inlined = {.struct_size = sizeof inlined, .flags = HWS_OP_INLINE};
    static char data[300000];
    hws_id queue, op;

    t_pair_open(&pair, &opts);
    for (int deferred = 0; deferred < 2; deferred++) {
        am.flags = deferred ? HWS_AM_DEFER : 0;
        CHECK_OK(hws_queue_open(NULL, &queue));
        am.sink.queue = queue;
        CHECK_OK(hws_am_handler(pair.worker[1], 5, &am));
        CHECK_OK(hws_close(queue));
        for (int i = 0; i < 4; i++) {
            int32_t r =
                hws_am_send(pair.endpoint[0], 5, "header", 6, data, lengths[i], &inlined, &op);

            CHECK(r == HWS_OK || r == HWS_DONE);
            if (r == HWS_OK) {
                WAIT_OK(&pair, op);
            }
        }
        CHECK_OK(hws_flush(pair.endpoint[0], NULL, &op));
        WAIT_OK(&pair, op);
    }
    t_pair_close(&pair);
}

static int allocations;

static void *replace_and_give(void *arg, uint64_t length, uint32_t memory_kind)
{
    hws_am_opts none = {.struct_size = sizeof none};

    (void)arg;
    (void)memory_kind;
    allocations++;
    CHECK_OK(hws_am_handler(pair.worker[1], 5, &none));
    return t_alloc(length);
}

static void take_back(void *arg, void *memory, uint64_t length)
{
    (void)arg;
    (void)length;
    free(memory);
}

/* The allocator of a handler may replace the handler that it belongs to. */
CASE(a_handler_unset_by_its_own_allocator)
{
    for (int rndv = 0; rndv < 2; rndv++) {
        hws_am_opts am = {
            .struct_size = sizeof am, .alloc = replace_and_give, .free = take_back, .sink = {0}};
        hws_op_opts opts = {.struct_size = sizeof opts, .flags = rndv ? HWS_OP_RNDV : 0};
        static char data[70000];
        hws_id op;

        allocations = 0;
        t_pair_open(&pair, NULL);
        am.sink = t_record_sink(&pair.record[1], 0);
        CHECK_OK(hws_am_handler(pair.worker[1], 5, &am));
        CHECK_OK(hws_am_send(pair.endpoint[0], 5, NULL, 0, data, sizeof data, &opts, &op));
        WAIT_OK(&pair, op);
        UNTIL(&pair, allocations == 1);
        t_pair_idle(&pair, 20 * T_MS);
        t_pair_close(&pair);
    }
}

static _Atomic uint64_t described;

static void *describe(void *arg)
{
    char text[64];

    (void)arg;
    while (!atomic_load(&stop)) {
        int32_t r = hws_describe(atomic_load(&described), text, sizeof text, NULL);

        CHECK(r == HWS_E_TOO_BIG || r == HWS_E_STALE || r == HWS_E_CLOSING || r == HWS_E_BAD_ID);
    }
    return NULL;
}

CASE(a_context_described_while_it_ends)
{
    pthread_t thread;
    hws_id context;

    atomic_store(&stop, 0);
    CHECK_EQ(pthread_create(&thread, NULL, describe, NULL), 0);
    for (int round = 0; round < 30; round++) {
        CHECK_OK(hws_context_open(NULL, &context));
        atomic_store(&described, context);
        sched_yield();
        CHECK_OK(hws_close_wait(context, 5 * T_SECOND));
    }
    atomic_store(&stop, 1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* A callback of each of two workers that needs the other one's worker. */
struct crossing {
    pthread_barrier_t *both;
    hws_id endpoint; /* of the other worker */
    int32_t result;
    _Atomic int over;
};

static void cross(void *arg)
{
    hws_endpoint_info info = {.struct_size = sizeof info};
    struct crossing *c = arg;

    pthread_barrier_wait(c->both);
    c->result = hws_endpoint_query(c->endpoint, &info);
    atomic_store(&c->over, 1);
}

CASE(callbacks_that_need_each_others_worker)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD};
    hws_op_opts dropped = {.struct_size = sizeof dropped, .flags = HWS_OP_DETACHED};
    pthread_barrier_t both;

    t_pair_open(&pair, &opts);
    for (int round = 0; round < 20; round++) {
        struct crossing c[2] = {{&both, pair.endpoint[1], 0, 0}, {&both, pair.endpoint[0], 0, 0}};

        CHECK_EQ(pthread_barrier_init(&both, NULL, 2), 0);
        CHECK_OK(hws_task(pair.worker[0], cross, &c[0], 0, &dropped, NULL));
        CHECK_OK(hws_task(pair.worker[1], cross, &c[1], 0, &dropped, NULL));
        UNTIL(&pair, atomic_load(&c[0].over) && atomic_load(&c[1].over));
        CHECK_OK(c[0].result < 0 ? c[1].result : c[0].result);
        CHECK_CODE(c[0].result < 0 ? c[0].result : c[1].result, HWS_E_DEADLOCK);
        pthread_barrier_destroy(&both);
    }
    t_pair_close(&pair);
}

CASES_MAIN
