/*
 * Active messages: ids, headers, the ways data is delivered, and what becomes of messages that
 * nobody takes. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static const size_t sizes[] = {0, 1, 8, 200, 4096, 8192, 65536, 1000003, (17u << 20) + 3};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static hws_id post(hws_id endpoint, uint32_t am_id, const void *header, uint64_t header_length,
                   const void *data, uint64_t length, uint32_t op_flags)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = op_flags};
    hws_id op = 0;

    CHECK_OK(hws_am_send(endpoint, am_id, header, header_length, data, length, &opts, &op));
    CHECK(op != 0);
    return op;
}

/* What a callback saw last. */
struct last {
    int count;
    uint32_t flags, am_id;
    int32_t status;
    uint64_t user, length, header_length, header_sum, sum;
    hws_id source, endpoint, buffer;
};

static void on_message(void *arg, const hws_event *event)
{
    struct last *last = arg;
    const hws_am_detail *detail = event->detail;

    if (event->kind != HWS_EVENT_AM) {
        return;
    }
    last->count++;
    last->flags = event->flags;
    last->am_id = (uint32_t)event->tag;
    last->status = event->status;
    last->user = event->user;
    if (event->status < 0) {
        CHECK(event->detail != NULL && *(const char *)event->detail != '\0');
        return;
    }
    last->source = event->source;
    last->endpoint = detail->endpoint;
    last->length = detail->data_length;
    last->header_length = detail->header_length;
    last->header_sum = t_checksum(detail->header, detail->header_length);
    last->buffer = detail->buffer;
    CHECK_EQ(event->length, detail->data_length);
    if (event->flags & HWS_EVENT_FLAG_RNDV) {
        CHECK(detail->data == NULL);
        last->sum = 0;
    } else {
        CHECK(detail->data != NULL || detail->data_length == 0);
        last->sum = t_checksum(detail->data, detail->data_length);
    }
    CHECK_EQ(detail->buffer != 0, (event->flags & HWS_EVENT_FLAG_BUFFER) != 0);
}

static void handle(hws_id worker, uint32_t am_id, uint32_t am_flags, struct last *last)
{
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .flags = am_flags,
                        .sink = {.callback = on_message, .callback_arg = last, .user = 90 + am_id}};

    memset(last, 0, sizeof(*last));
    CHECK_OK(hws_am_handler(worker, am_id, &opts));
}

CASE_BOTH(every_size)
{
    t_pair pair;
    struct last last;
    char *out = t_alloc(sizes[SIZES - 1]);

    t_pair_open_flags(&pair, flags);
    handle(pair.worker[1], 7, 0, &last);
    for (size_t i = 0; i < SIZES; i++) {
        t_fill(out, sizes[i], i);
        hws_id op = post(pair.endpoint[0], 7, NULL, 0, out, sizes[i], 0);
        UNTIL(&pair, last.count == (int)i + 1);
        hws_event sent = WAIT_OK(&pair, op);
        CHECK_EQ(sent.kind, HWS_EVENT_AM_SEND);
        CHECK_EQ(sent.length, sizes[i]);
        CHECK_EQ(sent.tag, 7);
        CHECK_OK(last.status);
        CHECK_EQ(last.am_id, 7);
        CHECK_EQ(last.user, 97);
        CHECK_EQ(last.length, sizes[i]);
        CHECK_EQ(last.header_length, 0);
        CHECK_EQ(last.sum, t_checksum(out, sizes[i]));
        CHECK_EQ(last.flags & HWS_EVENT_FLAG_RNDV, 0);
        CHECK(last.source == pair.endpoint[1]);
        CHECK(last.endpoint == pair.endpoint[1]);
    }
    free(out);
    t_pair_close(&pair);
}

