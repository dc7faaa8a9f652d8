/*
 * Worker addresses and blobs: connecting by bytes, with and without a hello, and bytes that are
 * damaged. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/remote.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

typedef struct bytes {
    uint64_t length;
    unsigned char data[16384];
} bytes;

static bytes address_of(hws_id worker, uint32_t flags)
{
    bytes b = {0};

    CHECK_OK(hws_worker_address(worker, flags, NULL, 0, &b.length));
    CHECK(b.length > 0 && b.length <= sizeof(b.data));
    CHECK_CODE(hws_worker_address(worker, flags, b.data, b.length - 1, NULL), HWS_E_TOO_BIG);
    CHECK_OK(hws_worker_address(worker, flags, b.data, sizeof(b.data), &b.length));
    return b;
}

static hws_id dial(t_pair *pair, int side, const bytes *b, uint32_t flags)
{
    hws_endpoint_opts opts = {
        .struct_size = sizeof(opts), .flags = flags, .sink = t_record_sink(&pair->record[side], 9)};
    hws_id endpoint = 0, op = 0;
    hws_event event;

    CHECK_OK(
        hws_connect_address(pair->worker[side], b->data, b->length, &opts, NULL, &endpoint, &op));
    event = WAIT_OK(pair, op);
    CHECK_EQ(event.kind, HWS_EVENT_CONNECT);
    return endpoint;
}

static void exchange(t_pair *pair, hws_id from, hws_id source, uint64_t tag)
{
    static const size_t lengths[] = {0, 8, 4096, 100000, 1 << 20};
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    for (size_t i = 0; i < 10; i++) {
        size_t length = lengths[i % 5];
        hws_id send = 0, recv = 0;
        hws_event event;

        t_fill(out, length, i + tag);
        if (i < 5) {
            CHECK_OK(hws_tag_recv(source, in, 1 << 20, tag + i, ALL, NULL, &recv));
        }
        CHECK_OK(hws_tag_send(from, out, length, tag + i, NULL, &send));
        if (i >= 5) {
            UNTIL(pair, hws_tag_probe(source, tag + i, ALL, NULL, NULL) == HWS_OK);
            CHECK_OK(hws_tag_recv(source, in, 1 << 20, tag + i, ALL, NULL, &recv));
        }
        event = WAIT_OK(pair, recv);
        WAIT_OK(pair, send);
        CHECK_EQ(event.length, length);
        CHECK_EQ(event.tag, tag + i);
        CHECK_FILLED(in, length, i + tag);
        CHECK_OK(hws_tag_return(source, in, length, tag + i));
        memset(in, 0, length);
        CHECK_OK(hws_tag_recv(source, in, 1 << 20, tag + i, ALL, NULL, &recv));
        CHECK_EQ(WAIT_OK(pair, recv).length, length);
        CHECK_FILLED(in, length, i + tag);
    }
    free(out);
    free(in);
}

static void plain(uint32_t address_flags, uint32_t endpoint_flags)
{
    t_pair pair;
    bytes a, b;
    hws_id ea, eb;
    hws_endpoint_info info;

    t_pair_listen(&pair, NULL);
    a = address_of(pair.worker[0], address_flags);
    b = address_of(pair.worker[1], address_flags);
    eb = dial(&pair, 0, &b, endpoint_flags);
    ea = dial(&pair, 1, &a, endpoint_flags);
    info = t_endpoint_info(eb);
    CHECK_EQ(info.reason, HWS_REASON_ADDRESS);
    CHECK_EQ(info.isolated, 0);
    if ((address_flags & HWS_ADDRESS_UNSAFE_SHARED_MEMORY) == 0) {
        CHECK_EQ(info.transports & HWS_TRANSPORT_SHM, 0);
    }
    exchange(&pair, eb, pair.worker[1], 100);
    exchange(&pair, eb, ea, 200);
    exchange(&pair, ea, pair.worker[0], 300);
    exchange(&pair, ea, eb, 400);
    t_pair_close(&pair);
}

CASE(plain_tags)
{
    plain(0, 0);
}

/* Who asked first gets the first, whatever tags the receives name and wherever they were posted. */
static void in_the_order_posted(uint32_t address_flags)
{
    t_pair pair;
    bytes a, b;
    hws_id eb, ea, recv[6];
    uint64_t in[6];

    t_pair_listen(&pair, NULL);
    a = address_of(pair.worker[0], address_flags);
    b = address_of(pair.worker[1], address_flags);
    eb = dial(&pair, 0, &b, 0);
    ea = dial(&pair, 1, &a, 0);
    for (int i = 0; i < 6; i++) {
        bool masked = i % 2 == 0;

        CHECK_OK(hws_tag_recv(i % 3 == 0 ? ea : pair.worker[1], &in[i], 8, 7, masked ? 0 : ALL,
                              NULL, &recv[i]));
    }
    for (uint64_t i = 0; i < 6; i++) {
        hws_id send = 0;

        CHECK_OK(hws_tag_send(eb, &i, 8, 7, NULL, &send));
        WAIT_OK(&pair, send);
    }
    for (uint64_t i = 0; i < 6; i++) {
        WAIT_OK(&pair, recv[i]);
        CHECK_EQ(in[i], i);
    }
    t_pair_close(&pair);
}

