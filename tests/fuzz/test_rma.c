/*
 * Remote memory access as any peer may ask for it, and answers to what this side asked: nothing outside of the
 * registered memory is touched, and nothing outside of what an operation waits for.
 * INTERNAL SANITIZED
 * WITH: replay.c stub.c
 * TIMEOUT: 240
 *
 * An input is a byte of state, then steps: see enum step.
 */
#include "fuzz/fuzz.h"
#include "fuzz/stub.h"
#include "memory.h"
#include "progress.h"
#include "rma.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { READ_ONLY = 1, NO_FEATURE = 2 };
enum step {
    MESSAGE, /* type, flags, action, size, offset (2), length (2), number of data bytes (2), data; the right key */
    ANSWER,  /* the same, to the operation posted last */
    RAW,     /* length of the header, header */
    GET,     /* length (2), in pieces if that is odd */
    ATOMIC,  /* action, 0: 4 bytes, else 8 */
    SWEEP,
    STEPS
};
enum { ROOM = 256, KEY = 77 };

static _Alignas(8) char *memory; /* of exactly ROOM bytes */
static struct hws__memory *registered;
static hws_id last;

static void ended(void *arg, const hws_event *event)
{
    CHECK(event->status == HWS_OK || (event->status < 0 && event->status > -(int32_t)HWS__CODES));
    free(arg);
}

static void register_memory(struct stub *s)
{
    if (registered == NULL) {
        CHECK((memory = malloc(ROOM)) != NULL);
        memset(memory, 1, ROOM);
        registered = (struct hws__memory *)(void *)hws__obj_alloc(&hws__objects, HWS_KIND_MEMORY,
                                                                  sizeof *registered, 0);
        CHECK(registered != NULL);
        registered->context = &s->context;
        registered->base = memory;
        registered->length = ROOM;
        registered->key = KEY;
        registered->memory_kind = HWS_MEMORY_HOST;
        hws__obj_publish(&hws__objects, &registered->obj);
    }
}

/* A key of the peer's, reached by messages. */
static struct hws__rkey *make_key(struct hws__endpoint *ep)
{
    struct hws__rkey *k = (struct hws__rkey *)(void *)hws__obj_alloc(
        &hws__objects, HWS_KIND_RKEY, sizeof *k, HWS__KEEP(struct hws__rkey, link));

    CHECK(k != NULL);
    k->worker = ep->worker;
    k->uworker = ep->uworker;
    k->ep = ep;
    k->length = UINT64_MAX;
    k->way = HWS__WAY_MESSAGES;
    k->memory_kind = HWS_MEMORY_HOST;
    hws__list_init(&k->of_uworker);
    hws__list_append(&ep->rkeys, &k->link);
    hws__obj_publish(&hws__objects, &k->obj);
    return k;
}

static void message(struct stub *s, struct input *in, bool answer)
{
    struct hws__rma_msg m = {.memory = registered->obj.id, .key = KEY, .op = last};
    const unsigned char *data;
    size_t length;

    m.type = (uint8_t)input_byte(in);
    m.flags = (uint8_t)input_byte(in);
    m.action = (uint8_t)input_byte(in);
    m.size = (uint8_t)input_byte(in);
    m.address = (answer ? 0 : (uint64_t)(uintptr_t)memory) + (uint64_t)(int16_t)input_size(in);
    m.length = input_size(in);
    length = input_size(in);
    data = input_bytes(in, &length);
    stub_arrives(s, hws__rma_cb, &m, sizeof m, data, length, 0);
}

static void raw(struct stub *s, struct input *in)
{
    size_t length = input_byte(in);
    const unsigned char *bytes = input_bytes(in, &length);

    stub_arrives(s, hws__rma_cb, bytes, length, NULL, 0,
                 length % 2 != 0 ? UCP_AM_RECV_ATTR_FLAG_RNDV : 0);
}

/* Into memory of exactly the size; in three pieces, one of them empty, or in one. */
static void get(const struct hws__rkey *k, size_t length)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = ended};
    char *into = malloc(length + 1);
    hws_iov pieces[3] = {{into, length / 3}, {into, 0}, {into + length / 3, length - length / 3}};
    bool parts = length % 2 != 0;
    hws_id op = 0;

    CHECK(into != NULL);
    opts.callback_arg = into;
    opts.flags = parts ? HWS_OP_IOV : 0;
    if (hws_get(k->obj.id, 0, parts ? (void *)pieces : into, parts ? 3 : length, &opts, &op) !=
        HWS_OK) {
        free(into);
    } else {
        last = op;
    }
}

static void atomic(const struct hws__rkey *k, unsigned action, unsigned wide)
{
    unsigned size = wide ? 8 : 4;
    void *into = malloc(size);
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = ended, .callback_arg = into};
    hws_id op = 0;

    CHECK(into != NULL);
    if (hws_atomic(k->obj.id, 0, action % (HWS_ATOMIC_CSWAP + 1), size, 1, 2, into, &opts, &op) !=
        HWS_OK) {
        free(into);
    } else {
        last = op;
    }
}

static void step(struct stub *s, struct hws__endpoint *ep, const struct hws__rkey *k,
                 struct input *in)
{
    enum step what = input_byte(in) % STEPS;
    unsigned action;

    switch (what) {
    case MESSAGE:
    case ANSWER:
        message(s, in, what == ANSWER);
        break;
    case RAW:
        raw(s, in);
        break;
    case GET:
        get(k, input_size(in));
        break;
    case ATOMIC:
        action = input_byte(in);
        atomic(k, action, input_byte(in));
        break;
    default:
        stub_swept(s);
        hws__rma_push(ep);
    }
}

void fuzz_one(const unsigned char *data, size_t size)
{
    struct stub *s = stub_get();
    struct input in = {data, size};
    unsigned state = input_byte(&in);
    struct hws__endpoint *ep = stub_open(s);
    const struct hws__rkey *k = make_key(ep);
    bool nested;

    register_memory(s);
    registered->access = HWS_MEM_REMOTE_READ | (state & READ_ONLY ? 0 : HWS_MEM_REMOTE_WRITE);
    s->context.features = state & NO_FEATURE ? 0 : HWS_FEATURE_RMA | HWS_FEATURE_ATOMIC;
    while (in.left != 0) {
        step(s, ep, k, &in);
    }
    nested = hws__own(s->worker);
    hws__rma_end(ep, HWS_E_CONNECTION_RESET);
    hws__disown(s->worker, nested);
    stub_forget(s, ep);
    CHECK_EQ(registered->uses, 0);
    hws__list_init(&s->worker->attention);
    last = 0;
}

FUZZ_MAIN("rma")
