/*
 * How tagged sends and receives end before their time: cancelled, too late, with their connection. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/tag.h"

#include <stdlib.h>

#define ALL UINT64_MAX

CASE(cancel_of_an_unmatched_receive)
{
    t_pair pair;

    t_pair_open_flags(&pair, 0);
    for (int level = 0; level < 2; level++) {
        hws_id source = level ? pair.worker[1] : pair.endpoint[1];
        uint64_t buffer = 1234;
        hws_id op = t_tag_recv(source, &buffer, 8, 1, ALL);
        CHECK_OK(hws_cancel(op));
        CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
        CHECK_CODE(hws_cancel(op), HWS_E_STALE);
        t_tag_send_number(&pair, pair.endpoint[0], 1, 7);
        t_tag_arrived(&pair, source, 1);
        CHECK_EQ(buffer, 1234);
        CHECK_EQ(t_tag_take_number(&pair, source, 1, ALL), 7);
    }
    t_pair_close(&pair);
}

CASE(cancel_takes_out_one_of_many)
{
    t_pair pair;
    uint64_t values[64];
    hws_id ops[64];

    t_pair_open_flags(&pair, 0);
    for (int i = 0; i < 64; i++) {
        ops[i] = t_tag_recv(i % 3 ? pair.endpoint[1] : pair.worker[1], &values[i], 8, 1, ALL);
    }
    for (int i = 1; i < 64; i += 2) {
        CHECK_OK(hws_cancel(ops[i]));
        CHECK_CODE(WAIT(&pair, ops[i]).status, HWS_E_CANCELED);
    }
    for (uint64_t i = 0; i < 64; i += 2) {
        t_tag_send_number(&pair, pair.endpoint[0], 1, i);
    }
    for (uint64_t i = 0; i < 64; i += 2) {
        WAIT_OK(&pair, ops[i]);
        CHECK_EQ(values[i], i);
    }
    t_pair_close(&pair);
}

CASE(deadline)
{
    t_pair pair;

    t_pair_open_flags(&pair, 0);
    for (int level = 0; level < 2; level++) {
        hws_op_opts opts = {.struct_size = sizeof(opts), .timeout_ns = 50 * T_MS};
        hws_id source = level ? pair.worker[1] : pair.endpoint[1], op = 0;
        uint64_t buffer = 1234, start = t_now();
        CHECK_OK(hws_tag_recv(source, &buffer, 8, 1, ALL, &opts, &op));
        CHECK_CODE(WAIT(&pair, op).status, HWS_E_TIMED_OUT);
        CHECK(t_now() - start >= 50 * T_MS);
        t_tag_send_number(&pair, pair.endpoint[0], 1, 7);
        CHECK_EQ(t_tag_take_number(&pair, source, 1, ALL), 7);
        CHECK_EQ(buffer, 1234);
        /* A deadline that was not reached changes nothing. */
        opts.timeout_ns = 60 * T_SECOND;
        CHECK_OK(hws_tag_recv(source, &buffer, 8, 1, ALL, &opts, &op));
        t_tag_send_number(&pair, pair.endpoint[0], 1, 8);
        WAIT_OK(&pair, op);
        CHECK_EQ(buffer, 8);
    }
    t_pair_close(&pair);
}

CASE(deadlines_end_in_their_order)
{
    t_pair pair;
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = t_record_event};
    uint64_t buffer, random = 5;
    hws_id op = 0;

    t_pair_open_flags(&pair, 0);
    t_record_clear(&pair.record[1]);
    opts.callback_arg = &pair.record[1];
    for (int i = 0; i < 50; i++) {
        opts.user = 1 + t_random(&random) % 20;
        opts.timeout_ns = opts.user * 10 * T_MS;
        CHECK_OK(hws_tag_recv(pair.endpoint[1], &buffer, 8, 1, ALL, &opts, &op));
    }
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_TAG_RECV, 0) == 50);
    for (uint32_t i = 0; i < 50; i++) {
        CHECK_CODE(t_record_at(&pair.record[1], i).event.status, HWS_E_TIMED_OUT);
    }
    t_pair_close(&pair);
}

/* A synchronous send that nobody matches: its deadline ends it by aborting the endpoint. */
CASE_BOTH(deadline_of_a_send_aborts_if_asked)
{
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .flags = HWS_OP_DEADLINE_ABORT, .timeout_ns = 100 * T_MS};
    t_pair pair;
    char *out = t_alloc(1 << 20);
    hws_id op = 0;

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_tag_send_sync(pair.endpoint[0], out, 1 << 20, 1, &opts, &op));
    hws_event event = WAIT(&pair, op);
    CHECK_CODE(event.status, HWS_E_TIMED_OUT);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    free(out);
    t_pair_close(&pair);
}

