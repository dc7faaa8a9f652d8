/*
 * Credits: what nobody has taken yet is bounded, what waits for credit ends like any other operation,
 * and a full window never keeps a message from the receive that wants it. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/credit.h"
#include "support/pair.h"

#include <string.h>

#define ALL UINT64_MAX

static const hws_op_opts detached = {.struct_size = sizeof detached, .flags = HWS_OP_DETACHED};
static char out[200 * KIB], in[200 * KIB];

/* `count` messages from side 0, each with its number in the first bytes. */
static void send_numbered(t_pair *pair, uint64_t tag, uint32_t length, uint32_t count)
{
    static uint32_t numbers[4096][2];

    for (uint32_t i = 0; i < count; i++) {
        numbers[i][0] = i;
        CHECK_OK(hws_tag_send(pair->endpoint[0], length == 8 ? (void *)numbers[i] : (void *)out,
                              length, tag, &detached, NULL));
    }
}

static hws_event receive(t_pair *pair, hws_id source, uint64_t tag, uint64_t mask)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_recv(source, in, sizeof in, tag, mask, NULL, &op));
    return WAIT_OK(pair, op);
}

static void receive_numbered(t_pair *pair, uint64_t tag, uint32_t length, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        CHECK_EQ(receive(pair, pair->endpoint[1], tag, ALL).length, length);
        if (length == 8) {
            CHECK_EQ(*(uint32_t *)(void *)in, i);
        }
    }
}

CASE(messages_are_bounded)
{
    t_pair pair;

    t_tight_open(&pair, 0);
    send_numbered(&pair, 1, 8, 500);
    UNTIL(&pair, t_stats(pair.worker[1]).unexpected == WINDOW);
    t_pair_idle(&pair, QUIET);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, WINDOW);
    CHECK_EQ(t_credit_waits(&pair, 0), 500 - WINDOW);
    receive_numbered(&pair, 1, 8, 500);
    /* The window is whole again, but for less than a step. */
    t_pair_idle(&pair, QUIET);
    send_numbered(&pair, 1, 8, WINDOW - 1);
    CHECK_EQ(t_credit_waits(&pair, 0), 500 - WINDOW);
    receive_numbered(&pair, 1, 8, WINDOW - 1);
    t_pair_close(&pair);
}

/* It finds what the peer gave back when it runs out. */
CASE(a_sender_that_makes_no_progress)
{
    enum { COUNT = 40 * WINDOW };
    hws_op_opts inside = {.struct_size = sizeof inside, .flags = HWS_OP_INLINE};
    hws_id receives[COUNT], op;
    uint64_t got[COUNT];
    t_pair pair;

    t_tight_open(&pair, 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t end = t_now() + t_patience();

        CHECK_OK(hws_tag_recv(pair.endpoint[1], &got[i], 8, 1, ALL, NULL, &receives[i]));
        CHECK_EQ(hws_tag_send(pair.endpoint[0], &i, sizeof i, 1, &inside, &op), HWS_DONE);
        while (t_stats(pair.endpoint[1]).received[HWS_TRAFFIC_TAG] <= i) {
            CHECK(t_now() < end);
            CHECK(hws_worker_progress(pair.worker[1]) >= 0);
        }
    }
    CHECK_EQ(t_credit_waits(&pair, 0), 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        WAIT_OK(&pair, receives[i]);
        CHECK_EQ(got[i], i);
    }
    t_pair_close(&pair);
}

CASE(bytes_are_bounded)
{
    t_pair pair;

    t_tight_open(&pair, 0);
    send_numbered(&pair, 1, 20 * KIB, 20);
    UNTIL(&pair, t_stats(pair.worker[1]).unexpected == 3);
    t_pair_idle(&pair, QUIET);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected_bytes, 60 * KIB);
    receive_numbered(&pair, 1, 20 * KIB, 20);
    t_pair_close(&pair);
}