CASE(receives_are_served_in_the_order_posted)
{
    in_the_order_posted(0);
    in_the_order_posted(HWS_ADDRESS_UNSAFE_SHARED_MEMORY);
}

/* Messages that came before the receives, and others between them, keep their order. */
CASE(messages_are_taken_in_the_order_sent)
{
    enum { N = 40 };
    t_pair pair;
    bytes b;
    hws_id eb, recv, other;
    uint64_t in, never;

    t_pair_listen(&pair, NULL);
    b = address_of(pair.worker[1], 0);
    eb = dial(&pair, 0, &b, 0);
    CHECK_OK(hws_tag_recv(pair.worker[1], &never, 8, 1000, ALL, NULL, &other));
    for (uint64_t i = 0; i < N; i++) {
        hws_id send = 0;

        CHECK_OK(hws_tag_send(eb, &i, 8, i % 3, NULL, &send));
        WAIT_OK(&pair, send);
    }
    for (uint64_t i = 0; i < N; i++) {
        hws_event event;

        CHECK_OK(hws_tag_recv(pair.worker[1], &in, 8, 0, 0, NULL, &recv));
        event = WAIT_OK(&pair, recv);
        CHECK_EQ(in, i);
        CHECK_EQ(event.tag, i % 3);
        CHECK_EQ(event.length, 8);
    }
    CHECK_PENDING(other);
    t_pair_close(&pair);
}

CASE(ucx_bytes_alone)
{
    plain(HWS_ADDRESS_PLAIN, HWS_ENDPOINT_RAW);
}

CASE(unsafe_shared_memory)
{
    plain(HWS_ADDRESS_UNSAFE_SHARED_MEMORY, 0);
}

/* Open before the peer has made any progress; what was sent meanwhile arrives once it does. */
CASE(lazy)
{
    t_pair pair;
    bytes b, hello;
    hws_id endpoint = 0, op = 0, send = 0, recv = 0;
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = HWS_ENDPOINT_LAZY};
    char out[8] = "earlier", in[8];

    t_pair_listen(&pair, NULL);
    b = address_of(pair.worker[1], 0);
    hello = address_of(pair.worker[1], HWS_ADDRESS_HELLO);
    CHECK_CODE(
        hws_connect_address(pair.worker[0], hello.data, hello.length, &opts, NULL, &endpoint, &op),
        HWS_E_INVALID);
    CHECK_OK(hws_connect_address(pair.worker[0], b.data, b.length, &opts, NULL, &endpoint, &op));
    for (uint64_t since = t_now(); t_endpoint_info(endpoint).state != HWS_STATE_OPEN;) {
        CHECK(hws_worker_progress(pair.worker[0]) >= 0);
        t_check_patience(__FILE__, __LINE__, since, "open before the peer answers");
    }
    CHECK_EQ(t_endpoint_info(endpoint).state, HWS_STATE_OPEN);
    WAIT_OK(&pair, op);
    CHECK_OK(hws_tag_send(endpoint, out, 8, 7, NULL, &send));
    CHECK_OK(hws_tag_recv(pair.worker[1], in, 8, 7, ALL, NULL, &recv));
    WAIT_OK(&pair, recv);
    WAIT_OK(&pair, send);
    CHECK_STR(in, out);
    t_pair_close(&pair);
}

