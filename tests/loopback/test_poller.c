/*
 * Loops that sleep on the worker's descriptor: what wakes them, other threads beside them, and the thread that
 * stands by. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALL UINT64_MAX

static long thread_id(void)
{
    return syscall(SYS_gettid);
}

static void count_late(void *arg, const hws_event *event)
{
    CHECK_EQ(event->status, HWS_E_TIMED_OUT);
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}

static int32_t worker_fd(hws_id worker)
{
    int32_t fd = -1;

    CHECK_OK(hws_worker_fd(worker, &fd));
    CHECK(fd >= 0);
    return fd;
}

/* The loop of a host program: progress until 0, arm, poll. Returns how often it slept. */
static int poll_until(t_pair *pair, _Atomic uint64_t *count, uint64_t wanted)
{
    int slept = 0;
    uint64_t start = t_now();

    while (atomic_load(count) < wanted) {
        struct pollfd fds[2];
        int armed = 1;
        for (int side = 0; side < 2; side++) {
            int32_t code;
            while (hws_worker_progress(pair->worker[side]) > 0) {}
            code = hws_worker_arm(pair->worker[side]);
            CHECK(code == HWS_OK || code == HWS_E_BUSY);
            armed &= code == HWS_OK;
            fds[side] = (struct pollfd){.fd = worker_fd(pair->worker[side]), .events = POLLIN};
        }
        if (armed && atomic_load(count) < wanted) {
            int ready = poll(fds, 2, (int)(t_patience() / T_MS));
            CHECK(ready > 0); /* a wake-up was lost */
            slept++;
        }
        t_check_patience(__FILE__, __LINE__, start, "all events of the poller");
    }
    return slept;
}

static void polled(uint32_t flags, size_t length)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING, .endpoint_flags = flags};
    _Atomic uint64_t ended = 0;
    hws_op_opts told = {.struct_size = sizeof(told),
                        .callback = t_count_event,
                        .callback_arg = (void *)(uintptr_t)&ended};
    t_pair pair;
    char *in = t_alloc(length), *out = t_alloc(length);

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < 50; i++) {
        t_fill(out, length, i);
        CHECK_OK(hws_tag_recv(pair.endpoint[i % 2], in, length, i, ALL, &told, NULL));
        CHECK_OK(hws_tag_send(pair.endpoint[1 - i % 2], out, length, i, &told, NULL));
        poll_until(&pair, &ended, 2 * i + 2);
        CHECK_FILLED(in, length, i);
    }
    free(in);
    free(out);
    t_pair_close(&pair);
}

CASE(blocking_small_shm)
{
    polled(0, 8);
}

CASE(blocking_small_tcp)
{
    polled(HWS_ENDPOINT_TCP_ONLY, 8);
}

CASE(blocking_large_shm)
{
    polled(0, 1 << 20);
}

CASE(blocking_large_tcp)
{
    polled(HWS_ENDPOINT_TCP_ONLY, 1 << 20);
}

/* The descriptor tells of deadlines too: nothing else would wake the poller. */
CASE(deadlines_wake_a_poller)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING};
    _Atomic uint64_t ended = 0;
    hws_op_opts told = {.struct_size = sizeof(told),
                        .callback = count_late,
                        .callback_arg = (void *)(uintptr_t)&ended};
    uint64_t in = 0, start = t_now();
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < 3; i++) {
        told.timeout_ns = (30 - 10 * i) * T_MS;
        CHECK_OK(hws_tag_recv(pair.endpoint[0], &in, 8, i, ALL, &told, NULL));
    }
    CHECK(poll_until(&pair, &ended, 3) >= 1); /* a slow machine may find two due at once */
    CHECK(t_now() - start >= 30 * T_MS);
    t_pair_close(&pair);
}

/* An armed and sleeping poller hears of what another thread posts, and of hws_worker_signal(). */
struct poller {
    t_pair *pair;
    _Atomic uint64_t ended, asleep, woken;
};

static void *poll_one(void *arg)
{
    struct poller *p = arg;

    poll_until(p->pair, &p->ended, 200);
    return NULL;
}

