/*
 * Bursts of small messages, which share messages of UCX: their order, who has them go, what a broken one does.
 *
 * INTERNAL TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/inject.h"

#include "bundle.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>

enum { BURST = 200, LARGEST = 600, AM_ID = 5, ROUNDS = 20 };

static const hws_op_opts at_once = {.struct_size = sizeof(at_once),
                                    .flags = HWS_OP_INLINE | HWS_OP_DETACHED};

/* ---- Order and content ----------------------------------------------------------------------- */

struct stream {
    t_pair pair;
    int sent, next; /* numbers of messages */
};

static size_t length_of(int n)
{
    return n % 7 == 0 ? 0 : (size_t)(n * 37 % LARGEST);
}

static void fill(unsigned char *data, int n)
{
    memset(data, n & 255, length_of(n));
}

static void check(const unsigned char *data, uint64_t length, int n)
{
    CHECK_EQ(length, length_of(n));
    for (size_t i = 0; i < length; i++) {
        CHECK_EQ(data[i], n & 255);
    }
}

static void on_am(void *arg, const hws_event *event)
{
    struct stream *s = arg;
    const hws_am_detail *d = event->detail;

    check(d->data, d->data_length, s->next++);
}

/* The next message, of any size; mostly one that may end in the call. */
static void send_next(struct stream *s, int tagged)
{
    static unsigned char all[BURST][LARGEST]; /* those that do not end in the call are read later */
    hws_op_opts kept = {.struct_size = sizeof(kept)};
    int n = s->sent++;
    unsigned char *data = all[n % BURST];
    hws_id op = 0;
    int32_t r;

    fill(data, n);
    if (n % 31 == 30) { /* one that has an operation */
        r = tagged
                ? hws_tag_send(s->pair.endpoint[0], data, length_of(n), (uint64_t)n, &kept, &op)
                : hws_am_send(s->pair.endpoint[0], AM_ID, NULL, 0, data, length_of(n), &kept, &op);
        CHECK_OK(r);
        WAIT_OK(&s->pair, op);
        return;
    }
    r = tagged
            ? hws_tag_send(s->pair.endpoint[0], data, length_of(n), (uint64_t)n, &at_once, NULL)
            : hws_am_send(s->pair.endpoint[0], AM_ID, NULL, 0, data, length_of(n), &at_once, NULL);
    CHECK(r == HWS_OK || r == HWS_DONE);
}

CASE_BOTH(active_messages_in_order)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    struct stream s = {.sent = 0};
    hws_am_opts told = {.struct_size = sizeof(told),
                        .sink = {.callback = on_am, .callback_arg = &s}};

    t_pair_open(&s.pair, &opts);
    CHECK_OK(hws_am_handler(s.pair.worker[1], AM_ID, &told));
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < BURST; k++) {
            send_next(&s, 0);
        }
        UNTIL(&s.pair, s.next == s.sent);
    }
    t_pair_close(&s.pair);
}

/* Received with posted receives, and without: by any tag, so that the order shows. */
CASE_BOTH(tagged_messages_in_order)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    hws_op_opts kept = {.struct_size = sizeof(kept)};
    static unsigned char data[LARGEST];
    struct stream s = {.sent = 0};

    t_pair_open(&s.pair, &opts);
    for (int i = 0; i < ROUNDS; i++) {
        hws_id op = 0;
        hws_event event;

        for (int k = 0; k < BURST; k++) {
            send_next(&s, 1);
        }
        for (; s.next != s.sent; s.next++) {
            CHECK_OK(hws_tag_recv(s.pair.endpoint[1], data, sizeof(data), 0, 0, &kept, &op));
            event = WAIT_OK(&s.pair, op);
            CHECK_EQ(event.tag, (uint64_t)s.next);
            check(data, event.length, s.next);
        }
    }
    t_pair_close(&s.pair);
}

/* ---- Who has them go ------------------------------------------------------------------------- */

static void count(void *arg, const hws_event *event)
{
    CHECK_OK(event->status);
    ++*(int *)arg;
}

static void burst(hws_id endpoint, int n)
{
    static const uint64_t data = 5;

    for (int i = 0; i < n; i++) {
        int32_t r = hws_am_send(endpoint, AM_ID, NULL, 0, &data, sizeof(data), &at_once, NULL);

        CHECK(r == HWS_OK || r == HWS_DONE);
    }
}

static void open_counted(t_pair *pair, uint32_t flags, uint32_t mode, int *arrived)
{
    t_pair_opts opts = {.endpoint_flags = flags, .mode = mode};
    hws_am_opts told = {.struct_size = sizeof(told),
                        .sink = {.callback = count, .callback_arg = arrived}};

    t_pair_open(pair, &opts);
    CHECK_OK(hws_am_handler(pair->worker[1], AM_ID, &told));
}

static bool has_bundle(const t_pair *pair)
{
    const struct hws__endpoint *ep = hws__obj_find(&hws__objects, pair->endpoint[0]);
    bool nested = hws__own(ep->worker), has = ep->bundle.used != 0;

    hws__disown(ep->worker, nested);
    return has;
}

