/*
 * Sends that end inside the call, and receives that have to wait: what they answer, fill and count is what
 * the same through the general way does; and a send that cannot end inside the call becomes an operation.
 * TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define TAG 7
#define ALL UINT64_MAX

/* `send` is one of the two kinds; ids below 64 travel another way than those above. */
static int32_t send_tag(hws_id endpoint, uint64_t name, const void *data, uint64_t length,
                        const hws_op_opts *opts, hws_id *op)
{
    return hws_tag_send(endpoint, data, length, name, opts, op);
}

static int32_t send_am(hws_id endpoint, uint64_t name, const void *data, uint64_t length,
                       const hws_op_opts *opts, hws_id *op)
{
    return hws_am_send(endpoint, (uint32_t)name, NULL, 0, data, length, opts, op);
}

typedef int32_t send_fn(hws_id, uint64_t, const void *, uint64_t, const hws_op_opts *, hws_id *);
static send_fn *const sends[] = {send_tag, send_am};
static const uint32_t kinds[] = {HWS_EVENT_TAG_SEND, HWS_EVENT_AM_SEND};

struct seen {
    uint64_t count, sum, length;
    uint32_t am_id;
    uint64_t header_length;
};

static void on_am(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    struct seen *seen = arg;

    CHECK_OK(event->status);
    seen->count++;
    seen->am_id = (uint32_t)event->tag;
    seen->length = detail->data_length;
    seen->header_length = detail->header_length;
    seen->sum = t_checksum(detail->data, detail->data_length);
}

static void handle(hws_id worker, uint32_t am_id, struct seen *seen)
{
    hws_am_opts opts = {.struct_size = sizeof opts,
                        .sink = {.callback = on_am, .callback_arg = seen}};

    CHECK_OK(hws_am_handler(worker, am_id, &opts));
}

static uint64_t sent(hws_id endpoint, int kind)
{
    return t_stats(endpoint).sent[kind == 0 ? HWS_TRAFFIC_TAG : HWS_TRAFFIC_AM];
}

CASE_BOTH(answers)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    struct seen seen = {0};
    t_pair pair;

    t_pair_open(&pair, &opts);
    handle(pair.worker[1], TAG, &seen);
    for (int k = 0; k < 2; k++) {
        hws_event result = {0}, event;
        hws_op_opts inside = {
            .struct_size = sizeof inside, .flags = HWS_OP_INLINE, .user = 5, .result = &result};
        uint64_t data = 0x0123456789abcdef, in = 0, before = sent(pair.endpoint[0], k);
        hws_id op = 9, receive = 0;

        CHECK_EQ(sends[k](pair.endpoint[0], TAG, &data, sizeof data, &inside, &op), HWS_DONE);
        CHECK_EQ(op, 0);
        CHECK_OK(sends[k](pair.endpoint[0], TAG, &data, sizeof data, NULL, &op));
        event = WAIT_OK(&pair, op);
        CHECK_EQ(result.size, sizeof result);
        CHECK_EQ(result.kind, kinds[k]);
        CHECK_EQ(result.kind, event.kind);
        CHECK_EQ(result.source, event.source);
        CHECK_EQ(result.status, event.status);
        CHECK_EQ(result.length, event.length);
        CHECK_EQ(result.tag, event.tag);
        CHECK_EQ(result.user, 5);
        CHECK_EQ(sent(pair.endpoint[0], k), before + 2);
        for (int i = 0; k == 0 && i < 2; i++) {
            in = 0;
            CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, sizeof in, TAG, ALL, NULL, &receive));
            WAIT_OK(&pair, receive);
            CHECK_EQ(in, data);
        }
        if (k == 1) {
            UNTIL(&pair, seen.count == 2);
            CHECK_EQ(seen.sum, t_checksum(&data, sizeof data));
            CHECK_EQ(seen.header_length, 0);
        }
    }
    t_pair_close(&pair);
}

CASE_BOTH(refusals)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    hws_op_opts inside = {.struct_size = sizeof inside, .flags = HWS_OP_INLINE};
    hws_op_opts queue = inside;
    uint64_t data = 1;
    t_pair pair;
    hws_id op;

    t_pair_open(&pair, &opts);
    queue.queue = pair.worker[0];
    for (int k = 0; k < 2; k++) {
        CHECK_CODE(sends[k](pair.endpoint[0], TAG, NULL, 8, &inside, &op), HWS_E_INVALID);
        CHECK_CODE(sends[k](pair.endpoint[0], TAG, &data, 8, &inside, NULL), HWS_E_INVALID);
        CHECK_CODE(sends[k](pair.endpoint[0], TAG, &data, 8, &queue, &op), HWS_E_KIND);
        CHECK_CODE(sends[k](pair.worker[0], TAG, &data, 8, &inside, &op), HWS_E_KIND);
        CHECK_CODE(sends[k](0, TAG, &data, 8, &inside, &op), HWS_E_BAD_ID);
    }
    CHECK_CODE(send_am(pair.endpoint[0], HWS_AM_ID_MAX + 1, &data, 8, &inside, &op), HWS_E_INVALID);
    CHECK_OK(hws_close(pair.endpoint[1]));
    UNTIL(&pair, hws_kind(pair.endpoint[1]) < 0);
    UNTIL(&pair, send_tag(pair.endpoint[0], TAG, &data, 8, &inside, &op) < 0);
    CHECK(send_am(pair.endpoint[0], TAG, &data, 8, &inside, &op) < 0);
    t_pair_close(&pair);
}