CASE_BOTH(headers)
{
    t_pair pair;
    struct last last;
    uint64_t max = 0;
    char *out = t_alloc(MIB);
    hws_id op = 0;
    int count = 0;

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_am_header_max(pair.worker[0], &max));
    CHECK(max >= 256);
    handle(pair.worker[1], 1, 0, &last);
    char *header = t_alloc(max + 1);
    size_t lengths[] = {0, 1, 8, 63, 64, 65, 129, max - 1, max};
    size_t data[] = {0, 8, 5000, MIB};
    for (int h = 0; h < 9; h++) {
        for (int d = 0; d < 4; d++) {
            t_fill(header, lengths[h], 5);
            t_fill(out, data[d], 6);
            uint64_t sum = t_checksum(header, lengths[h]);
            op = post(pair.endpoint[0], 1, lengths[h] == 0 ? NULL : header, lengths[h], out,
                      data[d], 0);
            memset(header, 0xee, max); /* it was copied */
            UNTIL(&pair, last.count == count + 1);
            count++;
            WAIT_OK(&pair, op);
            CHECK_OK(last.status);
            CHECK_EQ(last.header_length, lengths[h]);
            CHECK_EQ(last.header_sum, sum);
            CHECK_EQ(last.length, data[d]);
            CHECK_EQ(last.sum, t_checksum(out, data[d]));
        }
    }
    CHECK_CODE(hws_am_send(pair.endpoint[0], 1, header, max + 1, out, 8, NULL, &op), HWS_E_TOO_BIG);
    free(header);
    free(out);
    t_pair_close(&pair);
}

CASE(ids)
{
    t_pair pair;
    struct last last[3];
    hws_id op = 0;
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .sink = {.callback = on_message, .callback_arg = &last[0]}};
    uint32_t ids[] = {0, 500, HWS_AM_ID_MAX};

    t_pair_open_flags(&pair, 0);
    for (int i = 0; i < 3; i++) {
        handle(pair.worker[1], ids[i], 0, &last[i]);
    }
    for (int i = 0; i < 3; i++) {
        WAIT_OK(&pair, post(pair.endpoint[0], ids[i], "h", 1, "data", 4, 0));
        UNTIL(&pair, last[i].count == 1);
        CHECK_EQ(last[i].am_id, ids[i]);
    }
    CHECK_CODE(hws_am_handler(pair.worker[1], HWS_AM_ID_MAX + 1, &opts), HWS_E_INVALID);
    CHECK_CODE(hws_am_handler(pair.worker[1], UINT32_MAX, &opts), HWS_E_INVALID);
    CHECK_CODE(hws_am_send(pair.endpoint[0], HWS_AM_ID_MAX + 1, NULL, 0, "x", 1, NULL, &op),
               HWS_E_INVALID);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(last[i].count, 1);
    }
    t_pair_close(&pair);
}

CASE_BOTH(order_of_eager_messages)
{
    enum { COUNT = 2000 };
    t_pair pair;
    hws_id queue = 0;
    hws_am_opts opts = {.struct_size = sizeof(opts)};
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
    hws_event events[64];
    uint32_t next = 0;

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_queue_open(NULL, &queue));
    opts.sink.queue = queue;
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK_OK(hws_am_send(pair.endpoint[0], 3, &i, sizeof(i), NULL, 0, &detached, NULL));
        t_pair_step(&pair);
    }
    uint64_t start = t_now();
    while (next < COUNT) {
        int32_t n = hws_queue_pop(queue, events, 64, 0);
        CHECK(n >= 0);
        for (int32_t i = 0; i < n; i++, next++) {
            const hws_am_detail *detail = events[i].detail;
            CHECK_EQ(detail->header_length, sizeof(next));
            CHECK_EQ(memcmp(detail->header, &next, sizeof(next)), 0);
            if (detail->buffer != 0) {
                CHECK_OK(hws_close(detail->buffer));
            }
        }
        t_pair_step(&pair);
        t_check_patience(__FILE__, __LINE__, start, "all messages");
    }
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

/* ---- Buffers to keep ---- */

