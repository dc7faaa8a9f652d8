/*
 * Bundles as any peer may send them, to a side with and without posted receives: nothing outside of them is
 * read, and what is none ends the connection.
 * INTERNAL SANITIZED
 * WITH: replay.c stub.c
 * TIMEOUT: 120
 *
 * An input is a byte of state, then bundles: two bytes of length each, and so many bytes.
 */
#include "fuzz/fuzz.h"
#include "fuzz/stub.h"
#include "support/check.h"

#include "bundle.h"

#include <string.h>

enum { RECEIVES = 1, CLOSING = 2, TAKES = 4 };

static void received(void *arg, const hws_event *event)
{
    (void)arg;
    CHECK(event->status == HWS_OK || event->status == HWS_E_TRUNCATED ||
          event->status == HWS_E_CONNECTION_RESET || event->status == HWS_E_CANCELED);
}

static void post_receives(const struct hws__endpoint *ep)
{
    static char into[4][8];
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = received};

    for (uint64_t i = 0; i < 4; i++) {
        (void)hws_tag_recv(ep->obj.id, into[i], sizeof into[i], i, i % 2 ? UINT64_MAX : 0, &opts,
                           NULL);
    }
}

/* One more receive, which may find a message that is there already. */
static void take(const struct hws__endpoint *ep, uint64_t tag, uint64_t mask)
{
    static char into[64];
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE, .callback = received};

    (void)hws_tag_recv(ep->obj.id, into, sizeof into, tag, mask, &opts, NULL);
}

void fuzz_one(const unsigned char *data, size_t size)
{
    struct stub *s = stub_get();
    struct input in = {data, size};
    unsigned state = input_byte(&in);
    struct hws__endpoint *ep = stub_open(s);

    hws__list_append(&s->worker->endpoints, &ep->link);
    ep->closing = (state & CLOSING) != 0;
    hws__credit_open(ep, 0, 0);
    if (state & RECEIVES) {
        post_receives(ep);
    }
    while (in.left != 0 && !ep->failed) {
        size_t length = input_size(&in);
        const unsigned char *bytes = input_bytes(&in, &length);

        stub_arrives(s, hws__bundle_cb, NULL, 0, bytes, length, 0);
        if (ep->failed) {
            CHECK_EQ(ep->status, HWS_E_PROTOCOL);
        }
        stub_swept(s);
        if (state & TAKES) {
            take(ep, state >> 3, state & 64 ? UINT64_MAX : 0);
        }
    }
    hws__endpoint_end_matching(ep, HWS_E_CONNECTION_RESET);
    stub_swept(s);
    stub_forget(s, ep);
    hws__list_init(&s->worker->attention);
}

FUZZ_MAIN("bundle")
