/*
 * Multi-buffer messages: every shape, in one step and in two, matching, limits, allocators, bad arguments.
 * TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/multi.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define MANY 5000

/* The event of a send. */
static void check_sent(const hws_event *event, hws_id from, uint64_t tag, const t_shape *s)
{
    CHECK_EQ(event->kind, HWS_EVENT_MULTI_SEND);
    CHECK(event->source == from);
    CHECK(event->tag == tag);
    CHECK_EQ(event->length, s->total);
}

/* Two steps: the list, then memory of the test's, with guards. */
static void list_and_fetch(t_pair *pair, hws_id op, hws_id endpoint, uint64_t tag, const t_shape *s)
{
    hws_segment *to = calloc(s->count + 1, sizeof(*to));
    hws_event event = WAIT_OK(pair, op);
    const hws_multi_detail *d;
    hws_id fetch = 0, buffer;
    int absent = 0;

    CHECK(to != NULL);
    CHECK_EQ(event.kind, HWS_EVENT_MULTI_LIST);
    d = t_multi_check_list(&event, endpoint, tag, s);
    for (uint64_t i = 0; i < s->count; i++) {
        absent |= d->segments[i].base == NULL && d->segments[i].length != 0;
        if (d->segments[i].base != NULL) {
            CHECK_FILLED(d->segments[i].base, s->segments[i].length, s->seed + i);
        }
        to[i].length = s->segments[i].length + 8;
        to[i].base = t_alloc(to[i].length);
        memset(to[i].base, 0x5a, to[i].length);
    }
    CHECK_EQ((event.flags & HWS_EVENT_FLAG_RNDV) != 0, absent);
    buffer = d->buffer;
    CHECK_OK(hws_multi_fetch(buffer, to, s->count, NULL, &fetch));
    event = WAIT_OK(pair, fetch);
    CHECK_CODE(hws_close(buffer), HWS_E_STALE);
    CHECK_EQ(event.kind, HWS_EVENT_MULTI_RECV);
    CHECK_EQ(event.length, s->total);
    CHECK(event.tag == tag);
    CHECK(event.detail == NULL);
    t_multi_check_data(to, s);
    for (uint64_t i = 0; i < s->count; i++) {
        for (uint64_t k = s->segments[i].length; k < to[i].length; k++) {
            CHECK_EQ(((char *)to[i].base)[k], 0x5a);
        }
        free(to[i].base);
    }
    free(to);
}

CASE_BOTH(every_shape)
{
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (size_t i = 0; i < SHAPES; i++) {
        for (unsigned how = 0; how < 16; how++) {
            int back = how & 1, level = how >> 1 & 1, unexpected = how >> 2 & 1, two = how >> 3 & 1;
            hws_id from = pair.endpoint[back], to = pair.endpoint[1 - back], send, recv = 0;
            hws_id source = level ? pair.worker[1 - back] : to;
            uint64_t tag = UINT64_C(0xfedcba9876543210) + i;
            t_shape s = t_shape_make(shapes[i].sizes, shapes[i].count, 1000 * (how + 1) + i);

            if (!unexpected) {
                recv = t_multi_recv(source, tag, ALL, two ? HWS_MULTI_LIST : 0);
                t_pair_step(&pair);
            }
            send = t_multi_send(from, tag, &s);
            if (unexpected) {
                t_multi_waiting(&pair, pair.worker[1 - back], 1);
                recv = t_multi_recv(source, tag, ALL, two ? HWS_MULTI_LIST : 0);
            }
            if (two) {
                list_and_fetch(&pair, recv, to, tag, &s);
            } else {
                t_multi_take(&pair, recv, to, tag, &s);
            }
            hws_event sent = WAIT_OK(&pair, send);
            check_sent(&sent, from, tag, &s);
            t_shape_drop(&s);
        }
    }
    CHECK_EQ(t_stats(pair.context).unexpected, 0);
    CHECK_EQ(t_stats(pair.context).ops_pending, 0);
    t_pair_close(&pair);
}

