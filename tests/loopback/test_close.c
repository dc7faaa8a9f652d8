/*
 * How connections end: by a goodbye, by an abort, inside a callback, with their worker.
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/dial.h"

CASE(goodbye)
{
    t_pair pair;
    t_seen seen;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_close(pair.endpoint[0]));
    CHECK_OK(hws_close(pair.endpoint[0]));
    t_gone(&pair, pair.endpoint[0]);
    CHECK_CODE(hws_close(pair.endpoint[0]), HWS_E_STALE);
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_CLOSED, pair.endpoint[0]) == 1);
    CHECK_EQ(t_record_kinds(&pair.record[0], HWS_EVENT_DISCONNECTED, 0), 0);

    UNTIL(&pair,
          t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1], 0, &seen));
    CHECK_CODE(seen.event.status, HWS_E_PEER_CLOSED);
    CHECK_EQ(seen.event.user, 2);
    CHECK_EQ(t_endpoint_info(pair.endpoint[1]).state, HWS_STATE_PEER_CLOSED);
    t_pair_idle(&pair, 50 * T_MS);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.endpoint[1]), 0);
    CHECK_OK(hws_close(pair.endpoint[1]));
    t_gone(&pair, pair.endpoint[1]);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.endpoint[1]) == 1);

    /* CLOSED was the last event of both. */
    t_pair_idle(&pair, 50 * T_MS);
    for (int side = 0; side < 2; side++) {
        uint32_t last = t_record_count(&pair.record[side]) - 1;
        seen = t_record_at(&pair.record[side], last);
        CHECK_EQ(seen.event.kind, HWS_EVENT_CLOSED);
        CHECK(seen.event.source == pair.endpoint[side]);
        CHECK_EQ(t_record_kinds(&pair.record[side], HWS_EVENT_DISCONNECTED, 0), (uint32_t)side);
    }
    CHECK_EQ(t_stats(pair.context).endpoints, 0);
    t_pair_close(&pair);
}

CASE(goodbye_from_both_sides_at_once)
{
    t_pair pair;

    for (int i = 0; i < 5; i++) {
        t_pair_open(&pair, NULL);
        CHECK_OK(hws_close(pair.endpoint[0]));
        CHECK_OK(hws_close(pair.endpoint[1]));
        t_gone(&pair, pair.endpoint[0]);
        t_gone(&pair, pair.endpoint[1]);
        CHECK_EQ(t_stats(pair.context).failures, 0);
        t_pair_close(&pair);
    }
}

CASE(abort_is_a_failure_for_the_peer)
{
    for (uint32_t flags = 0; flags <= HWS_ENDPOINT_TCP_ONLY; flags += HWS_ENDPOINT_TCP_ONLY) {
        t_pair_opts opts = {.endpoint_flags = flags};
        t_pair pair;
        t_seen seen;
        char buffer[8];
        hws_id op = 0;

        t_pair_open(&pair, &opts);
        CHECK_OK(hws_tag_recv(pair.endpoint[0], buffer, 8, 1, UINT64_MAX, NULL, &op));
        CHECK_OK(hws_abort(pair.endpoint[0]));
        CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
        t_gone(&pair, pair.endpoint[0]);
        UNTIL(&pair,
              t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1], 0, &seen));
        CHECK(seen.event.status < 0 && seen.event.status != HWS_E_PEER_CLOSED);
        CHECK_STR(hws_error_category(seen.event.status), "peer");
        CHECK_EQ(t_endpoint_info(pair.endpoint[1]).state, HWS_STATE_FAILED);
        CHECK_CODE(t_endpoint_info(pair.endpoint[1]).status, seen.event.status);
        t_pair_close(&pair);
    }
}

CASE(data_sent_before_the_goodbye_arrives)
{
    for (uint32_t flags = 0; flags <= HWS_ENDPOINT_TCP_ONLY; flags += HWS_ENDPOINT_TCP_ONLY) {
        t_pair_opts opts = {.endpoint_flags = flags};
        hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
        t_pair pair;
        uint64_t in = 0, out[50];
        hws_id op = 0;

        t_pair_open(&pair, &opts);
        for (uint64_t i = 0; i < 50; i++) {
            out[i] = i;
            CHECK(hws_tag_send(pair.endpoint[0], &out[i], 8, i, &detached, NULL) >= 0);
        }
        CHECK_OK(hws_close(pair.endpoint[0]));
        t_gone(&pair, pair.endpoint[0]);
        UNTIL(&pair,
              t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
        for (uint64_t i = 0; i < 50; i++) {
            CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, i, UINT64_MAX, NULL, &op));
            WAIT_OK(&pair, op);
            CHECK_EQ(in, i);
        }
        CHECK_CODE(hws_tag_recv(pair.endpoint[1], &in, 8, 0, 0, NULL, &op), HWS_E_PEER_CLOSED);
        t_pair_close(&pair);
    }
}

static void close_source(void *arg, const hws_event *event)
{
    uint32_t *kind = arg;

    if (event->kind == *kind) {
        CHECK_OK(hws_close(event->source));
        CHECK_OK(hws_close(event->source));
    }
}

