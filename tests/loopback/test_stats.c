/*
 * Statistics: what passed by kind, transport and code; sums of what is closed; times of operations;
 * the page that another process reads.
 * TIMEOUT: 180
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/remote.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL UINT64_MAX

static void exchange(t_pair *pair, uint64_t bytes, int count)
{
    char *out = t_alloc(bytes), *in = t_alloc(bytes);

    t_fill(out, bytes, 3);
    for (int i = 0; i < count; i++) {
        hws_id receive = 0, send = 0;

        CHECK_OK(hws_tag_recv(pair->endpoint[1], in, bytes, 7, ALL, NULL, &receive));
        CHECK_OK(hws_tag_send(pair->endpoint[0], out, bytes, 7, NULL, &send));
        WAIT_OK(pair, receive);
        WAIT_OK(pair, send);
    }
    free(out);
    free(in);
}

CASE_BOTH(messages_by_kind_and_transport)
{
    t_pair_opts opts = {.endpoint_flags = flags, .close_timeout_ns = 100 * T_MS};
    uint32_t via = flags == 0 ? HWS_VIA_SHM : HWS_VIA_TCP;
    hws_stats before, s;
    t_pair pair;

    t_pair_open(&pair, &opts);
    exchange(&pair, 100, 5);
    s = t_stats(pair.endpoint[0]);
    CHECK_EQ(s.sent[HWS_TRAFFIC_TAG], 5);
    CHECK_EQ(s.bytes_sent[HWS_TRAFFIC_TAG], 500);
    CHECK_EQ(s.received[HWS_TRAFFIC_TAG], 0);
    CHECK_EQ(s.sent[HWS_TRAFFIC_AM] | s.sent[HWS_TRAFFIC_STREAM] | s.sent[HWS_TRAFFIC_MULTI], 0);
    CHECK_EQ(s.via_sent[via], 5);
    CHECK_EQ(s.via_bytes_sent[via], 500);
    s = t_stats(pair.worker[1]);
    CHECK_EQ(s.received[HWS_TRAFFIC_TAG], 5);
    CHECK_EQ(s.via_bytes_received[via], 500);
    before = t_stats(pair.context);
    CHECK_EQ(before.sent[HWS_TRAFFIC_TAG], 5);
    CHECK_EQ(before.received[HWS_TRAFFIC_TAG], 5);
    /* A closed endpoint stays counted in its worker, a closed worker in its context. */
    CHECK_OK(hws_close_wait(pair.endpoint[0], t_patience()));
    s = t_stats(pair.context);
    CHECK_EQ(s.sent[HWS_TRAFFIC_TAG], 5);
    CHECK_EQ(s.via_sent[via], 5);
    CHECK_OK(hws_close_wait(pair.worker[0], t_patience()));
    s = t_stats(pair.context);
    CHECK_EQ(s.sent[HWS_TRAFFIC_TAG], 5);
    CHECK_EQ(s.via_bytes_sent[via], 500);
    CHECK(s.ops_posted + s.ops_inline >= before.ops_posted + before.ops_inline);
    CHECK_OK(hws_close_wait(pair.context, t_patience()));
    CHECK_OK(hws_stats_total(&s));
    CHECK_EQ(s.sent[HWS_TRAFFIC_TAG], 5);
    CHECK_EQ(s.received[HWS_TRAFFIC_TAG], 5);
    CHECK_EQ(s.endpoints | s.isolated | s.ops_pending, 0);
}

CASE_REMOTE(remote_memory_by_kind)
{
    static uint64_t value[2500]; /* in several pieces, where it goes by messages */
    uint64_t old = 0;
    hws_stats s;
    hws_id op = 0;

    CHECK_OK(hws_put(remote->rkey, remote->address, value, sizeof value, NULL, &op));
    WAIT_OK(pair, op);
    CHECK_OK(hws_get(remote->rkey, remote->address + 8, &old, 8, NULL, &op));
    WAIT_OK(pair, op);
    CHECK_OK(hws_get(remote->rkey, remote->address + 8, &old, 4, NULL, &op));
    WAIT_OK(pair, op);
    CHECK_OK(hws_atomic(remote->rkey, remote->address, HWS_ATOMIC_ADD | HWS_ATOMIC_FETCH, 8, 5, 0,
                        &old, NULL, &op));
    WAIT_OK(pair, op);
    t_flush(pair, user);
    s = t_stats(pair->endpoint[user]);
    CHECK_EQ(s.sent[HWS_TRAFFIC_PUT], 1);
    CHECK_EQ(s.bytes_sent[HWS_TRAFFIC_PUT], sizeof value);
    CHECK_EQ(s.sent[HWS_TRAFFIC_GET], 2);
    CHECK_EQ(s.bytes_sent[HWS_TRAFFIC_GET], 12);
    CHECK_EQ(s.sent[HWS_TRAFFIC_ATOMIC], 1);
    CHECK_EQ(s.sent[HWS_TRAFFIC_TAG], 0);
    s = t_stats(pair->endpoint[1 - user]);
    /* Directly, and the other side sees nothing; or all of it by messages. */
    CHECK(s.received[HWS_TRAFFIC_PUT] <= 1);
    if (s.received[HWS_TRAFFIC_PUT] == 1) {
        CHECK_EQ(s.bytes_received[HWS_TRAFFIC_PUT], sizeof value);
        CHECK_EQ(s.received[HWS_TRAFFIC_GET], 2);
        CHECK_EQ(s.received[HWS_TRAFFIC_ATOMIC], 1);
    } else {
        CHECK_EQ(s.received[HWS_TRAFFIC_GET], 0);
    }
}

