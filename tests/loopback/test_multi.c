/*
 * Multi-buffer messages: every shape, in one step and in two, matching, limits, allocators, bad
 * arguments, and connections that end in the middle. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define MANY 5000

/* A message as it is sent: segment i is filled with seed + i. */
typedef struct shape {
    uint64_t count;
    uint64_t seed;
    uint64_t total;
    hws_segment *segments;
} shape;

static shape make(const uint64_t *sizes, uint64_t count, uint64_t seed)
{
    shape s = {.count = count, .seed = seed, .segments = calloc(count + 1, sizeof(hws_segment))};

    CHECK(s.segments != NULL);
    for (uint64_t i = 0; i < count; i++) {
        s.segments[i].length = sizes[i];
        s.segments[i].base = t_alloc(sizes[i] + 1);
        t_fill(s.segments[i].base, sizes[i], seed + i);
        s.total += sizes[i];
    }
    return s;
}

static void drop(shape *s)
{
    for (uint64_t i = 0; i < s->count; i++) {
        free(s->segments[i].base);
    }
    free(s->segments);
}

static const uint64_t none[] = {0};
static const uint64_t one_empty[] = {0};
static const uint64_t tiny[] = {1, 0, 100, 7, 100, 0, 512, 3};
static const uint64_t edge[] = {4096, 4096};
static const uint64_t over_edge[] = {4096, 4096, 1};
static const uint64_t medium[] = {65535, 20000, 0, 60000, 1, 65535};
static const uint64_t dask[] = {40, 700, 3000000, 12, 65536, 1000003};
static const uint64_t large[] = {1 << 20, 1 << 20, 65536, (5 << 20) + 3};

static const struct {
    const uint64_t *sizes;
    uint64_t count;
} shapes[] = {{none, 0},      {one_empty, 1}, {tiny, 8}, {edge, 2},
              {over_edge, 3}, {medium, 6},    {dask, 6}, {large, 4}};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static hws_id post(hws_id endpoint, uint64_t tag, const shape *s)
{
    hws_id op = 0;

    CHECK_OK(hws_multi_send(endpoint, tag, s->segments, s->count, NULL, NULL, &op));
    CHECK(op != 0);
    return op;
}

static hws_id post_recv(hws_id source, uint64_t tag, uint64_t mask, uint32_t flags)
{
    hws_multi_recv_opts opts = {.struct_size = sizeof(opts), .flags = flags};
    hws_id op = 0;

    CHECK_OK(hws_multi_recv(source, tag, mask, &opts, NULL, &op));
    CHECK(op != 0);
    return op;
}

/* The event of a send. */
static void check_sent(const hws_event *event, hws_id from, uint64_t tag, const shape *s)
{
    CHECK_EQ(event->kind, HWS_EVENT_MULTI_SEND);
    CHECK(event->source == from);
    CHECK(event->tag == tag);
    CHECK_EQ(event->length, s->total);
}

static const hws_multi_detail *check_detail(const hws_event *event, hws_id endpoint, uint64_t tag,
                                            const shape *s)
{
    const hws_multi_detail *d = event->detail;

    CHECK_EQ(event->status, HWS_OK);
    CHECK(event->tag == tag);
    CHECK_EQ(event->length, s->total);
    CHECK(event->flags & HWS_EVENT_FLAG_BUFFER);
    CHECK(d != NULL);
    CHECK_EQ(d->count, s->count);
    CHECK_EQ(d->total, s->total);
    CHECK(d->endpoint == endpoint);
    CHECK_EQ(hws_kind(d->buffer), HWS_KIND_BUFFER);
    for (uint64_t i = 0; i < s->count; i++) {
        CHECK_EQ(d->segments[i].length, s->segments[i].length);
    }
    return d;
}

static void check_data(const hws_segment *got, const shape *s)
{
    for (uint64_t i = 0; i < s->count; i++) {
        if (s->segments[i].length != 0) {
            CHECK_FILLED(got[i].base, s->segments[i].length, s->seed + i);
        }
    }
}

