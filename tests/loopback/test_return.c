/* Receives that are undone: what they brought is received again, in order and once. */
#include "support/cases.h"
#include "support/pair.h"
#include "support/remote.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX
#define LARGE (UINT64_C(1) << 20)

static void send_number(t_pair *pair, uint64_t number, uint64_t tag)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_send(pair->endpoint[0], &number, sizeof number, tag, NULL, &op));
    (void)WAIT_OK(pair, op);
}

static hws_id post(hws_id source, void *buffer, uint64_t length, uint64_t tag)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_recv(source, buffer, length, tag, ALL, NULL, &op));
    return op;
}

/* The next number of a tag. */
static uint64_t receive(t_pair *pair, hws_id source, uint64_t tag)
{
    uint64_t number = 0;
    hws_event event = WAIT_OK(pair, post(source, &number, sizeof number, tag));

    CHECK_EQ(event.length, sizeof number);
    CHECK_EQ(event.tag, tag);
    return number;
}

static void give_back(hws_id source, uint64_t number, uint64_t tag)
{
    CHECK_OK(hws_tag_return(source, &number, sizeof number, tag));
    number = 0; /* it was copied */
    (void)number;
}

CASE_BOTH(what_is_given_back_comes_first)
{
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (uint64_t n = 1; n <= 4; n++) {
        send_number(&pair, n, 7);
    }
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 1);
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 2);
    give_back(pair.endpoint[1], 1, 7);
    give_back(pair.endpoint[1], 2, 7);
    for (uint64_t n = 1; n <= 4; n++) {
        CHECK_EQ(receive(&pair, pair.endpoint[1], 7), n);
    }
    CHECK_CODE(hws_tag_probe(pair.endpoint[1], 7, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    t_pair_close(&pair);
}

CASE(it_is_found_by_its_tag_alone)
{
    uint64_t number = 0;
    t_pair pair;

    t_pair_open(&pair, NULL);
    send_number(&pair, 1, 7);
    send_number(&pair, 2, 8);
    CHECK_EQ(receive(&pair, pair.endpoint[1], 8), 2);
    give_back(pair.endpoint[1], 2, 8);
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 1);
    /* With no bit of the tag that counts. */
    hws_id op = 0;
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &number, sizeof number, 0, 0, NULL, &op));
    CHECK_EQ(WAIT_OK(&pair, op).tag, 8);
    CHECK_EQ(number, 2);
    t_pair_close(&pair);
}

CASE_BOTH(a_receive_that_waits_gets_it)
{
    uint64_t numbers[2] = {0, 0};
    hws_id ops[2];
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    send_number(&pair, 1, 7);
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 1);
    ops[0] = post(pair.endpoint[1], &numbers[0], sizeof numbers[0], 7);
    ops[1] = post(pair.endpoint[1], &numbers[1], sizeof numbers[1], 7);
    give_back(pair.endpoint[1], 1, 7);
    (void)WAIT_OK(&pair, ops[0]);
    CHECK_EQ(numbers[0], 1);
    CHECK_PENDING(ops[1]);
    send_number(&pair, 2, 7);
    (void)WAIT_OK(&pair, ops[1]);
    CHECK_EQ(numbers[1], 2);
    t_pair_close(&pair);
}

/* A sleeper of a worker that makes progress by itself is told. */
static void wakes_up(uint32_t mode)
{
    t_pair_opts opts = {.mode = mode};
    uint64_t number = 0;
    hws_event event;
    t_pair pair;
    hws_id op;

    t_pair_open(&pair, &opts);
    op = post(pair.endpoint[1], &number, sizeof number, 7);
    t_pair_idle(&pair, 20 * T_MS);
    give_back(pair.endpoint[1], 5, 7);
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_OK(event.status);
    CHECK_EQ(number, 5);
    t_pair_close(&pair);
}

CASE(a_receive_that_sleeps_gets_it)
{
    wakes_up(HWS_PROGRESS_BLOCKING);
    wakes_up(HWS_PROGRESS_THREAD);
    wakes_up(HWS_PROGRESS_THREAD_POLLING);
}

static int told;

static void on_end(void *arg, const hws_event *event)
{
    CHECK_OK(event->status);
    CHECK_EQ(*(uint64_t *)arg, 5);
    told++;
}

CASE(a_callback_is_told_by_progress)
{
    uint64_t number = 0;
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_end, .callback_arg = &number};
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &number, sizeof number, 7, ALL, &opts, NULL));
    give_back(pair.endpoint[1], 5, 7);
    CHECK_EQ(told, 0); /* never inside a call */
    UNTIL(&pair, told == 1);
    t_pair_close(&pair);
}