/* What UCX keeps becomes an operation, with its event. */
CASE_BOTH(pending)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    hws_op_opts inside = {.struct_size = sizeof inside, .flags = HWS_OP_INLINE, .user = 8};
    unsigned char *out = t_alloc(MIB), *in = t_alloc(MIB);
    hws_id send = 0, receive = 0;
    hws_event event;
    t_pair pair;

    for (size_t i = 0; i < MIB; i++) {
        out[i] = (unsigned char)(i * 7);
        in[i] = 0;
    }
    t_pair_open(&pair, &opts);
    CHECK_OK(hws_tag_send(pair.endpoint[0], out, MIB, TAG, &inside, &send));
    CHECK(send != 0);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], in, MIB, TAG, ALL, NULL, &receive));
    WAIT_OK(&pair, receive);
    event = WAIT_OK(&pair, send);
    CHECK_EQ(event.length, MIB);
    CHECK_EQ(event.tag, TAG);
    CHECK_EQ(event.user, 8);
    CHECK_EQ(event.kind, HWS_EVENT_TAG_SEND);
    CHECK(memcmp(out, in, MIB) == 0);
    free(out);
    free(in);
    t_pair_close(&pair);
}

/* With and without a header, on both sides of the last id that has a way of its own. */
CASE_BOTH(ids)
{
    static const uint32_t ids[] = {0, 1, 63, 64, 65, HWS_AM_ID_MAX};
    t_pair_opts opts = {.endpoint_flags = flags};
    struct seen seen = {0};
    uint64_t count = 0, dropped;
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        hws_op_opts inside = {.struct_size = sizeof inside,
                              .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
        uint64_t data = i;

        dropped = t_stats(pair.worker[1]).am_dropped;
        CHECK(send_am(pair.endpoint[0], ids[i], &data, 8, &inside, NULL) >= 0);
        UNTIL(&pair, t_stats(pair.worker[1]).am_dropped == dropped + 1);
        handle(pair.worker[1], ids[i], &seen);
        for (uint64_t header_length = 0; header_length <= 8; header_length += 8) {
            int32_t r = hws_am_send(pair.endpoint[0], ids[i], &data, header_length, &data, 8,
                                    &inside, NULL);

            CHECK(r == HWS_DONE || r == HWS_OK);
            UNTIL(&pair, seen.count == count + 1);
            count = seen.count;
            CHECK_EQ(seen.am_id, ids[i]);
            CHECK_EQ(seen.header_length, header_length);
            CHECK_EQ(seen.sum, t_checksum(&data, 8));
        }
    }
    t_pair_close(&pair);
}

static uint64_t number(const void *at)
{
    uint64_t n;

    memcpy(&n, at, sizeof n);
    return n;
}

/* A short list that UCX keeps: its memory stays until UCX is done, and the next one has memory of its own. */
CASE(multi_pending)
{
    enum { MOST = 400000 }; /* sockets take so much, where there is no shared memory */
    hws_op_opts inside = {.struct_size = sizeof inside, .flags = HWS_OP_INLINE, .user = 8};
    uint64_t(*values)[2] = calloc(MOST, sizeof *values), count = 0;
    hws_id ops[2] = {0}, receive;
    hws_event event;
    t_pair pair;

    t_pair_open(&pair, NULL);
    while (ops[1] == 0) {
        uint64_t *v = values[count];
        hws_segment two[2] = {{.base = v, .length = 8}, {.base = v + 1, .length = 8}};

        CHECK(count < MOST);
        v[0] = count++;
        v[1] = v[0] * 3;
        CHECK(hws_multi_send(pair.endpoint[0], TAG, two, 2, NULL, &inside, &ops[ops[0] != 0]) >= 0);
    }
    CHECK_EQ(t_stats(pair.endpoint[0]).credit_waits, 0);
    for (uint64_t i = 0; i < count; i++) {
        const hws_multi_detail *detail;

        CHECK_OK(hws_multi_recv(pair.endpoint[1], TAG, ALL, NULL, NULL, &receive));
        event = WAIT_OK(&pair, receive);
        detail = event.detail;
        CHECK_EQ(detail->count, 2);
        CHECK_EQ(number(detail->segments[0].base), i);
        CHECK_EQ(number(detail->segments[1].base), i * 3);
        CHECK_OK(hws_close(detail->buffer));
    }
    for (int i = 0; i < 2; i++) {
        event = WAIT_OK(&pair, ops[i]);
        CHECK_EQ(event.kind, HWS_EVENT_MULTI_SEND);
        CHECK_EQ(event.length, 16);
        CHECK_EQ(event.tag, TAG);
        CHECK_EQ(event.user, 8);
    }
    CHECK_EQ(t_stats(pair.endpoint[0]).sent[HWS_TRAFFIC_MULTI], count);
    free(values);
    t_pair_close(&pair);
}

