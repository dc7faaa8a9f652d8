/*
 * Tagged messages: every size, expected and unexpected, matching order, probing, truncation,
 * synchronous sends, scattered buffers, cancel and deadline. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

static const size_t sizes[] = {0,    1,    7,     8,       200,        4095,
                               4096, 8192, 65536, 1000003, (1u << 20), (17u << 20) + 3};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void open_pair(t_pair *pair, uint32_t flags)
{
    t_pair_opts opts = {.endpoint_flags = flags};

    t_pair_open(pair, &opts);
}

static hws_id post_send(hws_id endpoint, const void *buffer, uint64_t length, uint64_t tag)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_send(endpoint, buffer, length, tag, NULL, &op));
    CHECK(op != 0);
    return op;
}

static hws_id post_recv(hws_id source, void *buffer, uint64_t length, uint64_t tag, uint64_t mask)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_recv(source, buffer, length, tag, mask, NULL, &op));
    CHECK(op != 0);
    return op;
}

/* Progress until a message with this tag waits at a source. */
static void arrived(t_pair *pair, hws_id source, uint64_t tag)
{
    UNTIL(pair, hws_tag_probe(source, tag, ALL, NULL, NULL) == HWS_OK);
}

static void small(t_pair *pair, hws_id from, uint64_t tag, uint64_t value)
{
    hws_id op = post_send(from, &value, 8, tag);

    WAIT_OK(pair, op);
}

/* Receives a number; its tag must be as given. */
static uint64_t take(t_pair *pair, hws_id source, uint64_t tag, uint64_t mask)
{
    uint64_t value = UINT64_MAX;

    CHECK_EQ(WAIT_OK(pair, post_recv(source, &value, 8, tag, mask)).length, 8);
    return value;
}

