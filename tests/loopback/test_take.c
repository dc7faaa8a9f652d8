/* Receives that take the message instead of its data. */
#include "support/cases.h"
#include "support/pair.h"

#include <stdbool.h>
#include <string.h>

#define ALL UINT64_MAX

/* Take what `take` ended with into memory of the size it tells, and look at it. */
static void receive_taken(t_pair *pair, const hws_event *event, const char *data, uint64_t length)
{
    static char in[100000];
    hws_id op = 0;
    hws_event done;

    CHECK_OK(event->status);
    CHECK_EQ(event->length, length);
    CHECK_EQ(hws_kind(event->source), HWS_KIND_MESSAGE);
    CHECK_OK(hws_message_recv(event->source, in, length, NULL, &op));
    for (int i = 0; hws_wait(op, 1000000, &done) == HWS_E_TIMED_OUT && i < 10000; i++) {
        t_pair_idle(pair, 100000);
    }
    CHECK_OK(done.status);
    CHECK(memcmp(in, data, length) == 0);
    CHECK_EQ(hws_kind(event->source), HWS_E_STALE);
}

static void one(uint64_t length, bool first)
{
    static char out[100000];
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_TAKE};
    t_pair pair;
    hws_event event;
    hws_id take = 0, send = 0;

    memset(out, 7, sizeof out);
    t_pair_open(&pair, NULL);
    if (first) {
        CHECK_OK(hws_tag_recv(pair.endpoint[1], NULL, 0, 3, ALL, &opts, &take));
    }
    CHECK_OK(hws_tag_send(pair.endpoint[0], out, length, 3, NULL, &send));
    if (!first) {
        UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 3, ALL, NULL, NULL) == HWS_OK);
        CHECK_OK(hws_tag_recv(pair.endpoint[1], NULL, 0, 3, ALL, &opts, &take));
    }
    for (int i = 0; hws_wait(take, 1000000, &event) == HWS_E_TIMED_OUT && i < 10000; i++) {
        t_pair_idle(&pair, 100000);
    }
    CHECK_EQ(event.tag, 3);
    receive_taken(&pair, &event, out, length);
    WAIT_OK(&pair, send);
    t_pair_close(&pair);
}

CASE(take_before_the_message)
{
    one(0, true);
    one(8, true);
    one(100000, true);
}

CASE(take_after_the_message)
{
    one(8, false);
    one(100000, false);
}

/* A message whose taker is gone is dropped: nobody else gets it, and it stays in no memory. */
CASE(taken_by_nobody)
{
    static char out[20000];
    t_pair pair;

    t_pair_open(&pair, NULL);
    for (int i = 0; i < 30; i++) {
        hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_TAKE};
        hws_id take = 0, send = 0;
        int way = i % 4;

        opts.flags |= way == 0 ? HWS_OP_DETACHED : 0;
        CHECK_OK(hws_tag_recv(pair.endpoint[1], NULL, 0, 3, ALL, &opts, &take));
        if (way == 1) {
            CHECK_OK(hws_close(take));
        }
        CHECK_OK(hws_tag_send(pair.endpoint[0], out, sizeof out, 3, NULL, &send));
        if (way == 2) {
            UNTIL(&pair, hws_wait(take, 0, NULL) == HWS_OK);
        } else if (way == 3) {
            t_pair_idle(&pair, T_MS);
            CHECK_OK(hws_close(take));
        }
        WAIT_OK(&pair, send); /* whose data nobody will fetch */
    }
    t_pair_idle(&pair, T_MS);
    CHECK_CODE(hws_tag_probe(pair.endpoint[1], 3, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    t_pair_close(&pair);
}

CASE(a_taken_message_is_not_taken_again)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_TAKE};
    hws_message_info info = {.struct_size = sizeof info};
    hws_id message = 0, op = 0, send = 0;
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_tag_send(pair.endpoint[0], "eight by", 8, 3, NULL, &send));
    UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 3, ALL, &info, &message) == HWS_OK);
    CHECK_CODE(hws_message_recv(message, NULL, 0, &opts, &op), HWS_E_INVALID);
    CHECK_OK(hws_close(message));
    WAIT_OK(&pair, send);
    t_pair_close(&pair);
}

CASES_MAIN