/* Without the abort option a cancelled send keeps its buffer; the endpoint goes on. */
CASE_BOTH(cancel_of_a_send_ends_in_one_event)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = t_record_event};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);
    hws_id op = 0, recv;

    t_pair_open_flags(&pair, flags);
    t_record_clear(&pair.record[0]);
    opts.callback_arg = &pair.record[0];
    t_fill(out, 1 << 20, 8);
    CHECK_OK(hws_tag_send_sync(pair.endpoint[0], out, 1 << 20, 1, &opts, &op));
    t_tag_arrived(&pair, pair.endpoint[1], 1);
    CHECK_OK(hws_cancel(op));
    t_pair_idle(&pair, 30 * T_MS);
    recv = t_tag_recv(pair.endpoint[1], in, 1 << 20, 1, ALL);
    hws_event event = WAIT(&pair, recv);
    UNTIL(&pair, t_record_count(&pair.record[0]) == 1);
    if (event.status == HWS_OK) {
        CHECK_FILLED(in, 1 << 20, 8);
    }
    t_tag_send_number(&pair, pair.endpoint[0], 2, 5);
    CHECK_EQ(t_tag_take_number(&pair, pair.endpoint[1], 2, ALL), 5);
    CHECK_EQ(t_record_count(&pair.record[0]), 1);
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(receives_end_with_the_connection)
{
    t_pair pair;
    uint64_t own = 0, any = 0;

    t_pair_open_flags(&pair, flags);
    hws_id on_endpoint = t_tag_recv(pair.endpoint[1], &own, 8, 1, ALL);
    hws_id on_worker = t_tag_recv(pair.worker[1], &any, 8, 1, ALL);
    hws_id on_closed = t_tag_recv(pair.endpoint[0], &own, 8, 1, ALL);
    CHECK_OK(hws_close(pair.endpoint[0]));
    CHECK_CODE(WAIT(&pair, on_closed).status, HWS_E_CANCELED);
    CHECK_CODE(WAIT(&pair, on_endpoint).status, HWS_E_PEER_CLOSED);
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_PENDING(on_worker);
    CHECK_CODE(hws_tag_send(pair.endpoint[1], &own, 8, 1, NULL, &on_closed), HWS_E_PEER_CLOSED);
    /* The worker's receive waits for whoever comes. */
    t_pair_connect(&pair, NULL, &pair.endpoint[0], &pair.endpoint[1]);
    t_tag_send_number(&pair, pair.endpoint[0], 1, 55);
    WAIT_OK(&pair, on_worker);
    CHECK_EQ(any, 55);
    t_pair_close(&pair);
}

/* The data of a large message dies with the peer: none of those behind it is received in its place. */
CASE_BOTH(none_takes_the_place_of_a_lost_message)
{
    static char large[1 << 20];
    static const uint64_t first = 1, last = 3;
    hws_op_opts dropped = {.struct_size = sizeof dropped, .flags = HWS_OP_DETACHED};
    t_pair pair;
    uint64_t in = 0;
    hws_id op = 0;

    t_pair_open_flags(&pair, flags);
    for (uint64_t tag = 5; tag < 7; tag++) {
        CHECK_OK(hws_tag_send(pair.endpoint[0], &first, 8, tag, &dropped, NULL));
        if (tag == 5) {
            CHECK_OK(hws_tag_send(pair.endpoint[0], large, sizeof large, tag, &dropped, NULL));
        }
        CHECK_OK(hws_tag_send(pair.endpoint[0], &last, 8, tag, &dropped, NULL));
    }
    UNTIL(&pair, t_stats(pair.worker[1]).unexpected == 5);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    for (uint64_t tag = 5; tag < 7; tag++) {
        WAIT_OK(&pair, t_tag_recv(pair.endpoint[1], &in, 8, tag, ALL));
        CHECK_EQ(in, first);
    }
    CHECK(hws_tag_recv(pair.endpoint[1], &in, 8, 5, ALL, NULL, &op) < 0);
    WAIT_OK(&pair, t_tag_recv(pair.endpoint[1], &in, 8, 6, ALL));
    CHECK_EQ(in, last);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 0);
    t_pair_close(&pair);
}

CASES_MAIN