/* Whether one of any endpoint began a short time ago: else the background thread is about to send them all. */
static bool begun_lately(const t_pair *pair)
{
    const struct hws__worker *w = hws__obj_find(&hws__objects, pair->worker[0]);

    return t_now() - w->bundles.timed_at < HWS__BUNDLE_NS / 2;
}

/* As many as find room in UCX's queue, of which half may be places that the receiver has not given back. */
#define UNATTENDED 50

/* Only the receiver makes progress. Where the machine is too slow for a burst, they do not find room. */
CASE_BOTH(a_sender_that_never_comes_back)
{
    int arrived = 0;
    t_pair pair;

    open_counted(&pair, flags, HWS_PROGRESS_MANUAL, &arrived);
    for (int round = 1; round <= ROUNDS; round++) {
        uint64_t end = t_now() + 10 * T_SECOND;

        burst(pair.endpoint[0], UNATTENDED);
        if (!has_bundle(&pair)) {
            UNTIL(&pair, arrived == round * UNATTENDED);
        }
        while (arrived != round * UNATTENDED) {
            CHECK(t_now() < end);
            CHECK(hws_worker_progress(pair.worker[1]) >= 0);
        }
    }
    t_pair_close(&pair);
}

/* The program's loop sleeps on the worker's descriptor, which tells of what was sent after it was armed. */
CASE_BOTH(a_loop_that_sleeps_is_woken)
{
    struct pollfd fd = {.events = POLLIN};
    int arrived = 0, armed;
    t_pair pair;

    open_counted(&pair, flags, HWS_PROGRESS_BLOCKING, &arrived);
    do {
        while (hws_worker_progress(pair.worker[0]) > 0) {}
        armed = hws_worker_arm(pair.worker[0]);
        CHECK(armed == HWS_OK || armed == HWS_E_BUSY);
    } while (armed != HWS_OK);
    CHECK_OK(hws_worker_fd(pair.worker[0], &fd.fd));
    burst(pair.endpoint[0], BURST);
    if (has_bundle(&pair)) { /* else this machine is too slow for it to look like a burst */
        CHECK_EQ(poll(&fd, 1, 0), 1);
    }
    UNTIL(&pair, arrived == BURST);
    t_pair_close(&pair);
}

/* Who sends now and then has none, though it never makes progress: each message is there at once. */
CASE_BOTH(slow_senders_have_none)
{
    int arrived = 0;
    t_pair pair;

    open_counted(&pair, flags, HWS_PROGRESS_MANUAL, &arrived);
    for (int i = 0; i < BURST; i++) {
        uint64_t start = t_now();

        burst(pair.endpoint[0], 1);
        CHECK(!has_bundle(&pair));
        while (t_now() - start < 20000) {}
        while (hws_worker_progress(pair.worker[1]) > 0) {}
    }
    UNTIL(&pair, arrived == BURST);
    t_pair_close(&pair);
}

/* What was sent goes before the goodbye. */
CASE_BOTH(closing_sends_them)
{
    int arrived = 0;
    t_pair pair;

    open_counted(&pair, flags, HWS_PROGRESS_MANUAL, &arrived);
    burst(pair.endpoint[0], BURST);
    CHECK_OK(hws_close(pair.endpoint[0]));
    UNTIL(&pair, arrived == BURST);
    t_pair_close(&pair);
}

static _Atomic bool served;

static void *serve(void *arg)
{
    while (!served) {
        int32_t r = hws_worker_progress(*(hws_id *)arg);

        CHECK(r >= 0);
    }
    return NULL;
}

/* One endpoint's few messages do not wait until the program has sent all that it has for another. */
CASE(others_do_not_hold_one_up)
{
    int arrived = 0;
    pthread_t thread;
    hws_worker_opts unlimited = {.struct_size = sizeof(unlimited), .credit_messages = UINT32_MAX};
    t_pair_opts opts = {.worker = {NULL, &unlimited}, .endpoint_flags = HWS_ENDPOINT_TCP_ONLY};
    hws_am_opts told = {.struct_size = sizeof(told),
                        .sink = {.callback = count, .callback_arg = &arrived}};
    hws_id other[2];
    uint64_t start;
    t_pair pair;

    t_pair_open(&pair, &opts);
    t_pair_connect(&pair, &opts, &other[0], &other[1]);
    CHECK_OK(hws_am_handler(pair.worker[1], AM_ID, &told));
    CHECK_EQ(pthread_create(&thread, NULL, serve, &pair.worker[1]), 0);
    for (int round = 0; round < 10 * ROUNDS; round++) {
        burst(other[0], HWS__BUNDLE_AFTER + 8);
        burst(pair.endpoint[0], 1);
        start = t_now();
        while (has_bundle(&pair) && t_now() - start < 20 * T_MS) {
            burst(other[0], BURST);
            CHECK(!begun_lately(&pair) || t_now() - start < 4 * HWS__BUNDLE_NS ||
                  !has_bundle(&pair));
        }
        while (hws_worker_progress(pair.worker[0]) > 0) {}
    }
    served = true;
    CHECK_EQ(pthread_join(thread, NULL), 0);
    t_pair_close(&pair);
}