CASE(posting_wakes_a_poller)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING};
    t_pair pair;
    struct poller poller = {.pair = &pair};
    hws_op_opts told = {.struct_size = sizeof(told),
                        .callback = t_count_event,
                        .callback_arg = (void *)(uintptr_t)&poller.ended};
    static uint64_t in[100], out[100];
    pthread_t thread;

    t_pair_open(&pair, &opts);
    CHECK_EQ(pthread_create(&thread, NULL, poll_one, &poller), 0);
    for (uint64_t i = 0; i < 100; i++) {
        CHECK_OK(hws_tag_recv(pair.endpoint[1], &in[i], 8, i, ALL, &told, NULL));
        CHECK_OK(hws_tag_send(pair.endpoint[0], &out[i], 8, i, &told, NULL));
        EVENTUALLY(atomic_load(&poller.ended) == 2 * i + 2);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    t_pair_close(&pair);
}

/* A poller sleeps armed; another thread waits meanwhile, leaves, and then something comes. */
static void waited_beside(uint32_t flags)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING, .endpoint_flags = flags};
    _Atomic uint64_t ended = 0;
    hws_op_opts told = {.struct_size = sizeof(told),
                        .callback = t_count_event,
                        .callback_arg = (void *)(uintptr_t)&ended};
    uint64_t in[2] = {0}, out[2] = {1, 2};
    t_pair pair;
    hws_id op, sent;
    int32_t code;

    t_pair_open(&pair, &opts);
    struct pollfd fd = {.fd = worker_fd(pair.worker[1]), .events = POLLIN};
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in[0], 8, 0, ALL, NULL, &op));
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in[1], 8, 1, ALL, &told, NULL));
    while ((code = hws_worker_arm(pair.worker[1])) == HWS_E_BUSY) {
        t_pair_step(&pair);
    }
    CHECK_OK(code);
    for (uint64_t i = 0; i < 2; i++) {
        CHECK_OK(hws_tag_send(pair.endpoint[0], &out[i], 8, i, NULL, &sent));
        CHECK(sent == 0 || hws_wait(sent, t_patience(), NULL) == HWS_OK);
        if (i == 0) {
            CHECK_OK(hws_wait(op, t_patience(), NULL));
            CHECK_EQ(atomic_load(&ended), 0);
        }
    }
    CHECK_EQ(poll(&fd, 1, (int)(t_patience() / T_MS)), 1); /* else a wake-up was lost */
    UNTIL(&pair, atomic_load(&ended) == 1);
    CHECK_EQ(in[1], 2);
    t_pair_close(&pair);
}

CASE(a_wait_beside_a_poller_shm)
{
    waited_beside(0);
}

CASE(a_wait_beside_a_poller_tcp)
{
    waited_beside(HWS_ENDPOINT_TCP_ONLY);
}

static void *wait_for_signal(void *arg)
{
    struct poller *p = arg;

    atomic_store(&p->asleep, 1);
    CHECK(hws_worker_wait(p->pair->worker[0], t_patience()) >= 0);
    atomic_store(&p->woken, 1);
    return NULL;
}

CASE(deadline_wakes_a_poller)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING};
    t_pair pair;
    hws_op_opts told = {
        .struct_size = sizeof(told), .callback = t_record_event, .timeout_ns = 50 * T_MS};
    uint64_t in, start = t_now();

    t_pair_open(&pair, &opts);
    told.callback_arg = &pair.record[1];
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, &told, NULL));
    struct pollfd fd = {.fd = worker_fd(pair.worker[1]), .events = POLLIN};
    while (t_record_kinds(&pair.record[1], HWS_EVENT_TAG_RECV, 0) == 0) {
        while (hws_worker_progress(pair.worker[1]) > 0) {}
        if (t_record_kinds(&pair.record[1], HWS_EVENT_TAG_RECV, 0) == 0 &&
            hws_worker_arm(pair.worker[1]) == HWS_OK) {
            CHECK(poll(&fd, 1, (int)(t_patience() / T_MS)) == 1);
        }
        t_check_patience(__FILE__, __LINE__, start, "the deadline");
    }
    t_pair_close(&pair);
}

CASE(signal_wakes_who_waits)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING};
    t_pair pair;
    struct poller poller = {.pair = &pair};
    pthread_t thread;

    t_pair_open(&pair, &opts);
    uint64_t start = t_now();
    CHECK_EQ(pthread_create(&thread, NULL, wait_for_signal, &poller), 0);
    EVENTUALLY(atomic_load(&poller.asleep));
    while (!atomic_load(&poller.woken)) {
        CHECK_OK(hws_worker_signal(pair.worker[0]));
        t_sleep(T_MS);
        t_check_patience(__FILE__, __LINE__, start, "the end of the wait");
    }
    CHECK(t_now() - start < t_patience());
    CHECK_EQ(pthread_join(thread, NULL), 0);
    t_pair_close(&pair);
}

