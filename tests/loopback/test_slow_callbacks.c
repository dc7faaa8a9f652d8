/*
 * Callbacks that take long, under a flood of messages: everybody else has a turn, and closing ends them.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { FLOOD = 1, OTHER = 2, MANY = 2000 };

struct flood {
    t_pair pair;
    hws_id client, server;     /* a second connection */
    _Atomic uint64_t takes_ns; /* each callback */
    int stop_at;               /* what is done in this callback */
    int32_t (*stop)(struct flood *);
    _Atomic int count, after, others;
};

static void flooded(void *arg, const hws_event *event)
{
    struct flood *f = arg;

    CHECK_OK(event->status);
    for (uint64_t start = t_now(); t_now() - start < f->takes_ns;) {}
    if (f->stop_at != 0 && atomic_load(&f->count) >= f->stop_at) {
        atomic_fetch_add(&f->after, 1);
    } else if (atomic_fetch_add(&f->count, 1) + 1 == f->stop_at) {
        CHECK_OK(f->stop(f));
    }
}

static void other(void *arg, const hws_event *event)
{
    struct flood *f = arg;

    CHECK_OK(event->status);
    atomic_fetch_add(&f->others, 1);
}

static void send(hws_id endpoint, uint32_t am_id, int count)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_DETACHED | HWS_OP_INLINE};
    static const uint64_t data = 5;

    for (int i = 0; i < count; i++) {
        int32_t r = hws_am_send(endpoint, am_id, NULL, 0, &data, sizeof(data), &opts, NULL);

        CHECK(r == HWS_OK || r == HWS_DONE);
    }
}

/* Many messages are on their way to side 1. */
static void open_flood(struct flood *f, uint32_t flags, uint64_t takes_ns)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    hws_am_opts told = {.struct_size = sizeof(told),
                        .sink = {.callback = flooded, .callback_arg = f}};

    f->takes_ns = takes_ns;
    t_pair_open(&f->pair, &opts);
    t_pair_connect(&f->pair, &opts, &f->client, &f->server);
    CHECK_OK(hws_am_handler(f->pair.worker[1], FLOOD, &told));
    told.sink.callback = other;
    CHECK_OK(hws_am_handler(f->pair.worker[1], OTHER, &told));
    send(f->pair.endpoint[0], FLOOD, MANY);
}

static void close_flood(struct flood *f)
{
    f->takes_ns = 0;
    CHECK_OK(hws_close(f->client));
    t_pair_close(&f->pair);
}

CASE_BOTH(waits_end_and_other_peers_are_heard)
{
    struct flood f = {.takes_ns = 0};
    uint64_t in, start;
    hws_id op = 0;

    open_flood(&f, flags, 2 * T_MS);
    CHECK_OK(hws_tag_recv(f.pair.endpoint[1], &in, 8, 1, UINT64_MAX, NULL, &op));
    UNTIL(&f.pair, atomic_load(&f.count) > 40);
    start = t_now();
    CHECK_CODE(hws_wait(op, 50 * T_MS, NULL), HWS_E_TIMED_OUT);
    CHECK(t_now() - start < T_SECOND);
    send(f.client, OTHER, 1);
    UNTIL(&f.pair, atomic_load(&f.others) == 1);
    CHECK(atomic_load(&f.count) < MANY / 2); /* all of it takes 4 s */
    CHECK_OK(hws_cancel(op));
    CHECK_CODE(WAIT(&f.pair, op).status, HWS_E_CANCELED);
    f.takes_ns = 0;
    UNTIL(&f.pair, atomic_load(&f.count) == MANY);
    close_flood(&f);
}

static void on_time(void *arg, const hws_event *event)
{
    CHECK_CODE(event->status, HWS_E_TIMED_OUT);
    *(uint64_t *)arg = t_now();
}

CASE_BOTH(deadlines_are_minded)
{
    struct flood f = {.takes_ns = 0};
    uint64_t in, start, at = 0;
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .timeout_ns = 50 * T_MS,
                        .callback = on_time,
                        .callback_arg = &at};

    open_flood(&f, flags, 5 * T_MS);
    start = t_now();
    CHECK_OK(hws_tag_recv(f.pair.endpoint[1], &in, 8, 1, UINT64_MAX, &opts, NULL));
    UNTIL(&f.pair, at != 0);
    CHECK(at - start < T_SECOND);
    f.takes_ns = 0;
    UNTIL(&f.pair, atomic_load(&f.count) == MANY);
    close_flood(&f);
}