CASE(larger_than_the_window)
{
    t_pair pair;

    t_tight_open(&pair, 0);
    for (int i = 0; i < 3; i++) {
        send_numbered(&pair, 1, 8, 3);
        send_numbered(&pair, 1, 200 * KIB, 2);
        receive_numbered(&pair, 1, 8, 3);
        receive_numbered(&pair, 1, 200 * KIB, 2);
    }
    CHECK(t_credit_waits(&pair, 0) > 0);
    t_pair_close(&pair);
}

CASE(expected_messages_need_not_wait)
{
    t_pair pair;
    hws_id op[1000];

    t_tight_open(&pair, 0);
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(hws_tag_recv(pair.endpoint[1], in, 8, 1, ALL, NULL, &op[i]));
    }
    for (int i = 0; i < 1000; i++) {
        send_numbered(&pair, 1, 8, 1);
        t_pair_step(&pair);
    }
    for (int i = 0; i < 1000; i++) {
        WAIT_OK(&pair, op[i]);
    }
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 0);
    t_pair_close(&pair);
}

/* The window is full of tag 1; messages of tag 2 wait. The receive is there before or after. */
static void other_tag(int by_worker, uint64_t mask, int before)
{
    static char two[] = "two", three[] = "three";
    t_pair pair;
    hws_id op = 0;
    hws_id source;

    t_tight_open(&pair, 0);
    source = by_worker ? pair.worker[1] : pair.endpoint[1];
    send_numbered(&pair, 1, 8, 100);
    t_pair_idle(&pair, QUIET);
    if (before) {
        CHECK_OK(hws_tag_recv(source, in, sizeof in, 2, mask, NULL, &op));
        t_pair_idle(&pair, QUIET);
        CHECK_PENDING(op);
    }
    CHECK_OK(hws_tag_send(pair.endpoint[0], two, sizeof two, 2, &detached, NULL));
    CHECK_OK(hws_tag_send(pair.endpoint[0], three, sizeof three, 2, &detached, NULL));
    if (before) {
        WAIT_OK(&pair, op);
    } else {
        t_pair_idle(&pair, QUIET);
        receive(&pair, source, 2, mask);
    }
    CHECK_STR(in, two);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, WINDOW);
    receive(&pair, source, 2, mask);
    CHECK_STR(in, three);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, WINDOW);
    receive_numbered(&pair, 1, 8, 100);
    t_pair_close(&pair);
}

CASE(a_receive_for_another_tag_is_served)
{
    for (int i = 0; i < 8; i++) {
        other_tag(i & 1, i & 2 ? ALL : 2, i & 4);
    }
}

/* Receives that ask, and go away, must not leave others unasked. */
CASE(a_receive_that_goes_does_not_starve_the_next)
{
    t_pair pair;

    t_tight_open(&pair, 0);
    send_numbered(&pair, 1, 8, 100);
    for (int i = 0; i < 200; i++) {
        hws_op_opts opts = {.struct_size = sizeof opts, .timeout_ns = 1 + (uint64_t)i * 1000};
        hws_id recv = 0, send = 0;

        CHECK_OK(hws_tag_recv(pair.endpoint[1], in, 8, 2, ALL, &opts, &recv));
        CHECK_OK(hws_tag_send(pair.endpoint[0], out, 8, 2, NULL, &send));
        if (WAIT(&pair, recv).status != HWS_OK) {
            receive(&pair, pair.worker[1], 2, ALL);
        }
        WAIT_OK(&pair, send);
        if (i % 2) { /* and sends that go away */
            CHECK_OK(hws_tag_send(pair.endpoint[0], out, 8, 2, NULL, &send));
            CHECK_OK(hws_cancel(send));
            if (WAIT(&pair, send).status == HWS_OK) {
                receive(&pair, pair.endpoint[1], 2, ALL);
            }
        }
    }
    receive_numbered(&pair, 1, 8, 100);
    t_pair_close(&pair);
}

