/*
 * Progress modes: nobody waits, a poller waits, a thread of the library does; submissions from many
 * threads; functions run under a worker's ownership. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/proc.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALL UINT64_MAX

static long thread_id(void)
{
    return syscall(SYS_gettid);
}

static void count_event(void *arg, const hws_event *event)
{
    CHECK_OK(event->status);
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}

static void count_late(void *arg, const hws_event *event)
{
    CHECK_EQ(event->status, HWS_E_TIMED_OUT);
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}

/* Waits for a condition that the library's threads bring about. */
#define EVENTUALLY(condition)                                        \
    for (uint64_t since_ = t_now(); !(condition);                    \
         t_check_patience(__FILE__, __LINE__, since_, #condition)) { \
        t_sleep(T_MS / 20);                                          \
    }

static void one_message(t_pair *pair)
{
    _Atomic uint64_t ended = 0;
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .callback = count_event,
                        .callback_arg = (void *)(uintptr_t)&ended};
    uint64_t in = 0, out = 5;

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, ALL, &opts, NULL));
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, &opts, NULL));
    UNTIL(pair, atomic_load(&ended) == 2);
    CHECK_EQ(in, 5);
}

CASE(manual_does_nothing_by_itself)
{
    t_pair pair;
    uint64_t in = 0, out = 5;
    hws_event event;
    hws_id op = 0, send = 0;

    t_pair_open(&pair, NULL);
    uint64_t threads = t_thread_count();
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &op));
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(&pair, send);
    t_pair_idle(&pair, T_MS);
    CHECK_EQ(t_thread_count(), threads);
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_EQ(in, 5);
    /* An idle worker has nothing to do, once what was ordered in the background has come. */
    uint64_t first = t_now(), start;
    do {
        t_check_patience(__FILE__, __LINE__, first, "the worker is idle");
        start = t_now();
    } while (hws_worker_wait(pair.worker[0], 30 * T_MS) != 0);
    CHECK(t_now() - start >= 30 * T_MS);
    CHECK_EQ(hws_worker_progress(pair.worker[0]), 0);
    t_pair_close(&pair);
}

/* ---- Workers that always have work ---- */

/* Each message is answered by another, so that every sweep finds one. */
struct rally {
    _Atomic int over;
    _Atomic uint64_t count;
};

static void return_ball(void *arg, const hws_event *event)
{
    struct rally *rally = arg;
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_DETACHED | HWS_OP_INLINE};

    atomic_fetch_add(&rally->count, 1);
    if (!atomic_load(&rally->over)) {
        CHECK(hws_am_send(event->source, 1, NULL, 0, "ball", 4, &opts, NULL) >= 0);
    }
}

/* Both sides on one worker. */
static void open_rally(t_pair *pair, struct rally *rally)
{
    t_pair_opts opts = {.one_worker = 1};
    hws_am_opts handler = {.struct_size = sizeof(handler),
                           .sink = {.callback = return_ball, .callback_arg = rally}};

    t_pair_open(pair, &opts);
    CHECK_OK(hws_am_handler(pair->worker[1], 1, &handler));
}

static void start_rally(t_pair *pair)
{
    hws_op_opts plain = {.struct_size = sizeof(plain), .flags = HWS_OP_DETACHED | HWS_OP_INLINE};

    CHECK(hws_am_send(pair->endpoint[0], 1, NULL, 0, "ball", 4, &plain, NULL) >= 0);
}

static void close_rally(t_pair *pair, struct rally *rally)
{
    uint64_t before = atomic_load(&rally->count);

    UNTIL(pair, atomic_load(&rally->count) > before);
    atomic_store(&rally->over, 1);
    t_pair_idle(pair, T_MS);
    t_pair_close(pair);
}

