/*
 * Streams: bytes in order, with and without wait-all, in any cut. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>
#include <string.h>

static void open_pair(t_pair *pair, uint32_t flags)
{
    t_pair_opts opts = {.endpoint_flags = flags};

    t_pair_open(pair, &opts);
}

static hws_id post(hws_id endpoint, const void *buffer, uint64_t length)
{
    hws_id op = 0;

    CHECK_OK(hws_stream_send(endpoint, buffer, length, NULL, &op));
    return op;
}

static hws_id want(hws_id endpoint, void *buffer, uint64_t length, uint32_t op_flags)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = op_flags};
    hws_id op = 0;

    CHECK_OK(hws_stream_recv(endpoint, buffer, length, &opts, &op));
    return op;
}

CASE_BOTH(wait_all_fills_the_buffer)
{
    static const size_t lengths[] = {1, 8, 4096, 65536, 1 << 20, (17 << 20) + 1};
    t_pair pair;
    char *out = t_alloc((17 << 20) + 1), *in = t_alloc((17 << 20) + 1);

    open_pair(&pair, flags);
    for (int i = 0; i < 6; i++) {
        for (int early = 0; early < 2; early++) {
            size_t length = lengths[i], first = length / 3, second = length / 2 - first;
            hws_id recv = 0, sends[3];
            t_fill(out, length, 1);
            memset(in, 0, length);
            if (early) {
                recv = want(pair.endpoint[1], in, length, HWS_OP_WAIT_ALL);
            }
            sends[0] = post(pair.endpoint[0], out, first);
            sends[1] = post(pair.endpoint[0], out + first, second);
            t_pair_step(&pair);
            if (early) {
                CHECK_PENDING(recv);
            }
            sends[2] = post(pair.endpoint[0], out + first + second, length - first - second);
            if (!early) {
                recv = want(pair.endpoint[1], in, length, HWS_OP_WAIT_ALL);
            }
            hws_event event = WAIT_OK(&pair, recv);
            CHECK_EQ(event.kind, HWS_EVENT_STREAM_RECV);
            CHECK_EQ(event.length, length);
            CHECK_FILLED(in, length, 1);
            for (int j = 0; j < 3; j++) {
                CHECK_EQ(WAIT_OK(&pair, sends[j]).kind, HWS_EVENT_STREAM_SEND);
            }
        }
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(partial_receives_give_what_is_there)
{
    t_pair pair;
    size_t total = 3 << 20, sent = 0, got = 0;
    char *out = t_alloc(total), *in = t_alloc(total);
    uint64_t random = 11;
    hws_id send = 0, recv = 0;
    hws_event event;

    open_pair(&pair, flags);
    t_fill(out, total, 4);
    uint64_t start = t_now();
    while (got < total) {
        if (send == 0 && sent < total) {
            size_t piece = 1 + t_random(&random) % (t_random(&random) % 4 == 0 ? 200000 : 50);
            piece = piece > total - sent ? total - sent : piece;
            send = post(pair.endpoint[0], out + sent, piece);
            sent += piece;
        }
        if (recv == 0) {
            size_t room = 1 + t_random(&random) % (t_random(&random) % 4 == 0 ? 300000 : 70);
            room = room > total - got ? total - got : room;
            recv = want(pair.endpoint[1], in + got, room, 0);
        }
        t_pair_step(&pair);
        if (send != 0 && hws_wait(send, 0, &event) == HWS_OK) {
            CHECK_OK(event.status);
            send = 0;
        }
        if (hws_wait(recv, 0, &event) == HWS_OK) {
            CHECK_OK(event.status);
            CHECK(event.length > 0);
            got += event.length;
            recv = 0;
        }
        t_check_patience(__FILE__, __LINE__, start, "the whole stream");
    }
    CHECK_EQ(got, total);
    CHECK_FILLED(in, total, 4);
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(several_receives_are_filled_in_order)
{
    t_pair pair;
    char out[4096], in[4096];
    hws_id recvs[8];

    open_pair(&pair, flags);
    for (int i = 0; i < 8; i++) {
        recvs[i] = want(pair.endpoint[1], in + i * 512, 512, HWS_OP_WAIT_ALL);
    }
    t_fill(out, sizeof(out), 9);
    for (int i = 0; i < 64; i++) {
        WAIT_OK(&pair, post(pair.endpoint[0], out + i * 64, 64));
    }
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(WAIT_OK(&pair, recvs[i]).length, 512);
    }
    CHECK_FILLED(in, sizeof(in), 9);
    t_pair_close(&pair);
}

CASE_BOTH(scattered)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_IOV};
    t_pair pair;
    size_t length = 100000;
    char *out = t_alloc(length), *in = t_alloc(length);

    open_pair(&pair, flags);
    for (uint32_t n = 1; n <= 33; n += 8) {
        hws_iov from[33], to[33];
        hws_id send = 0, recv = 0;
        size_t piece = length / n;
        for (uint32_t i = 0; i < n; i++) {
            from[i].base = out + i * piece;
            to[i].base = in + i * piece;
            from[i].length = to[i].length = i + 1 < n ? piece : length - i * piece;
        }
        t_fill(out, length, n);
        memset(in, 0, length);
        opts.flags = HWS_OP_IOV;
        CHECK_OK(hws_stream_send(pair.endpoint[0], from, n, &opts, &send));
        opts.flags = HWS_OP_IOV | HWS_OP_WAIT_ALL;
        CHECK_OK(hws_stream_recv(pair.endpoint[1], to, n, &opts, &recv));
        CHECK_EQ(WAIT_OK(&pair, send).length, length);
        CHECK_EQ(WAIT_OK(&pair, recv).length, length);
        CHECK_FILLED(in, length, n);
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(both_directions_are_separate)
{
    t_pair pair;
    char in[2][8];

    open_pair(&pair, flags);
    hws_id send[2], recv[2];
    for (int side = 0; side < 2; side++) {
        recv[side] = want(pair.endpoint[side], in[side], 5, HWS_OP_WAIT_ALL);
    }
    send[0] = post(pair.endpoint[0], "hello", 5);
    send[1] = post(pair.endpoint[1], "world", 5);
    for (int side = 0; side < 2; side++) {
        WAIT_OK(&pair, send[side]);
        WAIT_OK(&pair, recv[side]);
    }
    CHECK_EQ(memcmp(in[1], "hello", 5), 0);
    CHECK_EQ(memcmp(in[0], "world", 5), 0);
    t_pair_close(&pair);
}

CASE_BOTH(nothing_to_send)
{
    t_pair pair;
    char in[8];

    open_pair(&pair, flags);
    CHECK_EQ(WAIT_OK(&pair, post(pair.endpoint[0], NULL, 0)).length, 0);
    WAIT_OK(&pair, post(pair.endpoint[0], "x", 1));
    CHECK_EQ(WAIT_OK(&pair, want(pair.endpoint[1], in, 8, 0)).length, 1);
    CHECK_EQ(in[0], 'x');
    t_pair_close(&pair);
}

/* What was sent before the goodbye is read, then the end is told. */
CASE_BOTH(end_of_stream)
{
    t_pair pair;
    size_t length = 100000, got = 0;
    char *out = t_alloc(length), *in = t_alloc(length);
    hws_id op = 0;

    open_pair(&pair, flags);
    t_fill(out, length, 5);
    op = post(pair.endpoint[0], out, length);
    CHECK_OK(hws_close(pair.endpoint[0]));
    uint64_t start = t_now();
    while (got < length) {
        hws_event event = WAIT_OK(&pair, want(pair.endpoint[1], in + got, length - got, 0));
        got += event.length;
        t_check_patience(__FILE__, __LINE__, start, "the rest of the stream");
    }
    WAIT_OK(&pair, op);
    CHECK_FILLED(in, length, 5);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    int32_t code = hws_stream_recv(pair.endpoint[1], in, 8, NULL, &op);
    CHECK_CODE(code == HWS_OK ? WAIT(&pair, op).status : code, HWS_E_PEER_CLOSED);
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(unfinished_receive_ends_with_the_connection)
{
    t_pair pair;
    char in[100];

    open_pair(&pair, flags);
    hws_id recv = want(pair.endpoint[1], in, 100, HWS_OP_WAIT_ALL);
    WAIT_OK(&pair, post(pair.endpoint[0], "0123456789", 10));
    CHECK_OK(hws_close(pair.endpoint[0]));
    CHECK_CODE(WAIT(&pair, recv).status, HWS_E_PEER_CLOSED);
    t_pair_close(&pair);
}

/* Whatever has come is read by `length` bytes that are there at once. */
static void read_now(t_pair *pair, const char *expected, uint64_t length)
{
    char in[64] = {0};
    uint64_t start = t_now(), got = 0;

    while (got < length) {
        got += WAIT_OK(pair, want(pair->endpoint[1], in + got, length - got, 0)).length;
        t_check_patience(__FILE__, __LINE__, start, "bytes that have come");
    }
    CHECK_EQ(memcmp(in, expected, length), 0);
}

CASE_BOTH(a_cancelled_receive_takes_nothing)
{
    static const uint32_t ways[] = {0, HWS_OP_WAIT_ALL};
    t_pair pair;
    char in[8];
    hws_event event;
    hws_id op = 0;

    open_pair(&pair, flags);
    for (int i = 0; i < 2; i++) {
        op = want(pair.endpoint[1], in, 8, ways[i]);
        CHECK_OK(hws_cancel(op));
        event = WAIT(&pair, op);
        CHECK_CODE(event.status, HWS_E_CANCELED);
        CHECK_EQ(event.length, 0);
        WAIT_OK(&pair, post(pair.endpoint[0], "hello", 5));
        read_now(&pair, "hello", 5);
    }
    op = want(pair.endpoint[1], in, 8, HWS_OP_WAIT_ALL);
    WAIT_OK(&pair, post(pair.endpoint[0], "world", 5));
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_PENDING(op);
    CHECK_OK(hws_cancel(op));
    event = WAIT(&pair, op);
    CHECK_CODE(event.status, HWS_E_CANCELED);
    CHECK_EQ(event.length, 0);
    read_now(&pair, "wo", 2);
    WAIT_OK(&pair, post(pair.endpoint[0], "!", 1));
    read_now(&pair, "rld!", 4);
    t_pair_close(&pair);
}

CASE_BOTH(a_late_receive_takes_nothing)
{
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .flags = HWS_OP_WAIT_ALL, .timeout_ns = 5 * T_MS};
    t_pair pair;
    char in[8];

    open_pair(&pair, flags);
    for (int i = 0; i < 3; i++) {
        hws_id op = 0;

        WAIT_OK(&pair, post(pair.endpoint[0], "abc", (uint64_t)i));
        opts.flags = i == 0 ? 0 : HWS_OP_WAIT_ALL;
        CHECK_OK(hws_stream_recv(pair.endpoint[1], in, 8, &opts, &op));
        hws_event event = WAIT(&pair, op);
        CHECK_CODE(event.status, HWS_E_TIMED_OUT);
        CHECK_EQ(event.length, 0);
    }
    read_now(&pair, "aab", 3);
    t_pair_close(&pair);
}