/* More segments than fit anywhere without memory of their own. */
CASE_BOTH(many_segments)
{
    static uint64_t sizes[MANY];
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            sizes[i] = round == 0 ? i % 2 : round == 1 ? i % 3000 : i % 500 == 0 ? 70000 : i % 100;
        }
        t_shape s = t_shape_make(sizes, MANY, round);
        hws_id recv = t_multi_recv(pair.endpoint[1], 5, ALL, round == 2 ? HWS_MULTI_LIST : 0);
        hws_id send = t_multi_send(pair.endpoint[0], 5, &s);

        if (round == 2) {
            list_and_fetch(&pair, recv, pair.endpoint[1], 5, &s);
        } else {
            t_multi_take(&pair, recv, pair.endpoint[1], 5, &s);
        }
        WAIT_OK(&pair, send);
        t_shape_drop(&s);
    }
    t_pair_close(&pair);
}

/* Many messages with parts at once, received in another order than sent. */
CASE_BOTH(interleaved)
{
    enum { N = 24 };
    t_shape s[N];
    hws_id send[N], recv[N];
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (uint64_t i = 0; i < N; i++) {
        s[i] = t_shape_make(i % 3 == 0 ? tiny : i % 3 == 1 ? dask : medium, 6, 77 * i);
        send[i] = t_multi_send(pair.endpoint[0], i, &s[i]);
    }
    for (uint64_t i = 0; i < N; i++) {
        recv[i] = t_multi_recv(pair.endpoint[1], N - 1 - i, ALL, i % 2 ? HWS_MULTI_LIST : 0);
    }
    for (uint64_t i = 0; i < N; i++) {
        if (i % 2) {
            list_and_fetch(&pair, recv[i], pair.endpoint[1], N - 1 - i, &s[N - 1 - i]);
        } else {
            t_multi_take(&pair, recv[i], pair.endpoint[1], N - 1 - i, &s[N - 1 - i]);
        }
    }
    for (uint64_t i = 0; i < N; i++) {
        WAIT_OK(&pair, send[i]);
        t_shape_drop(&s[i]);
    }
    t_pair_close(&pair);
}

/* Messages of one tag come in the order they were sent, receives match in the order of posting,
 * and tagged messages with the same tag do not mix with them. */
CASE_BOTH(matching_order)
{
    t_pair pair;
    t_shape s[6];
    hws_id recv[6], send[6], tagged = 0, tagged_recv = 0;
    char in = 0, out = 'x';

    t_pair_open_flags(&pair, flags);
    recv[0] = t_multi_recv(pair.worker[1], 0, 0, 0); /* any */
    recv[1] = t_multi_recv(pair.endpoint[1], 9, ALL, 0);
    recv[2] = t_multi_recv(pair.worker[1], 0x100, 0xff00, HWS_MULTI_LIST);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 1, 9, ALL, NULL, &tagged_recv));
    for (uint64_t i = 0; i < 6; i++) {
        s[i] = t_shape_make(i % 2 ? dask : tiny, 6, i);
        send[i] = t_multi_send(pair.endpoint[0], i == 1 ? 0x1ff : 9, &s[i]);
        if (i == 0) {
            CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 1, 9, NULL, &tagged));
        }
    }
    for (uint64_t i = 3; i < 6; i++) {
        recv[i] = t_multi_recv(i % 2 ? pair.worker[1] : pair.endpoint[1], 9, ALL, 0);
    }
    t_multi_take(&pair, recv[0], pair.endpoint[1], 9, &s[0]);
    list_and_fetch(&pair, recv[2], pair.endpoint[1], 0x1ff, &s[1]);
    t_multi_take(&pair, recv[1], pair.endpoint[1], 9, &s[2]);
    for (uint64_t i = 3; i < 6; i++) {
        t_multi_take(&pair, recv[i], pair.endpoint[1], 9, &s[i]);
    }
    CHECK_EQ(WAIT_OK(&pair, tagged_recv).length, 1);
    CHECK_EQ(in, 'x');
    WAIT_OK(&pair, tagged);
    for (uint64_t i = 0; i < 6; i++) {
        WAIT_OK(&pair, send[i]);
        t_shape_drop(&s[i]);
    }
    t_pair_close(&pair);
}