/* Who polls: deadlines pass, and connections are heard that rested. */
CASE(a_busy_worker_minds_the_rest)
{
    struct rally rally = {0};
    _Atomic uint64_t late = 0, heard = 0;
    hws_op_opts timed = {.struct_size = sizeof(timed),
                         .callback = count_late,
                         .callback_arg = (void *)(uintptr_t)&late,
                         .timeout_ns = 20 * T_MS};
    hws_op_opts told = {.struct_size = sizeof(told),
                        .callback = count_event,
                        .callback_arg = (void *)(uintptr_t)&heard};
    hws_op_opts plain = {.struct_size = sizeof(plain), .flags = HWS_OP_DETACHED | HWS_OP_INLINE};
    uint64_t in[2] = {0}, out = 7;
    hws_id client, server;
    t_pair pair;

    open_rally(&pair, &rally);
    t_pair_connect(&pair, NULL, &client, &server);
    t_pair_idle(&pair, 300 * T_MS);
    start_rally(&pair);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in[0], 8, 1, ALL, &timed, NULL));
    CHECK_OK(hws_tag_recv(server, &in[1], 8, 2, ALL, &told, NULL));
    CHECK(hws_tag_send(client, &out, 8, 2, &plain, NULL) >= 0);
    UNTIL(&pair, atomic_load(&late) == 1 && atomic_load(&heard) == 1);
    CHECK_EQ(in[1], 7);
    CHECK_OK(hws_close(client));
    close_rally(&pair, &rally);
}

/* Who waits for one operation does not wait longer than it wants to. */
CASE(a_busy_worker_ends_waits_in_time)
{
    struct rally rally = {0};
    uint64_t in = 0, start = t_now();
    hws_event event;
    t_pair pair;
    hws_id op;

    open_rally(&pair, &rally);
    start_rally(&pair);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &op));
    CHECK_CODE(hws_wait(op, 30 * T_MS, &event), HWS_E_TIMED_OUT);
    CHECK(t_now() - start >= 30 * T_MS);
    CHECK_OK(hws_cancel(op));
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_CODE(event.status, HWS_E_CANCELED);
    close_rally(&pair, &rally);
}

struct waiter {
    hws_id op;
    _Atomic int waits;
};

static void *wait_forever(void *arg)
{
    struct waiter *w = arg;

    atomic_store(&w->waits, 1);
    CHECK_OK(hws_wait(w->op, HWS_FOREVER, NULL));
    return NULL;
}

/* Calls of other threads that need the worker itself get it. */
CASE(a_busy_worker_lets_others_in)
{
    struct rally rally = {0};
    struct waiter waiter = {0};
    uint64_t in = 0, out = 5;
    hws_op_opts plain = {.struct_size = sizeof(plain), .flags = HWS_OP_DETACHED};
    pthread_t thread;
    t_pair pair;

    open_rally(&pair, &rally);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &waiter.op));
    start_rally(&pair);
    CHECK_EQ(pthread_create(&thread, NULL, wait_forever, &waiter), 0);
    EVENTUALLY(atomic_load(&waiter.waits));
    for (int i = 0; i < 20; i++) {
        t_sleep(T_MS);
        CHECK_CODE(hws_tag_probe(pair.endpoint[1], 9, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    }
    CHECK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &plain, NULL) >= 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(in, 5);
    close_rally(&pair, &rally);
}

struct prober {
    hws_id endpoint;
    _Atomic int done;
};