CASE_BOTH(multi_buffer_messages_by_their_data)
{
    static char parts[4][100000];
    static const uint64_t lengths[] = {0, 1, 700, 100000};
    t_pair_opts opts = {.endpoint_flags = flags};
    uint64_t total = 0;
    hws_stats s;
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (uint64_t n = 0; n <= 4; n++) {
        hws_segment segments[4];
        hws_id send = 0, recv = 0;

        for (uint64_t i = 0; i < n; i++) {
            segments[i] = (hws_segment){.base = parts[i], .length = lengths[i]};
            total += lengths[i];
        }
        CHECK_OK(hws_multi_recv(pair.endpoint[1], n, ALL, NULL, NULL, &recv));
        CHECK_OK(hws_multi_send(pair.endpoint[0], n, segments, n, NULL, NULL, &send));
        WAIT_OK(&pair, send);
        (void)WAIT_OK(&pair, recv);
    }
    s = t_stats(pair.endpoint[1]);
    CHECK_EQ(s.received[HWS_TRAFFIC_MULTI], 5);
    CHECK_EQ(s.bytes_received[HWS_TRAFFIC_MULTI], total);
    CHECK_EQ(t_stats(pair.endpoint[0]).bytes_sent[HWS_TRAFFIC_MULTI], total);
    t_pair_close(&pair);
}

CASE(failures_by_code)
{
    uint64_t in = 0;
    hws_id op = 0;
    hws_stats s;
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &op));
    CHECK_OK(hws_cancel(op));
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
    s = t_stats(pair.worker[1]);
    CHECK_EQ(s.op_failures[-HWS_E_CANCELED], 1);
    CHECK_EQ(s.failures, 0);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair, t_stats(pair.worker[1]).failures == 1);
    s = t_stats(pair.worker[1]);
    CHECK_EQ(s.endpoint_failures[-HWS_E_CONNECTION_RESET], 1);
    t_pair_close(&pair);
}

/* An operation with its times: they are there at the end, in order. */
static void timed(t_pair *pair)
{
    hws_timing send_times = {0}, receive_times = {0};
    hws_op_opts opts = {.struct_size = sizeof opts,
                        .flags = HWS_OP_TIMED | HWS_OP_INLINE,
                        .timing = &receive_times};
    uint64_t out = 5, in = 0, before = t_now(), posted;
    hws_id send = 0, receive = 0;

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, ALL, &opts, &receive));
    posted = t_now();
    t_pair_idle(pair, 20 * T_MS);
    opts.timing = &send_times;
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, &opts, &send));
    WAIT_OK(pair, send);
    WAIT_OK(pair, receive);
    CHECK_EQ(in, 5);
    CHECK(receive_times.posted_ns >= before && receive_times.posted_ns <= posted);
    CHECK(receive_times.started_ns >= receive_times.posted_ns);
    CHECK(receive_times.ended_ns >= receive_times.posted_ns + 20 * T_MS);
    CHECK(receive_times.ended_ns <= t_now());
    CHECK(send_times.posted_ns > receive_times.posted_ns);
    CHECK(send_times.started_ns >= send_times.posted_ns);
    CHECK(send_times.ended_ns >= send_times.started_ns);
}

CASE(times_of_an_operation)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    for (int i = 0; i < 100; i++) {
        timed(&pair);
    }
    exchange(&pair, 8, 10); /* without: nothing is left of the times */
    t_pair_close(&pair);
}

CASE(times_of_an_operation_of_another_thread)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD_POLLING};
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (int i = 0; i < 20; i++) {
        timed(&pair);
    }
    t_pair_close(&pair);
}

CASE(times_need_a_place)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_TIMED};
    hws_timing times = {0};
    uint64_t in = 0;
    hws_id op = 0;
    t_pair_opts pair_opts = {.close_timeout_ns = 100 * T_MS};
    t_pair pair;

    t_pair_open(&pair, &pair_opts);
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, &opts, &op), HWS_E_INVALID);
    CHECK_EQ(op, 0);
    /* A posting that fails leaves nothing behind either. */
    opts.timing = &times;
    CHECK_OK(hws_close_wait(pair.endpoint[1], t_patience()));
    UNTIL(&pair, t_endpoint_info(pair.endpoint[0]).state != HWS_STATE_OPEN);
    CHECK(hws_tag_send(pair.endpoint[0], &in, 8, 1, &opts, &op) < 0);
    CHECK_EQ(op, 0);
    CHECK_EQ(t_stats(pair.worker[0]).ops_pending, 0);
    CHECK_OK(hws_close_wait(pair.context, t_patience()));
}