/* One step: the library provides the memory. */
static void take(t_pair *pair, hws_id op, hws_id endpoint, uint64_t tag, const shape *s)
{
    hws_event event = WAIT_OK(pair, op);
    const hws_multi_detail *d;

    CHECK_EQ(event.kind, HWS_EVENT_MULTI_RECV);
    CHECK((event.flags & HWS_EVENT_FLAG_RNDV) == 0);
    d = check_detail(&event, endpoint, tag, s);
    check_data(d->segments, s);
    CHECK_OK(hws_close(d->buffer));
}

/* Two steps: the list, then memory of the test's, with guards. */
static void list_and_fetch(t_pair *pair, hws_id op, hws_id endpoint, uint64_t tag, const shape *s)
{
    hws_segment *to = calloc(s->count + 1, sizeof(*to));
    hws_event event = WAIT_OK(pair, op);
    const hws_multi_detail *d;
    hws_id fetch = 0, buffer;
    int absent = 0;

    CHECK(to != NULL);
    CHECK_EQ(event.kind, HWS_EVENT_MULTI_LIST);
    d = check_detail(&event, endpoint, tag, s);
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
    check_data(to, s);
    for (uint64_t i = 0; i < s->count; i++) {
        for (uint64_t k = s->segments[i].length; k < to[i].length; k++) {
            CHECK_EQ(((char *)to[i].base)[k], 0x5a);
        }
        free(to[i].base);
    }
    free(to);
}

static void waiting(t_pair *pair, hws_id worker, uint64_t messages)
{
    UNTIL(pair, t_stats(worker).unexpected == messages);
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
            shape s = make(shapes[i].sizes, shapes[i].count, 1000 * (how + 1) + i);

            if (!unexpected) {
                recv = post_recv(source, tag, ALL, two ? HWS_MULTI_LIST : 0);
                t_pair_step(&pair);
            }
            send = post(from, tag, &s);
            if (unexpected) {
                waiting(&pair, pair.worker[1 - back], 1);
                recv = post_recv(source, tag, ALL, two ? HWS_MULTI_LIST : 0);
            }
            if (two) {
                list_and_fetch(&pair, recv, to, tag, &s);
            } else {
                take(&pair, recv, to, tag, &s);
            }
            hws_event sent = WAIT_OK(&pair, send);
            check_sent(&sent, from, tag, &s);
            drop(&s);
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
        shape s = make(sizes, MANY, round);
        hws_id recv = post_recv(pair.endpoint[1], 5, ALL, round == 2 ? HWS_MULTI_LIST : 0);
        hws_id send = post(pair.endpoint[0], 5, &s);

        if (round == 2) {
            list_and_fetch(&pair, recv, pair.endpoint[1], 5, &s);
        } else {
            take(&pair, recv, pair.endpoint[1], 5, &s);
        }
        WAIT_OK(&pair, send);
        drop(&s);
    }
    t_pair_close(&pair);
}

/* Many messages with parts at once, received in another order than sent. */
CASE_BOTH(interleaved)
{
    enum { N = 24 };
    shape s[N];
    hws_id send[N], recv[N];
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (uint64_t i = 0; i < N; i++) {
        s[i] = make(i % 3 == 0 ? tiny : i % 3 == 1 ? dask : medium, 6, 77 * i);
        send[i] = post(pair.endpoint[0], i, &s[i]);
    }
    for (uint64_t i = 0; i < N; i++) {
        recv[i] = post_recv(pair.endpoint[1], N - 1 - i, ALL, i % 2 ? HWS_MULTI_LIST : 0);
    }
    for (uint64_t i = 0; i < N; i++) {
        if (i % 2) {
            list_and_fetch(&pair, recv[i], pair.endpoint[1], N - 1 - i, &s[N - 1 - i]);
        } else {
            take(&pair, recv[i], pair.endpoint[1], N - 1 - i, &s[N - 1 - i]);
        }
    }
    for (uint64_t i = 0; i < N; i++) {
        WAIT_OK(&pair, send[i]);
        drop(&s[i]);
    }
    t_pair_close(&pair);
}