CASE_BOTH(every_size)
{
    t_pair pair;
    char *out = t_alloc(sizes[SIZES - 1]), *in = t_alloc(sizes[SIZES - 1] + 16);

    open_pair(&pair, flags);
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
                        send = post_send(from, out, sizes[i], tag);
                        arrived(&pair, source, tag);
                        recv = post_recv(source, in, sizes[i] + 8, tag, ALL);
                    } else {
                        recv = post_recv(source, in, sizes[i] + 8, tag, ALL);
                        t_pair_step(&pair);
                        send = post_send(from, out, sizes[i], tag);
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

    open_pair(&pair, 0);
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

CASE_BOTH(masks)
{
    t_pair pair;

    open_pair(&pair, flags);
    hws_id from = pair.endpoint[0], to = pair.endpoint[1];
    small(&pair, from, 0x1122334455667788, 1);
    small(&pair, from, 0x1122334455667799, 2);
    small(&pair, from, 0xff22334455667788, 3);
    small(&pair, from, 0x0000000000000000, 4);
    arrived(&pair, to, 0);
    CHECK_CODE(hws_tag_probe(to, 0x1122334455667700, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    CHECK_CODE(hws_tag_probe(to, 0x80, 0x80, NULL, NULL), HWS_OK);
    /* Bits of the wanted tag that the mask leaves out do not count. */
    CHECK_EQ(take(&pair, to, 0xff00000000000001, 0xff00000000000000), 3);
    CHECK_EQ(take(&pair, to, 0x99, 0xff), 2);
    CHECK_EQ(take(&pair, to, 0x123, 0), 1);
    CHECK_EQ(take(&pair, to, 0x123, 0), 4);
    t_pair_close(&pair);
}

#define FIFO 600

/* Messages of one tag come in the order they were sent, whatever their sizes and protocols. */
CASE_BOTH(order)
{
    static const uint32_t lengths[] = {8, 70000, 8, 16, 9000, 8, 300000, 2048, 8};
    t_pair pair;
    char *out = t_alloc(300000 * 9), *in = t_alloc(300000);
    hws_id ops[FIFO];
    uint64_t random = 7;

    open_pair(&pair, flags);
    for (int round = 0; round < 2; round++) { /* not, then partly, expected */
        hws_id early[FIFO / 2];
        char *earlier = t_alloc((FIFO / 2) * 8);
        int ahead = round == 0 ? 0 : FIFO / 2;
        for (int i = 0; i < ahead; i++) {
            early[i] = post_recv(pair.endpoint[1], earlier + i * 8, 8, 9, ALL);
        }
        for (int i = 0; i < FIFO; i++) {
            uint32_t length = i < ahead ? 8 : lengths[t_random(&random) % 9];
            char *buffer = t_alloc(length);
            memset(buffer, 0, length);
            memcpy(buffer, &i, sizeof(i));
            hws_op_opts opts = {.struct_size = sizeof(opts), .user = (uintptr_t)buffer};
            CHECK_OK(hws_tag_send(pair.endpoint[0], buffer, length, 9, &opts, &ops[i]));
        }
        for (int i = 0; i < ahead; i++) {
            int number;
            WAIT_OK(&pair, early[i]);
            memcpy(&number, earlier + i * 8, sizeof(number));
            CHECK_EQ(number, i);
        }
        for (int i = ahead; i < FIFO; i++) {
            int number = -1;
            WAIT_OK(&pair, post_recv(pair.endpoint[1], in, 300000, 9, ALL));
            memcpy(&number, in, sizeof(number));
            CHECK_EQ(number, i);
        }
        for (int i = 0; i < FIFO; i++) {
            free((void *)(uintptr_t)WAIT_OK(&pair, ops[i]).user);
        }
        free(earlier);
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE(taken_in_any_order_of_tags)
{
    t_pair pair;
    uint64_t order[500], random = 3;

    open_pair(&pair, 0);
    for (uint64_t i = 0; i < 500; i++) {
        small(&pair, pair.endpoint[0], i, i * 3);
        order[i] = i;
    }
    arrived(&pair, pair.endpoint[1], 499);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 500);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected_bytes, 4000);
    for (uint64_t i = 0; i < 500; i++) {
        uint64_t j = i + t_random(&random) % (500 - i), tag = order[j];
        order[j] = order[i];
        CHECK_EQ(take(&pair, i % 2 ? pair.endpoint[1] : pair.worker[1], tag, ALL), tag * 3);
    }
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 0);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected_bytes, 0);
    t_pair_close(&pair);
}

/* Among the receives that match, the one posted first takes the message, wherever it was posted. */
CASE_BOTH(endpoint_and_worker_receives_compete_in_order)
{
    t_pair pair;

    open_pair(&pair, flags);
    for (unsigned pattern = 0; pattern < 16; pattern++) {
        uint64_t values[4] = {ALL, ALL, ALL, ALL};
        hws_id ops[4];
        for (unsigned i = 0; i < 4; i++) {
            hws_id source = pattern & (1u << i) ? pair.worker[1] : pair.endpoint[1];
            ops[i] = post_recv(source, &values[i], 8, i, i % 2 ? ALL : 0);
        }
        /* Tag 3 is wanted by the wild receives 0 and 2, and by 3; tag 1 by 0, 1 and 2. */
        small(&pair, pair.endpoint[0], 3, 100); /* 0 */
        small(&pair, pair.endpoint[0], 1, 101); /* 1 */
        small(&pair, pair.endpoint[0], 3, 102); /* 2 */
        small(&pair, pair.endpoint[0], 3, 103); /* 3 */
        for (unsigned i = 0; i < 4; i++) {
            WAIT_OK(&pair, ops[i]);
            CHECK_EQ(values[i], 100 + i);
        }
    }
    t_pair_close(&pair);
}

CASE_BOTH(an_endpoint_receives_only_from_its_peer)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    t_pair pair;
    hws_id client[2], server[2];
    uint64_t own = 0, any = 0;

    t_pair_open(&pair, &opts);
    client[0] = pair.endpoint[0];
    server[0] = pair.endpoint[1];
    t_pair_connect(&pair, &opts, &client[1], &server[1]);
    hws_id from_second = post_recv(server[1], &own, 8, 5, ALL);
    small(&pair, client[0], 5, 10);
    arrived(&pair, server[0], 5);
    CHECK_CODE(hws_tag_probe(server[1], 5, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    CHECK_PENDING(from_second);
    hws_id from_any = post_recv(pair.worker[1], &any, 8, 5, ALL);
    WAIT_OK(&pair, from_any);
    CHECK_EQ(any, 10);
    from_any = post_recv(pair.worker[1], &any, 8, 0, 0);
    small(&pair, client[1], 5, 20);
    WAIT_OK(&pair, from_second);
    CHECK_EQ(own, 20);
    small(&pair, client[1], 6, 30);
    WAIT_OK(&pair, from_any);
    CHECK_EQ(any, 30);
    t_pair_close(&pair);
}

/* Unexpected messages of several peers: a worker's receive takes the one that came first. */
CASE(worker_takes_the_oldest_arrival)
{
    t_pair pair;
    hws_id client[3], server[3];

    t_pair_open(&pair, NULL);
    client[0] = pair.endpoint[0];
    server[0] = pair.endpoint[1];
    for (int i = 1; i < 3; i++) {
        t_pair_opts opts = {.endpoint_flags = i == 2 ? HWS_ENDPOINT_TCP_ONLY : 0};
        t_pair_connect(&pair, &opts, &client[i], &server[i]);
    }
    for (uint64_t i = 0; i < 30; i++) {
        small(&pair, client[(i * 7) % 3], i, i);
        arrived(&pair, server[(i * 7) % 3], i);
    }
    for (uint64_t i = 0; i < 30; i++) {
        CHECK_EQ(take(&pair, pair.worker[1], 0, 0), i);
    }
    t_pair_close(&pair);
}

CASE_BOTH(truncation)
{
    static const size_t lengths[] = {200, 8192, 100000, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    open_pair(&pair, flags);
    for (int i = 0; i < 4; i++) {
        for (int unexpected = 0; unexpected < 2; unexpected++) {
            size_t room = lengths[i] / 2;
            hws_id send, recv;
            t_fill(out, lengths[i], 1);
            memset(in, 0x33, 1 << 20);
            if (unexpected) {
                send = post_send(pair.endpoint[0], out, lengths[i], 1);
                arrived(&pair, pair.endpoint[1], 1);
                recv = post_recv(pair.endpoint[1], in, room, 1, ALL);
            } else {
                recv = post_recv(pair.endpoint[1], in, room, 1, ALL);
                send = post_send(pair.endpoint[0], out, lengths[i], 1);
            }
            CHECK_CODE(WAIT(&pair, recv).status, HWS_E_TRUNCATED);
            /* The sender ends too, and nothing was written behind the room. */
            (void)WAIT(&pair, send);
            for (size_t j = room; j < lengths[i]; j++) {
                CHECK_EQ(in[j], 0x33);
            }
            small(&pair, pair.endpoint[0], 1, 4711);
            CHECK_EQ(take(&pair, pair.endpoint[1], 1, ALL), 4711);
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

    open_pair(&pair, flags);
    for (int i = 0; i < 4; i++) {
        hws_id send = 0, recv;
        t_fill(out, lengths[i], 2);
        CHECK_OK(hws_tag_send_sync(pair.endpoint[0], out, lengths[i], 2, NULL, &send));
        arrived(&pair, pair.endpoint[1], 2);
        t_pair_idle(&pair, 30 * T_MS);
        CHECK_PENDING(send);
        recv = post_recv(pair.endpoint[1], in, 1 << 20, 2, ALL);
        CHECK_EQ(WAIT_OK(&pair, recv).length, lengths[i]);
        hws_event event = WAIT_OK(&pair, send);
        CHECK_EQ(event.kind, HWS_EVENT_TAG_SEND);
        CHECK_FILLED(in, lengths[i], 2);
        /* Expected: it ends as well. */
        recv = post_recv(pair.endpoint[1], in, 1 << 20, 2, ALL);
        CHECK_OK(hws_tag_send_sync(pair.endpoint[0], out, lengths[i], 2, NULL, &send));
        WAIT_OK(&pair, send);
        WAIT_OK(&pair, recv);
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

/* ---- Probing ---- */

CASE_BOTH(probe_and_message_recv)
{
    static const size_t lengths[] = {0, 8, 4096, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    open_pair(&pair, flags);
    for (int i = 0; i < 4; i++) {
        for (int level = 0; level < 2; level++) {
            hws_message_info info = {.struct_size = sizeof(info)};
            hws_id source = level ? pair.worker[1] : pair.endpoint[1];
            hws_id message = 0, op = 0, send;
            t_fill(out, lengths[i], 3);
            send = post_send(pair.endpoint[0], out, lengths[i], 33);
            arrived(&pair, source, 33);
            CHECK_OK(hws_tag_probe(source, 33, ALL, &info, NULL));
            CHECK_EQ(info.length, lengths[i]);
            CHECK_EQ(info.tag, 33);
            CHECK(info.endpoint == pair.endpoint[1]);
            memset(&info, 0, sizeof(info));
            info.struct_size = sizeof(info);
            CHECK_OK(hws_tag_probe(source, 32, ~UINT64_C(1), &info, &message));
            CHECK_EQ(info.length, lengths[i]);
            CHECK_EQ(hws_kind(message), HWS_KIND_MESSAGE);
            /* It is out of matching now. */
            CHECK_CODE(hws_tag_probe(pair.endpoint[1], 33, ALL, NULL, NULL), HWS_E_NOT_FOUND);
            CHECK_CODE(hws_tag_probe(pair.worker[1], 33, ALL, NULL, NULL), HWS_E_NOT_FOUND);
            CHECK_OK(hws_message_recv(message, in, 1 << 20, NULL, &op));
            CHECK_CODE(hws_message_recv(message, in, 1 << 20, NULL, &op), HWS_E_STALE);
            hws_event event = WAIT_OK(&pair, op);
            CHECK_EQ(event.kind, HWS_EVENT_TAG_RECV);
            CHECK_EQ(event.length, lengths[i]);
            CHECK_EQ(event.tag, 33);
            CHECK_FILLED(in, lengths[i], 3);
            WAIT_OK(&pair, send);
        }
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(probed_message_dropped)
{
    static const size_t lengths[] = {8, 4096, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20);

    open_pair(&pair, flags);
    for (int i = 0; i < 3; i++) {
        hws_id message = 0, send = post_send(pair.endpoint[0], out, lengths[i], 1);
        arrived(&pair, pair.endpoint[1], 1);
        CHECK_OK(hws_tag_probe(pair.endpoint[1], 1, ALL, NULL, &message));
        CHECK_OK(hws_close(message));
        CHECK_CODE(hws_close(message), HWS_E_STALE);
        /* The sender ends, with whatever status, and the connection goes on. */
        (void)WAIT(&pair, send);
        CHECK_CODE(hws_tag_probe(pair.endpoint[1], 1, ALL, NULL, NULL), HWS_E_NOT_FOUND);
        small(&pair, pair.endpoint[0], 1, 5);
        CHECK_EQ(take(&pair, pair.endpoint[1], 1, ALL), 5);
    }
    CHECK_EQ(t_stats(pair.context).unexpected, 0);
    free(out);
    t_pair_close(&pair);
}

CASE_BOTH(probed_message_truncated)
{
    static const size_t lengths[] = {200, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    open_pair(&pair, flags);
    for (int i = 0; i < 2; i++) {
        hws_id message = 0, op = 0, send = post_send(pair.endpoint[0], out, lengths[i], 1);
        arrived(&pair, pair.endpoint[1], 1);
        CHECK_OK(hws_tag_probe(pair.endpoint[1], 1, ALL, NULL, &message));
        CHECK_OK(hws_message_recv(message, in, 100, NULL, &op));
        CHECK_CODE(WAIT(&pair, op).status, HWS_E_TRUNCATED);
        (void)WAIT(&pair, send);
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

/* A taken message whose connection ends: it is still the holder's to receive or drop. */
CASE(probed_message_outlives_its_connection)
{
    t_pair pair;
    hws_id message = 0, op = 0;
    uint64_t in = 0;

    open_pair(&pair, 0);
    small(&pair, pair.endpoint[0], 1, 99);
    arrived(&pair, pair.endpoint[1], 1);
    CHECK_OK(hws_tag_probe(pair.endpoint[1], 1, ALL, NULL, &message));
    CHECK_OK(hws_close(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    int32_t code = hws_message_recv(message, &in, 8, NULL, &op);
    CHECK_OK(code);
    WAIT_OK(&pair, op);
    CHECK_EQ(in, 99);
    t_pair_close(&pair);
}

/* ---- Scattered buffers ---- */

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

    open_pair(&pair, flags);
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
                    recv = post_recv(pair.endpoint[1], in, lengths[i], 1, ALL);
                }
                if (way & 1) {
                    CHECK_OK(hws_tag_send(pair.endpoint[0], from, n, 1, &opts, &send));
                } else {
                    send = post_send(pair.endpoint[0], out, lengths[i], 1);
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

/* ---- Cancel, deadline, inline ---- */

CASE(cancel_of_an_unmatched_receive)
{
    t_pair pair;

    open_pair(&pair, 0);
    for (int level = 0; level < 2; level++) {
        hws_id source = level ? pair.worker[1] : pair.endpoint[1];
        uint64_t buffer = 1234;
        hws_id op = post_recv(source, &buffer, 8, 1, ALL);
        CHECK_OK(hws_cancel(op));
        CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
        CHECK_CODE(hws_cancel(op), HWS_E_STALE);
        small(&pair, pair.endpoint[0], 1, 7);
        arrived(&pair, source, 1);
        CHECK_EQ(buffer, 1234);
        CHECK_EQ(take(&pair, source, 1, ALL), 7);
    }
    t_pair_close(&pair);
}

CASE(cancel_takes_out_one_of_many)
{
    t_pair pair;
    uint64_t values[64];
    hws_id ops[64];

    open_pair(&pair, 0);
    for (int i = 0; i < 64; i++) {
        ops[i] = post_recv(i % 3 ? pair.endpoint[1] : pair.worker[1], &values[i], 8, 1, ALL);
    }
    for (int i = 1; i < 64; i += 2) {
        CHECK_OK(hws_cancel(ops[i]));
        CHECK_CODE(WAIT(&pair, ops[i]).status, HWS_E_CANCELED);
    }
    for (uint64_t i = 0; i < 64; i += 2) {
        small(&pair, pair.endpoint[0], 1, i);
    }
    for (uint64_t i = 0; i < 64; i += 2) {
        WAIT_OK(&pair, ops[i]);
        CHECK_EQ(values[i], i);
    }
    t_pair_close(&pair);
}

CASE(deadline)
{
    t_pair pair;

    open_pair(&pair, 0);
    for (int level = 0; level < 2; level++) {
        hws_op_opts opts = {.struct_size = sizeof(opts), .timeout_ns = 50 * T_MS};
        hws_id source = level ? pair.worker[1] : pair.endpoint[1], op = 0;
        uint64_t buffer = 1234, start = t_now();
        CHECK_OK(hws_tag_recv(source, &buffer, 8, 1, ALL, &opts, &op));
        CHECK_CODE(WAIT(&pair, op).status, HWS_E_TIMED_OUT);
        CHECK(t_now() - start >= 50 * T_MS);
        small(&pair, pair.endpoint[0], 1, 7);
        CHECK_EQ(take(&pair, source, 1, ALL), 7);
        CHECK_EQ(buffer, 1234);
        /* A deadline that was not reached changes nothing. */
        opts.timeout_ns = 60 * T_SECOND;
        CHECK_OK(hws_tag_recv(source, &buffer, 8, 1, ALL, &opts, &op));
        small(&pair, pair.endpoint[0], 1, 8);
        WAIT_OK(&pair, op);
        CHECK_EQ(buffer, 8);
    }
    t_pair_close(&pair);
}

CASE(deadlines_end_in_their_order)
{
    t_pair pair;
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = t_record_event};
    uint64_t buffer, random = 5;
    hws_id op = 0;

    open_pair(&pair, 0);
    t_record_clear(&pair.record[1]);
    opts.callback_arg = &pair.record[1];
    for (int i = 0; i < 50; i++) {
        opts.user = 1 + t_random(&random) % 20;
        opts.timeout_ns = opts.user * 10 * T_MS;
        CHECK_OK(hws_tag_recv(pair.endpoint[1], &buffer, 8, 1, ALL, &opts, &op));
    }
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_TAG_RECV, 0) == 50);
    for (uint32_t i = 0; i < 50; i++) {
        CHECK_CODE(t_record_at(&pair.record[1], i).event.status, HWS_E_TIMED_OUT);
    }
    t_pair_close(&pair);
}

/* A synchronous send that nobody matches: its deadline ends it by aborting the endpoint. */
CASE_BOTH(deadline_of_a_send_aborts_if_asked)
{
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .flags = HWS_OP_DEADLINE_ABORT, .timeout_ns = 100 * T_MS};
    t_pair pair;
    char *out = t_alloc(1 << 20);
    hws_id op = 0;

    open_pair(&pair, flags);
    CHECK_OK(hws_tag_send_sync(pair.endpoint[0], out, 1 << 20, 1, &opts, &op));
    hws_event event = WAIT(&pair, op);
    CHECK_CODE(event.status, HWS_E_TIMED_OUT);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    free(out);
    t_pair_close(&pair);
}

/* Without the abort option a cancelled send keeps its buffer; the endpoint goes on. */
CASE_BOTH(cancel_of_a_send_ends_in_one_event)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = t_record_event};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);
    hws_id op = 0, recv;

    open_pair(&pair, flags);
    t_record_clear(&pair.record[0]);
    opts.callback_arg = &pair.record[0];
    t_fill(out, 1 << 20, 8);
    CHECK_OK(hws_tag_send_sync(pair.endpoint[0], out, 1 << 20, 1, &opts, &op));
    arrived(&pair, pair.endpoint[1], 1);
    CHECK_OK(hws_cancel(op));
    t_pair_idle(&pair, 30 * T_MS);
    recv = post_recv(pair.endpoint[1], in, 1 << 20, 1, ALL);
    hws_event event = WAIT(&pair, recv);
    UNTIL(&pair, t_record_count(&pair.record[0]) == 1);
    if (event.status == HWS_OK) {
        CHECK_FILLED(in, 1 << 20, 8);
    }
    small(&pair, pair.endpoint[0], 2, 5);
    CHECK_EQ(take(&pair, pair.endpoint[1], 2, ALL), 5);
    CHECK_EQ(t_record_count(&pair.record[0]), 1);
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

    open_pair(&pair, flags);
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
        arrived(&pair, pair.endpoint[1], 40 + i);
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

/* ---- The end of a connection ---- */

CASE_BOTH(receives_end_with_the_connection)
{
    t_pair pair;
    uint64_t own = 0, any = 0;

    open_pair(&pair, flags);
    hws_id on_endpoint = post_recv(pair.endpoint[1], &own, 8, 1, ALL);
    hws_id on_worker = post_recv(pair.worker[1], &any, 8, 1, ALL);
    hws_id on_closed = post_recv(pair.endpoint[0], &own, 8, 1, ALL);
    CHECK_OK(hws_close(pair.endpoint[0]));
    CHECK_CODE(WAIT(&pair, on_closed).status, HWS_E_CANCELED);
    CHECK_CODE(WAIT(&pair, on_endpoint).status, HWS_E_PEER_CLOSED);
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_PENDING(on_worker);
    CHECK_CODE(hws_tag_send(pair.endpoint[1], &own, 8, 1, NULL, &on_closed), HWS_E_PEER_CLOSED);
    /* The worker's receive waits for whoever comes. */
    t_pair_connect(&pair, NULL, &pair.endpoint[0], &pair.endpoint[1]);
    small(&pair, pair.endpoint[0], 1, 55);
    WAIT_OK(&pair, on_worker);
    CHECK_EQ(any, 55);
    t_pair_close(&pair);
}

/* The data of a large message dies with the peer: none of those behind it is received in its place. */
CASE_BOTH(none_takes_the_place_of_a_lost_message)
{
    static char large[1 << 20];
    static const uint64_t first = 1, last = 3;
    hws_op_opts dropped = {.struct_size = sizeof dropped, .flags = HWS_OP_DETACHED};
    t_pair pair;
    uint64_t in = 0;
    hws_id op = 0;

    open_pair(&pair, flags);
    for (uint64_t tag = 5; tag < 7; tag++) {
        CHECK_OK(hws_tag_send(pair.endpoint[0], &first, 8, tag, &dropped, NULL));
        if (tag == 5) {
            CHECK_OK(hws_tag_send(pair.endpoint[0], large, sizeof large, tag, &dropped, NULL));
        }
        CHECK_OK(hws_tag_send(pair.endpoint[0], &last, 8, tag, &dropped, NULL));
    }
    UNTIL(&pair, t_stats(pair.worker[1]).unexpected == 5);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    for (uint64_t tag = 5; tag < 7; tag++) {
        WAIT_OK(&pair, post_recv(pair.endpoint[1], &in, 8, tag, ALL));
        CHECK_EQ(in, first);
    }
    CHECK(hws_tag_recv(pair.endpoint[1], &in, 8, 5, ALL, NULL, &op) < 0);
    WAIT_OK(&pair, post_recv(pair.endpoint[1], &in, 8, 6, ALL));
    CHECK_EQ(in, last);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 0);
    t_pair_close(&pair);
}

CASE_BOTH(both_ways_at_once)
{
    enum { COUNT = 40 };
    t_pair pair;
    size_t length = 150000;
    char *memory = t_alloc(4 * COUNT * length);
    hws_id ops[4 * COUNT];

    open_pair(&pair, flags);
    for (uint64_t i = 0; i < COUNT; i++) {
        for (int side = 0; side < 2; side++) {
            char *out = memory + (i * 4 + (uint64_t)side) * length, *in = out + 2 * length;
            t_fill(out, length, i * 2 + (uint64_t)side);
            ops[i * 4 + (uint64_t)side] = post_send(pair.endpoint[side], out, length - i, i);
            ops[i * 4 + 2 + (uint64_t)side] =
                post_recv(pair.endpoint[1 - side], in, length, i, ALL);
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

    open_pair(&pair, flags);
    for (int side = 0; side < 2; side++) {
        b.endpoint[side] = pair.endpoint[side];
        CHECK_OK(hws_tag_recv(b.endpoint[side], &b.in[side], 8, 1, ALL, &recv, NULL));
    }
    small(&pair, b.endpoint[0], 1, 0);
    UNTIL(&pair, b.left < 0);
    CHECK_EQ(b.in[0] > b.in[1] ? b.in[0] : b.in[1], 500);
    t_pair_close(&pair);
}

CASES_MAIN
