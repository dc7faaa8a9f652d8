/*
 * Tasks: callbacks that a worker owes the program, once or time after time. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <errno.h>
#include <stdatomic.h>

#define ALL UINT64_MAX

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