/* Messages of one tag come in the order they were sent, receives match in the order of posting,
 * and tagged messages with the same tag do not mix with them. */
CASE_BOTH(matching_order)
{
    t_pair pair;
    shape s[6];
    hws_id recv[6], send[6], tagged = 0, tagged_recv = 0;
    char in = 0, out = 'x';

    t_pair_open_flags(&pair, flags);
    recv[0] = post_recv(pair.worker[1], 0, 0, 0); /* any */
    recv[1] = post_recv(pair.endpoint[1], 9, ALL, 0);
    recv[2] = post_recv(pair.worker[1], 0x100, 0xff00, HWS_MULTI_LIST);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 1, 9, ALL, NULL, &tagged_recv));
    for (uint64_t i = 0; i < 6; i++) {
        s[i] = make(i % 2 ? dask : tiny, 6, i);
        send[i] = post(pair.endpoint[0], i == 1 ? 0x1ff : 9, &s[i]);
        if (i == 0) {
            CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 1, 9, NULL, &tagged));
        }
    }
    for (uint64_t i = 3; i < 6; i++) {
        recv[i] = post_recv(i % 2 ? pair.worker[1] : pair.endpoint[1], 9, ALL, 0);
    }
    take(&pair, recv[0], pair.endpoint[1], 9, &s[0]);
    list_and_fetch(&pair, recv[2], pair.endpoint[1], 0x1ff, &s[1]);
    take(&pair, recv[1], pair.endpoint[1], 9, &s[2]);
    for (uint64_t i = 3; i < 6; i++) {
        take(&pair, recv[i], pair.endpoint[1], 9, &s[i]);
    }
    CHECK_EQ(WAIT_OK(&pair, tagged_recv).length, 1);
    CHECK_EQ(in, 'x');
    WAIT_OK(&pair, tagged);
    for (uint64_t i = 0; i < 6; i++) {
        WAIT_OK(&pair, send[i]);
        drop(&s[i]);
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
        shape s = make(sizes, 3, limit);
        hws_id send = 0, recv = post_recv(pair.endpoint[1], 1, ALL, HWS_MULTI_LIST);
        hws_event event;
        const hws_multi_detail *d;

        CHECK_OK(hws_multi_send(pair.endpoint[0], 1, s.segments, 3, &opts, NULL, &send));
        event = WAIT_OK(&pair, recv);
        d = check_detail(&event, pair.endpoint[1], 1, &s);
        CHECK_EQ((event.flags & HWS_EVENT_FLAG_RNDV) == 0, limit >= s.total);
        if (limit >= s.total) {
            check_data(d->segments, &s);
            WAIT_OK(&pair, send);
            CHECK_OK(hws_close(d->buffer));
        } else {
            CHECK_OK(hws_close(d->buffer)); /* unfetched: dropped, and the sender completes */
            WAIT_OK(&pair, send);
        }
        drop(&s);
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
        shape s = make(small ? tiny : dask, 6, how);
        unsigned blocks = small ? 4 : 6;
        hws_id recv = 0, send;
        hws_event event;

        if (!unexpected) {
            CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        }
        send = post(pair.endpoint[0], 3, &s);
        if (unexpected) {
            waiting(&pair, pair.worker[1], 1);
            CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        }
        event = WAIT(&pair, recv);
        if (fail) {
            CHECK_EQ(event.status, HWS_E_ALLOCATOR);
            event = WAIT(&pair, send);
            CHECK_EQ(event.status, small ? HWS_OK : HWS_E_ALLOCATOR);
            CHECK_EQ(m.given, 2);
        } else {
            const hws_multi_detail *d = check_detail(&event, pair.endpoint[1], 3, &s);

            check_data(d->segments, &s);
            CHECK_EQ(m.given, blocks);
            CHECK_EQ(m.bytes, s.total);
            CHECK_OK(hws_close(d->buffer));
            WAIT_OK(&pair, send);
        }
        CHECK_EQ(m.taken, m.given);
        CHECK_EQ(m.bytes, 0);
        drop(&s);
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
        shape s = make(dask, 6, 1);
        hws_id recv = 0, send;
        hws_event event;
        t_pair pair;

        t_pair_open_flags(&pair, flags);
        m.abort = pair.endpoint[1];
        if (!unexpected) {
            CHECK_OK(hws_multi_recv(m.abort, 3, ALL, &opts, NULL, &recv));
        }
        send = post(pair.endpoint[0], 3, &s);
        if (unexpected) {
            waiting(&pair, pair.worker[1], 1);
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
        drop(&s);
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
        shape s = make(dask, 6, how), t = make(medium, 5, how);
        hws_id recv = 0, send, next;
        hws_event event;

        if (how & 2) {
            CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        }
        send = post(pair.endpoint[0], 3, &s);
        if ((how & 2) == 0) {
            waiting(&pair, pair.worker[1], 1);
            CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        }
        event = WAIT(&pair, recv);
        CHECK_EQ(event.status, HWS_E_TOO_BIG);
        CHECK_EQ(event.length, s.total);
        event = WAIT(&pair, send);
        CHECK_EQ(event.status, HWS_E_TOO_BIG);
        CHECK_OK(hws_multi_recv(pair.endpoint[1], 3, ALL, &opts, NULL, &recv));
        next = post(pair.endpoint[0], 3, &t);
        take(&pair, recv, pair.endpoint[1], 3, &t);
        WAIT_OK(&pair, next);
        drop(&s);
        drop(&t);
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
    shape count = make(dask, 6, 1), bytes = make(large, 2, 2), fits = make(medium, 4, 3);

    t_pair_open(&pair, &opts);
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, count.segments, 6, NULL, NULL, &send),
               HWS_E_TOO_BIG);
    CHECK_CODE(hws_multi_send(pair.endpoint[1], 1, bytes.segments, 2, NULL, NULL, &send),
               HWS_E_TOO_BIG);
    recv = post_recv(pair.endpoint[1], 1, ALL, 0);
    send = post(pair.endpoint[0], 1, &fits);
    take(&pair, recv, pair.endpoint[1], 1, &fits);
    WAIT_OK(&pair, send);
    drop(&count);
    drop(&bytes);
    drop(&fits);
    t_pair_close(&pair);
}

