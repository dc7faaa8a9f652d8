/*
 * Raw endpoints: no hello, as plain UCX programs do. All operations work, on isolated workers.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

/* A raw client cannot know when it was accepted: connected is what UCX calls so. */
static void open_pair(t_pair *pair)
{
    t_pair_opts opts = {.listener_flags = HWS_LISTENER_RAW, .endpoint_flags = HWS_ENDPOINT_RAW};

    t_pair_open(pair, &opts);
}

CASE(both_sides_say_so)
{
    t_pair pair;

    open_pair(&pair);
    for (int side = 0; side < 2; side++) {
        hws_endpoint_info info = t_endpoint_info(pair.endpoint[side]);
        CHECK_EQ(info.isolated, 1);
        CHECK_EQ(info.reason, HWS_REASON_RAW);
        CHECK_EQ(info.peer_pid, 0);
        CHECK_EQ(info.peer_host, 0);
        CHECK_EQ(info.state, HWS_STATE_OPEN);
    }
    t_pair_close(&pair);
}

CASE(tagged_messages)
{
    static const size_t lengths[] = {0, 8, 4096, 100000, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    open_pair(&pair);
    for (size_t i = 0; i < 5; i++) {
        for (int side = 0; side < 2; side++) {
            for (int level = 0; level < 2; level++) {
                hws_id send = 0, recv = 0;
                hws_id source = level ? pair.worker[side] : pair.endpoint[side];
                t_fill(out, lengths[i], i);
                CHECK_OK(hws_tag_recv(source, in, 1 << 20, i, ALL, NULL, &recv));
                CHECK_OK(hws_tag_send(pair.endpoint[1 - side], out, lengths[i], i, NULL, &send));
                WAIT_OK(&pair, send);
                hws_event event = WAIT_OK(&pair, recv);
                CHECK_EQ(event.length, lengths[i]);
                CHECK_EQ(event.tag, i);
                CHECK_FILLED(in, lengths[i], i);
            }
        }
    }
    for (int side = 0; side < 2; side++) { /* by now UCX has connected both */
        CHECK(t_endpoint_info(pair.endpoint[side]).transports & HWS_TRANSPORT_SHM);
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

/* Who is told of a raw peer may send to it at once. UCX must not take these messages for short ones of TCP's, which it
 * began the connection with, and write them into the slots of shared memory. */
CASE(sends_as_soon_as_accepted)
{
    enum { COUNT = 20, LENGTH = 2000 };
    t_pair_opts opts = {.listener_flags = HWS_LISTENER_RAW};
    hws_endpoint_opts raw = {.struct_size = sizeof raw, .flags = HWS_ENDPOINT_RAW};
    static char out[COUNT][LENGTH], in[LENGTH];
    hws_id connect = 0, send[COUNT] = {0}, recv = 0;
    t_pair pair;
    t_seen seen;

    t_pair_listen(&pair, &opts);
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, &raw, NULL, &pair.endpoint[0],
                         &connect));
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    for (int i = 0; i < COUNT; i++) {
        t_fill(out[i], LENGTH, (uint64_t)i);
        CHECK_OK(hws_tag_send(seen.event.source, out[i], LENGTH, (uint64_t)i, NULL, &send[i]));
    }
    WAIT_OK(&pair, connect);
    for (int i = 0; i < COUNT; i++) {
        CHECK_OK(hws_tag_recv(pair.endpoint[0], in, LENGTH, (uint64_t)i, ALL, NULL, &recv));
        WAIT_OK(&pair, recv);
        WAIT_OK(&pair, send[i]);
        CHECK_FILLED(in, LENGTH, (uint64_t)i);
    }
    t_pair_close(&pair);
}

/* Who looks for lanes among which devices must be the same on both sides, see listener_request.c. */
CASE(without_shared_memory)
{
    t_pair_opts opts = {.context_flags = HWS_CONTEXT_NO_SHARED_MEMORY,
                        .listener_flags = HWS_LISTENER_RAW,
                        .endpoint_flags = HWS_ENDPOINT_RAW};
    uint64_t out = 7, in = 0;
    hws_id send = 0, recv = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(&pair, send);
    WAIT_OK(&pair, recv);
    CHECK_EQ(in, 7);
    t_pair_close(&pair);
}

CASE(unexpected_probe_and_sync)
{
    t_pair pair;
    uint64_t out = 77, in = 0;
    hws_id send = 0, recv = 0, message = 0;
    hws_message_info info = {.struct_size = sizeof(info)};

    open_pair(&pair);
    CHECK_OK(hws_tag_send_sync(pair.endpoint[0], &out, 8, 5, NULL, &send));
    UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 5, ALL, &info, &message) == HWS_OK);
    CHECK_EQ(info.length, 8);
    CHECK_EQ(info.tag, 5);
    CHECK_OK(hws_message_recv(message, &in, 8, NULL, &recv));
    WAIT_OK(&pair, recv);
    CHECK_EQ(in, 77);
    WAIT_OK(&pair, send);
    /* Unexpected, then received by the worker. */
    out = 78;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 6, NULL, &send));
    UNTIL(&pair, hws_tag_probe(pair.worker[1], 6, ALL, NULL, NULL) == HWS_OK);
    CHECK_OK(hws_tag_recv(pair.worker[1], &in, 8, 6, ALL, NULL, &recv));
    WAIT_OK(&pair, recv);
    WAIT_OK(&pair, send);
    CHECK_EQ(in, 78);
    t_pair_close(&pair);
}