CASE_BOTH(queue_gives_buffers_that_stay)
{
    t_pair pair;
    hws_id queue = 0;
    hws_am_opts opts = {.struct_size = sizeof(opts)};
    size_t lengths[] = {0, 8, 3000, 9000, 100000, 2 * MIB};
    hws_am_detail kept[6];
    char *out = t_alloc(2 * MIB);
    hws_event event;

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_queue_open(NULL, &queue));
    opts.sink.queue = queue;
    opts.sink.user = 12;
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    for (int i = 0; i < 6; i++) {
        uint64_t header = (uint64_t)i;
        t_fill(out, lengths[i], header);
        hws_id op = post(pair.endpoint[0], 3, &header, 8, out, lengths[i], 0);
        UNTIL(&pair, hws_queue_pop(queue, &event, 1, 0) == 1);
        CHECK_EQ(event.kind, HWS_EVENT_AM);
        CHECK_OK(event.status);
        CHECK_EQ(event.user, 12);
        CHECK_EQ(event.tag, 3);
        CHECK(event.source == pair.endpoint[1]);
        CHECK(event.flags & HWS_EVENT_FLAG_BUFFER);
        kept[i] = *(const hws_am_detail *)event.detail;
        CHECK_EQ(hws_kind(kept[i].buffer), HWS_KIND_BUFFER);
        CHECK(kept[i].endpoint == pair.endpoint[1]);
        WAIT_OK(&pair, op);
    }
    /* Also after the connection and the queue are gone. */
    CHECK_OK(hws_close(pair.endpoint[0]));
    CHECK_OK(hws_close(pair.endpoint[1]));
    UNTIL(&pair,
          hws_kind(pair.endpoint[0]) == HWS_E_STALE && hws_kind(pair.endpoint[1]) == HWS_E_STALE);
    CHECK_OK(hws_close(queue));
    for (int i = 5; i >= 0; i--) {
        void *data = NULL;
        uint64_t length = 1, header;
        CHECK_EQ(kept[i].header_length, 8);
        memcpy(&header, kept[i].header, 8);
        CHECK_EQ(header, (uint64_t)i);
        CHECK_EQ(kept[i].data_length, lengths[i]);
        CHECK_FILLED(kept[i].data, lengths[i], (uint64_t)i);
        CHECK_OK(hws_buffer_data(kept[i].buffer, &data, &length));
        CHECK_EQ(length, lengths[i]);
        CHECK(data == kept[i].data);
        CHECK_OK(hws_buffer_data(kept[i].buffer, NULL, NULL));
        CHECK_OK(hws_close(kept[i].buffer));
        CHECK_CODE(hws_buffer_data(kept[i].buffer, &data, &length), HWS_E_STALE);
        CHECK_CODE(hws_close(kept[i].buffer), HWS_E_STALE);
    }
    free(out);
    t_pair_close(&pair);
}

CASE_BOTH(callback_may_keep_a_buffer)
{
    t_pair pair;
    struct last last;
    char *out = t_alloc(100000);
    size_t lengths[] = {0, 8, 5000, 100000};
    void *data = NULL;
    uint64_t length = 0;

    t_pair_open_flags(&pair, flags);
    handle(pair.worker[1], 4, HWS_AM_BUFFER, &last);
    for (int i = 0; i < 4; i++) {
        t_fill(out, lengths[i], 1);
        WAIT_OK(&pair, post(pair.endpoint[0], 4, NULL, 0, out, lengths[i], 0));
        UNTIL(&pair, last.count == i + 1);
        CHECK(last.flags & HWS_EVENT_FLAG_BUFFER);
        t_pair_step(&pair);
        CHECK_OK(hws_buffer_data(last.buffer, &data, &length));
        CHECK_EQ(length, lengths[i]);
        CHECK_FILLED(data, length, 1);
        CHECK_OK(hws_close(last.buffer));
    }
    free(out);
    t_pair_close(&pair);
}

/* Buffers that nobody released do not outlive their context, and nothing crashes. */
CASE(buffers_left_behind)
{
    t_pair pair;
    struct last last;
    hws_id buffers[20];
    char *out = t_alloc(MIB);

    t_pair_open_flags(&pair, 0);
    handle(pair.worker[1], 4, HWS_AM_BUFFER, &last);
    for (int i = 0; i < 20; i++) {
        hws_id op = post(pair.endpoint[0], 4, "h", 1, out, i % 2 ? 8 : MIB, 0);
        UNTIL(&pair, last.count == i + 1);
        WAIT_OK(&pair, op);
        buffers[i] = last.buffer;
    }
    t_pair_close(&pair);
    for (int i = 0; i < 20; i++) {
        int32_t code = hws_close(buffers[i]);
        CHECK(code == HWS_OK || code == HWS_E_STALE);
    }
    free(out);
}

/* ---- The allocator hook ---- */

struct arena {
    int given, returned;
    uint64_t bytes;
    uint32_t kind;
    int refuse;
};

