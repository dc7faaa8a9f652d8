/*
 * What ends a send early that waits for a CUDA stream, and streams that fail; without a GPU, as in test_cuda.c.
 * TIMEOUT: 180
 */
#include "support/cases.h"
#include "support/cuda.h"
#include "support/pair.h"

#include <stdbool.h>

#define ALL UINT64_MAX

static hws_op_opts recorded_on_stream(t_record *record)
{
    hws_op_opts opts = t_cuda_on_stream();

    t_record_init(record);
    opts.callback = t_record_event;
    opts.callback_arg = record;
    return opts;
}

CASE(cancel_and_deadline_end_a_send_that_waits)
{
    const stub_cuda_control *cuda = t_cuda_stub();
    uint64_t in = 0, out = 5;
    hws_id recv = 0, op = 0;
    t_record record;
    hws_op_opts opts = recorded_on_stream(&record);
    t_seen seen;
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &recv));
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_OK(hws_cancel(op));
    UNTIL(&pair, t_record_count(&record) == 1);
    seen = t_record_at(&record, 0);
    CHECK_CODE(seen.event.status, HWS_E_CANCELED);
    opts.timeout_ns = T_MS;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, t_record_count(&record) == 2);
    seen = t_record_at(&record, 1);
    CHECK_CODE(seen.event.status, HWS_E_TIMED_OUT);
    cuda->hold(0);
    UNTIL(&pair, cuda->count("cuStreamSynchronize", 0) == 2);
    t_pair_idle(&pair, 5 * T_MS);
    CHECK_EQ(t_record_count(&record), 2); /* one final event each */
    CHECK_PENDING(recv);                  /* and nothing was sent */
    t_pair_close(&pair);
    t_record_free(&record);
}

/* A close flushes, so it waits for the stream; an abort does not. */
static void closed_while_waiting(bool abort)
{
    const stub_cuda_control *cuda = t_cuda_stub();
    uint64_t in = 0, out = 5, bytes = 0;
    hws_id recv = 0, stream = 0, op = 0;
    t_record record;
    hws_op_opts opts = recorded_on_stream(&record);
    t_pair pair;

    t_pair_open(&pair, &(t_pair_opts){.close_timeout_ns = t_patience()});
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_stream_recv(pair.endpoint[1], &bytes, 8, NULL, &stream));
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    CHECK_OK(hws_stream_send(pair.endpoint[0], &out, 8, &opts, &op));
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_OK(abort ? hws_abort(pair.endpoint[0]) : hws_close(pair.endpoint[0]));
    if (abort) {
        UNTIL(&pair, t_record_count(&record) == 2);
    } else {
        t_pair_idle(&pair, 5 * T_MS);
        CHECK_EQ(t_record_count(&record), 0);
    }
    cuda->hold(0);
    UNTIL(&pair, t_record_count(&record) == 2);
    for (uint32_t i = 0; i < 2; i++) {
        t_seen seen = t_record_at(&record, i);

        CHECK_CODE(seen.event.status, abort ? HWS_E_CANCELED : HWS_OK);
    }
    if (!abort) {
        WAIT_OK(&pair, recv);
        WAIT_OK(&pair, stream);
        CHECK_EQ(in, 5);
        CHECK_EQ(bytes, 5);
    }
    UNTIL(&pair, cuda->count("cuStreamSynchronize", 0) == 2);
    UNTIL(&pair, hws_kind(pair.endpoint[0]) < 0);
    t_pair_close(&pair);
    CHECK_EQ(t_record_count(&record), 2);
    t_record_free(&record);
}

CASE(a_close_waits_for_the_stream)
{
    closed_while_waiting(false);
}

CASE(an_abort_ends_a_send_that_waits)
{
    closed_while_waiting(true);
}

/* The peer goes while the stream is at work: the send ends with the connection, once. */
static void peer_gone_while_waiting(bool abort)
{
    const stub_cuda_control *cuda = t_cuda_stub();
    uint64_t out = 5;
    hws_id op = 0;
    t_record record;
    hws_op_opts opts = recorded_on_stream(&record);
    t_pair pair;

    t_pair_open(&pair, NULL);
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_OK(abort ? hws_abort(pair.endpoint[1]) : hws_close(pair.endpoint[1]));
    UNTIL(&pair, t_record_count(&record) == 1);
    CHECK(t_record_at(&record, 0).event.status < 0);
    CHECK_OK(hws_close(pair.endpoint[0]));
    UNTIL(&pair, hws_kind(pair.endpoint[0]) < 0); /* it waits for no stream */
    CHECK_EQ(cuda->waiting(), 1);
    cuda->hold(0);
    t_pair_close(&pair);
    CHECK_EQ(t_record_count(&record), 1);
    t_record_free(&record);
}