/* A ball that is sent, and waited for again, inside callbacks. */
struct player {
    hws_id endpoint;
    uint64_t ball, in, hits;
};

static void wait_for_ball(struct player *p);

static void hit(void *arg, const hws_event *event)
{
    hws_event result = {0};
    hws_op_opts inside = {.struct_size = sizeof inside, .flags = HWS_OP_INLINE, .result = &result};
    struct player *p = arg;
    hws_id op = 0;

    if (event->status != HWS_OK) {
        return; /* the end of the game */
    }
    CHECK_EQ(event->source, p->endpoint);
    CHECK_EQ(event->length, sizeof p->in);
    p->hits++;
    p->ball = p->in + 1;
    wait_for_ball(p);
    CHECK_EQ(send_tag(p->endpoint, TAG, &p->ball, sizeof p->ball, &inside, &op), HWS_DONE);
    CHECK_EQ(result.kind, HWS_EVENT_TAG_SEND);
    CHECK_EQ(result.length, sizeof p->ball);
}

static void wait_for_ball(struct player *p)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = hit, .callback_arg = p};
    hws_id op = 0;

    CHECK_OK(hws_tag_recv(p->endpoint, &p->in, sizeof p->in, TAG, ALL, &opts, &op));
    CHECK(op != 0);
    CHECK_EQ(hws_kind(op), HWS_KIND_OP);
}

CASE_BOTH(inside_callbacks)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    struct player players[2];
    uint64_t first = 1;
    hws_id op;
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (int i = 0; i < 2; i++) {
        players[i] = (struct player){.endpoint = pair.endpoint[i]};
        wait_for_ball(&players[i]);
    }
    CHECK_OK(hws_tag_send(pair.endpoint[0], &first, sizeof first, TAG, NULL, &op));
    UNTIL(&pair, players[0].hits >= 500);
    CHECK(players[1].hits - players[0].hits <= 1);
    CHECK_EQ(players[0].in, 2 * players[0].hits);
    t_pair_close(&pair);
}

/* A receive with options that has to wait, and one without: the same event, the same errors. */
CASE_BOTH(receives)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    hws_op_opts plain = {.struct_size = sizeof plain, .user = 3};
    uint64_t in[2] = {0}, data = 77;
    hws_event events[2];
    hws_id receive[2], op;
    t_pair pair;

    t_pair_open(&pair, &opts);
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], NULL, 8, TAG, ALL, &plain, &op), HWS_E_INVALID);
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], in, 8, TAG, ALL, &plain, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_tag_recv(0, in, 8, TAG, ALL, &plain, &op), HWS_E_BAD_ID);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(hws_tag_recv(pair.endpoint[1], &in[i], sizeof in[i], TAG, ALL,
                              i == 0 ? &plain : NULL, &receive[i]));
        CHECK_OK(hws_tag_send(pair.endpoint[0], &data, sizeof data, TAG, NULL, &op));
    }
    for (int i = 0; i < 2; i++) {
        events[i] = WAIT_OK(&pair, receive[i]);
        CHECK_EQ(in[i], data);
    }
    CHECK_EQ(events[0].kind, events[1].kind);
    CHECK_EQ(events[0].source, events[1].source);
    CHECK_EQ(events[0].length, events[1].length);
    CHECK_EQ(events[0].tag, events[1].tag);
    CHECK_EQ(events[0].flags, events[1].flags);
    CHECK_EQ(events[0].user, 3);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], in, 8, TAG, ALL, &plain, &op));
    CHECK_OK(hws_cancel(op));
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
    CHECK_OK(hws_close(pair.endpoint[0]));
    UNTIL(&pair, hws_tag_recv(pair.endpoint[1], in, 8, TAG, ALL, &plain, &op) < 0);
    t_pair_close(&pair);
}

CASES_MAIN