static void *give(void *arg, uint64_t length, uint32_t memory_kind)
{
    struct arena *arena = arg;

    if (arena->refuse) {
        return NULL;
    }
    arena->given++;
    arena->bytes += length;
    arena->kind = memory_kind;
    return t_alloc(length);
}

static void take_back(void *arg, void *memory, uint64_t length)
{
    struct arena *arena = arg;

    arena->returned++;
    arena->bytes -= length;
    free(memory);
}

CASE_BOTH(allocator)
{
    t_pair pair;
    struct last last = {0};
    struct arena arena = {0};
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .flags = HWS_AM_BUFFER,
                        .sink = {.callback = on_message, .callback_arg = &last},
                        .alloc = give,
                        .free = take_back,
                        .alloc_arg = &arena};
    size_t lengths[] = {8, 5000, MIB, 5 * MIB};
    char *out = t_alloc(5 * MIB);
    void *data = NULL;
    uint64_t length = 0;

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_am_handler(pair.worker[1], 2, &opts));
    for (int i = 0; i < 4; i++) {
        t_fill(out, lengths[i], 3);
        hws_id op = post(pair.endpoint[0], 2, NULL, 0, out, lengths[i], 0);
        UNTIL(&pair, last.count == i + 1);
        WAIT_OK(&pair, op);
        CHECK_OK(last.status);
        CHECK_EQ(arena.given, i + 1);
        CHECK_EQ(arena.returned, i);
        CHECK(arena.bytes >= lengths[i]);
        CHECK_EQ(arena.kind, HWS_MEMORY_HOST);
        CHECK_OK(hws_buffer_data(last.buffer, &data, &length));
        CHECK_EQ(length, lengths[i]);
        CHECK_FILLED(data, length, 3);
        CHECK_OK(hws_close(last.buffer));
        UNTIL(&pair, arena.returned == i + 1);
        CHECK_EQ(arena.bytes, 0);
    }
    free(out);
    t_pair_close(&pair);
}

/* UCX finds out what the allocator gave. */
CASE_BOTH(allocator_of_an_unknown_kind)
{
    t_pair pair;
    struct last last = {0};
    struct arena arena = {0};
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .flags = HWS_AM_BUFFER,
                        .sink = {.callback = on_message, .callback_arg = &last},
                        .alloc = give,
                        .free = take_back,
                        .alloc_arg = &arena,
                        .memory_kind = HWS_MEMORY_UNKNOWN};
    char *out = t_alloc(5 * MIB);
    void *data = NULL;
    uint64_t length = 0;

    t_fill(out, 5 * MIB, 3);
    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_am_handler(pair.worker[1], 2, &opts));
    hws_id op = post(pair.endpoint[0], 2, NULL, 0, out, 5 * MIB, HWS_OP_RNDV);
    UNTIL(&pair, last.count == 1);
    WAIT_OK(&pair, op);
    CHECK_OK(last.status);
    CHECK_EQ(arena.kind, HWS_MEMORY_UNKNOWN);
    CHECK_OK(hws_buffer_data(last.buffer, &data, &length));
    CHECK_FILLED(data, 5 * MIB, 3);
    CHECK_OK(hws_close(last.buffer));
    free(out);
    t_pair_close(&pair);
}

CASE_BOTH(allocator_without_memory)
{
    t_pair pair;
    struct last last = {0};
    struct arena arena = {.refuse = 1};
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .sink = {.callback = on_message, .callback_arg = &last},
                        .alloc = give,
                        .free = take_back,
                        .alloc_arg = &arena};
    size_t lengths[] = {8, 5000, MIB};
    char *out = t_alloc(MIB);

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_am_handler(pair.worker[1], 2, &opts));
    for (int i = 0; i < 3; i++) {
        arena.refuse = 1;
        hws_id op = post(pair.endpoint[0], 2, "h", 1, out, lengths[i], 0);
        UNTIL(&pair, last.count == 2 * i + 1);
        CHECK_CODE(last.status, HWS_E_ALLOCATOR);
        CHECK_EQ(last.am_id, 2);
        (void)WAIT(&pair, op); /* it ends */
        arena.refuse = 0;
        t_fill(out, lengths[i], 3);
        op = post(pair.endpoint[0], 2, "h", 1, out, lengths[i], 0);
        UNTIL(&pair, last.count == 2 * i + 2);
        WAIT_OK(&pair, op);
        CHECK_OK(last.status);
        CHECK_EQ(last.sum, t_checksum(out, lengths[i]));
        UNTIL(&pair, arena.returned == arena.given);
    }
    free(out);
    t_pair_close(&pair);
}

