/*
 * Credits of streams: what nobody reads is bounded by the receiver's window, however the sender cuts it,
 * and every byte arrives in order once somebody does.
 * TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>
#include <string.h>

#define KIB 1024u
#define WINDOW (64 * KIB)
#define BIG (1000 * KIB + 7)
#define QUIET (20 * T_MS)

static const hws_worker_opts tight = {.struct_size = sizeof tight, .credit_bytes = WINDOW};
static char out[BIG], in[BIG];

static void open_tight(t_pair *pair, uint32_t mode, uint32_t flags)
{
    t_pair_opts opts = {.worker = {&tight, &tight}, .mode = mode, .endpoint_flags = flags};

    memset(in, 0, sizeof in);
    t_fill(out, sizeof out, 1);
    t_pair_open(pair, &opts);
}

static uint64_t left(const t_pair *pair, int side)
{
    return t_stats(pair->worker[side]).bytes_sent[HWS_TRAFFIC_STREAM];
}

static hws_id post(const t_pair *pair, int side, uint64_t offset, uint64_t length)
{
    hws_id op = 0;

    CHECK_OK(hws_stream_send(pair->endpoint[side], out + offset, length, NULL, &op));
    return op;
}

static uint64_t read_at(t_pair *pair, int side, uint64_t offset, uint64_t length, uint32_t flags)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = flags};
    hws_id op = 0;

    CHECK_OK(hws_stream_recv(pair->endpoint[side], in + offset, length, &opts, &op));
    return WAIT_OK(pair, op).length;
}

/* All that side 0 sends, by receives of `piece` bytes. */
static void read_all(t_pair *pair, uint64_t total, uint64_t piece, uint32_t flags)
{
    for (uint64_t got = 0; got < total;) {
        uint64_t rest = total - got;

        got += read_at(pair, 1, got, rest < piece ? rest : piece, flags);
    }
    CHECK_FILLED(in, total, 1);
}

CASE_BOTH(what_nobody_reads_is_bounded)
{
    hws_id ops[50];
    t_pair pair;

    open_tight(&pair, HWS_PROGRESS_MANUAL, flags);
    for (uint64_t i = 0; i < 50; i++) {
        ops[i] = post(&pair, 0, i * 20 * KIB, 20 * KIB);
    }
    /* What is left of the window is less than the smallest part that is worth while. */
    UNTIL(&pair, left(&pair, 0) == 60 * KIB);
    t_pair_idle(&pair, QUIET);
    CHECK_EQ(left(&pair, 0), 60 * KIB);
    for (int i = 0; i < 3; i++) {
        WAIT_OK(&pair, ops[i]);
    }
    CHECK_PENDING(ops[3]);
    read_all(&pair, 50 * 20 * KIB, 7777, 0);
    for (int i = 3; i < 50; i++) {
        CHECK_EQ(WAIT_OK(&pair, ops[i]).length, 20 * KIB);
    }
    CHECK_EQ(left(&pair, 0), 50 * 20 * KIB);
    CHECK_EQ(t_stats(pair.worker[0]).sent[HWS_TRAFFIC_STREAM], 50);
    t_pair_close(&pair);
}

CASE_BOTH(larger_than_the_window)
{
    static const uint64_t pieces[] = {BIG, 100 * KIB, WINDOW, 5000};
    t_pair pair;
    hws_id op;

    for (uint32_t all = 0; all < 2; all++) {
        for (int i = 0; i < 4; i++) {
            open_tight(&pair, HWS_PROGRESS_MANUAL, flags);
            op = post(&pair, 0, 0, BIG);
            t_pair_idle(&pair, QUIET);
            CHECK_EQ(left(&pair, 0), WINDOW);
            read_all(&pair, BIG, pieces[i], all ? HWS_OP_WAIT_ALL : 0);
            CHECK_EQ(WAIT_OK(&pair, op).length, BIG);
            t_pair_close(&pair);
        }
    }
}

/* UCX finds out what the memory is, also of the parts that wait for credit. */
CASE_BOTH(of_an_unknown_kind_of_memory)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .memory_kind = HWS_MEMORY_UNKNOWN};
    hws_id op = 0;
    t_pair pair;

    open_tight(&pair, HWS_PROGRESS_MANUAL, flags);
    CHECK_OK(hws_stream_send(pair.endpoint[0], out, BIG, &opts, &op));
    read_all(&pair, BIG, 7777, 0);
    CHECK_EQ(WAIT_OK(&pair, op).length, BIG);
    t_pair_close(&pair);
}

/* Who waits for all has room for all: nothing but the data is needed for it to go. */
CASE_BOTH(a_receive_ahead_needs_no_window)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_WAIT_ALL};
    hws_id recv = 0, op;
    t_pair pair;

    open_tight(&pair, HWS_PROGRESS_MANUAL, flags);
    CHECK_OK(hws_stream_recv(pair.endpoint[1], in, BIG, &opts, &recv));
    t_pair_idle(&pair, QUIET);
    op = post(&pair, 0, 0, BIG);
    CHECK_EQ(t_stats(pair.worker[0]).credit_waits, 0);
    CHECK_EQ(WAIT_OK(&pair, recv).length, BIG);
    WAIT_OK(&pair, op);
    CHECK_FILLED(in, BIG, 1);
    t_pair_close(&pair);
}

