/*
 * Messages of Hawser's own, in any order and state: nothing outside of them is read, nobody is let in who has
 * not proved to have the key, and what is no such message ends the connection.
 * INTERNAL SANITIZED
 * WITH: replay.c stub.c
 * TIMEOUT: 120
 * WRAP: hws__multi_refused
 *
 * An input is a byte of state (see below), then messages: a byte of how (1 by rendezvous, 2 with the right
 * proof in it), the length of what follows the message, its length (0: as it must be), and both.
 */
#include "auth.h"
#include "fuzz/fuzz.h"
#include "fuzz/stub.h"
#include "hello.h"
#include "multi.h"
#include "progress.h"
#include "support/check.h"
#include "waddress.h"

#include <string.h>

enum { SERVER = 1, KEY = 2, MAIN = 4, OPEN = 8, BY_ADDRESS = 16, SHARED_MEMORY = 32 };
enum { RENDEZVOUS = 1, PROVED = 2 };
enum { SIZE = 128, TYPE_AT = 4, NONCE_AT = 40, PROOF_AT = 72 };
enum { PROOF = 3, WELCOME };

static const unsigned char key[32] = "thirty-two bytes of a shared key";

void __real_hws__multi_refused(struct hws__endpoint *ep, uint64_t sequence, int32_t code);
void __wrap_hws__multi_refused(struct hws__endpoint *ep, uint64_t sequence, int32_t code);

/* What becomes the status of an operation is no number of the peer's. */
void __wrap_hws__multi_refused(struct hws__endpoint *ep, uint64_t sequence, int32_t code)
{
    CHECK(code == HWS_E_TOO_BIG || code == HWS_E_NO_MEMORY || code == HWS_E_ALLOCATOR);
    __real_hws__multi_refused(ep, sequence, code);
}

/* What a peer that has the key would write. */
static void prove(const struct hws__endpoint *ep, unsigned char *m)
{
    if (ep->server) {
        hws__auth_prove(key, sizeof key, 'c', ep->peer_nonce, ep->nonce, m + PROOF_AT);
    } else {
        hws__auth_prove(key, sizeof key, 's', ep->nonce, ep->peer_nonce, m + PROOF_AT);
    }
}

static bool is_in(const struct hws__endpoint *ep)
{
    return ep->open || ep->hello_done || ep->phase == HWS__PHASE_REQUEST;
}

static void message(struct stub *s, struct hws__endpoint *ep, struct input *in)
{
    unsigned how = input_byte(in);
    size_t tail = input_size(in), length = input_byte(in);
    bool was_in = ep != NULL && is_in(ep), was_failed = ep != NULL && ep->failed, proved = false;
    const unsigned char *address, *data;
    unsigned char m[256] = {0};

    length = length != 0 ? length : SIZE;
    address = input_bytes(in, &tail);
    data = input_bytes(in, &length);
    memcpy(m, data, length);
    if (ep != NULL && (how & PROVED) && length == SIZE) {
        prove(ep, m);
        proved = m[TYPE_AT] == (ep->server ? PROOF : WELCOME);
    }
    stub_arrives(s, hws__control_cb, address, tail, how & RENDEZVOUS ? NULL : m, length,
                 how & RENDEZVOUS ? UCP_AM_RECV_ATTR_FLAG_RNDV : 0);
    if (ep == NULL) {
        return;
    }
    CHECK(memchr(ep->text, '\0', sizeof ep->text) != NULL);
    CHECK(!ep->failed || (ep->status < 0 && ep->status > -(int32_t)HWS__CODES && !ep->open));
    if (s->context.psk != NULL && !was_in && is_in(ep)) {
        CHECK(proved && hws__auth_available());
    }
    if (!was_failed && ((how & RENDEZVOUS) || length != SIZE)) {
        CHECK(ep->failed && ep->status == HWS_E_PROTOCOL);
    }
}

/* Endpoints that a hello to our address made. */
static void addressed(struct stub *s)
{
    struct hws__list *n;

    while (!hws__list_empty(&s->worker->endpoints)) {
        struct hws__endpoint *ep;

        n = s->worker->endpoints.next;
        ep = hws__container(n, struct hws__endpoint, link);
        if (ep->first_hello != NULL) { /* else it stands for a dial that was given up */
            CHECK(ep->worker_address != NULL);
            hws__address_step(ep);
        }
        CHECK(ep->failed); /* the stub connects to nobody */
        hws__endpoint_forget(ep);
    }
}

void fuzz_one(const unsigned char *data, size_t size)
{
    struct stub *s = stub_get();
    struct input in = {data, size};
    unsigned state = input_byte(&in);
    struct hws__endpoint *ep = NULL;

    s->context.psk = state & KEY ? (unsigned char *)(uintptr_t)key : NULL;
    s->context.psk_length = state & KEY ? sizeof key : 0;
    s->context.flags = state & SHARED_MEMORY ? 0 : HWS_CONTEXT_NO_SHARED_MEMORY;
    s->worker->main = state & MAIN ? &s->uworker : NULL;
    s->worker->addressed[HWS__ADDRESSED_HELLO] = &s->uworker;
    if (state & BY_ADDRESS) {
        s->uworker.role = HWS__ADDRESS;
    } else {
        ep = stub_connect(s, state & SERVER);
        ep->upgrade.waits = false;
        if (state & OPEN) {
            ep->phase = HWS__PHASE_OPEN;
            ep->open = ep->hello_done = true;
        }
    }
    while (in.left != 0) {
        message(s, ep, &in);
        if (state & BY_ADDRESS) {
            addressed(s);
        }
    }
    if (ep != NULL) {
        stub_forget(s, ep);
    }
    hws__list_init(&s->worker->attention);
}

FUZZ_MAIN("hello")