/* ---- Told first, fetched later ---- */

CASE_BOTH(deferred)
{
    t_pair pair;
    struct last last;
    char *out = t_alloc(4 * MIB), *in = t_alloc(4 * MIB);
    hws_id op = 0, fetch = 0, again = 0;

    t_pair_open_flags(&pair, flags);
    handle(pair.worker[1], 6, HWS_AM_DEFER | HWS_AM_BUFFER, &last);
    size_t lengths[] = {8, 5000, 4 * MIB - 5};
    for (int i = 0; i < 3; i++) {
        t_fill(out, lengths[i], 8);
        memset(in, 0, lengths[i]);
        op = post(pair.endpoint[0], 6, "header", 6, out, lengths[i], HWS_OP_RNDV);
        UNTIL(&pair, last.count == i + 1);
        CHECK_OK(last.status);
        CHECK(last.flags & HWS_EVENT_FLAG_RNDV);
        CHECK(last.flags & HWS_EVENT_FLAG_BUFFER);
        CHECK_EQ(last.length, lengths[i]);
        CHECK_EQ(last.header_sum, t_checksum("header", 6));
        t_pair_idle(&pair, 10 * T_MS);
        CHECK_PENDING(op);
        CHECK_OK(hws_am_recv(last.buffer, in, 4 * MIB, NULL, &fetch));
        CHECK_CODE(hws_am_recv(last.buffer, in, 4 * MIB, NULL, &again), HWS_E_IN_USE);
        hws_event event = WAIT_OK(&pair, fetch);
        CHECK_EQ(event.kind, HWS_EVENT_AM_RECV);
        CHECK_EQ(event.length, lengths[i]);
        CHECK_FILLED(in, lengths[i], 8);
        WAIT_OK(&pair, op);
        CHECK_OK(hws_close(last.buffer));
        CHECK_CODE(hws_am_recv(last.buffer, in, 4 * MIB, NULL, &fetch), HWS_E_STALE);
    }
    CHECK_EQ(last.count, 3);
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(deferred_only_when_it_is_worth_it)
{
    t_pair pair;
    struct last last;
    char *out = t_alloc(4 * MIB);

    t_pair_open_flags(&pair, flags);
    handle(pair.worker[1], 6, HWS_AM_DEFER | HWS_AM_BUFFER, &last);
    t_fill(out, 4 * MIB, 8);
    WAIT_OK(&pair, post(pair.endpoint[0], 6, NULL, 0, out, 8, 0));
    UNTIL(&pair, last.count == 1);
    CHECK_EQ(last.flags & HWS_EVENT_FLAG_RNDV, 0);
    CHECK_EQ(last.sum, t_checksum(out, 8));
    CHECK_OK(hws_close(last.buffer));
    WAIT_OK(&pair, post(pair.endpoint[0], 6, NULL, 0, out, 30000, HWS_OP_EAGER));
    UNTIL(&pair, last.count == 2);
    CHECK_EQ(last.flags & HWS_EVENT_FLAG_RNDV, 0);
    CHECK_EQ(last.sum, t_checksum(out, 30000));
    CHECK_OK(hws_close(last.buffer));
    free(out);
    t_pair_close(&pair);
}

CASE_BOTH(deferred_into_too_little)
{
    t_pair pair;
    struct last last;
    char *out = t_alloc(MIB), *in = t_alloc(MIB);
    hws_id op, fetch = 0;

    t_pair_open_flags(&pair, flags);
    handle(pair.worker[1], 6, HWS_AM_DEFER, &last);
    memset(in, 0x44, MIB);
    op = post(pair.endpoint[0], 6, NULL, 0, out, MIB, HWS_OP_RNDV);
    UNTIL(&pair, last.count == 1);
    int32_t code = hws_am_recv(last.buffer, in, 1000, NULL, &fetch);
    if (code == HWS_OK) {
        code = WAIT(&pair, fetch).status;
    }
    CHECK_CODE(code, HWS_E_TRUNCATED);
    for (size_t i = 1000; i < MIB; i++) {
        CHECK_EQ(in[i], 0x44);
    }
    CHECK_OK(hws_close(last.buffer));
    (void)WAIT(&pair, op);
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(deferred_and_dropped)
{
    t_pair pair;
    struct last last;
    char *out = t_alloc(MIB);

    t_pair_open_flags(&pair, flags);
    handle(pair.worker[1], 6, HWS_AM_DEFER, &last);
    for (int i = 0; i < 5; i++) {
        hws_id op = post(pair.endpoint[0], 6, NULL, 0, out, MIB, HWS_OP_RNDV);
        UNTIL(&pair, last.count == i + 1);
        CHECK(last.flags & HWS_EVENT_FLAG_RNDV);
        CHECK_OK(hws_close(last.buffer));
        (void)WAIT(&pair, op);
    }
    CHECK_EQ(t_stats(pair.context).ops_pending, 0);
    free(out);
    t_pair_close(&pair);
}

/* The sender leaves before its data was fetched: the fetch fails, once. */
CASE_BOTH(deferred_and_abandoned)
{
    t_pair pair;
    struct last last;
    char *out = t_alloc(MIB), *in = t_alloc(MIB);
    hws_id op, fetch = 0;

    t_pair_open_flags(&pair, flags);
    handle(pair.worker[1], 6, HWS_AM_DEFER, &last);
    op = post(pair.endpoint[0], 6, NULL, 0, out, MIB, HWS_OP_RNDV);
    UNTIL(&pair, last.count == 1);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    int32_t code = hws_am_recv(last.buffer, in, MIB, NULL, &fetch);
    if (code == HWS_OK) {
        code = WAIT(&pair, fetch).status;
    }
    CHECK(code < 0);
    CHECK_OK(hws_close(last.buffer));
    free(out);
    free(in);
    t_pair_close(&pair);
}

/* ---- Replies, handlers that come and go ---- */

struct echo {
    char memory[100][64];
    int count;
};

static void reply(void *arg, const hws_event *event)
{
    struct echo *echo = arg;
    const hws_am_detail *detail = event->detail;
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_DETACHED};
    char *out = echo->memory[echo->count++];

    CHECK_OK(event->status);
    memcpy(out, detail->data, detail->data_length);
    CHECK_OK(hws_am_send(detail->endpoint, 2, detail->header, detail->header_length, out,
                         detail->data_length, &opts, NULL));
}

CASE_BOTH(replies_inside_the_callback)
{
    t_pair pair;
    struct last last;
    struct echo echo = {.count = 0};
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .sink = {.callback = reply, .callback_arg = &echo}};
    char out[64];

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_am_handler(pair.worker[1], 1, &opts));
    handle(pair.worker[0], 2, 0, &last);
    for (int i = 0; i < 100; i++) {
        t_fill(out, 50, (uint64_t)i);
        WAIT_OK(&pair, post(pair.endpoint[0], 1, out, 9, out, 50, 0));
        UNTIL(&pair, last.count == i + 1);
        CHECK_EQ(last.sum, t_checksum(out, 50));
        CHECK_EQ(last.header_sum, t_checksum(out, 9));
        CHECK(last.endpoint == pair.endpoint[0]);
    }
    t_pair_close(&pair);
}