static int32_t unset(struct flood *f)
{
    const hws_am_opts none = {.struct_size = sizeof(none)};

    return hws_am_handler(f->pair.worker[1], FLOOD, &none);
}

static int32_t close_endpoint(struct flood *f)
{
    return hws_close(f->pair.endpoint[1]);
}

static int32_t abort_endpoint(struct flood *f)
{
    return hws_abort(f->pair.endpoint[1]);
}

/* The memory that the handler uses may be gone afterwards. */
static void stopped_by(uint32_t flags, int32_t (*stop)(struct flood *), bool ends)
{
    struct flood f = {.stop_at = 10, .stop = stop};

    open_flood(&f, flags, 0);
    UNTIL(&f.pair, atomic_load(&f.count) == 10);
    if (ends) {
        UNTIL(&f.pair, hws_kind(f.pair.endpoint[1]) < 0);
    }
    send(f.client, OTHER, 1);
    UNTIL(&f.pair, atomic_load(&f.others) == 1);
    t_pair_idle(&f.pair, 50 * T_MS);
    CHECK_EQ(atomic_load(&f.after), 0);
    CHECK_EQ(atomic_load(&f.count), 10);
    close_flood(&f);
}

CASE_BOTH(a_handler_that_is_unset_hears_no_more)
{
    stopped_by(flags, unset, false);
}

static int32_t replace(struct flood *f)
{
    const hws_am_opts told = {.struct_size = sizeof(told),
                              .sink = {.callback = other, .callback_arg = f}};

    return hws_am_handler(f->pair.worker[1], FLOOD, &told);
}

CASE_BOTH(the_next_handler_hears_the_rest)
{
    struct flood f = {.stop_at = 10, .stop = replace};

    open_flood(&f, flags, 0);
    UNTIL(&f.pair, atomic_load(&f.others) == MANY - 10);
    CHECK_EQ(atomic_load(&f.after), 0);
    CHECK_EQ(atomic_load(&f.count), 10);
    close_flood(&f);
}

CASE_BOTH(a_closed_endpoint_is_not_heard)
{
    stopped_by(flags, close_endpoint, true);
}

CASE_BOTH(an_aborted_endpoint_is_not_heard)
{
    stopped_by(flags, abort_endpoint, true);
}

/* The worker that is closed drops what still arrives. */
CASE_BOTH(a_worker_closes_at_once)
{
    struct flood f = {.takes_ns = 0};
    t_pair_opts opts = {.endpoint_flags = flags, .mode = HWS_PROGRESS_THREAD};
    hws_am_opts told = {.struct_size = sizeof(told),
                        .sink = {.callback = flooded, .callback_arg = &f}};
    int before;

    f.takes_ns = 2 * T_MS;
    t_pair_open(&f.pair, &opts);
    CHECK_OK(hws_am_handler(f.pair.worker[1], FLOOD, &told));
    send(f.pair.endpoint[0], FLOOD, MANY);
    UNTIL(&f.pair, atomic_load(&f.count) > 10);
    before = atomic_load(&f.count);
    CHECK_OK(hws_close_wait(f.pair.worker[1], 30 * T_SECOND));
    CHECK(atomic_load(&f.count) - before < MANY / 4);
    CHECK_OK(hws_close_wait(f.pair.worker[0], 30 * T_SECOND));
    CHECK_OK(hws_close_wait(f.pair.context, 30 * T_SECOND));
}

struct busy {
    t_pair *pair;
    _Atomic int over;
};

static void *progress(void *arg)
{
    struct busy *b = arg;

    while (!atomic_load(&b->over)) {
        (void)hws_worker_progress(b->pair->worker[1]);
    }
    return NULL;
}

/* A thread that makes progress without a pause lets others have the worker. */
CASE_BOTH(other_threads_get_the_worker)
{
    struct flood f = {.takes_ns = 0};
    hws_message_info info = {.struct_size = sizeof(info)};
    struct busy busy = {.pair = &f.pair};
    uint64_t start;
    pthread_t thread;

    open_flood(&f, flags, T_MS);
    CHECK_EQ(pthread_create(&thread, NULL, progress, &busy), 0);
    start = t_now();
    for (int i = 0; i < 10; i++) {
        CHECK_CODE(hws_tag_probe(f.pair.endpoint[1], 1, UINT64_MAX, &info, NULL), HWS_E_NOT_FOUND);
    }
    CHECK(t_now() - start < 2 * T_SECOND);
    f.takes_ns = 0;
    atomic_store(&busy.over, 1);
    pthread_join(thread, NULL);
    UNTIL(&f.pair, atomic_load(&f.count) == MANY);
    close_flood(&f);
}