CASE(truncation_and_cancel)
{
    t_pair pair;
    char out[200], in[200];
    hws_id send = 0, recv = 0;

    open_pair(&pair);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], in, 100, 1, ALL, NULL, &recv));
    CHECK_OK(hws_tag_send(pair.endpoint[0], out, 200, 1, NULL, &send));
    CHECK_CODE(WAIT(&pair, recv).status, HWS_E_TRUNCATED);
    (void)WAIT(&pair, send);
    for (int level = 0; level < 2; level++) {
        hws_id source = level ? pair.worker[1] : pair.endpoint[1];
        CHECK_OK(hws_tag_recv(source, in, 100, 2, ALL, NULL, &recv));
        CHECK_OK(hws_cancel(recv));
        CHECK_CODE(WAIT(&pair, recv).status, HWS_E_CANCELED);
        hws_op_opts late = {.struct_size = sizeof(late), .timeout_ns = 30 * T_MS};
        CHECK_OK(hws_tag_recv(source, in, 100, 2, ALL, &late, &recv));
        CHECK_CODE(WAIT(&pair, recv).status, HWS_E_TIMED_OUT);
        /* Of a message that waits, the operation says so as well, not the call. */
        CHECK_OK(hws_tag_send(pair.endpoint[0], out, 200, 3, NULL, &send));
        (void)WAIT(&pair, send);
        UNTIL(&pair, hws_tag_probe(source, 3, ALL, NULL, NULL) == HWS_OK);
        CHECK_OK(hws_tag_recv(source, in, 100, 3, ALL, NULL, &recv));
        CHECK_CODE(WAIT(&pair, recv).status, HWS_E_TRUNCATED);
        CHECK_CODE(hws_tag_probe(source, 3, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    }
    t_pair_close(&pair);
}

CASE(stream)
{
    t_pair pair;
    char *out = t_alloc(100000), *in = t_alloc(100000);
    hws_op_opts all = {.struct_size = sizeof(all), .flags = HWS_OP_WAIT_ALL};
    hws_id send = 0, recv = 0;

    open_pair(&pair);
    t_fill(out, 100000, 1);
    CHECK_OK(hws_stream_recv(pair.endpoint[1], in, 100000, &all, &recv));
    CHECK_OK(hws_stream_send(pair.endpoint[0], out, 100000, NULL, &send));
    WAIT_OK(&pair, send);
    CHECK_EQ(WAIT_OK(&pair, recv).length, 100000);
    CHECK_FILLED(in, 100000, 1);
    free(out);
    free(in);
    t_pair_close(&pair);
}

static void on_message(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;

    CHECK_OK(event->status);
    *(uint64_t *)arg += t_checksum(detail->header, detail->header_length) +
                        t_checksum(detail->data, detail->data_length);
}

CASE(active_messages)
{
    t_pair pair;
    uint64_t sum = 0, expected = 0;
    hws_am_opts handler = {.struct_size = sizeof(handler),
                           .sink = {.callback = on_message, .callback_arg = &sum}};
    static const size_t lengths[] = {0, 8, 5000, 1 << 20};
    char *out = t_alloc(1 << 20);
    hws_id op = 0;

    open_pair(&pair);
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &handler));
    for (size_t i = 0; i < 4; i++) {
        t_fill(out, lengths[i], i);
        expected += t_checksum("head", 4) + t_checksum(out, lengths[i]);
        CHECK_OK(hws_am_send(pair.endpoint[0], 3, "head", 4, out, lengths[i], NULL, &op));
        UNTIL(&pair, sum == expected);
        WAIT_OK(&pair, op);
    }
    free(out);
    t_pair_close(&pair);
}

/* Without a goodbye the end of a raw peer is a failure, and ends the receives. */
CASE(the_end)
{
    t_pair pair;
    char in[8];
    hws_id recv = 0;

    open_pair(&pair);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], in, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_close(pair.endpoint[0]));
    hws_event event = WAIT(&pair, recv);
    CHECK(event.status < 0);
    CHECK_STR(hws_error_category(event.status), "peer");
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    t_pair_close(&pair);
}

/* A listener that is open to raw peers serves the others as ever. */
CASE(others_connect_too)
{
    t_pair pair;
    t_pair_opts opts = {.listener_flags = HWS_LISTENER_RAW, .endpoint_flags = HWS_ENDPOINT_RAW};
    hws_id client = 0, server = 0, send = 0, recv = 0;
    uint64_t in = 0, out = 9;

    t_pair_open(&pair, &opts);
    t_pair_connect(&pair, NULL, &client, &server);
    CHECK_EQ(t_endpoint_info(server).reason, HWS_REASON_LOCAL);
    CHECK_EQ(t_endpoint_info(client).reason, HWS_REASON_LOCAL);
    CHECK_OK(hws_tag_recv(server, &in, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_tag_send(client, &out, 8, 1, NULL, &send));
    WAIT_OK(&pair, send);
    WAIT_OK(&pair, recv);
    CHECK_EQ(in, 9);
    t_pair_close(&pair);
}

CASES_MAIN