CASE(of_a_worker)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    send_number(&pair, 1, 7);
    send_number(&pair, 2, 7);
    CHECK_EQ(receive(&pair, pair.worker[1], 7), 1);
    give_back(pair.worker[1], 1, 7);
    CHECK_EQ(receive(&pair, pair.worker[1], 7), 1);
    CHECK_EQ(receive(&pair, pair.worker[1], 7), 2);
    /* One of an endpoint is found by both. */
    give_back(pair.endpoint[1], 3, 7);
    give_back(pair.endpoint[1], 4, 7);
    CHECK_EQ(receive(&pair, pair.worker[1], 7), 3);
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 4);
    t_pair_close(&pair);
}

/* The message itself, with its data here or still at the sender. */
static void taken(uint32_t flags, uint64_t length)
{
    hws_op_opts take = {.struct_size = sizeof take, .flags = HWS_OP_TAKE};
    char *out = t_alloc(length), *in = t_alloc(length);
    hws_id sends[2], op = 0, message = 0;
    hws_event event;
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    t_fill(out, length, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(hws_tag_send(pair.endpoint[0], out, length - (uint64_t)i, 7, NULL, &sends[i]));
    }
    CHECK_OK(hws_tag_recv(pair.endpoint[1], NULL, 0, 7, ALL, &take, &op));
    event = WAIT_OK(&pair, op);
    CHECK_EQ(event.length, length);
    CHECK_OK(hws_message_return(event.source));
    CHECK_CODE(hws_message_return(event.source), HWS_E_STALE);
    /* By a probe, and back once more. */
    CHECK_OK(hws_tag_probe(pair.endpoint[1], 7, ALL, NULL, &message));
    CHECK_OK(hws_message_return(message));
    CHECK_EQ(WAIT_OK(&pair, post(pair.endpoint[1], in, length, 7)).length, length);
    CHECK_FILLED(in, length, 1);
    /* The other one, to a receive that waits. */
    UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 7, ALL, NULL, &message) == HWS_OK);
    op = post(pair.endpoint[1], in, length, 7);
    memset(in, 0, length);
    CHECK_OK(hws_message_return(message));
    CHECK_EQ(WAIT_OK(&pair, op).length, length - 1);
    CHECK_FILLED(in, length - 1, 1);
    for (int i = 0; i < 2; i++) {
        (void)WAIT_OK(&pair, sends[i]);
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(a_message_that_was_taken)
{
    taken(flags, 8);
    taken(flags, 5000);
    taken(flags, LARGE);
}

CASE(a_message_that_was_taken_goes_to_one_who_takes_it)
{
    hws_op_opts take = {.struct_size = sizeof take, .flags = HWS_OP_TAKE};
    hws_id op = 0, message = 0;
    hws_event event;
    t_pair pair;

    t_pair_open(&pair, NULL);
    send_number(&pair, 9, 7);
    UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 7, ALL, NULL, &message) == HWS_OK);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], NULL, 0, 7, ALL, &take, &op));
    CHECK_OK(hws_message_return(message));
    event = WAIT_OK(&pair, op);
    CHECK_EQ(hws_kind(event.source), HWS_KIND_MESSAGE);
    CHECK_CODE(hws_kind(message), HWS_E_STALE);
    CHECK_OK(hws_close(event.source));
    t_pair_close(&pair);
}

CASE(what_returns_to_a_closing_endpoint_is_dropped)
{
    hws_id message = 0;
    uint64_t number = 1;
    t_pair pair;

    t_pair_open(&pair, NULL);
    send_number(&pair, 9, 7);
    UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 7, ALL, NULL, &message) == HWS_OK);
    CHECK_OK(hws_close(pair.endpoint[1]));
    CHECK_OK(hws_message_return(message));
    CHECK_CODE(hws_kind(message), HWS_E_STALE);
    CHECK(hws_tag_return(pair.endpoint[1], &number, sizeof number, 7) < 0);
    CHECK(hws_stream_return(pair.endpoint[1], &number, sizeof number) < 0);
    t_pair_close(&pair);
}

CASE(of_a_raw_endpoint)
{
    t_pair_opts opts = {.listener_flags = HWS_LISTENER_RAW, .endpoint_flags = HWS_ENDPOINT_RAW};
    hws_id message = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (uint64_t n = 1; n <= 3; n++) {
        send_number(&pair, n, 7);
    }
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 1);
    give_back(pair.endpoint[1], 1, 7);
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 1);
    UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 7, ALL, NULL, &message) == HWS_OK);
    CHECK_OK(hws_message_return(message));
    CHECK_EQ(receive(&pair, pair.worker[1], 7), 2);
    give_back(pair.worker[1], 2, 7);
    CHECK_EQ(receive(&pair, pair.worker[1], 7), 2);
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 3);
    t_pair_close(&pair);
}