/* The option that says how much travels with the list. */
CASE_BOTH(coalesce)
{
    static const uint64_t sizes[] = {30000, 20000, 50000};
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (uint64_t limit = 1; limit <= MIB; limit = limit == 1       ? 99999
                                                   : limit == 99999 ? 100000
                                                                    : 2 * MIB) {
        hws_multi_opts opts = {.struct_size = sizeof(opts), .coalesce = limit};
        t_shape s = t_shape_make(sizes, 3, limit);
        hws_id send = 0, recv = t_multi_recv(pair.endpoint[1], 1, ALL, HWS_MULTI_LIST);
        hws_event event;
        const hws_multi_detail *d;

        CHECK_OK(hws_multi_send(pair.endpoint[0], 1, s.segments, 3, &opts, NULL, &send));
        event = WAIT_OK(&pair, recv);
        d = t_multi_check_list(&event, pair.endpoint[1], 1, &s);
        CHECK_EQ((event.flags & HWS_EVENT_FLAG_RNDV) == 0, limit >= s.total);
        if (limit >= s.total) {
            t_multi_check_data(d->segments, &s);
            WAIT_OK(&pair, send);
            CHECK_OK(hws_close(d->buffer));
        } else {
            CHECK_OK(hws_close(d->buffer)); /* unfetched: dropped, and the sender completes */
            WAIT_OK(&pair, send);
        }
        t_shape_drop(&s);
    }
    t_pair_close(&pair);
}

struct memory {
    unsigned given, taken, fail_at;
    uint64_t bytes;
    hws_id abort; /* an endpoint */
};

static void *give(void *arg, uint64_t length, uint32_t kind)
{
    struct memory *m = arg;

    CHECK_EQ(kind, HWS_MEMORY_HOST);
    if (m->given + 1 == m->fail_at) {
        return NULL;
    }
    m->given++;
    m->bytes += length;
    return malloc(length);
}

static void give_back(void *arg, void *memory, uint64_t length)
{
    struct memory *m = arg;

    m->taken++;
    m->bytes -= length;
    free(memory);
}

CASE_BOTH(allocator)
{
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (unsigned how = 0; how < 8; how++) {
        int small = how & 1, unexpected = how >> 1 & 1, fail = how >> 2 & 1;
        struct memory m = {.fail_at = fail ? 3 : 0};
        hws_multi_recv_opts opts = {
            .struct_size = sizeof(opts), .alloc = give, .free = give_back, .alloc_arg = &m};
        t_shape s = t_shape_make(small ? tiny : dask, 6, how);
        unsigned blocks = small ? 4 : 6;
        hws_id recv = 0, send;
        hws_event event;

        if (!unexpected) {
            CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        }
        send = t_multi_send(pair.endpoint[0], 3, &s);
        if (unexpected) {
            t_multi_waiting(&pair, pair.worker[1], 1);
            CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        }
        event = WAIT(&pair, recv);
        if (fail) {
            CHECK_EQ(event.status, HWS_E_ALLOCATOR);
            event = WAIT(&pair, send);
            CHECK_EQ(event.status, small ? HWS_OK : HWS_E_ALLOCATOR);
            CHECK_EQ(m.given, 2);
        } else {
            const hws_multi_detail *d = t_multi_check_list(&event, pair.endpoint[1], 3, &s);

            t_multi_check_data(d->segments, &s);
            CHECK_EQ(m.given, blocks);
            CHECK_EQ(m.bytes, s.total);
            CHECK_OK(hws_close(d->buffer));
            WAIT_OK(&pair, send);
        }
        CHECK_EQ(m.taken, m.given);
        CHECK_EQ(m.bytes, 0);
        t_shape_drop(&s);
    }
    t_pair_close(&pair);
}

static void *give_and_abort(void *arg, uint64_t length, uint32_t memory_kind)
{
    struct memory *m = arg;

    hws_abort(m->abort);
    return give(arg, length, memory_kind);
}

/* The allocator may end what it allocates for. */
CASE_BOTH(allocator_aborts)
{
    for (int unexpected = 0; unexpected < 2; unexpected++) {
        struct memory m = {.fail_at = 0};
        hws_multi_recv_opts opts = {.struct_size = sizeof(opts),
                                    .alloc = give_and_abort,
                                    .free = give_back,
                                    .alloc_arg = &m};
        t_shape s = t_shape_make(dask, 6, 1);
        hws_id recv = 0, send;
        hws_event event;
        t_pair pair;

        t_pair_open_flags(&pair, flags);
        m.abort = pair.endpoint[1];
        if (!unexpected) {
            CHECK_OK(hws_multi_recv(m.abort, 3, ALL, &opts, NULL, &recv));
        }
        send = t_multi_send(pair.endpoint[0], 3, &s);
        if (unexpected) {
            t_multi_waiting(&pair, pair.worker[1], 1);
            CHECK_OK(hws_multi_recv(m.abort, 3, ALL, &opts, NULL, &recv));
        }
        event = WAIT(&pair, recv);
        if (event.status ==
            HWS_OK) { /* by shared memory the parts may be there before the abort is */
            CHECK_OK(hws_close(((const hws_multi_detail *)event.detail)->buffer));
        } else {
            CHECK_EQ(event.status, HWS_E_CANCELED);
        }
        WAIT(&pair, send);
        CHECK_EQ(m.taken, m.given);
        t_pair_close(&pair);
        t_shape_drop(&s);
    }
}

