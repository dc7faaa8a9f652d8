/*
 * Messages about credits, as any peer may send them, to a side with and without posted receives: nothing
 * outside of them is read, and the counts never wrap around.
 * INTERNAL SANITIZED
 * WITH: replay.c stub.c
 * TIMEOUT: 120
 *
 * An input is a byte of state, then steps: a byte below 128 and as many bytes of a message (24 if it is 0), or
 * a receive of the tag that the byte holds.
 */
#include "fuzz/fuzz.h"
#include "fuzz/stub.h"
#include "support/check.h"

#include <string.h>

enum { LIMITED = 1, CLOSING = 2, MESSAGE = 24, RECEIVE = 128 };

static void received(void *arg, const hws_event *event)
{
    (void)arg;
    CHECK(event->status < 0); /* nothing is sent */
}

/* Of the endpoint, or of the worker and whatever the tag. */
static void receive(const struct stub *s, const struct hws__endpoint *ep, unsigned tag)
{
    static char into[8];
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = received};

    (void)hws_tag_recv(tag % 2 ? s->worker->obj.id : ep->obj.id, into, sizeof into, tag / 2,
                       tag % 4 ? UINT64_MAX : 0, &opts, NULL);
    (void)hws_multi_recv(ep->obj.id, tag / 2, UINT64_MAX, NULL, &opts, NULL);
}

void fuzz_one(const unsigned char *data, size_t size)
{
    struct stub *s = stub_get();
    struct input in = {data, size};
    unsigned state = input_byte(&in);
    struct hws__endpoint *ep = stub_open(s);

    hws__list_append(&s->worker->endpoints, &ep->link);
    s->worker->credit_messages = state & LIMITED ? HWS__CREDIT_MESSAGES : 0;
    ep->closing = (state & CLOSING) != 0;
    if (state & LIMITED) {
        hws__credit_open(ep, 10, 10);
    }
    while (in.left != 0) {
        unsigned what = input_byte(&in);
        size_t length = what != 0 ? what : MESSAGE;

        if (what >= RECEIVE) {
            receive(s, ep, what - RECEIVE);
        } else {
            const unsigned char *bytes = input_bytes(&in, &length);

            stub_arrives(s, hws__credit_cb, bytes, length, NULL, 0, 0);
        }
        if (ep->failed) {
            CHECK_EQ(ep->status, HWS_E_PROTOCOL);
        }
        for (uint32_t i = 0; i < HWS__CREDIT_SORTS; i++) {
            CHECK(ep->credit.out[i].messages >= 0 && ep->credit.out[i].bytes >= 0);
        }
        stub_swept(s);
    }
    hws__credit_end(ep, HWS_E_CONNECTION_RESET);
    CHECK_EQ(s->worker->credit_blocked, 0);
    stub_forget(s, ep);
    hws__list_init(&s->worker->attention);
}

FUZZ_MAIN("credit")