CASE(another_peer_is_asked_when_one_goes)
{
    t_pair_opts opts = {.worker = {NULL, &t_tight}};
    hws_id client, server, recv = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    t_pair_connect(&pair, NULL, &client, &server);
    send_numbered(&pair, 1, 8, 50);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(hws_tag_send(client, out, 8, 1, &detached, NULL));
    }
    t_pair_idle(&pair, QUIET);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 2 * WINDOW);
    CHECK_OK(hws_tag_send(client, out, 8, 2, &detached, NULL));
    CHECK_OK(hws_tag_send(pair.endpoint[0], out, 8, 2, &detached, NULL));
    CHECK_OK(hws_tag_recv(pair.worker[1], in, 8, 2, ALL, NULL, &recv));
    CHECK_OK(hws_abort(client));
    WAIT_OK(&pair, recv);
    receive_numbered(&pair, 1, 8, 50);
    t_pair_close(&pair);
}

/* Fill the window and post one more, which waits. */
static hws_id waiting_send(t_pair *pair, uint64_t timeout_ns)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .timeout_ns = timeout_ns};
    hws_id op = 0;

    send_numbered(pair, 1, 8, WINDOW);
    CHECK_EQ(t_credit_waits(pair, 0), 0);
    CHECK_OK(hws_tag_send(pair->endpoint[0], out, 8, 1, &opts, &op));
    CHECK_EQ(t_credit_waits(pair, 0), 1);
    return op;
}

CASE(deadline_and_cancel)
{
    t_pair pair;
    hws_id op;

    t_tight_open(&pair, 0);
    op = waiting_send(&pair, 5 * T_MS);
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_TIMED_OUT);
    receive_numbered(&pair, 1, 8, WINDOW);
    t_pair_close(&pair);

    t_tight_open(&pair, 0);
    op = waiting_send(&pair, 0);
    CHECK_OK(hws_cancel(op));
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
    receive_numbered(&pair, 1, 8, WINDOW);
    t_pair_idle(&pair, QUIET);
    send_numbered(&pair, 1, 8, WINDOW - 1);
    CHECK_EQ(t_credit_waits(&pair, 0), 1);
    receive_numbered(&pair, 1, 8, WINDOW - 1);
    t_pair_close(&pair);
}

CASE(a_large_one_that_is_cancelled_lets_the_next_go)
{
    t_pair pair;
    hws_id op = 0;

    t_tight_open(&pair, 0);
    send_numbered(&pair, 1, 8, 1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], out, 100 * KIB, 1, NULL, &op));
    send_numbered(&pair, 3, 8, 1);
    t_pair_idle(&pair, QUIET);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 1);
    CHECK_OK(hws_cancel(op));
    UNTIL(&pair, t_stats(pair.worker[1]).unexpected == 2);
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
    t_pair_close(&pair);
}

CASE(abort_and_the_peers_close)
{
    t_pair pair;
    hws_id op;

    t_tight_open(&pair, 0);
    op = waiting_send(&pair, 0);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
    t_pair_close(&pair);

    t_tight_open(&pair, 0);
    op = waiting_send(&pair, 0);
    CHECK_OK(hws_close(pair.endpoint[1]));
    /* Either way: the peer drops what comes now, and says goodbye. */
    (void)WAIT(&pair, op);
    t_pair_close(&pair);

    t_tight_open(&pair, 0);
    op = waiting_send(&pair, 0);
    CHECK_OK(hws_abort(pair.endpoint[1]));
    CHECK(WAIT(&pair, op).status < 0);
    t_pair_close(&pair);
}

CASE(flush_and_close_wait_for_what_waits)
{
    t_pair pair;
    hws_id flush = 0;

    t_tight_open(&pair, 0);
    send_numbered(&pair, 1, 8, 50);
    CHECK_OK(hws_flush(pair.endpoint[0], NULL, &flush));
    t_pair_idle(&pair, QUIET);
    CHECK_PENDING(flush);
    receive_numbered(&pair, 1, 8, 50);
    WAIT_OK(&pair, flush);
    send_numbered(&pair, 1, 8, 50);
    CHECK_OK(hws_close(pair.endpoint[0]));
    receive_numbered(&pair, 1, 8, 50);
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_CLOSED, pair.endpoint[0]) == 1);
    t_pair_close(&pair);
}