struct served {
    _Atomic uint64_t count;
    _Atomic long thread;
};

static void note_served(void *arg, const hws_event *event)
{
    struct served *served = arg;

    CHECK_OK(event->status);
    atomic_store(&served->thread, thread_id());
    atomic_fetch_add(&served->count, 1);
}

/* One side's program makes no progress any more, asleep in front of its descriptor or not. */
static void served(uint32_t flags, size_t length, bool armed)
{
    const hws_worker_opts standby = {.struct_size = sizeof standby, .flags = HWS_WORKER_STANDBY};
    t_pair_opts opts = {
        .mode = HWS_PROGRESS_BLOCKING, .endpoint_flags = flags, .worker = {NULL, &standby}};
    struct served seen = {0};
    hws_op_opts told = {
        .struct_size = sizeof(told), .callback = note_served, .callback_arg = &seen};
    char *in = t_alloc(length), *out = t_alloc(length);
    t_pair pair;
    hws_id op, client;

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < 4; i++) {
        t_fill(out, length, i);
        CHECK_OK(hws_tag_recv(pair.endpoint[1], in, length, i, ALL, &told, NULL));
        while (armed && hws_worker_arm(pair.worker[1]) == HWS_E_BUSY) {
            t_pair_step(&pair);
        }
        CHECK_OK(hws_tag_send(pair.endpoint[0], out, length, i, NULL, &op));
        CHECK(op == 0 || hws_wait(op, t_patience(), NULL) == HWS_OK);
        EVENTUALLY(atomic_load(&seen.count) == i + 1);
        CHECK(atomic_load(&seen.thread) != thread_id());
        CHECK_FILLED(in, length, i);
    }
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, NULL, NULL, &client, &op));
    CHECK_OK(hws_wait(op, t_patience(), NULL));
    CHECK_OK(hws_close_wait(client, t_patience()));
    free(in);
    free(out);
    t_pair_close(&pair);
}

CASE(standby_serves_who_computes)
{
    served(0, 8, false);
    served(HWS_ENDPOINT_TCP_ONLY, 1 << 20, false);
}

CASE(standby_serves_a_late_poller)
{
    served(0, 1 << 20, true);
    served(HWS_ENDPOINT_TCP_ONLY, 8, true);
}

/* What the thread leaves to do is there for the poller that comes back. */
CASE(standby_leaves_the_poller_its_wake_up)
{
    const hws_worker_opts standby = {.struct_size = sizeof standby, .flags = HWS_WORKER_STANDBY};
    t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING, .worker = {&standby, &standby}};
    _Atomic uint64_t ended = 0;
    hws_op_opts told = {.struct_size = sizeof(told),
                        .callback = t_count_event,
                        .callback_arg = (void *)(uintptr_t)&ended};
    uint64_t in[8], out[8] = {0};
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < 8; i++) {
        CHECK_OK(hws_tag_recv(pair.endpoint[1], &in[i], 8, i, ALL, &told, NULL));
        CHECK_OK(hws_tag_send(pair.endpoint[0], &out[i], 8, i, &told, NULL));
        if (i % 4 == 3) {
            t_sleep(600 * T_MS);
        }
        poll_until(&pair, &ended, 2 * i + 2);
    }
    t_pair_close(&pair);
}

CASE(which_modes_have_a_descriptor)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD_POLLING};
    t_pair pair;
    int32_t fd = -1;

    t_pair_open(&pair, &opts);
    CHECK_CODE(hws_worker_fd(pair.worker[0], &fd), HWS_E_MODE);
    t_pair_close(&pair);
    opts.mode = HWS_PROGRESS_BLOCKING;
    t_pair_open(&pair, &opts);
    CHECK(worker_fd(pair.worker[0]) != worker_fd(pair.worker[1]));
    CHECK_EQ(worker_fd(pair.worker[0]), worker_fd(pair.worker[0]));
    t_pair_close(&pair);
    hws_worker_opts bad = {.struct_size = sizeof(bad), .mode = 4};
    hws_id context = 0, worker = 0;
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_CODE(hws_worker_open(context, &bad, &worker), HWS_E_INVALID);
    CHECK_OK(hws_close_wait(context, t_patience()));
}

CASES_MAIN
