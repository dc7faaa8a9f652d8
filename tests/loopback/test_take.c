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

CASES_MAIN
