/*
 * Who makes progress: nobody without a call in manual mode, else a thread of the library. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/proc.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALL UINT64_MAX

static long thread_id(void)
{
    return syscall(SYS_gettid);
}

static void one_message(t_pair *pair)
{
    _Atomic uint64_t ended = 0;
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .callback = t_count_event,
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

CASES_MAIN