CASE_BOTH(nobody_takes_it)
{
    t_pair pair;
    char *out = t_alloc(MIB);
    size_t lengths[] = {0, 8, 5000, MIB};

    t_pair_open_flags(&pair, flags);
    for (uint64_t i = 0; i < 4; i++) {
        hws_id op = post(pair.endpoint[0], 9, "h", 1, out, lengths[i], 0);
        UNTIL(&pair, t_stats(pair.worker[1]).am_dropped == i + 1);
        (void)WAIT(&pair, op);
    }
    /* Dropping is no failure of the connection. */
    struct last last;
    handle(pair.worker[1], 9, 0, &last);
    WAIT_OK(&pair, post(pair.endpoint[0], 9, "h", 1, out, 8, 0));
    UNTIL(&pair, last.count == 1);
    CHECK_EQ(t_stats(pair.worker[1]).am_dropped, 4);
    free(out);
    t_pair_close(&pair);
}

CASE(handler_replaced_and_unset)
{
    t_pair pair;
    struct last first, second;
    hws_am_opts none = {.struct_size = sizeof(none)};

    t_pair_open_flags(&pair, 0);
    handle(pair.worker[1], 5, 0, &first);
    WAIT_OK(&pair, post(pair.endpoint[0], 5, NULL, 0, "a", 1, 0));
    UNTIL(&pair, first.count == 1);
    handle(pair.worker[1], 5, 0, &second);
    WAIT_OK(&pair, post(pair.endpoint[0], 5, NULL, 0, "b", 1, 0));
    UNTIL(&pair, second.count == 1);
    CHECK_EQ(first.count, 1);
    CHECK_OK(hws_am_handler(pair.worker[1], 5, &none));
    WAIT_OK(&pair, post(pair.endpoint[0], 5, NULL, 0, "c", 1, 0));
    UNTIL(&pair, t_stats(pair.worker[1]).am_dropped == 1);
    CHECK_EQ(first.count, 1);
    CHECK_EQ(second.count, 1);
    t_pair_close(&pair);
}