static void *probe_often(void *arg)
{
    struct prober *p = arg;

    for (int i = 0; i < 200; i++) {
        CHECK_CODE(hws_tag_probe(p->endpoint, 9, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    }
    atomic_store(&p->done, 1);
    return NULL;
}

static void poll_beside(t_pair *pair, struct prober *prober)
{
    pthread_t thread;

    prober->endpoint = pair->endpoint[1];
    CHECK_EQ(pthread_create(&thread, NULL, probe_often, prober), 0);
    for (uint64_t start = t_now(); !atomic_load(&prober->done);
         t_check_patience(__FILE__, __LINE__, start, "the other thread's calls")) {
        int32_t r = hws_worker_progress(pair->worker[0]);
        CHECK(r >= 0 || r == HWS_E_BUSY);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* The same while the program polls without a pause. */
CASE(a_polled_worker_lets_others_in)
{
    struct rally rally = {0};
    struct prober prober = {0};
    t_pair pair;

    open_rally(&pair, &rally);
    start_rally(&pair);
    UNTIL(&pair, atomic_load(&rally.count) > 1000); /* the poller is the worker's favourite */
    poll_beside(&pair, &prober);
    close_rally(&pair, &rally);
}

/* From here on the system call fails on this thread and on those that it makes. */
static int forbid(unsigned call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
               ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
               : -1;
}

/* A program may put itself into a sandbox once it runs. */
CASE(a_polled_worker_lets_others_in_without_membarrier)
{
    struct rally rally = {0};
    struct prober prober = {0};
    t_pair pair;

    open_rally(&pair, &rally);
    start_rally(&pair);
    UNTIL(&pair, atomic_load(&rally.count) > 1000);
    if (forbid(SYS_membarrier) != 0) {
        SKIP("seccomp: %s", strerror(errno));
    }
    for (int i = 0; i < 3; i++) {
        uint64_t count = atomic_load(&rally.count);

        atomic_store(&prober.done, 0);
        poll_beside(&pair, &prober);
        UNTIL(&pair, atomic_load(&rally.count) > count + 1000); /* and is again */
    }
    close_rally(&pair, &rally);
}

/* ---- Blocking: a poller and the descriptor ---- */

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
                        .callback = count_event,
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
                        .callback = count_event,
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
                        .callback = count_event,
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

/* ---- Standing by ---- */

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
                        .callback = count_event,
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

/* ---- Threads of the library ---- */

struct thread_seen {
    _Atomic long id;
    _Atomic int starts;
    char name[32];
    cpu_set_t cpus;
};

static void on_start(void *arg)
{
    struct thread_seen *seen = arg;

    CHECK_EQ(pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name)), 0);
    CHECK_EQ(pthread_getaffinity_np(pthread_self(), sizeof(seen->cpus), &seen->cpus), 0);
    atomic_store(&seen->id, thread_id());
    atomic_fetch_add(&seen->starts, 1);
}

static void note_thread(void *arg)
{
    atomic_store((_Atomic long *)arg, thread_id());
}

static void own_thread(uint32_t mode)
{
    struct thread_seen seen = {.id = 0};
    hws_context_opts context_opts = {.struct_size = sizeof(context_opts)};
    hws_worker_opts opts = {.struct_size = sizeof(opts),
                            .mode = mode,
                            .name = "hawser-test-thread-with-a-long-name",
                            .thread_start = on_start,
                            .thread_start_arg = &seen};
    hws_id context = 0, worker = 0, op = 0;
    uint64_t mask[16] = {0}, threads;
    _Atomic long ran = 0;
    cpu_set_t mine;
    int cpu = 0;

    CHECK_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    while (!CPU_ISSET(cpu, &mine)) {
        cpu++;
    }
    mask[cpu / 64] |= UINT64_C(1) << (cpu % 64);
    opts.cpu_mask = mask;
    opts.cpu_words = 16;
    CHECK_OK(hws_context_open(&context_opts, &context));
    threads = t_thread_count();
    CHECK_OK(hws_worker_open(context, &opts, &worker));
    EVENTUALLY(atomic_load(&seen.starts) == 1);
    CHECK(t_thread_count() > threads);
    CHECK_STR(seen.name, "hawser-test-thr");
    CHECK_EQ(CPU_COUNT(&seen.cpus), 1);
    CHECK(CPU_ISSET(cpu, &seen.cpus));
    CHECK(atomic_load(&seen.id) != thread_id());
    /* A task that nobody waits for runs there. */
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
    for (int i = 0; i < 50 && atomic_load(&ran) != atomic_load(&seen.id); i++) {
        atomic_store(&ran, 0);
        CHECK_OK(hws_task(worker, note_thread, (void *)(uintptr_t)&ran, T_MS, &detached, &op));
        EVENTUALLY(atomic_load(&ran) != 0);
        CHECK_OK(hws_cancel(op));
    }
    CHECK_EQ(atomic_load(&ran), atomic_load(&seen.id));
    CHECK_OK(hws_close_wait(context, t_patience()));
    EVENTUALLY(t_thread_count() <= threads);
    CHECK_EQ(atomic_load(&seen.starts), 1);
}

CASE(thread_name_cpu_and_start)
{
    own_thread(HWS_PROGRESS_THREAD);
}

CASE(polling_thread_name_cpu_and_start)
{
    own_thread(HWS_PROGRESS_THREAD_POLLING);
}

static void by_itself(uint32_t mode)
{
    t_pair_opts opts = {.mode = mode};
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (int i = 0; i < 200; i++) {
        one_message(&pair);
    }
    CHECK_EQ(t_stats(pair.context).safety_wakeups, 0);
    t_pair_close(&pair);
}

/* A receive that was posted before takes what the probe after it must then not find. */
static void probe_after_receive(uint32_t mode)
{
    t_pair_opts opts = {.mode = mode};
    t_pair pair;
    hws_id send = 0, recv = 0, message = 0;
    uint64_t in = 0;

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < 2000; i += 2) {
        for (uint64_t n = i; n < i + 2; n++) {
            CHECK_OK(hws_tag_send(pair.endpoint[0], &n, 8, 1, NULL, &send));
            WAIT_OK(&pair, send);
        }
        t_sleep(T_MS / 2); /* the library's thread has the worker again */
        CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &recv));
        EVENTUALLY(hws_tag_probe(pair.endpoint[1], 1, ALL, NULL, &message) == HWS_OK);
        WAIT_OK(&pair, recv);
        CHECK_EQ(in, i);
        CHECK_OK(hws_message_recv(message, &in, 8, NULL, &recv));
        WAIT_OK(&pair, recv);
        CHECK_EQ(in, i + 1);
    }
    t_pair_close(&pair);
}

