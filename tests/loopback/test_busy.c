/*
 * Workers that always have work: all else has its turn, and others that want the worker get it. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALL UINT64_MAX

static void count_late(void *arg, const hws_event *event)
{
    CHECK_EQ(event->status, HWS_E_TIMED_OUT);
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}

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
                        .callback = t_count_event,
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

CASES_MAIN