CASE_BOTH(cancel_and_deadline)
{
    hws_op_opts late = {.struct_size = sizeof(late), .timeout_ns = 20 * T_MS};
    t_pair pair;
    shape s = make(dask, 6, 4);
    hws_id recv, send, op = 0;

    t_pair_open_flags(&pair, flags);
    recv = post_recv(pair.endpoint[1], 1, ALL, 0);
    CHECK_OK(hws_cancel(recv));
    CHECK_EQ(WAIT(&pair, recv).status, HWS_E_CANCELED);
    CHECK_OK(hws_multi_recv(pair.worker[1], 1, ALL, NULL, &late, &op));
    CHECK_EQ(WAIT(&pair, op).status, HWS_E_TIMED_OUT);
    /* A send that waits for its receiver cannot be taken back; its list is received all the same. */
    send = post(pair.endpoint[0], 1, &s);
    waiting(&pair, pair.worker[1], 1);
    CHECK_OK(hws_cancel(send));
    recv = post_recv(pair.worker[1], 1, ALL, 0);
    take(&pair, recv, pair.endpoint[1], 1, &s);
    CHECK_EQ(WAIT(&pair, send).status, HWS_OK);
    drop(&s);
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
    shape s = make(sizes, 2, 5);
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

    recv = post_recv(pair.endpoint[1], 1, ALL, HWS_MULTI_LIST);
    send = post(pair.endpoint[0], 1, &s);
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
    check_data(to, &s);
    free(to[0].base);
    free(to[1].base);
    drop(&s);
    t_pair_close(&pair);
}