CASE(after_the_peer_has_gone)
{
    char in[8];
    t_pair pair;
    hws_id op = 0;

    t_pair_open(&pair, NULL);
    send_number(&pair, 1, 7);
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 1);
    CHECK_OK(hws_close(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    give_back(pair.endpoint[1], 1, 7);
    CHECK_EQ(receive(&pair, pair.endpoint[1], 7), 1);
    /* Bytes of a stream, too, once UCX has given it up. */
    t_pair_idle(&pair, 100 * T_MS);
    CHECK_OK(hws_stream_return(pair.endpoint[1], "eight by", 8));
    CHECK_OK(hws_stream_recv(pair.endpoint[1], in, 8, NULL, &op));
    CHECK_EQ(WAIT_OK(&pair, op).length, 8);
    CHECK_EQ(memcmp(in, "eight by", 8), 0);
    CHECK_CODE(hws_stream_recv(pair.endpoint[1], in, 8, NULL, &op), HWS_E_PEER_CLOSED);
    t_pair_close(&pair);
}

/* ---- Multi-buffer messages ---- */

static hws_id send_multi(t_pair *pair, const char *data, uint64_t first, uint64_t second)
{
    hws_segment segments[2] = {{.base = (void *)(uintptr_t)data, .length = first},
                               {.base = (void *)(uintptr_t)(data + first), .length = second}};
    hws_id op = 0;

    CHECK_OK(hws_multi_send(pair->endpoint[0], 7, segments, 2, NULL, NULL, &op));
    return op;
}

static const hws_multi_detail *list(t_pair *pair)
{
    hws_multi_recv_opts opts = {.struct_size = sizeof opts, .flags = HWS_MULTI_LIST};
    hws_id op = 0;
    hws_event event;

    CHECK_OK(hws_multi_recv(pair->endpoint[1], 7, ALL, &opts, NULL, &op));
    event = WAIT_OK(pair, op);
    return event.detail;
}

static void fetch(t_pair *pair, const hws_multi_detail *detail, hws_segment *to, char *in)
{
    hws_id op = 0;
    hws_event event;

    CHECK_EQ(detail->count, 2);
    for (int i = 0; i < 2; i++) {
        to[i] = (hws_segment){.base = in, .length = detail->segments[i].length};
        in += detail->segments[i].length;
    }
    CHECK_OK(hws_multi_fetch(detail->buffer, to, 2, NULL, &op));
    event = WAIT_OK(pair, op);
    CHECK_EQ(event.source, pair->endpoint[1]);
}

static void multi(uint32_t flags, uint64_t first, uint64_t second)
{
    uint64_t total = first + second;
    char *out = t_alloc(total + 1), *in = t_alloc(total + 1);
    const hws_multi_detail *detail;
    hws_segment to[2];
    hws_id sends[2];
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    t_fill(out, total + 1, 3);
    sends[0] = send_multi(&pair, out, first, second);
    sends[1] = send_multi(&pair, out, first, second + 1);
    detail = list(&pair);
    CHECK_EQ(detail->total, total);
    CHECK_OK(hws_multi_return(detail->buffer));
    detail = list(&pair);
    CHECK_EQ(detail->total, total);
    fetch(&pair, detail, to, in);
    CHECK_FILLED(in, total, 3);
    CHECK_OK(hws_segments_return(pair.endpoint[1], 7, to, 2));
    memset(in, 0, total + 1); /* it was copied */
    detail = list(&pair);
    CHECK_EQ(detail->total, total);
    CHECK_EQ(detail->endpoint, pair.endpoint[1]);
    CHECK_OK(hws_multi_return(detail->buffer));
    fetch(&pair, list(&pair), to, in);
    CHECK_FILLED(in, total, 3);
    detail = list(&pair);
    CHECK_EQ(detail->total, total + 1);
    fetch(&pair, detail, to, in);
    CHECK_FILLED(in, total + 1, 3);
    (void)WAIT_OK(&pair, sends[0]);
    (void)WAIT_OK(&pair, sends[1]);
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(multi_buffer_messages)
{
    multi(flags, 0, 8);
    multi(flags, 100, 3000);
    multi(flags, 40000, 40000);
    multi(flags, 100, LARGE);
    multi(flags, LARGE, LARGE);
}

CASE(a_multi_buffer_receive_that_waits_gets_it)
{
    hws_segment segment = {.base = "eight by", .length = 8};
    hws_id op = 0;
    hws_event event;
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_multi_recv(pair.endpoint[1], 7, ALL, NULL, NULL, &op));
    CHECK_OK(hws_segments_return(pair.endpoint[1], 7, &segment, 1));
    event = WAIT_OK(&pair, op);
    const hws_multi_detail *detail = event.detail;
    CHECK_EQ(detail->count, 1);
    CHECK(memcmp(detail->segments[0].base, "eight by", 8) == 0);
    CHECK_OK(hws_close(detail->buffer));
    /* Nothing at all is a message too. */
    CHECK_OK(hws_segments_return(pair.endpoint[1], 7, NULL, 0));
    detail = list(&pair);
    CHECK_EQ(detail->count, 0);
    CHECK_OK(hws_close(detail->buffer));
    t_pair_close(&pair);
}

static void *give(void *arg, uint64_t length, uint32_t kind)
{
    (void)kind;
    ++*(int *)arg;
    return t_alloc(length);
}

static void take_back(void *arg, void *memory, uint64_t length)
{
    (void)length;
    --*(int *)arg;
    free(memory);
}

/* A receive that has to ask its allocator, or to refuse, waits: for a message that came by no UCX worker, or
 * by one that has gone since. */
CASE_BOTH(a_multi_buffer_receive_that_has_work_to_do_gets_it)
{
    int given = 0;
    hws_multi_recv_opts own = {
        .struct_size = sizeof own, .alloc = give, .free = take_back, .alloc_arg = &given};
    hws_multi_recv_opts little = {.struct_size = sizeof little, .bytes_max = 7};
    hws_segment segment = {.base = "eight by", .length = 8};
    const hws_multi_detail *detail, *kept;
    hws_id op = 0;
    hws_event event;
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_multi_recv(pair.worker[1], 7, ALL, &own, NULL, &op));
    CHECK_OK(hws_segments_return(pair.endpoint[1], 7, &segment, 1));
    event = WAIT_OK(&pair, op);
    detail = event.detail;
    CHECK(memcmp(detail->segments[0].base, "eight by", 8) == 0);
    CHECK_EQ(given, 1);
    CHECK_OK(hws_close(detail->buffer));
    CHECK_EQ(given, 0);
    CHECK_OK(hws_multi_recv(pair.worker[1], 7, ALL, &little, NULL, &op));
    CHECK_OK(hws_segments_return(pair.endpoint[1], 7, &segment, 1));
    CHECK_EQ(WAIT(&pair, op).status, HWS_E_TOO_BIG);
    /* Small, so that all of it is here when the peer goes, and its UCX worker after it. */
    (void)send_multi(&pair, "sixteen bytes...", 8, 8);
    kept = list(&pair);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    t_pair_idle(&pair, 200 * T_MS);
    CHECK_OK(hws_multi_recv(pair.worker[1], 7, ALL, &own, NULL, &op));
    CHECK_OK(hws_multi_return(kept->buffer));
    event = WAIT_OK(&pair, op);
    detail = event.detail;
    CHECK(memcmp(detail->segments[1].base, "bytes...", 8) == 0);
    CHECK_OK(hws_close(detail->buffer));
    CHECK_EQ(given, 0);
    t_pair_close(&pair);
}