/* Room that was promised and not used is promised once. */
CASE_BOTH(cancelled_receives_promise_no_more)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_WAIT_ALL};
    hws_id recv = 0, op;
    t_pair pair;

    open_tight(&pair, HWS_PROGRESS_MANUAL, flags);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(hws_stream_recv(pair.endpoint[1], in, 2 * WINDOW, &opts, &recv));
        t_pair_idle(&pair, T_MS);
        CHECK_OK(hws_cancel(recv));
        CHECK_CODE(WAIT(&pair, recv).status, HWS_E_CANCELED);
    }
    op = post(&pair, 0, 0, BIG);
    t_pair_idle(&pair, QUIET);
    CHECK_EQ(left(&pair, 0), 3 * WINDOW);
    read_all(&pair, BIG, 5000, HWS_OP_WAIT_ALL);
    CHECK_EQ(WAIT_OK(&pair, op).length, BIG);
    t_pair_close(&pair);
}

CASE_BOTH(scattered)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_IOV};
    hws_iov v[20];
    uint64_t count[] = {3, 20}; /* fewer and more than an operation copies */
    t_pair pair;

    for (int i = 0; i < 2; i++) {
        uint64_t total = 0;
        hws_id op = 0;

        open_tight(&pair, HWS_PROGRESS_MANUAL, flags);
        for (uint64_t k = 0; k < count[i]; k++) {
            v[k] = (hws_iov){out + total, k % 3 == 1 ? 0 : 45 * KIB + k};
            total += v[k].length;
        }
        CHECK_OK(hws_stream_send(pair.endpoint[0], v, count[i], &opts, &op));
        read_all(&pair, total, 30 * KIB, 0);
        CHECK_EQ(WAIT_OK(&pair, op).length, total);
        t_pair_close(&pair);
    }
}

CASE(deadline_and_cancel_tell_how_much_went)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .timeout_ns = 5 * T_MS};
    hws_id late = 0, whole, canceled;
    t_pair pair;
    hws_event e;

    open_tight(&pair, HWS_PROGRESS_MANUAL, 0);
    CHECK_OK(hws_stream_send(pair.endpoint[0], out, 100 * KIB, &opts, &late));
    whole = post(&pair, 0, WINDOW, 10);
    canceled = post(&pair, 0, 0, 10);
    e = WAIT(&pair, late);
    CHECK_CODE(e.status, HWS_E_TIMED_OUT);
    CHECK_EQ(e.length, WINDOW);
    CHECK_OK(hws_cancel(canceled));
    e = WAIT(&pair, canceled);
    CHECK_CODE(e.status, HWS_E_CANCELED);
    CHECK_EQ(e.length, 0);
    read_all(&pair, WINDOW + 10, WINDOW, 0);
    WAIT_OK(&pair, whole);
    t_pair_close(&pair);
}

CASE(abort_and_the_peers_close)
{
    t_pair pair;
    hws_id op;

    open_tight(&pair, HWS_PROGRESS_MANUAL, 0);
    op = post(&pair, 0, 0, BIG);
    t_pair_idle(&pair, QUIET);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
    t_pair_close(&pair);

    open_tight(&pair, HWS_PROGRESS_MANUAL, 0);
    op = post(&pair, 0, 0, BIG);
    t_pair_idle(&pair, QUIET);
    CHECK_OK(hws_close(pair.endpoint[1]));
    /* Either way: the peer drops what comes now, and says goodbye. */
    (void)WAIT(&pair, op);
    t_pair_close(&pair);

    open_tight(&pair, HWS_PROGRESS_MANUAL, 0);
    op = post(&pair, 0, 0, BIG);
    t_pair_idle(&pair, QUIET);
    CHECK_OK(hws_abort(pair.endpoint[1]));
    CHECK(WAIT(&pair, op).status < 0);
    t_pair_close(&pair);
}

CASE(flush_and_close_wait_for_what_waits)
{
    hws_id op, flush = 0;
    t_pair pair;

    open_tight(&pair, HWS_PROGRESS_MANUAL, 0);
    op = post(&pair, 0, 0, 300 * KIB);
    CHECK_OK(hws_flush(pair.endpoint[0], NULL, &flush));
    t_pair_idle(&pair, QUIET);
    CHECK_PENDING(flush);
    read_all(&pair, 300 * KIB, 10 * KIB, 0);
    WAIT_OK(&pair, flush);
    WAIT_OK(&pair, op);
    op = post(&pair, 0, 0, 300 * KIB);
    CHECK_OK(hws_close(pair.endpoint[0]));
    read_all(&pair, 300 * KIB, 10 * KIB, 0);
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_CLOSED, pair.endpoint[0]) == 1);
    WAIT_OK(&pair, op);
    t_pair_close(&pair);
}

CASE(both_close_with_full_windows)
{
    t_pair_opts opts = {.worker = {&tight, &tight}, .close_timeout_ns = 600 * T_SECOND};
    hws_op_opts detached = {.struct_size = sizeof detached, .flags = HWS_OP_DETACHED};
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (int side = 0; side < 2; side++) {
        CHECK_OK(hws_stream_send(pair.endpoint[side], out, BIG, &detached, NULL));
    }
    t_pair_idle(&pair, QUIET);
    t_pair_close_both(&pair);
    t_pair_close(&pair);
}

CASE_BOTH(sleeping_sides)
{
    static const uint32_t modes[] = {HWS_PROGRESS_BLOCKING, HWS_PROGRESS_THREAD};
    t_pair pair;
    hws_id op;

    for (int i = 0; i < 2; i++) {
        open_tight(&pair, modes[i], flags);
        for (int k = 0; k < 3; k++) {
            op = post(&pair, 0, 0, BIG);
            t_pair_idle(&pair, QUIET);
            read_all(&pair, BIG, 20 * KIB, k == 1 ? HWS_OP_WAIT_ALL : 0);
            CHECK_EQ(WAIT_OK(&pair, op).length, BIG);
        }
        t_pair_close(&pair);
    }
}

CASES_MAIN