static hws_latency latency(hws_id worker, uint32_t kind)
{
    hws_latency l = {.struct_size = sizeof l};

    CHECK_OK(hws_latency_get(worker, kind, &l));
    return l;
}

CASE(histograms)
{
    hws_worker_opts worker = {.struct_size = sizeof worker, .flags = HWS_WORKER_LATENCY};
    t_pair_opts opts = {.worker = {&worker, NULL}};
    hws_latency l;
    uint64_t sum = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    exchange(&pair, 8, 1000);
    l = latency(pair.worker[0], HWS_EVENT_TAG_SEND);
    CHECK_EQ(l.count, 1000);
    for (int i = 0; i < HWS_LATENCY_BUCKETS; i++) {
        sum += l.buckets[i];
    }
    CHECK_EQ(sum, 1000);
    CHECK(l.min_ns > 0 && l.min_ns <= l.p50_ns && l.p50_ns <= l.p90_ns && l.p90_ns <= l.p99_ns);
    CHECK(l.p99_ns <= l.p999_ns && l.p999_ns <= l.max_ns && l.max_ns < t_patience());
    CHECK(l.sum_ns >= 1000 * l.min_ns && l.sum_ns <= 1000 * l.max_ns);
    CHECK_EQ(latency(pair.worker[0], HWS_EVENT_TAG_RECV).count, 0);
    CHECK_CODE(hws_latency_get(pair.worker[1], HWS_EVENT_TAG_RECV, &l), HWS_E_UNSUPPORTED);
    CHECK_CODE(hws_latency_get(pair.worker[0], 32, &l), HWS_E_INVALID);
    t_pair_close(&pair);
}

/* What another process sees of this one's two workers: told by its exit code. */
static int peek_at(pid_t pid)
{
    hws_peek_info info = {.struct_size = sizeof info};
    hws_stats s = {.struct_size = sizeof s};
    hws_latency l = {.struct_size = sizeof l};
    int named = 0;

    for (uint32_t i = 0; i < 2; i++) {
        if (hws_stats_peek((uint32_t)pid, i, &s, &info) != HWS_OK) {
            return 1;
        }
        int32_t r = hws_latency_peek((uint32_t)pid, i, HWS_EVENT_TAG_SEND, &l);

        if (strcmp(info.name, "seen") == 0) {
            named++;
            if (info.latency != 1 || s.sent[HWS_TRAFFIC_TAG] != 10 || r != HWS_OK ||
                l.count != 10) {
                return 2;
            }
        } else if (info.latency != 0 || s.received[HWS_TRAFFIC_TAG] != 10 ||
                   r != HWS_E_UNSUPPORTED) {
            return 3;
        }
    }
    return named == 1 && hws_stats_peek((uint32_t)pid, 2, &s, &info) == HWS_E_NOT_FOUND ? 0 : 4;
}

CASE(another_process_reads_them)
{
    hws_worker_opts worker = {
        .struct_size = sizeof worker, .flags = HWS_WORKER_LATENCY, .name = "seen"};
    t_pair_opts opts = {.worker = {&worker, NULL}};
    int gate[2], status = 0;
    char byte = 0;
    t_pair pair;
    pid_t child;

    CHECK_EQ(pipe(gate), 0);
    child = fork(); /* before the library is used: a child may use it too */
    CHECK(child >= 0);
    if (child == 0) {
        close(gate[1]);
        _exit(read(gate[0], &byte, 1) == 1 ? peek_at(getppid()) : 9);
    }
    t_pair_open(&pair, &opts);
    exchange(&pair, 8, 10);
    t_stats(pair.worker[0]); /* publishes: nobody may make progress just now */
    t_stats(pair.worker[1]);
    CHECK_EQ(write(gate[1], &byte, 1), 1);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    t_pair_close(&pair);
    hws_stats s = {.struct_size = sizeof s};
    CHECK_CODE(hws_stats_peek((uint32_t)getpid(), 0, &s, NULL), HWS_E_NOT_FOUND);
    CHECK_CODE(hws_stats_peek(0x7fffffff, 0, &s, NULL), HWS_E_NOT_FOUND);
}

/* A busy worker publishes by itself. */
CASE(the_page_is_kept_up_to_date)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD};
    hws_peek_info info = {.struct_size = sizeof info};
    hws_stats s = {.struct_size = sizeof s};
    t_pair pair;

    t_pair_open(&pair, &opts);
    exchange(&pair, 8, 3);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint64_t start = t_now();; t_sleep(10 * T_MS)) {
            CHECK_OK(hws_stats_peek((uint32_t)getpid(), i, &s, &info));
            if (s.sent[HWS_TRAFFIC_TAG] + s.received[HWS_TRAFFIC_TAG] == 3) {
                break;
            }
            t_check_patience(__FILE__, __LINE__, start, "the page of an idle worker");
        }
    }
    CHECK_EQ(info.mode, HWS_PROGRESS_THREAD);
    t_pair_close(&pair);
}

CASES_MAIN