/* What a cancelled receive had is the next one's, which may have all it needs by that. */
CASE_BOTH(what_is_given_back_comes_next)
{
    enum { TOTAL = 40000 };
    char *out = t_alloc(TOTAL), *in = t_alloc(TOTAL);
    uint64_t random = 5, got = 0;
    hws_id recv = 0, send;
    t_pair pair;

    open_pair(&pair, flags);
    t_fill(out, TOTAL, 1);
    send = post(pair.endpoint[0], out, TOTAL);
    while (got < TOTAL) {
        uint64_t room = 1 + t_random(&random) % 900, back;
        uint32_t all = t_random(&random) % 2 != 0 ? HWS_OP_WAIT_ALL : 0;

        room = room > TOTAL - got ? TOTAL - got : room;
        hws_event event = WAIT_OK(&pair, want(pair.endpoint[1], in + got, room, all));
        back = t_random(&random) % (event.length + 1);
        got += event.length - back;
        CHECK_OK(hws_stream_return(pair.endpoint[1], in + got, back));
        memset(in + got, 0, back);
    }
    CHECK_FILLED(in, TOTAL, 1);
    (void)WAIT_OK(&pair, send);
    /* One that waits, with a part of its bytes, gets the returned ones first. */
    memset(in, 0, 12);
    recv = want(pair.endpoint[1], in, 12, HWS_OP_WAIT_ALL);
    (void)WAIT_OK(&pair, post(pair.endpoint[0], "eight by", 8));
    UNTIL(&pair, memcmp(in, "eight by", 8) == 0);
    CHECK_OK(hws_stream_return(pair.endpoint[1], "abc", 3));
    CHECK_PENDING(recv);
    CHECK(memcmp(in, "abceight by", 11) == 0);
    (void)WAIT_OK(&pair, post(pair.endpoint[0], "z.", 2));
    CHECK_EQ(WAIT_OK(&pair, recv).length, 12);
    CHECK(memcmp(in, "abceight byz", 12) == 0);
    CHECK_OK(hws_stream_return(pair.endpoint[1], "yz", 2));
    CHECK_EQ(WAIT_OK(&pair, want(pair.endpoint[1], in, 3, HWS_OP_WAIT_ALL)).length, 3);
    CHECK(memcmp(in, "yz.", 3) == 0);
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(those_behind_a_cancelled_receive_go_on)
{
    t_pair pair;
    char first[10], second[5], third[4];

    open_pair(&pair, flags);
    hws_id a = want(pair.endpoint[1], first, 10, HWS_OP_WAIT_ALL);
    hws_id b = want(pair.endpoint[1], second, 5, HWS_OP_WAIT_ALL);
    hws_id c = want(pair.endpoint[1], third, 4, 0);
    WAIT_OK(&pair, post(pair.endpoint[0], "0123456", 7));
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_PENDING(a);
    CHECK_OK(hws_cancel(a));
    CHECK_CODE(WAIT(&pair, a).status, HWS_E_CANCELED);
    CHECK_EQ(WAIT_OK(&pair, b).length, 5);
    CHECK_EQ(WAIT_OK(&pair, c).length, 2);
    CHECK_EQ(memcmp(second, "01234", 5), 0);
    CHECK_EQ(memcmp(third, "56", 2), 0);
    t_pair_close(&pair);
}

/* One receive in up to three pieces, which may be empty. */
static hws_id want_scattered(hws_id endpoint, hws_iov *v, char *in, uint64_t room, uint64_t *random)
{
    hws_op_opts opts = {.struct_size = sizeof(opts)};
    uint64_t at = 0;
    hws_id op = 0;

    opts.flags = HWS_OP_IOV | (t_random(random) % 2 == 0 ? HWS_OP_WAIT_ALL : 0);
    for (int i = 0; i < 3; i++) {
        v[i].base = in + at;
        v[i].length = i == 2 ? room - at : t_random(random) % (room - at + 1);
        at += v[i].length;
    }
    CHECK_OK(hws_stream_recv(endpoint, v, 3, &opts, &op));
    return op;
}

CASE_BOTH(no_byte_is_lost_to_receives_that_end_early)
{
    t_pair pair;
    size_t total = 256 << 10, sent = 0, got = 0;
    char *out = t_alloc(total), *in = t_alloc(total);
    uint64_t random = 5, canceled = 0, start;
    hws_id send = 0, recv = 0;
    hws_event event;
    hws_iov v[3];

    open_pair(&pair, flags);
    t_fill(out, total, 6);
    start = t_now();
    while (got < total) {
        if (send == 0 && sent < total && t_random(&random) % 3 == 0) {
            size_t piece = 1 + t_random(&random) % (t_random(&random) % 16 == 0 ? 20000 : 300);
            piece = piece > total - sent ? total - sent : piece;
            send = post(pair.endpoint[0], out + sent, piece);
            sent += piece;
        }
        if (recv == 0) {
            size_t room = 1 + t_random(&random) % 5000;
            room = room > total - got ? total - got : room;
            recv = want_scattered(pair.endpoint[1], v, in + got, room, &random);
        }
        t_pair_step(&pair);
        if (t_random(&random) % 4 == 0) {
            hws_cancel(recv);
        }
        if (send != 0 && hws_wait(send, 0, &event) == HWS_OK) {
            CHECK_OK(event.status);
            send = 0;
        }
        if (hws_wait(recv, 0, &event) == HWS_OK) {
            CHECK(event.status == HWS_OK || event.status == HWS_E_CANCELED);
            CHECK_EQ(event.length == 0, event.status != HWS_OK);
            canceled += event.status != HWS_OK;
            got += event.length;
            recv = 0;
        }
        t_check_patience(__FILE__, __LINE__, start, "the whole stream");
    }
    CHECK(canceled > 20);
    CHECK_FILLED(in, total, 6);
    free(out);
    free(in);
    t_pair_close(&pair);
}

/* A receive that the end of the stream leaves short leaves what came. */
CASE_BOTH(the_rest_of_a_stream_is_read)
{
    t_pair pair;
    char in[100];
    hws_id op = 0;

    open_pair(&pair, flags);
    hws_id recv = want(pair.endpoint[1], in, 100, HWS_OP_WAIT_ALL);
    WAIT_OK(&pair, post(pair.endpoint[0], "0123456789", 10));
    CHECK_OK(hws_close(pair.endpoint[0]));
    hws_event event = WAIT(&pair, recv);
    CHECK_CODE(event.status, HWS_E_PEER_CLOSED);
    CHECK_EQ(event.length, 0);
    read_now(&pair, "01234", 5);
    hws_op_opts all = {.struct_size = sizeof(all), .flags = HWS_OP_WAIT_ALL};
    CHECK_CODE(hws_stream_recv(pair.endpoint[1], in, 6, &all, &op), HWS_E_PEER_CLOSED);
    read_now(&pair, "56789", 5);
    CHECK_CODE(hws_stream_recv(pair.endpoint[1], in, 1, NULL, &op), HWS_E_PEER_CLOSED);
    t_pair_close(&pair);
}

/* So it is when the connection is over meanwhile: then UCX has no bytes any more. */
CASE_BOTH(the_rest_of_a_stream_outlives_the_connection)
{
    static const char rest[] = "0123456789";
    size_t length = 100000, got = 0;
    char *out = t_alloc(length), *in = t_alloc(length);
    hws_id op = 0;
    t_pair pair;

    open_pair(&pair, flags);
    t_fill(out, length, 6);
    WAIT_OK(&pair, post(pair.endpoint[0], out, length));
    WAIT_OK(&pair, post(pair.endpoint[0], rest, 10));
    CHECK_OK(hws_close(pair.endpoint[0]));
    UNTIL(&pair, hws_kind(pair.endpoint[0]) < 0);
    t_pair_idle(&pair, 300 * T_MS);
    while (got < length) {
        got += WAIT_OK(&pair, want(pair.endpoint[1], in + got, length - got, 0)).length;
    }
    CHECK_FILLED(in, length, 6);
    read_now(&pair, "01234", 5);
    CHECK_OK(hws_stream_return(pair.endpoint[1], "34", 2));
    read_now(&pair, "3456789", 7);
    CHECK_EQ(t_stats(pair.endpoint[1]).bytes_received[HWS_TRAFFIC_STREAM], length + 10);
    CHECK_CODE(hws_stream_recv(pair.endpoint[1], in, 1, NULL, &op), HWS_E_PEER_CLOSED);
    free(out);
    free(in);
    t_pair_close(&pair);
}

/* A receive ends in one event, whatever ends it. */
CASE_BOTH(cancel_and_close_are_one_end)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = t_record_event};
    t_pair pair;
    char in[8];
    hws_id op = 0;

    open_pair(&pair, flags);
    opts.callback_arg = &pair.record[1];
    CHECK_OK(hws_stream_recv(pair.endpoint[1], in, 8, &opts, &op));
    CHECK_OK(hws_stream_recv(pair.endpoint[1], in, 8, &opts, NULL));
    CHECK_OK(hws_cancel(op));
    CHECK_OK(hws_close(pair.endpoint[1]));
    UNTIL(&pair, hws_kind(pair.endpoint[1]) == HWS_E_STALE);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.endpoint[1]) == 1);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_STREAM_RECV, 0), 2);
    t_seen seen;
    CHECK(t_record_find(&pair.record[1], HWS_EVENT_STREAM_RECV, 0, 0, &seen));
    CHECK_CODE(seen.event.status, HWS_E_CANCELED);
    t_pair_close(&pair);
}

CASES_MAIN