/* ---- An endpoint's CLOSED ---------------------------------------------------------------------- */

struct ends {
    hws_id endpoint;
    int ended, closed, last; /* `last`: operations that had ended when CLOSED came */
};

static void slow_end(void *arg, const hws_event *event)
{
    struct ends *e = arg;

    CHECK_EQ(event->status, HWS_E_CANCELED);
    t_sleep(T_MS);
    e->ended++;
}

static void saw(void *arg, const hws_event *event)
{
    struct ends *e = arg;

    if (event->kind == HWS_EVENT_CLOSED && event->source == e->endpoint) {
        e->closed++;
        e->last = e->ended;
    }
}

/* It is the last of the endpoint's events, although the callbacks of its operations fill more than one round. */
CASE_BOTH(closed_comes_after_all_operations)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    struct ends e = {0};
    hws_op_opts told = {.struct_size = sizeof(told), .callback = slow_end, .callback_arg = &e};
    static uint64_t in[100];
    t_pair pair;

    t_pair_open(&pair, &opts);
    e.endpoint = pair.endpoint[1];
    pair.record[1].then = saw;
    pair.record[1].then_arg = &e;
    for (int i = 0; i < 100; i++) {
        CHECK_OK(hws_tag_recv(e.endpoint, &in[i], sizeof(in[i]), 1, UINT64_MAX, &told, NULL));
    }
    CHECK_OK(hws_abort(e.endpoint));
    UNTIL(&pair, e.closed != 0 && e.ended == 100);
    CHECK_EQ(e.closed, 1);
    CHECK_EQ(e.last, 100);
    t_pair_close(&pair);
}

enum { POSTED_MANY = 20000 };

struct poster {
    t_pair pair;
    _Atomic int returned, ended, closed;
    int at_close, ended_at_close; /* what had been posted, and had ended, when CLOSED came */
};

static void ended(void *arg, const hws_event *event)
{
    struct poster *p = arg;

    CHECK(event->status < 0);
    atomic_fetch_add(&p->ended, 1);
}

static void saw_closed(void *arg, const hws_event *event)
{
    struct poster *p = arg;

    if (event->kind == HWS_EVENT_CLOSED && event->source == p->pair.endpoint[1]) {
        p->at_close = atomic_load(&p->returned);
        p->ended_at_close = atomic_load(&p->ended);
        atomic_store(&p->closed, 1);
    }
}

static void *post_until_closed(void *arg)
{
    struct poster *p = arg;
    hws_op_opts told = {.struct_size = sizeof(told), .callback = ended, .callback_arg = p};
    static uint64_t in;

    for (int i = 0; i < POSTED_MANY; i++) {
        if (hws_tag_recv(p->pair.endpoint[1], &in, sizeof(in), 1, UINT64_MAX, &told, NULL) < 0) {
            break;
        }
        atomic_fetch_add(&p->returned, 1);
    }
    return NULL;
}

/* What another thread had posted before goes before, too: the owner may take it up only then. */
static void close_beside_a_poster(uint32_t mode, uint32_t flags, uint64_t after_ns)
{
    t_pair_opts opts = {.endpoint_flags = flags, .mode = mode};
    struct poster p = {.at_close = 0};
    pthread_t thread;

    t_pair_listen(&p.pair, &opts);
    p.pair.record[1].then = saw_closed;
    p.pair.record[1].then_arg = &p;
    t_pair_connect(&p.pair, &opts, &p.pair.endpoint[0], &p.pair.endpoint[1]);
    CHECK_EQ(pthread_create(&thread, NULL, post_until_closed, &p), 0);
    t_sleep(after_ns);
    CHECK_OK(hws_abort(p.pair.endpoint[1]));
    UNTIL(&p.pair, atomic_load(&p.closed) != 0);
    pthread_join(thread, NULL);
    UNTIL(&p.pair, atomic_load(&p.ended) == atomic_load(&p.returned));
    CHECK(p.ended_at_close + 1 >=
          p.at_close); /* but for a call that began before and returned just then */
    t_pair_close(&p.pair);
}

CASE_BOTH(closed_comes_after_what_other_threads_posted)
{
    for (uint64_t i = 0; i < 20; i++) {
        close_beside_a_poster(HWS_PROGRESS_THREAD, flags, i * 50000);
        close_beside_a_poster(HWS_PROGRESS_THREAD_POLLING, flags, i * 50000);
        close_beside_a_poster(HWS_PROGRESS_MANUAL, flags, i * 50000);
    }
}

CASES_MAIN
