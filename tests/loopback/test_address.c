/*
 * Worker addresses: connecting by bytes without a hello. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/address.h"
#include "support/pair.h"

#include <stdbool.h>
#include <stdlib.h>

#define ALL UINT64_MAX

static void plain(uint32_t address_flags, uint32_t endpoint_flags)
{
    t_pair pair;
    t_address a, b;
    hws_id ea, eb;
    hws_endpoint_info info;

    t_pair_listen(&pair, NULL);
    a = t_address_of(pair.worker[0], address_flags);
    b = t_address_of(pair.worker[1], address_flags);
    eb = t_address_dial(&pair, 0, &b, endpoint_flags);
    ea = t_address_dial(&pair, 1, &a, endpoint_flags);
    info = t_endpoint_info(eb);
    CHECK_EQ(info.reason, HWS_REASON_ADDRESS);
    CHECK_EQ(info.isolated, 0);
    if ((address_flags & HWS_ADDRESS_UNSAFE_SHARED_MEMORY) == 0) {
        CHECK_EQ(info.transports & HWS_TRANSPORT_SHM, 0);
    }
    t_address_exchange(&pair, eb, pair.worker[1], 100);
    t_address_exchange(&pair, eb, ea, 200);
    t_address_exchange(&pair, ea, pair.worker[0], 300);
    t_address_exchange(&pair, ea, eb, 400);
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
    t_address a, b;
    hws_id eb, ea, recv[6];
    uint64_t in[6];

    t_pair_listen(&pair, NULL);
    a = t_address_of(pair.worker[0], address_flags);
    b = t_address_of(pair.worker[1], address_flags);
    eb = t_address_dial(&pair, 0, &b, 0);
    ea = t_address_dial(&pair, 1, &a, 0);
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
    t_address b;
    hws_id eb, recv, other;
    uint64_t in, never;

    t_pair_listen(&pair, NULL);
    b = t_address_of(pair.worker[1], 0);
    eb = t_address_dial(&pair, 0, &b, 0);
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
    t_address b, hello;
    hws_id endpoint = 0, op = 0, send = 0, recv = 0;
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = HWS_ENDPOINT_LAZY};
    char out[8] = "earlier", in[8];

    t_pair_listen(&pair, NULL);
    b = t_address_of(pair.worker[1], 0);
    hello = t_address_of(pair.worker[1], HWS_ADDRESS_HELLO);
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
    t_address b;
    hws_id queue = 0, first = 0, endpoint = 0, op = 0, recv = 0;
    hws_endpoint_opts lazy = {.struct_size = sizeof lazy, .flags = HWS_ENDPOINT_LAZY};
    hws_op_opts told = {.struct_size = sizeof told, .timeout_ns = 20 * T_MS};
    hws_event event;
    char in[8];

    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_queue_open(NULL, &queue));
    b = t_address_of(pair.worker[1], 0);
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
    t_address b;
    hws_id eb, recv = 0, stays = 0;
    char in[8];

    t_pair_listen(&pair, NULL);
    b = t_address_of(pair.worker[1], 0);
    eb = t_address_dial(&pair, 0, &b, 0);
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
    t_address b;

    t_pair_listen(&pair, NULL);
    b = t_address_of(pair.worker[1], 0);
    eb = t_address_dial(&pair, 0, &b, 0);
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
    t_address a, b;
    hws_id there, back = 0, op = 0;
    t_seen seen;

    heard = 0;
    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_am_handler(pair.worker[0], 70, &am));
    CHECK_OK(hws_am_handler(pair.worker[1], 70, &am));
    a = t_address_of(pair.worker[0], flags);
    b = t_address_of(pair.worker[1], flags);
    there = t_address_dial(&pair, 0, &b, 0);
    if (flags & HWS_ADDRESS_HELLO) {
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
        back = seen.event.source;
    } else {
        CHECK_OK(hws_am_send(there, 70, NULL, 0, "first", 5, NULL, &op));
        WAIT_OK(&pair, op);
        UNTIL(&pair, heard == 1);
        CHECK_EQ(answer_to, 0);
        heard = 0;
        back = t_address_dial(&pair, 1, &a, 0);
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

CASES_MAIN