/* A connect that needs to wait for nothing ends after its posting: the id is told, and its deadline is gone. */
CASE(lazy_with_a_queue)
{
    t_pair pair;
    bytes b;
    hws_id queue = 0, first = 0, endpoint = 0, op = 0, recv = 0;
    hws_endpoint_opts lazy = {.struct_size = sizeof lazy, .flags = HWS_ENDPOINT_LAZY};
    hws_op_opts told = {.struct_size = sizeof told, .timeout_ns = 20 * T_MS};
    hws_event event;
    char in[8];

    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_queue_open(NULL, &queue));
    b = address_of(pair.worker[1], 0);
    CHECK_OK(hws_connect_address(pair.worker[0], b.data, b.length, &lazy, NULL, &first, &op));
    WAIT_OK(&pair, op);
    told.queue = queue;
    for (int i = 0; i < 5; i++) {
        CHECK_OK(
            hws_connect_address(pair.worker[0], b.data, b.length, &lazy, &told, &endpoint, &op));
        CHECK(op != 0);
        CHECK_EQ(hws_queue_pop(queue, &event, 1, t_patience()), 1);
        CHECK_OK(event.status);
        CHECK_EQ(event.op, op);
        CHECK_EQ(event.source, endpoint);
    }
    told.queue = 0;
    CHECK_OK(hws_tag_recv(pair.worker[0], in, 8, 1, ALL, &told, &recv));
    t_pair_idle(&pair, 40 * T_MS);
    CHECK_EQ(WAIT(&pair, recv).status, HWS_E_TIMED_OUT);
    t_pair_close(&pair);
    CHECK_OK(hws_close(queue));
}

/* Receives of an endpoint end with it, those of the worker stay. */
CASE(plain_receives_end)
{
    t_pair pair;
    bytes b;
    hws_id eb, recv = 0, stays = 0;
    char in[8];

    t_pair_listen(&pair, NULL);
    b = address_of(pair.worker[1], 0);
    eb = dial(&pair, 0, &b, 0);
    CHECK_OK(hws_tag_recv(eb, in, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_tag_recv(pair.worker[0], in, 8, 1, ALL, NULL, &stays));
    CHECK_OK(hws_close(eb));
    CHECK_EQ(WAIT(&pair, recv).status, HWS_E_CANCELED);
    CHECK_PENDING(stays);
    CHECK_OK(hws_cancel(stays));
    CHECK_EQ(WAIT(&pair, stays).status, HWS_E_CANCELED);
    t_pair_close(&pair);
}

/* What nobody received is fetched no more when its worker ends: UCX 1.13 ended the process, in the midst of it. */
CASE(a_message_that_ends_with_its_worker)
{
    char *out = t_alloc(1 << 20);
    hws_id eb, send = 0, message = 0;
    t_pair pair;
    bytes b;

    t_pair_listen(&pair, NULL);
    b = address_of(pair.worker[1], 0);
    eb = dial(&pair, 0, &b, 0);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(hws_tag_send(eb, out, 1 << 20, 5, NULL, &send));
        UNTIL(&pair, hws_tag_probe(pair.worker[1], 5, ALL, NULL, &message) == HWS_OK);
    }
    CHECK_OK(hws_close(pair.worker[1]));
    while (hws_kind(pair.worker[1]) == HWS_KIND_WORKER) { /* the sender makes no progress */
        (void)hws_worker_progress(pair.worker[1]);
    }
    CHECK_OK(hws_close(eb));
    (void)WAIT(&pair, send);
    t_pair_close(&pair);
    free(out);
}

