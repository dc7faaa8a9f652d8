/*
 * Flush: what was posted before it is complete when it ends.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>

static void everything_before_it(uint32_t flags, int whole_worker)
{
    enum { COUNT = 200 };
    t_pair_opts opts = {.endpoint_flags = flags};
    t_pair pair;
    hws_id sends[COUNT], flush = 0;
    char *out = t_alloc(COUNT * 4096), in[4096];

    t_pair_open(&pair, &opts);
    t_fill(out, COUNT * 4096, 1);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK_OK(
            hws_tag_send(pair.endpoint[0], out + i * 4096, i % 2 ? 8 : 4096, i, NULL, &sends[i]));
    }
    CHECK_OK(hws_flush(whole_worker ? pair.worker[0] : pair.endpoint[0], NULL, &flush));
    hws_event event = WAIT_OK(&pair, flush);
    CHECK_EQ(event.kind, HWS_EVENT_FLUSH);
    CHECK(event.source == (whole_worker ? pair.worker[0] : pair.endpoint[0]));
    for (int i = 0; i < COUNT; i++) {
        CHECK_OK(hws_wait(sends[i], 0, &event));
        CHECK_OK(event.status);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        hws_id op = 0;
        CHECK_OK(hws_tag_recv(pair.endpoint[1], in, sizeof(in), i, UINT64_MAX, NULL, &op));
        WAIT_OK(&pair, op);
        CHECK_EQ(t_checksum(in, i % 2 ? 8 : 4096), t_checksum(out + i * 4096, i % 2 ? 8 : 4096));
    }
    free(out);
    t_pair_close(&pair);
}

CASE(endpoint_shm)
{
    everything_before_it(0, 0);
}

CASE(endpoint_tcp)
{
    everything_before_it(HWS_ENDPOINT_TCP_ONLY, 0);
}

CASE(worker_shm)
{
    everything_before_it(0, 1);
}

CASE(worker_tcp)
{
    everything_before_it(HWS_ENDPOINT_TCP_ONLY, 1);
}

CASE(worker_with_several_endpoints)
{
    enum { PEERS = 3 };
    t_pair pair;
    hws_id client[PEERS], server[PEERS], sends[PEERS], op = 0;
    uint64_t value = 7, in = 0;

    t_pair_listen(&pair, NULL);
    for (int i = 0; i < PEERS; i++) {
        t_pair_opts opts = {.endpoint_flags = i == 1 ? HWS_ENDPOINT_TCP_ONLY : 0};
        t_pair_connect(&pair, &opts, &client[i], &server[i]);
        CHECK_OK(hws_tag_send(client[i], &value, 8, 1, NULL, &sends[i]));
    }
    CHECK_OK(hws_flush(pair.worker[0], NULL, &op));
    WAIT_OK(&pair, op);
    for (int i = 0; i < PEERS; i++) {
        hws_event event;
        CHECK_OK(hws_wait(sends[i], 0, &event));
        CHECK_OK(event.status);
        CHECK_OK(hws_tag_recv(server[i], &in, 8, 1, UINT64_MAX, NULL, &op));
        WAIT_OK(&pair, op);
    }
    t_pair_close(&pair);
}

/* Nobody receives the large message; the small one that was sent before it arrives. */
static void close_without_the_cancelled(uint32_t flags, int cancel_first)
{
    enum { LARGE = 8 << 20 };
    t_pair_opts opts = {.endpoint_flags = flags, .close_timeout_ns = 600 * T_SECOND};
    t_pair pair;
    char *out = calloc(1, LARGE);
    uint64_t value = 7, in = 0;
    hws_id small, large, op = 0;

    t_pair_open(&pair, &opts);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &value, 8, 1, NULL, &small));
    CHECK_OK(hws_tag_send(pair.endpoint[0], out, LARGE, 2, NULL, &large));
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_PENDING(large);
    if (cancel_first) {
        CHECK_OK(hws_cancel(large));
        t_pair_idle(&pair, 20 * T_MS);
        CHECK_PENDING(large);
    }
    CHECK_OK(hws_close(pair.endpoint[0]));
    if (!cancel_first) {
        t_pair_idle(&pair, 20 * T_MS);
        CHECK_PENDING(large);
        CHECK_OK(hws_cancel(large));
    }
    CHECK_CODE(WAIT(&pair, large).status, HWS_E_CANCELED);
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_CLOSED, pair.endpoint[0]) == 1);
    CHECK_OK(hws_wait(small, 0, NULL));
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, UINT64_MAX, NULL, &op));
    WAIT_OK(&pair, op);
    CHECK_EQ(in, value);
    t_pair_close(&pair);
    free(out);
}

CASE(cancelled_before_the_close_shm)
{
    close_without_the_cancelled(0, 1);
}

CASE(cancelled_before_the_close_tcp)
{
    close_without_the_cancelled(HWS_ENDPOINT_TCP_ONLY, 1);
}

CASE(cancelled_after_the_close_shm)
{
    close_without_the_cancelled(0, 0);
}

CASE(cancelled_after_the_close_tcp)
{
    close_without_the_cancelled(HWS_ENDPOINT_TCP_ONLY, 0);
}

CASE(nothing_to_do)
{
    t_pair pair;
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_INLINE};

    t_pair_open(&pair, NULL);
    hws_id sources[] = {pair.endpoint[0], pair.worker[0], pair.endpoint[1], pair.worker[1]};
    for (int i = 0; i < 4; i++) {
        hws_id op = 0;
        int32_t code = hws_flush(sources[i], &opts, &op);
        CHECK(code == HWS_OK || code == HWS_DONE);
        CHECK_EQ(op != 0, code == HWS_OK);
        if (code == HWS_OK) {
            WAIT_OK(&pair, op);
        }
        CHECK_OK(hws_flush(sources[i], NULL, &op));
        CHECK_EQ(WAIT_OK(&pair, op).kind, HWS_EVENT_FLUSH);
    }
    t_pair_close(&pair);
}

CASE(peer_gone)
{
    t_pair pair;
    hws_id op = 0;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_abort(pair.endpoint[1]));
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_DISCONNECTED, pair.endpoint[0]) == 1);
    int32_t code = hws_flush(pair.endpoint[0], NULL, &op);
    if (code == HWS_OK) {
        code = WAIT(&pair, op).status;
    }
    CHECK(code < 0);
    /* The worker has other things to do. */
    CHECK_OK(hws_flush(pair.worker[0], NULL, &op));
    WAIT_OK(&pair, op);
    t_pair_close(&pair);
}

CASE(told_by_callback_and_by_queue)
{
    t_pair pair;
    hws_id queue = 0;
    hws_event event;
    hws_op_opts opts = {.struct_size = sizeof(opts), .user = 31};

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_queue_open(NULL, &queue));
    opts.queue = queue;
    CHECK_OK(hws_flush(pair.endpoint[0], &opts, NULL));
    UNTIL(&pair, hws_queue_pop(queue, &event, 1, 0) == 1);
    CHECK_EQ(event.kind, HWS_EVENT_FLUSH);
    CHECK_EQ(event.user, 31);
    opts.queue = 0;
    opts.callback = t_record_event;
    opts.callback_arg = &pair.record[0];
    CHECK_OK(hws_flush(pair.endpoint[0], &opts, NULL));
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_FLUSH, pair.endpoint[0]) == 1);
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASES_MAIN
