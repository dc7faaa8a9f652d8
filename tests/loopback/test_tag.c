/*
 * Tagged messages: every size, expected and unexpected, in both directions, scattered buffers, truncation, synchronous
 * sends, and those that end at once. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/tag.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

static const size_t sizes[] = {0,    1,    7,     8,       200,        4095,
                               4096, 8192, 65536, 1000003, (1u << 20), (17u << 20) + 3};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

CASE_BOTH(every_size)
{
    t_pair pair;
    char *out = t_alloc(sizes[SIZES - 1]), *in = t_alloc(sizes[SIZES - 1] + 16);

    t_pair_open_flags(&pair, flags);
    for (size_t i = 0; i < SIZES; i++) {
        for (int unexpected = 0; unexpected < 2; unexpected++) {
            for (int level = 0; level < 2; level++) {
                for (int back = 0; back < 2; back++) {
                    hws_id from = pair.endpoint[back], to = pair.endpoint[1 - back], send, recv;
                    hws_id source = level ? pair.worker[1 - back] : to;
                    uint64_t tag = UINT64_C(0xfedcba9876543210) + i;
                    t_fill(out, sizes[i], i + 1);
                    memset(in, 0x5a, sizes[i] + 16);
                    if (unexpected) {
                        send = t_tag_send(from, out, sizes[i], tag);
                        t_tag_arrived(&pair, source, tag);
                        recv = t_tag_recv(source, in, sizes[i] + 8, tag, ALL);
                    } else {
                        recv = t_tag_recv(source, in, sizes[i] + 8, tag, ALL);
                        t_pair_step(&pair);
                        send = t_tag_send(from, out, sizes[i], tag);
                    }
                    hws_event sent = WAIT_OK(&pair, send);
                    hws_event received = WAIT_OK(&pair, recv);
                    CHECK_EQ(sent.kind, HWS_EVENT_TAG_SEND);
                    CHECK(sent.source == from);
                    CHECK_EQ(sent.length, sizes[i]);
                    CHECK(sent.tag == tag);
                    CHECK_EQ(received.kind, HWS_EVENT_TAG_RECV);
                    CHECK(received.source == source);
                    CHECK_EQ(received.length, sizes[i]);
                    CHECK(received.tag == tag);
                    CHECK_FILLED(in, sizes[i], i + 1);
                    for (int guard = 0; guard < 16; guard++) {
                        CHECK_EQ(in[sizes[i] + (size_t)guard], 0x5a);
                    }
                }
            }
        }
    }
    CHECK_EQ(t_stats(pair.context).unexpected, 0);
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE(user_value_and_event_fields)
{
    t_pair pair;
    hws_op_opts opts = {.struct_size = sizeof(opts), .user = 0x123456789abcdef};
    uint64_t in = 0, out = 5;
    hws_id send = 0, recv = 0;

    t_pair_open_flags(&pair, 0);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 0, 0, &opts, &recv));
    opts.user = ALL;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, ALL, &opts, &send));
    hws_event event = WAIT_OK(&pair, send);
    CHECK(event.user == ALL);
    event = WAIT_OK(&pair, recv);
    CHECK(event.user == UINT64_C(0x123456789abcdef));
    CHECK(event.tag == ALL);
    CHECK_EQ(event.length, 8);
    CHECK(event.detail == NULL);
    t_pair_close(&pair);
}

CASE_BOTH(truncation)
{
    static const size_t lengths[] = {200, 8192, 100000, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    t_pair_open_flags(&pair, flags);
    for (int i = 0; i < 4; i++) {
        for (int unexpected = 0; unexpected < 2; unexpected++) {
            size_t room = lengths[i] / 2;
            hws_id send, recv;
            t_fill(out, lengths[i], 1);
            memset(in, 0x33, 1 << 20);
            if (unexpected) {
                send = t_tag_send(pair.endpoint[0], out, lengths[i], 1);
                t_tag_arrived(&pair, pair.endpoint[1], 1);
                recv = t_tag_recv(pair.endpoint[1], in, room, 1, ALL);
            } else {
                recv = t_tag_recv(pair.endpoint[1], in, room, 1, ALL);
                send = t_tag_send(pair.endpoint[0], out, lengths[i], 1);
            }
            CHECK_CODE(WAIT(&pair, recv).status, HWS_E_TRUNCATED);
            /* The sender ends too, and nothing was written behind the room. */
            (void)WAIT(&pair, send);
            for (size_t j = room; j < lengths[i]; j++) {
                CHECK_EQ(in[j], 0x33);
            }
            t_tag_send_number(&pair, pair.endpoint[0], 1, 4711);
            CHECK_EQ(t_tag_take_number(&pair, pair.endpoint[1], 1, ALL), 4711);
        }
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(sync_send_waits_for_the_match)
{
    static const size_t lengths[] = {0, 8, 5000, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    t_pair_open_flags(&pair, flags);
    for (int i = 0; i < 4; i++) {
        hws_id send = 0, recv;
        t_fill(out, lengths[i], 2);
        CHECK_OK(hws_tag_send_sync(pair.endpoint[0], out, lengths[i], 2, NULL, &send));
        t_tag_arrived(&pair, pair.endpoint[1], 2);
        t_pair_idle(&pair, 30 * T_MS);
        CHECK_PENDING(send);
        recv = t_tag_recv(pair.endpoint[1], in, 1 << 20, 2, ALL);
        CHECK_EQ(WAIT_OK(&pair, recv).length, lengths[i]);
        hws_event event = WAIT_OK(&pair, send);
        CHECK_EQ(event.kind, HWS_EVENT_TAG_SEND);
        CHECK_FILLED(in, lengths[i], 2);
        /* Expected: it ends as well. */
        recv = t_tag_recv(pair.endpoint[1], in, 1 << 20, 2, ALL);
        CHECK_OK(hws_tag_send_sync(pair.endpoint[0], out, lengths[i], 2, NULL, &send));
        WAIT_OK(&pair, send);
        WAIT_OK(&pair, recv);
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

/* Cuts `length` bytes into `count` pieces of odd sizes, some empty. */
static void cut(hws_iov *iov, uint32_t count, char *memory, size_t length, uint64_t *state)
{
    size_t used = 0;

    for (uint32_t i = 0; i < count; i++) {
        size_t left = length - used, piece = left;
        if (i + 1 < count) {
            piece = t_random(state) % 5 == 0 ? 0 : t_random(state) % (2 * length / count + 2);
            piece = piece > left ? left : piece;
        }
        iov[i].base = piece == 0 ? NULL : memory + used;
        iov[i].length = piece;
        used += piece;
    }
}

CASE_BOTH(scattered)
{
    static const size_t lengths[] = {0, 5, 1000, 20000, 1 << 20};
    static const uint32_t counts[] = {1, 3, 16, 17, 40};
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_IOV};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);
    uint64_t random = 1;

    t_pair_open_flags(&pair, flags);
    for (int i = 0; i < 5; i++) {
        for (int c = 0; c < 5; c++) {
            for (int way = 1; way < 4; way++) { /* bit 0: scattered send, bit 1: receive */
                hws_iov from[40], to[40];
                uint32_t n = counts[c];
                hws_id send = 0, recv = 0;
                t_fill(out, lengths[i], 6);
                memset(in, 0, lengths[i]);
                cut(from, n, out, lengths[i], &random);
                cut(to, n, in, lengths[i], &random);
                if (way & 2) {
                    CHECK_OK(hws_tag_recv(pair.endpoint[1], to, n, 1, ALL, &opts, &recv));
                } else {
                    recv = t_tag_recv(pair.endpoint[1], in, lengths[i], 1, ALL);
                }
                if (way & 1) {
                    CHECK_OK(hws_tag_send(pair.endpoint[0], from, n, 1, &opts, &send));
                } else {
                    send = t_tag_send(pair.endpoint[0], out, lengths[i], 1);
                }
                if (n <= 16) { /* the array was copied */
                    memset(from, 0xff, sizeof(from));
                    memset(to, 0xff, sizeof(to));
                }
                hws_event event = WAIT_OK(&pair, send);
                CHECK_EQ(event.length, lengths[i]);
                event = WAIT_OK(&pair, recv);
                CHECK_EQ(event.length, lengths[i]);
                CHECK_FILLED(in, lengths[i], 6);
            }
        }
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(done_inline)
{
    hws_event result;
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .flags = HWS_OP_INLINE, .user = 6, .result = &result};
    t_pair pair;
    uint64_t done = 0;

    t_pair_open_flags(&pair, flags);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t in = 0;
        hws_id send = 1, recv = 1;
        memset(&result, 0, sizeof(result));
        int32_t code = hws_tag_send(pair.endpoint[0], &i, 8, 40 + i, &opts, &send);
        if (code == HWS_DONE) {
            CHECK_EQ(send, 0);
            CHECK_EQ(result.size, sizeof(result));
            CHECK_EQ(result.kind, HWS_EVENT_TAG_SEND);
            CHECK_EQ(result.op, 0);
            CHECK(result.source == pair.endpoint[0]);
            CHECK_EQ(result.status, HWS_OK);
            CHECK_EQ(result.length, 8);
            CHECK_EQ(result.tag, 40 + i);
            CHECK_EQ(result.user, 6);
            done++;
        } else {
            CHECK_OK(code);
            WAIT_OK(&pair, send);
        }
        t_tag_arrived(&pair, pair.endpoint[1], 40 + i);
        memset(&result, 0, sizeof(result));
        code = hws_tag_recv(pair.endpoint[1], &in, 8, 0, 0, &opts, &recv);
        if (code == HWS_DONE) {
            CHECK_EQ(recv, 0);
            CHECK_EQ(result.kind, HWS_EVENT_TAG_RECV);
            CHECK_EQ(result.status, HWS_OK);
            CHECK_EQ(result.length, 8);
            CHECK_EQ(result.tag, 40 + i);
            CHECK_EQ(result.user, 6);
            done++;
        } else {
            CHECK_OK(code);
            WAIT_OK(&pair, recv);
        }
        CHECK_EQ(in, i);
    }
    CHECK(done > 0);
    CHECK(t_stats(pair.context).ops_inline >= done);
    CHECK_EQ(t_stats(pair.context).ops_pending, 0);
    t_pair_close(&pair);
}

CASE_BOTH(both_ways_at_once)
{
    enum { COUNT = 40 };
    t_pair pair;
    size_t length = 150000;
    char *memory = t_alloc(4 * COUNT * length);
    hws_id ops[4 * COUNT];

    t_pair_open_flags(&pair, flags);
    for (uint64_t i = 0; i < COUNT; i++) {
        for (int side = 0; side < 2; side++) {
            char *out = memory + (i * 4 + (uint64_t)side) * length, *in = out + 2 * length;
            t_fill(out, length, i * 2 + (uint64_t)side);
            ops[i * 4 + (uint64_t)side] = t_tag_send(pair.endpoint[side], out, length - i, i);
            ops[i * 4 + 2 + (uint64_t)side] =
                t_tag_recv(pair.endpoint[1 - side], in, length, i, ALL);
        }
    }
    for (int i = 0; i < 4 * COUNT; i++) {
        WAIT_OK(&pair, ops[i]);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        for (uint64_t side = 0; side < 2; side++) {
            CHECK_FILLED(memory + (i * 4 + 2 + side) * length, length - i, i * 2 + side);
        }
    }
    free(memory);
    t_pair_close(&pair);
}

/* Callbacks instead of waiting: each side answers from inside its own. */
struct bounce {
    hws_id endpoint[2];
    uint64_t in[2], out[2];
    int left;
};

static void bounced(void *arg, const hws_event *event)
{
    struct bounce *b = arg;
    int side = event->source == b->endpoint[1];
    hws_op_opts recv = {.struct_size = sizeof(recv), .callback = bounced, .callback_arg = b};
    hws_op_opts send = {.struct_size = sizeof(send), .flags = HWS_OP_DETACHED};

    if (event->status == HWS_E_CANCELED && b->left < 0) {
        return;
    }
    CHECK_OK(event->status);
    if (b->left-- > 0) {
        b->out[side] = b->in[side] + 1;
        CHECK_OK(hws_tag_recv(b->endpoint[side], &b->in[side], 8, 1, ALL, &recv, NULL));
        CHECK_OK(hws_tag_send(b->endpoint[side], &b->out[side], 8, 1, &send, NULL));
    }
}

CASE_BOTH(posted_inside_callbacks)
{
    t_pair pair;
    struct bounce b = {.left = 500};
    hws_op_opts recv = {.struct_size = sizeof(recv), .callback = bounced, .callback_arg = &b};

    t_pair_open_flags(&pair, flags);
    for (int side = 0; side < 2; side++) {
        b.endpoint[side] = pair.endpoint[side];
        CHECK_OK(hws_tag_recv(b.endpoint[side], &b.in[side], 8, 1, ALL, &recv, NULL));
    }
    t_tag_send_number(&pair, b.endpoint[0], 1, 0);
    UNTIL(&pair, b.left < 0);
    CHECK_EQ(b.in[0] > b.in[1] ? b.in[0] : b.in[1], 500);
    t_pair_close(&pair);
}

CASES_MAIN