static int heard;
static hws_id answer_to;

static void on_message(void *arg, const hws_event *event)
{
    (void)arg;
    CHECK_EQ(event->status, HWS_OK);
    CHECK_EQ(event->length, 5);
    answer_to = ((const hws_am_detail *)event->detail)->endpoint;
    heard++;
}

/* Active messages bring the endpoint for the answer: without a hello where this side has connected, too. */
static void messages(uint32_t flags)
{
    hws_am_opts am = {.struct_size = sizeof(am), .sink = {.callback = on_message}};
    t_pair pair;
    bytes a, b;
    hws_id there, back = 0, op = 0;
    t_seen seen;

    heard = 0;
    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_am_handler(pair.worker[0], 70, &am));
    CHECK_OK(hws_am_handler(pair.worker[1], 70, &am));
    a = address_of(pair.worker[0], flags);
    b = address_of(pair.worker[1], flags);
    there = dial(&pair, 0, &b, 0);
    if (flags & HWS_ADDRESS_HELLO) {
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
        back = seen.event.source;
    } else {
        CHECK_OK(hws_am_send(there, 70, NULL, 0, "first", 5, NULL, &op));
        WAIT_OK(&pair, op);
        UNTIL(&pair, heard == 1);
        CHECK_EQ(answer_to, 0);
        heard = 0;
        back = dial(&pair, 1, &a, 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_OK(hws_am_send(there, 70, NULL, 0, "hello", 5, NULL, &op));
        WAIT_OK(&pair, op);
        UNTIL(&pair, heard == 2 * i + 1);
        CHECK(answer_to == back);
        CHECK_OK(hws_am_send(back, 70, NULL, 0, "olleh", 5, NULL, &op));
        WAIT_OK(&pair, op);
        UNTIL(&pair, heard == 2 * i + 2);
        CHECK(answer_to == there);
    }
    t_pair_close(&pair);
}

CASE(plain_messages)
{
    messages(0);
}

CASE(hello_messages)
{
    messages(HWS_ADDRESS_HELLO);
}

/* A peer that vanishes is noticed by the other side; on UCX 1.13.1 by its keepalive, 20 s later. */
CASE(hello_cut)
{
    t_pair pair;
    bytes b;
    hws_id client, server;
    uint64_t start;
    t_seen seen;

    t_pair_listen(&pair, NULL);
    b = address_of(pair.worker[1], HWS_ADDRESS_HELLO);
    client = dial(&pair, 0, &b, 0);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    server = seen.event.source;
    CHECK_OK(hws_abort(client));
    start = t_now();
    while (!t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, server, 0, &seen)) {
        t_pair_step(&pair);
        CHECK(t_now() - start < 60 * T_SECOND);
    }
    CHECK(seen.event.status < 0);
    t_pair_close(&pair);
}

/* With a hello both ends are full endpoints: identity, tags with a source, multi-buffer, goodbye. */
CASE(hello)
{
    t_pair pair;
    bytes b;
    hws_id client, server, recv = 0, send = 0;
    hws_segment s = {.base = (char[]){"segment"}, .length = 8};
    hws_endpoint_info info;
    t_seen seen;

    t_pair_listen(&pair, NULL);
    b = address_of(pair.worker[1], HWS_ADDRESS_HELLO);
    client = dial(&pair, 0, &b, 0);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    server = seen.event.source;
    CHECK_EQ(seen.event.op, 0);
    info = t_endpoint_info(server);
    CHECK(info.peer_pid != 0);
    CHECK_EQ(info.reason, HWS_REASON_ADDRESS);
    CHECK_EQ(info.transports & HWS_TRANSPORT_SHM, 0);
    exchange(&pair, client, server, 100);
    exchange(&pair, server, client, 200);
    exchange(&pair, client, pair.worker[1], 300);
    CHECK_OK(hws_multi_recv(server, 1, ALL, NULL, NULL, &recv));
    CHECK_OK(hws_multi_send(client, 1, &s, 1, NULL, NULL, &send));
    CHECK_OK(hws_close(((const hws_multi_detail *)WAIT_OK(&pair, recv).detail)->buffer));
    WAIT_OK(&pair, send);
    CHECK_OK(hws_tag_recv(server, &(uint64_t){0}, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_close(client));
    CHECK_EQ(WAIT(&pair, recv).status, HWS_E_PEER_CLOSED);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, server, 0, &seen));
    CHECK_EQ(seen.event.status, HWS_E_PEER_CLOSED);
    t_pair_close(&pair);
}