CASE(a_peer_that_closes_ends_a_send_that_waits)
{
    peer_gone_while_waiting(false);
}

CASE(a_peer_that_fails_ends_a_send_that_waits)
{
    peer_gone_while_waiting(true);
}

static void send_behind_a_stream(void *arg, const hws_event *event)
{
    static uint64_t out = 6;
    hws_op_opts opts = t_cuda_on_stream();
    t_pair *pair = arg;

    CHECK_OK(event->status);
    opts.flags |= HWS_OP_DETACHED;
    CHECK_OK(hws_tag_send(pair->endpoint[1], &out, 8, 2, &opts, NULL));
}

/* Posting does not block: not in a callback either, on the thread that makes progress. */
CASE(a_callback_sends_behind_a_stream)
{
    const stub_cuda_control *cuda = t_cuda_stub();
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD};
    uint64_t in = 0, answer = 0, out = 5;
    hws_op_opts then = {.struct_size = sizeof then, .callback = send_behind_a_stream};
    hws_id recv = 0, send = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    then.callback_arg = &pair;
    CHECK_OK(hws_tag_recv(pair.endpoint[0], &answer, 8, 2, ALL, NULL, &recv));
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, &then, NULL));
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(&pair, send);
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_PENDING(recv);
    cuda->hold(0);
    WAIT_OK(&pair, recv);
    CHECK_EQ(answer, 6);
    t_pair_close(&pair);
}

/* Closing everything waits too, and ends each operation once. */
CASE(a_context_is_closed_while_a_stream_is_at_work)
{
    const stub_cuda_control *cuda = t_cuda_stub();
    uint64_t out = 5;
    hws_id op = 0;
    t_record record;
    hws_op_opts opts = recorded_on_stream(&record);
    t_pair pair;

    t_pair_open(&pair, &(t_pair_opts){.mode = HWS_PROGRESS_THREAD});
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_OK(hws_close(pair.context));
    CHECK_CODE(hws_close_wait(pair.context, 5 * T_MS), HWS_E_TIMED_OUT);
    cuda->hold(0);
    t_pair_close(&pair);
    CHECK_EQ(t_record_count(&record), 1);
    t_record_free(&record);
}

CASE(a_failing_stream_ends_its_send)
{
    const stub_cuda_control *cuda = t_cuda_stub();
    hws_op_opts opts = t_cuda_on_stream();
    hws_queue_opts queue_opts = {.struct_size = sizeof queue_opts};
    uint64_t in = 0, out = 5;
    hws_id recv = 0, op = 0, queue = 0;
    hws_event event = {0};
    t_record record;
    t_seen seen;
    t_pair pair;

    t_record_init(&record);
    t_pair_open(&pair, NULL);
    CHECK_OK(hws_queue_open(&queue_opts, &queue));
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &recv));
    cuda->fail("cuStreamSynchronize", T_CUDA_ILLEGAL_ADDRESS);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    event = WAIT(&pair, op);
    CHECK_CODE(event.status, HWS_E_CUDA);
    CHECK_STR(event.detail, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    CHECK_CODE(hws_wait(op, 0, &event), HWS_E_STALE);

    opts.queue = queue;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, hws_queue_pop(queue, &event, 1, 0) == 1);
    CHECK_CODE(event.status, HWS_E_CUDA);
    CHECK_STR(event.detail, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    CHECK(event.op == op);

    opts.callback = t_record_event;
    opts.callback_arg = &record;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, t_record_count(&record) == 1);
    seen = t_record_at(&record, 0);
    CHECK_CODE(seen.event.status, HWS_E_CUDA);
    CHECK_STR(seen.text, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)");

    t_pair_idle(&pair, 5 * T_MS);
    CHECK_EQ(hws_queue_pop(queue, &event, 1, 0), 0);
    CHECK_EQ(t_record_count(&record), 1);
    CHECK_PENDING(recv);
    cuda->fail("cuStreamSynchronize", 0);
    opts = t_cuda_on_stream();
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op)); /* the connection lives */
    WAIT_OK(&pair, op);
    WAIT_OK(&pair, recv);
    CHECK_EQ(in, 5);
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
    t_record_free(&record);
}

CASES_MAIN