/* Over a receive's limit: both sides hear of it, and the next message passes. */
CASE_BOTH(receive_limits)
{
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (unsigned how = 0; how < 4; how++) {
        hws_multi_recv_opts opts = {.struct_size = sizeof(opts),
                                    .bytes_max = how & 1 ? 1000000 : 0,
                                    .count_max = how & 1 ? 0 : 5};
        t_shape s = t_shape_make(dask, 6, how), t = t_shape_make(medium, 5, how);
        hws_id recv = 0, send, next;
        hws_event event;

        if (how & 2) {
            CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        }
        send = t_multi_send(pair.endpoint[0], 3, &s);
        if ((how & 2) == 0) {
            t_multi_waiting(&pair, pair.worker[1], 1);
            CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        }
        event = WAIT(&pair, recv);
        CHECK_EQ(event.status, HWS_E_TOO_BIG);
        CHECK_EQ(event.length, s.total);
        event = WAIT(&pair, send);
        CHECK_EQ(event.status, HWS_E_TOO_BIG);
        CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        next = t_multi_send(pair.endpoint[0], 3, &t);
        t_multi_take(&pair, recv, pair.endpoint[1], 3, &t);
        WAIT_OK(&pair, next);
        t_shape_drop(&s);
        t_shape_drop(&t);
    }
    t_pair_close(&pair);
}

/* Over the peer's limits: nothing is sent. */
CASE_BOTH(worker_limits)
{
    t_pair pair;
    hws_worker_opts count_opts = {.struct_size = sizeof(count_opts), .multi_count_max = 5};
    hws_worker_opts bytes_opts = {.struct_size = sizeof(bytes_opts), .multi_bytes_max = 200000};
    t_pair_opts opts = {.endpoint_flags = flags, .worker = {&bytes_opts, &count_opts}};
    hws_id send = 0, recv;
    t_shape count = t_shape_make(dask, 6, 1), bytes = t_shape_make(large, 2, 2),
            fits = t_shape_make(medium, 4, 3);

    t_pair_open(&pair, &opts);
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, count.segments, 6, NULL, NULL, &send),
               HWS_E_TOO_BIG);
    CHECK_CODE(hws_multi_send(pair.endpoint[1], 1, bytes.segments, 2, NULL, NULL, &send),
               HWS_E_TOO_BIG);
    recv = t_multi_recv(pair.endpoint[1], 1, ALL, 0);
    send = t_multi_send(pair.endpoint[0], 1, &fits);
    t_multi_take(&pair, recv, pair.endpoint[1], 1, &fits);
    WAIT_OK(&pair, send);
    t_shape_drop(&count);
    t_shape_drop(&bytes);
    t_shape_drop(&fits);
    t_pair_close(&pair);
}

