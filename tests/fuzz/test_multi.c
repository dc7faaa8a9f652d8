/*
 * Multi-buffer messages: lists and parts as any peer may send them, received in any way. Nothing outside of
 * what came is read, and nothing written outside of what was allocated for it.
 * INTERNAL SANITIZED
 * WITH: replay.c stub.c
 * WRAP: aligned_alloc
 * TIMEOUT: 240
 *
 * An input is a byte of state, then steps: see enum step.
 */
#include "fuzz/fuzz.h"
#include "fuzz/stub.h"
#include "multi.h"
#include "progress.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL_LIMITS = 1, CLOSING = 2, NO_CREDIT = 4 };
enum step {
    LIST,          /* length, bytes */
    LIST_KEPT,     /* the same; UCX lets its buffer be kept */
    PART,          /* message from the last one, index, announced length */
    PART_ODD,      /* length of the header, header; no rendezvous if that is odd */
    RECEIVE,       /* tag; the whole message, into memory of the library */
    RECEIVE_HOOK,  /* tag; into memory of the program */
    RECEIVE_LIST,  /* tag; the list alone, fetched afterwards */
    RECEIVE_SMALL, /* tag; at most 100 bytes in 3 segments */
    SWEEP,
    STEPS
};
enum { MUCH = 1 << 20 };

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

/* A machine with little memory. */
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return size <= 16 * (size_t)MUCH ? __real_aligned_alloc(alignment, size) : NULL;
}

static void *give(void *arg, uint64_t length, uint32_t kind)
{
    (void)arg, (void)kind;
    CHECK(length != 0);
    return length <= MUCH ? malloc(length) : NULL;
}

static void take_back(void *arg, void *memory, uint64_t length)
{
    (void)arg, (void)length;
    free(memory);
}

static hws_id listed; /* a buffer whose list was received */

static void received(void *arg, const hws_event *event)
{
    const hws_multi_detail *detail = event->detail;
    uint64_t total = 0;

    CHECK(event->status == HWS_OK || (event->status < 0 && event->status > -(int32_t)HWS__CODES));
    if (event->status != HWS_OK) {
        return;
    }
    CHECK_EQ(event->length, detail->total);
    for (uint64_t i = 0; i < detail->count; i++) {
        const hws_segment *segment = &detail->segments[i];

        total += segment->length;
        if (arg == NULL && segment->length != 0) { /* all of it is here */
            CHECK(segment->base != NULL);
            (void)fuzz_checksum(segment->base, segment->length);
        }
    }
    CHECK_EQ(total, detail->total);
    if (arg != NULL) {
        listed = detail->buffer;
    }
}

static void fetched(void *arg, const hws_event *event)
{
    (void)event;
    free(arg);
}

/* The data of a listed message, into one block of exactly its size. */
static void fetch(void)
{
    const struct hws__message *m = hws__obj_find(&hws__objects, listed);
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = fetched};
    hws_segment *segments;
    char *block, *at;

    listed = 0;
    if (m == NULL || m->multi->detail.total > MUCH) {
        return;
    }
    CHECK((segments = malloc((m->multi->detail.count + 1) * sizeof *segments)) != NULL);
    CHECK((at = block = malloc(m->multi->detail.total + 1)) != NULL);
    for (uint64_t i = 0; i < m->multi->detail.count; i++) {
        segments[i] = (hws_segment){.base = at, .length = m->multi->segments[i].length};
        at += segments[i].length;
    }
    opts.callback_arg = block;
    if (hws_multi_fetch(m->obj.id, segments, m->multi->detail.count, &opts, NULL) < 0) {
        free(block);
    }
    free(segments);
}

static void receive(const struct stub *s, const struct hws__endpoint *ep, enum step how,
                    unsigned tag)
{
    hws_multi_recv_opts want = {.struct_size = sizeof want};
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = received};
    bool any = tag >= 128; /* of the worker, and whatever the tag */

    if (how == RECEIVE_HOOK) {
        want.alloc = give;
        want.free = take_back;
    } else if (how == RECEIVE_LIST) {
        want.flags = HWS_MULTI_LIST;
        opts.callback_arg = &listed;
    } else if (how == RECEIVE_SMALL) {
        want.bytes_max = 100;
        want.count_max = 3;
    }
    (void)hws_multi_recv(any ? s->worker->obj.id : ep->obj.id, tag, any ? 0 : UINT64_MAX, &want,
                         &opts, NULL);
}

static void part(struct stub *s, const struct hws__endpoint *ep, struct input *in)
{
    struct hws__multi_part header = {.sequence = ep->multi_received + (input_byte(in) & 3)};
    uint64_t length = 0;
    size_t four = 4, eight = 8;
    const unsigned char *index = input_bytes(in, &four), *announced = input_bytes(in, &eight);

    memcpy(&header.index, index, four);
    memcpy(&length, announced, eight);
    stub_arrives(s, hws__multi_part_cb, &header, sizeof header, NULL, length,
                 UCP_AM_RECV_ATTR_FLAG_RNDV);
}

static void step(struct stub *s, const struct hws__endpoint *ep, struct input *in)
{
    enum step what = input_byte(in) % STEPS;
    const unsigned char *bytes;
    size_t length;

    switch (what) {
    case LIST:
    case LIST_KEPT:
        length = input_size(in);
        bytes = input_bytes(in, &length);
        stub_arrives(s, hws__multi_cb, NULL, 0, bytes, length,
                     what == LIST_KEPT ? UCP_AM_RECV_ATTR_FLAG_DATA : 0);
        break;
    case PART:
        part(s, ep, in);
        break;
    case PART_ODD:
        length = input_byte(in);
        bytes = input_bytes(in, &length);
        stub_arrives(s, hws__multi_part_cb, bytes, length, NULL, 0,
                     length % 2 != 0 ? 0 : UCP_AM_RECV_ATTR_FLAG_RNDV);
        break;
    case SWEEP:
        stub_swept(s);
        break;
    default:
        receive(s, ep, what, input_byte(in));
    }
    if (listed != 0) {
        fetch();
    }
}

void fuzz_one(const unsigned char *data, size_t size)
{
    struct stub *s = stub_get();
    struct input in = {data, size};
    unsigned state = input_byte(&in);
    struct hws__endpoint *ep = stub_open(s);

    s->worker->multi_bytes_max = state & SMALL_LIMITS ? 4096 : UINT64_MAX;
    s->worker->multi_count_max = state & SMALL_LIMITS ? 20 : HWS__MULTI_COUNT;
    ep->closing = (state & CLOSING) != 0;
    if ((state & NO_CREDIT) == 0) {
        hws__credit_open(ep, 10, 10);
    }
    while (in.left != 0) {
        step(s, ep, &in);
    }
    stub_forget(s, ep);
    hws__list_init(&s->worker->attention);
    listed = 0;
}

FUZZ_MAIN("multi")