CASE(closed_inside_the_callback)
{
    uint32_t kinds[] = {HWS_EVENT_CONNECT, HWS_EVENT_ACCEPTED, HWS_EVENT_DISCONNECTED};

    for (int i = 0; i < 3; i++) {
        t_pair pair;
        t_seen seen;
        int side = kinds[i] == HWS_EVENT_CONNECT ? 0 : 1;
        t_pair_listen(&pair, NULL);
        pair.record[side].then = close_source;
        pair.record[side].then_arg = &kinds[i];
        hws_id client = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
        CHECK_OK(t_dialled(&pair, client).event.status);
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
        if (kinds[i] == HWS_EVENT_DISCONNECTED) {
            CHECK_OK(hws_close(client));
        }
        hws_id closed = side == 0 ? client : seen.event.source;
        UNTIL(&pair, t_record_kinds(&pair.record[side], HWS_EVENT_CLOSED, closed) == 1);
        CHECK_EQ(hws_kind(closed), HWS_E_STALE);
        t_pair_close(&pair);
    }
}

struct inside {
    t_pair *pair;
    int calls;
};

static void block(void *arg, const hws_event *event)
{
    struct inside *inside = arg;
    t_pair *pair = inside->pair;
    hws_event events[2];
    hws_id ops[1] = {0}, queue = 0;
    static char buffer[8];

    if (event->kind != HWS_EVENT_CONNECT) {
        return;
    }
    CHECK_CODE(hws_close_wait(event->source, T_SECOND), HWS_E_DEADLOCK);
    CHECK_EQ(hws_kind(event->source), HWS_KIND_ENDPOINT);
    CHECK_OK(hws_tag_recv(pair->worker[0], buffer, 8, 1, UINT64_MAX, NULL, &ops[0]));
    CHECK_CODE(hws_wait(ops[0], T_SECOND, NULL), HWS_E_DEADLOCK);
    CHECK_CODE(hws_wait_many(ops, 1, HWS_WAIT_ALL, T_SECOND, events), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_progress(pair->worker[0]), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_progress(pair->worker[1]), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_wait(pair->worker[0], T_SECOND), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_arm(pair->worker[0]), HWS_E_DEADLOCK);
    CHECK_OK(hws_queue_open(NULL, &queue));
    CHECK_CODE(hws_queue_pop(queue, events, 2, T_SECOND), HWS_E_DEADLOCK);
    CHECK_OK(hws_close(queue));
    inside->calls++;
}

CASE(blocking_calls_inside_a_callback)
{
    t_pair pair;
    struct inside inside = {.pair = &pair};

    t_pair_listen(&pair, NULL);
    pair.record[0].then = block;
    pair.record[0].then_arg = &inside;
    hws_id client = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    CHECK_OK(t_dialled(&pair, client).event.status);
    CHECK_EQ(inside.calls, 1);
    t_pair_close(&pair);
}

CASE(closing_a_worker_ends_its_children_first)
{
    t_pair pair;
    char buffer[8];
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = t_record_event};
    hws_id op = 0;
    t_seen seen;

    t_pair_open(&pair, NULL);
    opts.callback_arg = &pair.record[1];
    CHECK_OK(hws_tag_recv(pair.worker[1], buffer, 8, 1, UINT64_MAX, &opts, &op));
    CHECK_OK(hws_tag_recv(pair.endpoint[1], buffer, 8, 1, UINT64_MAX, &opts, &op));
    CHECK_OK(hws_close(pair.worker[1]));
    CHECK_CODE(hws_listen(pair.worker[1], "127.0.0.1", 0, NULL, &op), HWS_E_CLOSING);
    while (hws_kind(pair.worker[1]) != HWS_E_STALE) {
        int32_t code = hws_close_wait(pair.worker[1], T_MS);
        CHECK(code == HWS_OK || code == HWS_E_TIMED_OUT || code == HWS_E_STALE);
        (void)hws_worker_progress(pair.worker[0]);
    }
    CHECK_EQ(hws_kind(pair.endpoint[1]), HWS_E_STALE);
    CHECK_EQ(hws_kind(pair.listener), HWS_E_STALE);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_TAG_RECV, 0), 2);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.endpoint[1]), 1);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.listener), 1);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.worker[1]), 1);
    seen = t_record_at(&pair.record[1], t_record_count(&pair.record[1]) - 1);
    CHECK(seen.event.source == pair.worker[1] && seen.event.kind == HWS_EVENT_CLOSED);
    t_pair_close(&pair);
}

CASE(close_wait)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    /* Closing flushes to a peer that makes no progress meanwhile: nothing was sent, so it ends. */
    CHECK_OK(hws_close_wait(pair.endpoint[0], t_patience()));
    CHECK_EQ(hws_kind(pair.endpoint[0]), HWS_E_STALE);
    CHECK_CODE(hws_close_wait(pair.endpoint[0], T_SECOND), HWS_E_STALE);
    CHECK_OK(hws_close_wait(pair.context, t_patience()));
    t_record_free(&pair.record[0]);
    t_record_free(&pair.record[1]);
}

CASES_MAIN