CASE(what_no_list_is_or_is_in_place_is_refused)
{
    char data[16] = "";
    hws_segment null = {.length = 8}, gpu = {.base = data, .length = 8, .memory_kind = 1};
    hws_id op = 0, buffer = 0;
    hws_event event;
    t_pair pair;
    void *memory;

    t_pair_open(&pair, NULL);
    CHECK_CODE(hws_segments_return(pair.endpoint[1], 7, &null, 1), HWS_E_INVALID);
    CHECK_CODE(hws_segments_return(pair.endpoint[1], 7, &gpu, 1), HWS_E_BUFFER_KIND);
    CHECK_CODE(hws_segments_return(pair.endpoint[1], 7, NULL, 1), HWS_E_INVALID);
    CHECK_CODE(hws_tag_return(pair.endpoint[1], NULL, 8, 7), HWS_E_INVALID);
    CHECK_CODE(hws_stream_return(pair.endpoint[1], NULL, 8), HWS_E_INVALID);
    CHECK_OK(hws_buffer_alloc(pair.worker[1], 8, &memory, &buffer));
    CHECK_CODE(hws_multi_return(buffer), HWS_E_INVALID);
    CHECK_OK(hws_close(buffer));
    /* Received in one step into memory of the library's. */
    char *out = t_alloc(LARGE);
    hws_id send = send_multi(&pair, out, 8, LARGE - 8);
    CHECK_OK(hws_multi_recv(pair.endpoint[1], 7, ALL, NULL, NULL, &op));
    event = WAIT_OK(&pair, op);
    buffer = ((const hws_multi_detail *)event.detail)->buffer;
    CHECK_CODE(hws_multi_return(buffer), HWS_E_IN_USE);
    CHECK_OK(hws_close(buffer));
    (void)WAIT_OK(&pair, send);
    free(out);
    t_pair_close(&pair);
}

CASES_MAIN
