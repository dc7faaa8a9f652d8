/*
 * Multi-buffer messages that end in the middle: cancelled, cut off, with their connection or worker. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/multi.h"

#include <stdlib.h>

#define ALL UINT64_MAX
#define MIB ((uint64_t)1 << 20)

CASE_BOTH(cancel_and_deadline)
{
    hws_op_opts late = {.struct_size = sizeof(late), .timeout_ns = 20 * T_MS};
    t_pair pair;
    t_shape s = t_shape_make(dask, 6, 4);
    hws_id recv, send, op = 0;

    t_pair_open_flags(&pair, flags);
    recv = t_multi_recv(pair.endpoint[1], 1, ALL, 0);
    CHECK_OK(hws_cancel(recv));
    CHECK_EQ(WAIT(&pair, recv).status, HWS_E_CANCELED);
    CHECK_OK(hws_multi_recv(pair.worker[1], 1, ALL, NULL, &late, &op));
    CHECK_EQ(WAIT(&pair, op).status, HWS_E_TIMED_OUT);
    /* A send that waits for its receiver cannot be taken back; its list is received all the same. */
    send = t_multi_send(pair.endpoint[0], 1, &s);
    t_multi_waiting(&pair, pair.worker[1], 1);
    CHECK_OK(hws_cancel(send));
    recv = t_multi_recv(pair.worker[1], 1, ALL, 0);
    t_multi_take(&pair, recv, pair.endpoint[1], 1, &s);
    CHECK_EQ(WAIT(&pair, send).status, HWS_OK);
    t_shape_drop(&s);
    t_pair_close(&pair);
}

/* A connection that ends at every stage: one final event each, nothing left behind. */
CASE_BOTH(cut_off)
{
    enum { UNMATCHED, LISTED, FETCHING, RECEIVING, MATCHING, STAGES };

    for (int stage = 0; stage < STAGES; stage++) {
        t_pair pair;
        t_shape s = t_shape_make(large, 4, 7);
        hws_id recv = 0, send = 0, fetch = 0, buffer = 0;
        hws_segment to[4];
        hws_event event;

        t_pair_open_flags(&pair, flags);
        for (int i = 0; i < 4; i++) {
            to[i] = (hws_segment){.base = t_alloc(large[i]), .length = large[i]};
        }
        if (stage != MATCHING) {
            send = t_multi_send(pair.endpoint[0], 1, &s);
            t_multi_waiting(&pair, pair.worker[1], 1);
        }
        if (stage != UNMATCHED) {
            recv = t_multi_recv(pair.endpoint[1], 1, ALL, stage == RECEIVING ? 0 : HWS_MULTI_LIST);
        }
        if (stage == LISTED || stage == FETCHING) {
            buffer = ((const hws_multi_detail *)WAIT_OK(&pair, recv).detail)->buffer;
        }
        if (stage == FETCHING) {
            CHECK_OK(hws_multi_fetch(buffer, to, 4, NULL, &fetch));
        }
        CHECK_OK(hws_abort(pair.endpoint[0]));
        if (send != 0) {
            CHECK(WAIT(&pair, send).status < 0 || stage == FETCHING || stage == RECEIVING);
        }
        UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, 0) == 1);
        CHECK_EQ(t_stats(pair.worker[1]).unexpected, 0);
        if (stage == LISTED) {
            CHECK(hws_multi_fetch(buffer, to, 4, NULL, &fetch) < 0);
            CHECK_OK(hws_close(buffer));
        }
        if (stage == FETCHING) {
            event = WAIT(&pair, fetch);
            if (event.status == HWS_OK) {
                t_multi_check_data(to, &s);
            }
        }
        if (stage == MATCHING) {
            CHECK(WAIT(&pair, recv).status < 0);
        }
        if (stage == RECEIVING && (event = WAIT(&pair, recv)).status == HWS_OK) {
            CHECK_OK(hws_close(((const hws_multi_detail *)event.detail)->buffer));
        }
        for (int i = 0; i < 4; i++) {
            free(to[i].base);
        }
        t_shape_drop(&s);
        t_pair_close(&pair);
    }
}

/* The data of one dies with the peer: none of those behind it is received in its place. */
CASE_BOTH(none_takes_the_place_of_a_lost_message)
{
    t_shape lost = t_shape_make(large, 4, 7), small = t_shape_make(tiny, 8, 9);
    t_pair pair;
    hws_id op = 0;

    t_pair_open_flags(&pair, flags);
    t_multi_send(pair.endpoint[0], 1, &lost);
    t_multi_send(pair.endpoint[0], 1, &small);
    t_multi_send(pair.endpoint[0], 2, &small);
    t_multi_waiting(&pair, pair.worker[1], 3);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, 0) == 1);
    CHECK(hws_multi_recv(pair.endpoint[1], 1, ALL, NULL, NULL, &op) < 0);
    WAIT_OK(&pair, t_multi_recv(pair.endpoint[1], 2, ALL, 0));
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 0);
    t_pair_close(&pair);
    t_shape_drop(&lost);
    t_shape_drop(&small);
}

/* Both sides close with messages in every state. */
CASE_BOTH(close_with_leftovers)
{
    t_pair pair;
    t_shape s = t_shape_make(dask, 6, 8), t = t_shape_make(tiny, 8, 9);
    hws_id send[4], recv, matching;
    hws_event event;

    t_pair_open_flags(&pair, flags);
    for (int i = 0; i < 4; i++) {
        send[i] = t_multi_send(pair.endpoint[0], 1 + (uint64_t)(i / 2), i % 2 ? &s : &t);
    }
    t_multi_waiting(&pair, pair.worker[1], 4);
    recv = t_multi_recv(pair.endpoint[1], 2, ALL, 0);
    event = WAIT_OK(&pair, recv); /* its buffer stays open */
    matching = t_multi_recv(pair.worker[1], 77, ALL, 0);
    CHECK_OK(hws_close(pair.endpoint[1]));
    for (int i = 0; i < 4; i++) {
        event = WAIT(&pair, send[i]);
        CHECK(event.status <= 0);
    }
    CHECK_PENDING(matching);
    CHECK_OK(hws_cancel(matching));
    CHECK_EQ(WAIT(&pair, matching).status, HWS_E_CANCELED);
    t_shape_drop(&s);
    t_shape_drop(&t);
    t_pair_close(&pair);
}

/* The worker goes while a message waits whose list is here and whose data, far more, is not. */
CASE_BOTH(worker_closed_with_a_list)
{
    hws_segment segments[] = {{.base = t_alloc(1000), .length = 1000}, {.length = 256 * MIB}};
    hws_id send = 0;
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    segments[1].base = calloc(1, segments[1].length);
    CHECK(segments[1].base != NULL);
    t_fill(segments[0].base, 1000, 1);
    CHECK_OK(hws_multi_send(pair.endpoint[0], 1, segments, 2, NULL, NULL, &send));
    t_multi_waiting(&pair, pair.worker[1], 1);
    CHECK_OK(hws_close_wait(pair.worker[1], t_patience()));
    CHECK(WAIT(&pair, send).status <= 0); /* dropped, for UCX, is taken */
    free(segments[0].base);
    free(segments[1].base);
    t_pair_close(&pair);
}

CASES_MAIN_AT_ONCE(2)