CASE(probe_after_receive_beside_a_thread)
{
    probe_after_receive(HWS_PROGRESS_THREAD);
}

CASE(probe_after_receive_beside_a_polling_thread)
{
    probe_after_receive(HWS_PROGRESS_THREAD_POLLING);
}

CASE(thread_makes_progress_by_itself)
{
    by_itself(HWS_PROGRESS_THREAD);
}

CASE(polling_thread_makes_progress_by_itself)
{
    by_itself(HWS_PROGRESS_THREAD_POLLING);
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

/* A pending receive costs an idle process next to nothing. */
CASE(idle_thread_sleeps)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD};
    t_pair pair;
    uint64_t in[100];

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < 100; i++) {
        hws_id op = 0;
        CHECK_OK(
            hws_tag_recv(i % 2 ? pair.endpoint[1] : pair.worker[1], &in[i], 8, i, ALL, NULL, &op));
    }
    t_sleep(300 * T_MS); /* until the threads have fallen asleep */
    uint64_t cpu = t_cpu_ns();
    t_sleep(T_SECOND);
    uint64_t used = t_cpu_ns() - cpu;
    if (used > 100 * T_MS) {
        t_fail(__FILE__, __LINE__, "%llu ms of CPU in one idle second",
               (unsigned long long)(used / T_MS));
    }
    t_pair_close(&pair);
}

/* ---- Submissions from many threads ---- */

struct submitter {
    t_pair *pair;
    uint64_t tag, count;
    _Atomic uint64_t *ended;
    uint64_t *in, *out;
};

static void *submit(void *arg)
{
    struct submitter *s = arg;
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .callback = count_event,
                        .callback_arg = (void *)(uintptr_t)s->ended};

    for (uint64_t i = 0; i < s->count; i++) {
        s->out[i] = s->tag << 32 | i;
        CHECK_OK(hws_tag_recv(s->pair->endpoint[1], &s->in[i], 8, s->tag, ALL, &opts, NULL));
        CHECK_OK(hws_tag_send(s->pair->endpoint[0], &s->out[i], 8, s->tag, &opts, NULL));
    }
    return NULL;
}

static void many_submitters(uint32_t mode, uint32_t flags)
{
    enum { THREADS = 4 };
    t_pair_opts opts = {.mode = mode, .endpoint_flags = flags};
    uint64_t count = t_sanitized() ? 1000 : 5000;
    t_pair pair;
    struct submitter submitters[THREADS];
    pthread_t threads[THREADS];
    _Atomic uint64_t ended = 0;

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){.pair = &pair,
                                           .tag = i,
                                           .count = count,
                                           .ended = &ended,
                                           .in = t_alloc(count * 8),
                                           .out = t_alloc(count * 8)};
        CHECK_EQ(pthread_create(&threads[i], NULL, submit, &submitters[i]), 0);
    }
    UNTIL(&pair, atomic_load(&ended) == THREADS * count * 2);
    for (uint64_t i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        /* In the order in which each thread sent. */
        for (uint64_t j = 0; j < count; j++) {
            CHECK(submitters[i].in[j] == (i << 32 | j));
        }
        free(submitters[i].in);
        free(submitters[i].out);
    }
    CHECK_EQ(t_stats(pair.context).safety_wakeups, 0);
    CHECK_EQ(t_stats(pair.context).ops_pending, 0);
    t_pair_close(&pair);
}

CASE(four_submitters_manual)
{
    many_submitters(HWS_PROGRESS_MANUAL, 0);
}

CASE(four_submitters_thread_shm)
{
    many_submitters(HWS_PROGRESS_THREAD, 0);
}

