/*
 * Credits of active messages: given back when the queue or the callback has done with them. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/credit.h"
#include "support/pair.h"

#include <string.h>

#define ALL UINT64_MAX

static const hws_op_opts detached = {.struct_size = sizeof detached, .flags = HWS_OP_DETACHED};
static char out[200 * KIB];

static uint32_t told;

static void on_am(void *arg, const hws_event *event)
{
    (void)arg;
    CHECK_OK(event->status);
    told++;
}

CASE(active_messages_for_a_queue)
{
    char header[600];
    hws_iov pieces[2] = {{out, 10}, {out + 10, 20}};
    hws_op_opts iov = {.struct_size = sizeof iov, .flags = HWS_OP_DETACHED | HWS_OP_IOV};
    hws_am_opts opts = {.struct_size = sizeof opts};
    uint32_t got = 0;
    hws_event events[5];
    t_pair pair;
    int32_t n;

    memset(header, 'h', sizeof header);
    t_fill(out, 30, 7);
    t_tight_open(&pair, 0);
    CHECK_OK(hws_queue_open(NULL, &opts.sink.queue));
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    for (int i = 0; i < 100; i++) {
        CHECK_OK(hws_am_send(pair.endpoint[0], 3, header, sizeof header, pieces, 2, &iov, NULL));
    }
    memset(header, 0, sizeof header); /* it and the pieces are the caller's again */
    memset(pieces, 0, sizeof pieces);
    t_pair_idle(&pair, QUIET);
    CHECK_EQ(t_credit_waits(&pair, 0), 100 - WINDOW);
    for (uint64_t start = t_now(); got < 100;
         t_check_patience(__FILE__, __LINE__, start, "all messages")) {
        t_pair_step(&pair);
        n = hws_queue_pop(opts.sink.queue, events, 5, 0);
        CHECK(n >= 0);
        for (int32_t i = 0; i < n; i++, got++) {
            const hws_am_detail *detail = events[i].detail;

            CHECK_EQ(detail->header_length, sizeof header);
            CHECK_EQ(((const char *)detail->header)[599], 'h');
            CHECK_FILLED(detail->data, 30, 7);
            if (got % 2 == 0) { /* credit comes back by popping, not by releasing */
                CHECK_OK(hws_close(detail->buffer));
            }
        }
    }
    t_pair_close(&pair);
    CHECK_OK(hws_close(opts.sink.queue));
}

CASE(active_messages_for_a_callback)
{
    hws_am_opts opts = {.struct_size = sizeof opts, .sink = {.callback = on_am}};
    t_pair pair;

    told = 0;
    t_tight_open(&pair, 0);
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    for (int i = 0; i < 300; i++) {
        /* Some by rendezvous, which are fetched; some that nobody handles. */
        CHECK_OK(hws_am_send(pair.endpoint[0], i % 3 == 2 ? 4 : 3, NULL, 0, out,
                             i % 10 == 0 ? sizeof out : 8, &detached, NULL));
    }
    CHECK(t_credit_waits(&pair, 0) > 0);
    UNTIL(&pair, told == 200 && t_stats(pair.worker[1]).am_dropped == 100);
    t_pair_close(&pair);
}

static hws_id held[100];

static void hold_am(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;

    (void)arg;
    CHECK_OK(event->status);
    CHECK(event->flags & HWS_EVENT_FLAG_BUFFER);
    held[told++] = detail->buffer;
}

CASE(active_messages_held_by_a_callback)
{
    hws_am_opts opts = {
        .struct_size = sizeof opts, .flags = HWS_AM_HOLD, .sink = {.callback = hold_am}};
    t_pair pair;

    told = 0;
    t_tight_open(&pair, 0);
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    for (int i = 0; i < 100; i++) {
        CHECK_OK(hws_am_send(pair.endpoint[0], 3, NULL, 0, out, i % 10 == 0 ? sizeof out : 8,
                             &detached, NULL));
    }
    for (uint32_t next = 0; next < 100;) {
        UNTIL(&pair, told > next);
        t_pair_idle(&pair, QUIET / 10);
        CHECK(told <= next + WINDOW);
        for (; next < told; next++) {
            if (next % 2 == 0) { /* what it is kept for longer costs nothing; twice is once */
                CHECK_OK(hws_buffer_taken(held[next]));
                CHECK_OK(hws_buffer_taken(held[next]));
            } else {
                CHECK_OK(hws_close(held[next]));
            }
        }
    }
    CHECK(t_credit_waits(&pair, 0) >= 100 - WINDOW);
    CHECK_OK(hws_close(held[0]));
    CHECK_CODE(hws_buffer_taken(held[0]), HWS_E_STALE);
    t_pair_close(&pair);
}

/* What is left of a connection that failed says nothing about the next one in its memory. */
CASE(messages_held_of_a_connection_that_is_gone)
{
    hws_am_opts opts = {
        .struct_size = sizeof opts, .flags = HWS_AM_HOLD, .sink = {.callback = hold_am}};
    hws_id client, server;
    t_pair pair;

    told = 0;
    t_tight_open(&pair, 0);
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    for (int i = 0; i < WINDOW; i++) {
        CHECK_OK(hws_am_send(pair.endpoint[0], 3, NULL, 0, out, 8, &detached, NULL));
    }
    UNTIL(&pair, told == WINDOW);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) != 0);
    CHECK_OK(hws_close(pair.endpoint[1]));
    UNTIL(&pair, hws_kind(pair.endpoint[0]) < 0 && hws_kind(pair.endpoint[1]) < 0);
    t_pair_connect(&pair, NULL, &client, &server);
    for (int i = 0; i < 4 * WINDOW; i++) {
        CHECK_OK(hws_am_send(client, 3, NULL, 0, out, 8, &detached, NULL));
    }
    UNTIL(&pair, told == 2 * WINDOW);
    for (int i = 0; i < WINDOW; i++) {
        CHECK_OK(hws_buffer_taken(held[i]));
    }
    t_pair_idle(&pair, QUIET);
    CHECK_EQ(told, 2 * WINDOW);
    t_pair_close(&pair);
}

CASE(closing_a_queue_gives_its_credit_back)
{
    hws_am_opts opts = {.struct_size = sizeof opts};
    t_pair pair;

    told = 0;
    t_tight_open(&pair, 0);
    CHECK_OK(hws_queue_open(NULL, &opts.sink.queue));
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    for (int i = 0; i < 50; i++) {
        CHECK_OK(hws_am_send(pair.endpoint[0], 3, NULL, 0, out, 8, &detached, NULL));
    }
    t_pair_idle(&pair, QUIET);
    CHECK_OK(hws_close(opts.sink.queue));
    opts.sink = (hws_sink){.callback = on_am};
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    CHECK_OK(hws_am_send(pair.endpoint[0], 3, NULL, 0, out, 8, &detached, NULL));
    UNTIL(&pair, told > 0);
    t_pair_close(&pair);
}

CASES_MAIN