/* Complete at once: no event, the result in the caller's hands. */
CASE(inline_result)
{
    hws_event result;
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .flags = HWS_OP_INLINE, .user = 17, .result = &result};
    t_pair pair;
    shape s = make(tiny, 8, 6);
    hws_id op = 0;
    int32_t r;

    t_pair_open_flags(&pair, 0);
    r = hws_multi_send(pair.endpoint[0], 4, s.segments, 8, NULL, &opts, &op);
    CHECK_EQ(r, HWS_DONE);
    CHECK_EQ(op, 0);
    check_sent(&result, pair.endpoint[0], 4, &s);
    waiting(&pair, pair.worker[1], 1);
    CHECK_EQ(hws_multi_recv(pair.endpoint[1], 4, ALL, NULL, &opts, &op), HWS_DONE);
    CHECK_EQ(result.user, 17);
    check_data(check_detail(&result, pair.endpoint[1], 4, &s)->segments, &s);
    CHECK_OK(hws_close(((const hws_multi_detail *)result.detail)->buffer));
    drop(&s);
    t_pair_close(&pair);
}

/* A connection that ends at every stage: one final event each, nothing left behind. */
CASE_BOTH(cut_off)
{
    enum { UNMATCHED, LISTED, FETCHING, RECEIVING, MATCHING, STAGES };

    for (int stage = 0; stage < STAGES; stage++) {
        t_pair pair;
        shape s = make(large, 4, 7);
        hws_id recv = 0, send = 0, fetch = 0, buffer = 0;
        hws_segment to[4];
        hws_event event;

        t_pair_open_flags(&pair, flags);
        for (int i = 0; i < 4; i++) {
            to[i] = (hws_segment){.base = t_alloc(large[i]), .length = large[i]};
        }
        if (stage != MATCHING) {
            send = post(pair.endpoint[0], 1, &s);
            waiting(&pair, pair.worker[1], 1);
        }
        if (stage != UNMATCHED) {
            recv = post_recv(pair.endpoint[1], 1, ALL, stage == RECEIVING ? 0 : HWS_MULTI_LIST);
        }
        if (stage == LISTED || stage == FETCHING) {
            buffer = ((const hws_multi_detail *)WAIT_OK(&pair, recv).detail)->buffer;
        }
        if (stage == FETCHING) {
            CHECK_OK(hws_multi_fetch(buffer, to, 4, NULL, &fetch));
        }
        CHECK_OK(hws_abort(pair.endpoint[0]));
        if (send != 0) {
            CHECK(WAIT(&pair, send).status < 0 || stage == FETCHING || stage == RECEIVING);
        }
        UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, 0) == 1);
        CHECK_EQ(t_stats(pair.worker[1]).unexpected, 0);
        if (stage == LISTED) {
            CHECK(hws_multi_fetch(buffer, to, 4, NULL, &fetch) < 0);
            CHECK_OK(hws_close(buffer));
        }
        if (stage == FETCHING) {
            event = WAIT(&pair, fetch);
            if (event.status == HWS_OK) {
                check_data(to, &s);
            }
        }
        if (stage == MATCHING) {
            CHECK(WAIT(&pair, recv).status < 0);
        }
        if (stage == RECEIVING && (event = WAIT(&pair, recv)).status == HWS_OK) {
            CHECK_OK(hws_close(((const hws_multi_detail *)event.detail)->buffer));
        }
        for (int i = 0; i < 4; i++) {
            free(to[i].base);
        }
        drop(&s);
        t_pair_close(&pair);
    }
}