/* Who of several workers hears of how many, and talks to them. */
static void accept_and_talk(t_pair *pair, int side, const hws_id *dialled, int count)
{
    t_record *record = &pair->record[side];
    t_seen seen;

    UNTIL(pair, t_record_kinds(record, HWS_EVENT_ACCEPTED, 0) == (uint32_t)count);
    for (int i = 0; i < count; i++) {
        CHECK(t_record_find(record, HWS_EVENT_ACCEPTED, 0, (uint32_t)i, &seen));
        CHECK_EQ(t_endpoint_info(seen.event.source).reason, HWS_REASON_ADDRESS);
        exchange(pair, dialled[i], pair->worker[side], 100 * (uint64_t)i);
    }
}

/* Two who dial each other and themselves at once, each more than once: none is taken for the other. */
CASE(hello_of_all_at_once)
{
    enum { EACH = 6 };
    t_pair pair;
    bytes b[2];
    hws_id ep[2][EACH], op[2][EACH];

    t_pair_listen(&pair, NULL);
    for (int side = 0; side < 2; side++) {
        b[side] = address_of(pair.worker[side], HWS_ADDRESS_HELLO);
    }
    for (int i = 0; i < EACH; i++) {
        for (int to = 0; to < 2; to++) { /* half of those who dial an address are its owner */
            CHECK_OK(hws_connect_address(pair.worker[(to + i) % 2], b[to].data, b[to].length, NULL,
                                         NULL, &ep[to][i], &op[to][i]));
        }
    }
    for (int i = 0; i < EACH; i++) {
        WAIT_OK(&pair, op[0][i]);
        WAIT_OK(&pair, op[1][i]);
    }
    accept_and_talk(&pair, 0, ep[0], EACH);
    accept_and_talk(&pair, 1, ep[1], EACH);
    t_pair_close(&pair);
}

/* Dials that are given up before they are answered leave those after them alone. */
CASE(hello_after_one_that_was_given_up)
{
    t_pair pair;
    bytes b;
    t_seen seen;

    t_pair_listen(&pair, NULL);
    b = address_of(pair.worker[1], HWS_ADDRESS_HELLO);
    for (int i = 0; i < 5; i++) {
        hws_id given_up, op, client;

        CHECK_OK(hws_connect_address(pair.worker[0], b.data, b.length, NULL, NULL, &given_up, &op));
        for (int step = 0; step < i; step++) {
            t_pair_step(&pair);
        }
        CHECK_OK(hws_abort(given_up));
        client = dial(&pair, 0, &b, 0);
        exchange(&pair, client, pair.worker[1], 100);
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, (uint32_t)i, &seen));
        CHECK_OK(hws_close(client));
        (void)WAIT(&pair, op);
    }
    t_pair_close(&pair);
}