CASE(four_submitters_thread_tcp)
{
    many_submitters(HWS_PROGRESS_THREAD, HWS_ENDPOINT_TCP_ONLY);
}

CASE(four_submitters_polling_thread)
{
    many_submitters(HWS_PROGRESS_THREAD_POLLING, 0);
}

/* Buffers, headers and piece lists of submissions are kept although the call has returned. */
static void *submit_headers(void *arg)
{
    struct submitter *s = arg;
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .callback = count_event,
                        .flags = HWS_OP_IOV,
                        .callback_arg = (void *)(uintptr_t)s->ended};

    for (uint64_t i = 0; i < s->count; i++) {
        char header[200];
        size_t length = 1 + (i * 7) % sizeof(header);
        hws_iov iov[2] = {{&s->out[0], 4}, {(char *)&s->out[0] + 4, 4}};
        memset(header, (int)(length & 0xff), length);
        CHECK_OK(hws_am_send(s->pair->endpoint[0], 1, header, length, iov, 2, &opts, NULL));
        memset(header, 0xff, sizeof(header));
        memset(iov, 0xff, sizeof(iov));
    }
    return NULL;
}

static void check_header(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    const unsigned char *header = detail->header;

    CHECK_OK(event->status);
    CHECK_EQ(detail->data_length, 8);
    CHECK_EQ(memcmp(detail->data, "datadata", 8), 0);
    for (uint64_t i = 0; i < detail->header_length; i++) {
        CHECK_EQ(header[i], detail->header_length & 0xff);
    }
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}