/* The data of one dies with the peer: none of those behind it is received in its place. */
CASE_BOTH(none_takes_the_place_of_a_lost_message)
{
    shape lost = make(large, 4, 7), small = make(tiny, 8, 9);
    t_pair pair;
    hws_id op = 0;

    t_pair_open_flags(&pair, flags);
    post(pair.endpoint[0], 1, &lost);
    post(pair.endpoint[0], 1, &small);
    post(pair.endpoint[0], 2, &small);
    waiting(&pair, pair.worker[1], 3);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, 0) == 1);
    CHECK(hws_multi_recv(pair.endpoint[1], 1, ALL, NULL, NULL, &op) < 0);
    WAIT_OK(&pair, post_recv(pair.endpoint[1], 2, ALL, 0));
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 0);
    t_pair_close(&pair);
    drop(&lost);
    drop(&small);
}

/* Both sides close with messages in every state. */
CASE_BOTH(close_with_leftovers)
{
    t_pair pair;
    shape s = make(dask, 6, 8), t = make(tiny, 8, 9);
    hws_id send[4], recv, matching;
    hws_event event;

    t_pair_open_flags(&pair, flags);
    for (int i = 0; i < 4; i++) {
        send[i] = post(pair.endpoint[0], 1 + (uint64_t)(i / 2), i % 2 ? &s : &t);
    }
    waiting(&pair, pair.worker[1], 4);
    recv = post_recv(pair.endpoint[1], 2, ALL, 0);
    event = WAIT_OK(&pair, recv); /* its buffer stays open */
    matching = post_recv(pair.worker[1], 77, ALL, 0);
    CHECK_OK(hws_close(pair.endpoint[1]));
    for (int i = 0; i < 4; i++) {
        event = WAIT(&pair, send[i]);
        CHECK(event.status <= 0);
    }
    CHECK_PENDING(matching);
    CHECK_OK(hws_cancel(matching));
    CHECK_EQ(WAIT(&pair, matching).status, HWS_E_CANCELED);
    drop(&s);
    drop(&t);
    t_pair_close(&pair);
}

/* The worker goes while a message waits whose list is here and whose data, far more, is not. */
CASE_BOTH(worker_closed_with_a_list)
{
    hws_segment segments[] = {{.base = t_alloc(1000), .length = 1000}, {.length = 256 * MIB}};
    hws_id send = 0;
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    segments[1].base = calloc(1, segments[1].length);
    CHECK(segments[1].base != NULL);
    t_fill(segments[0].base, 1000, 1);
    CHECK_OK(hws_multi_send(pair.endpoint[0], 1, segments, 2, NULL, NULL, &send));
    waiting(&pair, pair.worker[1], 1);
    CHECK_OK(hws_close_wait(pair.worker[1], t_patience()));
    CHECK(WAIT(&pair, send).status <= 0); /* dropped, for UCX, is taken */
    free(segments[0].base);
    free(segments[1].base);
    t_pair_close(&pair);
}

/* Posted while another thread progresses: everything that the caller's memory holds is copied. */
CASE_BOTH(threads)
{
    t_pair_opts opts = {.endpoint_flags = flags, .mode = HWS_PROGRESS_THREAD_POLLING};
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (unsigned i = 0; i < 60; i++) {
        shape s = make(shapes[i % SHAPES].sizes, shapes[i % SHAPES].count, i);
        hws_segment *copy = t_alloc((s.count + 1) * sizeof(*copy));
        hws_id send = 0, recv = post_recv(pair.endpoint[1], i, ALL, i & 8 ? HWS_MULTI_LIST : 0);

        memcpy(copy, s.segments, s.count * sizeof(*copy));
        CHECK_OK(hws_multi_send(pair.endpoint[0], i, copy, s.count, NULL, NULL, &send));
        memset(copy, 0xff, s.count * sizeof(*copy));
        if (i & 8) {
            list_and_fetch(&pair, recv, pair.endpoint[1], i, &s);
        } else {
            take(&pair, recv, pair.endpoint[1], i, &s);
        }
        WAIT_OK(&pair, send);
        free(copy);
        drop(&s);
    }
    t_pair_close(&pair);
}

CASES_MAIN_AT_ONCE(2)