/* UCX 1.13 keeps the line between two workers for the other direction, and tells nobody. */
CASE(hello_that_is_aborted)
{
    for (int aborting = 0; aborting < 2; aborting++) {
        t_pair pair;
        t_seen seen;
        hws_id end[2];
        bytes b;

        t_pair_listen(&pair, NULL);
        b = address_of(pair.worker[1], HWS_ADDRESS_HELLO);
        end[0] = dial(&pair, 0, &b, 0);
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
        end[1] = seen.event.source;
        CHECK_OK(hws_abort(end[aborting]));
        UNTIL(&pair, t_record_find(&pair.record[1 - aborting], HWS_EVENT_DISCONNECTED,
                                   end[1 - aborting], 0, &seen));
        CHECK_CODE(seen.event.status, HWS_E_CONNECTION_RESET);
        t_pair_close(&pair);
    }
}

/* The peer answers when the dial was given up already, and UCX's endpoint not yet. */
CASE(raw_answer_that_comes_too_late)
{
    hws_endpoint_opts raw = {.struct_size = sizeof(raw), .flags = HWS_ENDPOINT_RAW};
    hws_id endpoint = 0, op = 0;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    for (int steps = 0; steps < 400; steps++) {
        bytes b = address_of(pair.worker[1], 0);
        int32_t status;

        CHECK_OK(hws_connect_address(pair.worker[0], b.data, b.length, &raw, NULL, &endpoint, &op));
        for (int i = 0; i < steps % 40; i++) {
            hws_worker_progress(pair.worker[i % 2]);
        }
        hws_cancel(op);
        for (int i = 0; i < 20; i++) {
            hws_worker_progress(pair.worker[1]);
            hws_worker_progress(pair.worker[0]);
        }
        status = WAIT(&pair, op).status;
        CHECK(status == HWS_OK || status == HWS_E_CANCELED);
        CHECK_OK(hws_close(endpoint));
        UNTIL(&pair, hws_kind(endpoint) < 0);
    }
    t_pair_close(&pair);
}

CASE(blobs)
{
    static const hws_blob_item items[] = {{7, "remote key", 10}, {8, NULL, 0}, {9, "x", 1}};
    hws_address_info info = {.struct_size = sizeof(info)}, alone = info, other = info;
    hws_blob_item item;
    bytes blob = {0}, a, b;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_blob_pack(pair.worker[1], 0, items, 3, NULL, 0, &blob.length));
    CHECK_OK(hws_blob_pack(pair.worker[1], 0, items, 3, blob.data, sizeof(blob.data), NULL));
    CHECK_OK(hws_address_query(blob.data, blob.length, &info));
    CHECK_EQ(info.items, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(hws_blob_item_get(blob.data, blob.length, i, &item));
        CHECK_EQ(item.key, items[i].key);
        CHECK_EQ(item.length, items[i].length);
        CHECK(item.length == 0 || memcmp(item.data, items[i].data, item.length) == 0);
    }
    CHECK_CODE(hws_blob_item_get(blob.data, blob.length, 3, &item), HWS_E_NOT_FOUND);
    a = address_of(pair.worker[1], 0);
    b = address_of(pair.worker[0], 0);
    CHECK_OK(hws_address_query(a.data, a.length, &alone));
    CHECK_OK(hws_address_query(b.data, b.length, &other));
    CHECK(info.worker == alone.worker);
    CHECK(info.worker != other.worker);
    CHECK(alone.text[0] != '\0');
    exchange(&pair, dial(&pair, 0, &blob, 0), pair.worker[1], 1);
    t_pair_close(&pair);
}