CASE(submitted_headers_are_copied)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD};
    t_pair pair;
    struct submitter submitters[3];
    pthread_t threads[3];
    _Atomic uint64_t ended = 0, arrived = 0;
    uint64_t data;
    hws_am_opts handler = {
        .struct_size = sizeof(handler),
        .sink = {.callback = check_header, .callback_arg = (void *)(uintptr_t)&arrived}};

    memcpy(&data, "datadata", 8);
    t_pair_open(&pair, &opts);
    CHECK_OK(hws_am_handler(pair.worker[1], 1, &handler));
    for (int i = 0; i < 3; i++) {
        submitters[i] =
            (struct submitter){.pair = &pair, .count = 1000, .ended = &ended, .out = &data};
        CHECK_EQ(pthread_create(&threads[i], NULL, submit_headers, &submitters[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    EVENTUALLY(atomic_load(&ended) == 3000 && atomic_load(&arrived) == 3000);
    t_pair_close(&pair);
}

/* ---- Tasks ---- */

struct task {
    hws_id worker;
    _Atomic int runs;
    _Atomic int over;
    int deadlocks;
};

static void run_task(void *arg)
{
    struct task *task = arg;

    CHECK_EQ(atomic_load(&task->over), 0);
    if (hws_worker_progress(task->worker) == HWS_E_DEADLOCK) {
        task->deadlocks++;
    }
    atomic_fetch_add(&task->runs, 1);
}

CASE(task_once)
{
    uint32_t modes[] = {HWS_PROGRESS_MANUAL, HWS_PROGRESS_THREAD};

    for (int i = 0; i < 2; i++) {
        t_pair_opts opts = {.mode = modes[i]};
        t_pair pair;
        hws_id op = 0;
        t_pair_open(&pair, &opts);
        struct task task = {.worker = pair.worker[0]};
        hws_op_opts told = {.struct_size = sizeof(told), .user = 3};
        CHECK_OK(hws_task(pair.worker[0], run_task, &task, 0, &told, &op));
        hws_event event = WAIT_OK(&pair, op);
        CHECK_EQ(event.kind, HWS_EVENT_TASK);
        CHECK_EQ(event.user, 3);
        CHECK(event.source == pair.worker[0]);
        CHECK_EQ(atomic_load(&task.runs), 1);
        CHECK_EQ(task.deadlocks, 1);
        t_pair_idle(&pair, 5 * T_MS);
        CHECK_EQ(atomic_load(&task.runs), 1);
        CHECK_CODE(hws_task(pair.worker[0], NULL, &task, 0, &told, &op), HWS_E_INVALID);
        t_pair_close(&pair);
    }
}

CASE(task_periodic)
{
    uint32_t modes[] = {HWS_PROGRESS_MANUAL, HWS_PROGRESS_THREAD, HWS_PROGRESS_THREAD_POLLING};

    for (int i = 0; i < 3; i++) {
        t_pair_opts opts = {.mode = modes[i]};
        t_pair pair;
        hws_id op = 0;
        t_pair_open(&pair, &opts);
        struct task task = {.worker = pair.worker[0]};
        uint64_t start = t_now();
        CHECK_OK(hws_task(pair.worker[0], run_task, &task, 10 * T_MS, NULL, &op));
        UNTIL(&pair, atomic_load(&task.runs) >= 5);
        CHECK(t_now() - start >= 40 * T_MS);
        CHECK_PENDING(op);
        CHECK_OK(hws_cancel(op));
        CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
        atomic_store(&task.over, 1);
        t_pair_idle(&pair, 40 * T_MS);
        t_pair_close(&pair);
    }
}

CASE(task_with_a_deadline)
{
    hws_op_opts late = {.struct_size = sizeof late, .timeout_ns = 25 * T_MS};
    hws_id op = 0;
    t_pair pair;

    t_pair_open(&pair, NULL);
    struct task task = {.worker = pair.worker[0]};
    uint64_t start = t_now();
    CHECK_OK(hws_task(pair.worker[0], run_task, &task, 10 * T_MS, &late, &op));
    CHECK_EQ(WAIT(&pair, op).status, HWS_E_TIMED_OUT);
    CHECK(t_now() - start >= 25 * T_MS);
    CHECK(atomic_load(&task.runs) <= 2);
    /* What never had its turn does not run late. */
    atomic_store(&task.runs, 0);
    late.timeout_ns = T_MS;
    CHECK_OK(hws_task(pair.worker[0], run_task, &task, 0, &late, &op));
    t_sleep(2 * T_MS);
    CHECK_EQ(WAIT(&pair, op).status, HWS_E_TIMED_OUT);
    CHECK_EQ(atomic_load(&task.runs), 0);
    t_pair_close(&pair);
}

CASE(periodic_task_ends_with_its_worker)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD};
    t_pair pair;

    t_pair_open(&pair, &opts);
    struct task task = {.worker = pair.worker[0]};
    hws_op_opts told = {.struct_size = sizeof(told), .callback = t_record_event};
    told.callback_arg = &pair.record[0];
    CHECK_OK(hws_task(pair.worker[0], run_task, &task, T_MS, &told, NULL));
    UNTIL(&pair, atomic_load(&task.runs) >= 3);
    CHECK_OK(hws_close_wait(pair.worker[0], t_patience()));
    atomic_store(&task.over, 1);
    CHECK_EQ(t_record_kinds(&pair.record[0], HWS_EVENT_TASK, 0), 1);
    t_seen last = t_record_at(&pair.record[0], t_record_count(&pair.record[0]) - 1);
    CHECK_EQ(last.event.kind, HWS_EVENT_CLOSED);
    CHECK(last.event.source == pair.worker[0]);
    t_pair_close(&pair);
}

/* A worker with a thread and operations outstanding can be closed at any moment. */
CASE(closed_while_busy)
{
    for (int i = 0; i < 10; i++) {
        t_pair_opts opts = {.mode = i % 2 ? HWS_PROGRESS_THREAD : HWS_PROGRESS_THREAD_POLLING,
                            .endpoint_flags = i % 3 ? 0 : HWS_ENDPOINT_TCP_ONLY};
        t_pair pair;
        static uint64_t in[200], out[200];
        hws_op_opts told = {.struct_size = sizeof(told), .callback = t_record_event};
        t_pair_open(&pair, &opts);
        t_record *record = &pair.record[0];
        told.callback_arg = record;
        t_record_clear(record);
        uint32_t posted = 0;
        for (uint64_t j = 0; j < 200; j++) {
            CHECK_OK(hws_tag_recv(pair.endpoint[1], &in[j], 8, j, ALL, &told, NULL));
            posted++;
            if (j % 2) {
                CHECK_OK(hws_tag_send(pair.endpoint[0], &out[j], 8, j, &told, NULL));
                posted++;
            }
        }
        CHECK_OK(hws_close(pair.context));
        EVENTUALLY(hws_kind(pair.context) == HWS_E_STALE);
        CHECK_EQ(t_record_kinds(record, HWS_EVENT_TAG_RECV, 0) +
                     t_record_kinds(record, HWS_EVENT_TAG_SEND, 0),
                 posted);
        t_record_free(&pair.record[0]);
        t_record_free(&pair.record[1]);
    }
}

CASES_MAIN