CASE(bad_arguments)
{
    hws_segment segment = {.base = &segment, .length = 8}, null = {.length = 1};
    hws_segment kind = {.base = &segment, .length = 8, .memory_kind = 200};
    hws_segment huge = {.base = &segment, .length = UINT64_C(1) << 56};
    hws_multi_opts bad_opts = {.struct_size = sizeof(bad_opts), .coalesce = 2 * MIB};
    hws_multi_recv_opts bad_recv = {.struct_size = sizeof(bad_recv), .flags = 2};
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
    uint64_t sizes[] = {8, 70000};
    t_shape s = t_shape_make(sizes, 2, 5);
    hws_segment to[3] = {{.base = t_alloc(8), .length = 8},
                         {.base = t_alloc(70000), .length = 69999}};
    hws_id op = 0, recv, send, buffer;
    t_pair pair;

    t_pair_open_flags(&pair, 0);
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, NULL, 1, NULL, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, &null, 1, NULL, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, &kind, 1, NULL, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, &huge, 1, NULL, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, &segment, 1, &bad_opts, NULL, &op),
               HWS_E_INVALID);
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, &segment, 1, NULL, NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_multi_recv(pair.endpoint[0], 1, ALL, &bad_recv, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_multi_recv(pair.endpoint[0], 1, ALL, NULL, &detached, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_multi_fetch(pair.endpoint[0], to, 2, NULL, &op), HWS_E_KIND);

    recv = t_multi_recv(pair.endpoint[1], 1, ALL, HWS_MULTI_LIST);
    send = t_multi_send(pair.endpoint[0], 1, &s);
    buffer = ((const hws_multi_detail *)WAIT_OK(&pair, recv).detail)->buffer;
    CHECK_CODE(hws_multi_fetch(buffer, to, 1, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_multi_fetch(buffer, to, 2, NULL, &op), HWS_E_TRUNCATED);
    to[1].length = 70000;
    CHECK_CODE(hws_multi_fetch(buffer, (hws_segment[]){to[0], {.length = 70000}}, 2, NULL, &op),
               HWS_E_INVALID);
    CHECK_CODE(hws_am_recv(buffer, to[1].base, 70000, NULL, &op), HWS_E_IN_USE);
    CHECK_OK(hws_multi_fetch(buffer, to, 2, NULL, &op));
    CHECK_CODE(hws_multi_fetch(buffer, to, 2, NULL, &op), HWS_E_STALE);
    WAIT_OK(&pair, op);
    WAIT_OK(&pair, send);
    t_multi_check_data(to, &s);
    free(to[0].base);
    free(to[1].base);
    t_shape_drop(&s);
    t_pair_close(&pair);
}

/* Complete at once: no event, the result in the caller's hands. */
CASE(inline_result)
{
    hws_event result;
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .flags = HWS_OP_INLINE, .user = 17, .result = &result};
    t_pair pair;
    t_shape s = t_shape_make(tiny, 8, 6);
    hws_id op = 0;
    int32_t r;

    t_pair_open_flags(&pair, 0);
    r = hws_multi_send(pair.endpoint[0], 4, s.segments, 8, NULL, &opts, &op);
    CHECK_EQ(r, HWS_DONE);
    CHECK_EQ(op, 0);
    check_sent(&result, pair.endpoint[0], 4, &s);
    t_multi_waiting(&pair, pair.worker[1], 1);
    CHECK_EQ(hws_multi_recv(pair.endpoint[1], 4, ALL, NULL, &opts, &op), HWS_DONE);
    CHECK_EQ(result.user, 17);
    t_multi_check_data(t_multi_check_list(&result, pair.endpoint[1], 4, &s)->segments, &s);
    CHECK_OK(hws_close(((const hws_multi_detail *)result.detail)->buffer));
    t_shape_drop(&s);
    t_pair_close(&pair);
}

/* Posted while another thread progresses: everything that the caller's memory holds is copied. */
CASE_BOTH(threads)
{
    t_pair_opts opts = {.endpoint_flags = flags, .mode = HWS_PROGRESS_THREAD_POLLING};
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (unsigned i = 0; i < 60; i++) {
        t_shape s = t_shape_make(shapes[i % SHAPES].sizes, shapes[i % SHAPES].count, i);
        hws_segment *copy = t_alloc((s.count + 1) * sizeof(*copy));
        hws_id send = 0, recv = t_multi_recv(pair.endpoint[1], i, ALL, i & 8 ? HWS_MULTI_LIST : 0);

        memcpy(copy, s.segments, s.count * sizeof(*copy));
        CHECK_OK(hws_multi_send(pair.endpoint[0], i, copy, s.count, NULL, NULL, &send));
        memset(copy, 0xff, s.count * sizeof(*copy));
        if (i & 8) {
            list_and_fetch(&pair, recv, pair.endpoint[1], i, &s);
        } else {
            t_multi_take(&pair, recv, pair.endpoint[1], i, &s);
        }
        WAIT_OK(&pair, send);
        free(copy);
        t_shape_drop(&s);
    }
    t_pair_close(&pair);
}

CASES_MAIN_AT_ONCE(2)