/* One blob is all that a peer needs: it connects by it and writes to memory whose key is inside. */
CASE(a_blob_with_keys)
{
    t_pair_opts opts = {.features = T_RMA_FEATURES};
    t_remote memory[2];
    hws_blob_item items[2], item;
    bytes blob = {0};
    hws_id client, rkey[2], op = 0;
    t_pair pair;
    t_seen seen;

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < 2; i++) {
        t_remote_open(&memory[i], &pair, 1, (int)i, 4096);
        items[i].key = 100 + i;
        items[i].data = t_pack(memory[i].memory, &items[i].length);
    }
    CHECK_OK(hws_blob_pack(pair.worker[1], HWS_ADDRESS_HELLO, items, 2, blob.data,
                           sizeof(blob.data), &blob.length));
    client = dial(&pair, 0, &blob, 0);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 1, &seen));
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(hws_blob_item_get(blob.data, blob.length, i, &item));
        CHECK_EQ(item.key, 100 + i);
        CHECK_OK(hws_rkey_unpack(client, item.data, item.length, 0, &rkey[i]));
        CHECK_OK(hws_put(rkey[i], memory[i].address + 8, "by a blob", 10, NULL, &op));
        WAIT_OK(&pair, op);
    }
    CHECK_OK(hws_flush(client, NULL, &op));
    WAIT_OK(&pair, op);
    for (uint64_t i = 0; i < 2; i++) {
        CHECK_STR(memory[i].base + 8, "by a blob");
        t_remote_close(&memory[i]);
        free((void *)(uintptr_t)items[i].data);
    }
    t_pair_close(&pair);
}

/* Whatever is wrong with the bytes: refused, never a crash. */
CASE(damaged)
{
    hws_address_info info = {.struct_size = sizeof(info)};
    hws_id endpoint = 0, op = 0;
    uint64_t random = 1;
    bytes good, bad;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    good = address_of(pair.worker[1], 0);
    for (uint64_t i = 0; i < good.length; i++) {
        bad = good;
        bad.data[i] ^= (unsigned char)(1u << (i % 8));
        CHECK_CODE(hws_address_query(bad.data, bad.length, &info), HWS_E_INVALID);
        CHECK_CODE(
            hws_connect_address(pair.worker[0], bad.data, bad.length, NULL, NULL, &endpoint, &op),
            HWS_E_INVALID);
        CHECK_CODE(hws_address_query(good.data, i, &info), HWS_E_INVALID);
    }
    CHECK_CODE(hws_address_query(good.data, good.length + 8, &info), HWS_E_INVALID);
    for (int i = 0; i < 1000; i++) {
        for (unsigned k = 0; k < 256; k++) {
            bad.data[k] = (unsigned char)t_random(&random);
        }
        CHECK_CODE(hws_address_query(bad.data, t_random(&random) % 256, &info), HWS_E_INVALID);
    }
    CHECK_CODE(hws_address_query(NULL, 0, &info), HWS_E_INVALID);
    CHECK_CODE(hws_connect_address(pair.worker[0], NULL, 0, NULL, NULL, &endpoint, &op),
               HWS_E_INVALID);
    CHECK_CODE(hws_worker_address(pair.worker[0], 64, NULL, 0, NULL), HWS_E_INVALID);
    CHECK_CODE(
        hws_worker_address(pair.worker[0], HWS_ADDRESS_HELLO | HWS_ADDRESS_PLAIN, NULL, 0, NULL),
        HWS_E_INVALID);
    t_pair_close(&pair);
}

CASE(keys)
{
    static const unsigned char key[32] = "thirty-two bytes of a shared key";
    hws_context_opts opts = {.struct_size = sizeof(opts), .psk = key, .psk_length = 32};
    hws_id context = 0, worker = 0, endpoint = 0, op = 0;
    bytes b;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    if (hws_context_open(&opts, &context) == HWS_E_NO_SODIUM) {
        SKIP("this build has no pre-shared keys");
    }
    CHECK_OK(hws_worker_open(context, NULL, &worker));
    b = address_of(pair.worker[1], HWS_ADDRESS_HELLO);
    CHECK_OK(hws_connect_address(worker, b.data, b.length, NULL, NULL, &endpoint, &op));
    UNTIL(&pair, hws_wait(op, 0, NULL) != HWS_E_TIMED_OUT || hws_worker_progress(worker) < 0);
    CHECK_EQ(t_endpoint_info(endpoint).status, HWS_E_AUTH);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, 0), 0);
    CHECK_OK(hws_close(context));
    UNTIL(&pair, hws_close_wait(context, T_MS) != HWS_E_TIMED_OUT);
    t_pair_close(&pair);
}

CASES_MAIN