CASE(both_close_with_full_windows)
{
    hws_segment s = {.base = out, .length = 100};
    t_pair_opts opts = {.worker = {&t_tight, &t_tight}, .close_timeout_ns = 600 * T_SECOND};
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (int i = 0; i < 100; i++) {
        for (int side = 0; side < 2; side++) {
            CHECK_OK(hws_tag_send(pair.endpoint[side], out, 8, 1, &detached, NULL));
            CHECK_OK(hws_multi_send(pair.endpoint[side], 1, &s, 1, NULL, &detached, NULL));
        }
    }
    t_pair_close_both(&pair);
    t_pair_close(&pair);
}

CASE(both_send_at_once)
{
    t_pair pair;

    t_tight_open(&pair, 1);
    for (int i = 0; i < 300; i++) {
        for (int side = 0; side < 2; side++) {
            CHECK_OK(hws_tag_send(pair.endpoint[side], out, i % 7 == 0 ? 30 * KIB : 8, 1, &detached,
                                  NULL));
        }
    }
    CHECK(t_credit_waits(&pair, 0) > 0 && t_credit_waits(&pair, 1) > 0);
    for (int i = 0; i < 300; i++) {
        for (int side = 0; side < 2; side++) {
            CHECK_EQ(receive(&pair, pair.endpoint[side], 1, ALL).length, i % 7 == 0 ? 30 * KIB : 8);
        }
    }
    t_pair_close(&pair);
}

/* ---- Multi-buffer messages -------------------------------------------------------------------- */

CASE(multi_buffer_messages)
{
    hws_segment segments[3] = {{.base = out, .length = 100},
                               {.base = out + 100, .length = 100 * KIB},
                               {.base = out, .length = 300}};
    t_pair pair;
    hws_id op = 0;

    t_fill(out, sizeof out, 9);
    t_tight_open(&pair, 0);
    for (int i = 0; i < 60; i++) {
        CHECK_OK(hws_multi_send(pair.endpoint[0], i == 59 ? 2 : 1, segments, 1 + (uint64_t)i % 3,
                                NULL, &detached, NULL));
    }
    memset(segments, 0, sizeof segments);
    t_pair_idle(&pair, QUIET);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, WINDOW);
    for (int i = 0; i < 60; i++) { /* the last one first */
        hws_event e;
        const hws_multi_detail *detail;

        CHECK_OK(hws_multi_recv(pair.worker[1], i == 0 ? 2 : 1, ALL, NULL, NULL, &op));
        e = WAIT_OK(&pair, op);
        detail = e.detail;
        CHECK_EQ(detail->count, i == 0 ? 3 : 1 + (i - 1) % 3);
        CHECK_FILLED(detail->segments[0].base, 100, 9);
        CHECK_OK(hws_close(detail->buffer));
    }
    t_pair_close(&pair);
}

/* ---- Options ---------------------------------------------------------------------------------- */

CASE(no_limit_at_all)
{
    static const hws_worker_opts off = {.struct_size = sizeof off, .credit_messages = UINT32_MAX};
    t_pair_opts opts = {.worker = {NULL, &off}};
    t_pair pair;

    t_pair_open(&pair, &opts);
    send_numbered(&pair, 1, 8, 4096);
    for (int i = 0; i < 16; i++) {
        send_numbered(&pair, 2, 8, 4096);
    }
    CHECK_EQ(t_credit_waits(&pair, 0), 0);
    UNTIL(&pair, t_stats(pair.worker[1]).unexpected == UINT64_C(17) * 4096);
    t_pair_close(&pair);
}

CASE(raw_peers_have_none)
{
    t_pair_opts opts = {.worker = {NULL, &t_tight},
                        .endpoint_flags = HWS_ENDPOINT_RAW,
                        .listener_flags = HWS_LISTENER_RAW};
    t_pair pair;

    t_pair_open(&pair, &opts);
    send_numbered(&pair, 1, 8, 200);
    CHECK_EQ(t_credit_waits(&pair, 0), 0);
    receive_numbered(&pair, 1, 8, 200);
    t_pair_close(&pair);
}