/* ---- The background thread ------------------------------------------------------------------- */

static struct hws__worker *worker_of(const t_pair *pair)
{
    return hws__obj_find(&hws__objects, pair->worker[0]);
}

/* A job of another worker's that takes until it is told to end. */
static _Atomic int job_state;

static void run_long(struct hws__job *job)
{
    (void)job;
    job_state = 1;
    while (job_state != 2) {
        t_sleep(T_MS);
    }
}

/* A bundle that waits, also where the machine is too slow for a burst: the next message comes right behind the others,
 * or looks so. */
static void wait_in_a_bundle(const t_pair *pair)
{
    struct hws__worker *w = worker_of(pair);

    while (!has_bundle(pair)) {
        burst(pair->endpoint[0], HWS__BUNDLE_TIMED);
        w->bundles.burst = HWS__BUNDLE_AFTER;
        w->bundles.timed_burst = HWS__BUNDLE_TIMED;
        w->bundles.timed_at = t_now();
        burst(pair->endpoint[0], 1);
    }
}

/* The last that a closing worker waits for is the watch, which is late. */
CASE(a_closing_worker_hears_of_the_end_of_the_watch)
{
    static struct hws__job job = {.run = run_long};
    hws_worker_opts alone = {.struct_size = sizeof(alone), .spares = UINT32_MAX};
    t_pair_opts opts = {
        .worker = {&alone}, .mode = HWS_PROGRESS_BLOCKING, .endpoint_flags = HWS_ENDPOINT_TCP_ONLY};
    struct pollfd fd = {.events = POLLIN};
    struct hws__worker *w;
    t_pair pair;

    t_pair_open(&pair, &opts);
    w = worker_of(&pair);
    CHECK_OK(hws_worker_fd(pair.worker[0], &fd.fd));
    CHECK(hws__background_add(&w->context->background, &job));
    while (job_state != 1) {
        t_sleep(T_MS);
    }
    wait_in_a_bundle(&pair);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    CHECK_OK(hws_close(pair.worker[0]));
    /* Until nothing is left but background jobs, and for a while after it has gone to sleep. */
    do {
        while (hws_worker_progress(pair.worker[0]) > 0) {}
    } while (hws_worker_arm(pair.worker[0]) != HWS_OK || poll(&fd, 1, 100) != 0 ||
             !hws__list_empty(&w->endpoints));
    job_state = 2;
    while (atomic_load(&w->jobs) != 0) {
        t_sleep(T_MS);
    }
    CHECK_EQ(poll(&fd, 1, 100), 1); /* a timer would come later */
    t_pair_close(&pair);
}

static void *own_as_the_watch(void *arg)
{
    struct hws__worker *w = arg;

    CHECK(hws__own_try(w));
    job_state = 1;
    t_sleep(20 * T_MS);
    hws__own_release(w);
    atomic_store(&w->visited, false);
    return NULL;
}

/* A program with one thread need not know that the library has another. */
CASE(the_watch_makes_nobody_busy)
{
    struct hws__worker *w;
    pthread_t thread;
    t_pair pair;

    t_pair_open(&pair, NULL);
    w = worker_of(&pair);
    atomic_store(&w->watched, true);
    atomic_store(&w->visited, true);
    CHECK_EQ(pthread_create(&thread, NULL, own_as_the_watch, w), 0);
    while (job_state != 1) {
        t_sleep(T_MS);
    }
    CHECK(hws_worker_progress(pair.worker[0]) >= 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    atomic_store(&w->watched, false);
    t_pair_close(&pair);
}

/* ---- Broken ones ----------------------------------------------------------------------------- */

static void ends_in_protocol(uint32_t flags, const void *data, size_t length)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    t_seen seen;
    t_pair pair;

    t_pair_open(&pair, &opts);
    t_inject(&pair, hws__bundle_cb, data, length, 0);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, 0, 0, &seen));
    CHECK_EQ(seen.event.status, HWS_E_PROTOCOL);
    t_pair_close(&pair);
}

CASE(what_is_no_bundle)
{
    struct {
        uint64_t tag;
        uint32_t length, kind;
        char data[16];
    } r = {.tag = 1, .length = 16, .kind = HWS_EVENT_TAG_SEND};

    ends_in_protocol(0, &r, 15);            /* half a record */
    ends_in_protocol(0, &r, sizeof(r) - 1); /* less data than it says */
    ends_in_protocol(0, &r, sizeof(r) + 1 - 9);
    r.length = HWS__BUNDLE_MESSAGE + 1;
    ends_in_protocol(0, &r, sizeof(r));
    r.length = UINT32_MAX;
    ends_in_protocol(0, &r, sizeof(r));
    r.length = 16;
    r.kind = HWS_EVENT_MULTI_SEND;
    ends_in_protocol(0, &r, sizeof(r));
    r.kind = HWS_EVENT_AM_SEND;
    r.tag = HWS_AM_ID_MAX + 1;
    ends_in_protocol(0, &r, sizeof(r));
}

CASES_MAIN