/* A handler holds for all endpoints of its worker, and the event names the one to reply to. */
CASE(one_handler_for_all_endpoints)
{
    t_pair pair;
    struct last last;
    hws_id client[3], server[3];

    t_pair_listen(&pair, NULL);
    handle(pair.worker[1], 5, 0, &last);
    for (int i = 0; i < 3; i++) {
        t_pair_opts opts = {.endpoint_flags = i == 1 ? HWS_ENDPOINT_TCP_ONLY : 0};
        t_pair_connect(&pair, &opts, &client[i], &server[i]);
    }
    for (int i = 0; i < 9; i++) {
        WAIT_OK(&pair, post(client[i % 3], 5, NULL, 0, "x", 1, 0));
        UNTIL(&pair, last.count == i + 1);
        CHECK(last.endpoint == server[i % 3]);
    }
    t_pair_close(&pair);
}

CASE_BOTH(scattered)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_IOV};
    t_pair pair;
    struct last last;
    char *out = t_alloc(MIB);
    size_t lengths[] = {10, 5000, MIB};
    uint32_t counts[] = {1, 5, 16, 30};
    int count = 0;

    t_pair_open_flags(&pair, flags);
    handle(pair.worker[1], 5, 0, &last);
    for (int l = 0; l < 3; l++) {
        for (int c = 0; c < 4; c++) {
            hws_iov iov[30];
            uint32_t n = counts[c] > lengths[l] ? (uint32_t)lengths[l] : counts[c];
            size_t piece = lengths[l] / n;
            hws_id op = 0;
            t_fill(out, lengths[l], 7);
            for (uint32_t i = 0; i < n; i++) {
                iov[i].base = out + i * piece;
                iov[i].length = i + 1 < n ? piece : lengths[l] - i * piece;
            }
            CHECK_OK(hws_am_send(pair.endpoint[0], 5, "hh", 2, iov, n, &opts, &op));
            UNTIL(&pair, last.count == count + 1);
            count++;
            CHECK_EQ(WAIT_OK(&pair, op).length, lengths[l]);
            CHECK_EQ(last.length, lengths[l]);
            CHECK_EQ(last.sum, t_checksum(out, lengths[l]));
        }
    }
    free(out);
    t_pair_close(&pair);
}

CASE_BOTH(deferred_into_pieces)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_IOV};
    t_pair pair;
    struct last last;
    char *out = t_alloc(MIB), *in = t_alloc(MIB);
    hws_iov iov[7];
    hws_id op, fetch = 0;

    t_pair_open_flags(&pair, flags);
    handle(pair.worker[1], 6, HWS_AM_DEFER, &last);
    t_fill(out, MIB, 8);
    for (size_t i = 0; i < 7; i++) {
        iov[i].base = in + i * 100001;
        iov[i].length = i < 6 ? 100001 : MIB - 6 * 100001;
    }
    op = post(pair.endpoint[0], 6, NULL, 0, out, MIB, HWS_OP_RNDV);
    UNTIL(&pair, last.count == 1);
    CHECK_OK(hws_am_recv(last.buffer, iov, 7, &opts, &fetch));
    CHECK_EQ(WAIT_OK(&pair, fetch).length, MIB);
    CHECK_FILLED(in, MIB, 8);
    WAIT_OK(&pair, op);
    CHECK_OK(hws_close(last.buffer));
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASES_MAIN