CASE(a_window_too_large_to_say)
{
    hws_worker_opts opts = {.struct_size = sizeof opts, .credit_bytes = UINT64_C(1) << 42};
    t_pair pair;
    hws_id worker = 0;

    t_pair_open(&pair, NULL);
    CHECK_CODE(hws_worker_open(pair.context, &opts, &worker), HWS_E_INVALID);
    t_pair_close(&pair);
}

/* Sends of another thread than the one that owns the worker. */
CASE(submitted_sends_wait_as_well)
{
    t_pair_opts opts = {.worker = {NULL, &t_tight}, .mode = HWS_PROGRESS_THREAD_POLLING};
    t_pair pair;

    t_pair_open(&pair, &opts);
    send_numbered(&pair, 1, 8, 1000);
    receive_numbered(&pair, 1, 8, 1000);
    t_pair_close(&pair);
}

static hws_id send_text(hws_id endpoint, uint64_t tag, const char *text, const hws_op_opts *opts)
{
    hws_segment segment = {.base = (void *)(uintptr_t)text, .length = strlen(text) + 1};
    hws_id op = 0;

    CHECK(hws_multi_send(endpoint, tag, &segment, 1, NULL, opts, &op) >= 0);
    return op;
}

static void receive_text(t_pair *pair, hws_id endpoint, uint64_t tag, const char *text)
{
    const hws_multi_detail *detail;
    hws_event event = {0};
    hws_id op = 0;

    CHECK_OK(hws_multi_recv(endpoint, tag, ALL, NULL, NULL, &op));
    for (uint64_t start = t_now(); hws_wait(op, 0, &event) == HWS_E_TIMED_OUT;) {
        CHECK(t_now() - start < 20 * T_SECOND);
        hws_worker_progress(pair->worker[1]);
    }
    detail = event.detail;
    CHECK_OK(event.status);
    CHECK_EQ(detail->count, 1);
    CHECK(strcmp(detail->segments[0].base, text) == 0);
    CHECK_OK(hws_close(detail->buffer));
}

/*
 * Two connections by TCP share a UCX worker. A message on the one looks for credit, and what arrives then lets go
 * of a message on the other as well: each keeps its data.
 */
CASE(messages_of_two_connections)
{
    static const hws_op_opts at_once = {.struct_size = sizeof at_once,
                                        .flags = HWS_OP_DETACHED | HWS_OP_INLINE};
    t_pair_opts opts = {.worker = {NULL, &t_tight}, .context_flags = HWS_CONTEXT_NO_SHARED_MEMORY};
    hws_id client, server, wanted = 0, waits_for_credit;
    const hws_multi_detail *detail;
    t_pair pair;

    t_pair_open(&pair, &opts);
    t_pair_connect(&pair, &opts, &client, &server);
    for (uint64_t i = 0; i < WINDOW; i++) {
        send_text(pair.endpoint[0], i, "filler", &at_once);
        send_text(client, i, "filler", &at_once);
    }
    t_pair_idle(&pair, QUIET);
    CHECK_OK(hws_multi_recv(server, 99, ALL, NULL, NULL, &wanted));
    waits_for_credit = send_text(client, 99, "for the second", NULL);
    for (int i = 0; i < 3; i++) {
        hws_worker_progress(pair.worker[0]); /* it asks */
    }
    for (int i = 0; i < 3000; i++) {
        hws_worker_progress(pair.worker[1]); /* and is answered; the sender does not look yet */
    }
    for (uint64_t i = 0; i < WINDOW; i++) {
        receive_text(&pair, pair.endpoint[1], i, "filler");
    }
    for (int i = 0; i < 3000; i++) {
        hws_worker_progress(pair.worker[1]);
    }
    t_sleep(20 * T_MS);
    (void)send_text(pair.endpoint[0], 7, "for the first", &at_once);
    t_pair_idle(&pair, QUIET);
    receive_text(&pair, pair.endpoint[1], 7, "for the first");
    detail = WAIT_OK(&pair, wanted).detail;
    CHECK(strcmp(detail->segments[0].base, "for the second") == 0);
    CHECK_OK(hws_close(detail->buffer));
    WAIT_OK(&pair, waits_for_credit);
    t_pair_close(&pair);
}

CASES_MAIN
