/*
 * The ways an active message's data is delivered: in a buffer to keep, in memory of the program's allocator, or told
 * first and fetched later. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/am.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

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
        hws_id op = t_am_send(pair.endpoint[0], 3, &header, 8, out, lengths[i], 0);
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
    t_am_seen last;
    char *out = t_alloc(100000);
    size_t lengths[] = {0, 8, 5000, 100000};
    void *data = NULL;
    uint64_t length = 0;

    t_pair_open_flags(&pair, flags);
    t_am_handle(pair.worker[1], 4, HWS_AM_BUFFER, &last);
    for (int i = 0; i < 4; i++) {
        t_fill(out, lengths[i], 1);
        WAIT_OK(&pair, t_am_send(pair.endpoint[0], 4, NULL, 0, out, lengths[i], 0));
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
    t_am_seen last;
    hws_id buffers[20];
    char *out = t_alloc(MIB);

    t_pair_open_flags(&pair, 0);
    t_am_handle(pair.worker[1], 4, HWS_AM_BUFFER, &last);
    for (int i = 0; i < 20; i++) {
        hws_id op = t_am_send(pair.endpoint[0], 4, "h", 1, out, i % 2 ? 8 : MIB, 0);
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
    t_am_seen last = {0};
    struct arena arena = {0};
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .flags = HWS_AM_BUFFER,
                        .sink = {.callback = t_am_note, .callback_arg = &last},
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
        hws_id op = t_am_send(pair.endpoint[0], 2, NULL, 0, out, lengths[i], 0);
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
    t_am_seen last = {0};
    struct arena arena = {0};
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .flags = HWS_AM_BUFFER,
                        .sink = {.callback = t_am_note, .callback_arg = &last},
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
    hws_id op = t_am_send(pair.endpoint[0], 2, NULL, 0, out, 5 * MIB, HWS_OP_RNDV);
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
    t_am_seen last = {0};
    struct arena arena = {.refuse = 1};
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .sink = {.callback = t_am_note, .callback_arg = &last},
                        .alloc = give,
                        .free = take_back,
                        .alloc_arg = &arena};
    size_t lengths[] = {8, 5000, MIB};
    char *out = t_alloc(MIB);

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_am_handler(pair.worker[1], 2, &opts));
    for (int i = 0; i < 3; i++) {
        arena.refuse = 1;
        hws_id op = t_am_send(pair.endpoint[0], 2, "h", 1, out, lengths[i], 0);
        UNTIL(&pair, last.count == 2 * i + 1);
        CHECK_CODE(last.status, HWS_E_ALLOCATOR);
        CHECK_EQ(last.am_id, 2);
        (void)WAIT(&pair, op); /* it ends */
        arena.refuse = 0;
        t_fill(out, lengths[i], 3);
        op = t_am_send(pair.endpoint[0], 2, "h", 1, out, lengths[i], 0);
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
    t_am_seen last;
    char *out = t_alloc(4 * MIB), *in = t_alloc(4 * MIB);
    hws_id op = 0, fetch = 0, again = 0;

    t_pair_open_flags(&pair, flags);
    t_am_handle(pair.worker[1], 6, HWS_AM_DEFER | HWS_AM_BUFFER, &last);
    size_t lengths[] = {8, 5000, 4 * MIB - 5};
    for (int i = 0; i < 3; i++) {
        t_fill(out, lengths[i], 8);
        memset(in, 0, lengths[i]);
        op = t_am_send(pair.endpoint[0], 6, "header", 6, out, lengths[i], HWS_OP_RNDV);
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
    t_am_seen last;
    char *out = t_alloc(4 * MIB);

    t_pair_open_flags(&pair, flags);
    t_am_handle(pair.worker[1], 6, HWS_AM_DEFER | HWS_AM_BUFFER, &last);
    t_fill(out, 4 * MIB, 8);
    WAIT_OK(&pair, t_am_send(pair.endpoint[0], 6, NULL, 0, out, 8, 0));
    UNTIL(&pair, last.count == 1);
    CHECK_EQ(last.flags & HWS_EVENT_FLAG_RNDV, 0);
    CHECK_EQ(last.sum, t_checksum(out, 8));
    CHECK_OK(hws_close(last.buffer));
    WAIT_OK(&pair, t_am_send(pair.endpoint[0], 6, NULL, 0, out, 30000, HWS_OP_EAGER));
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
    t_am_seen last;
    char *out = t_alloc(MIB), *in = t_alloc(MIB);
    hws_id op, fetch = 0;

    t_pair_open_flags(&pair, flags);
    t_am_handle(pair.worker[1], 6, HWS_AM_DEFER, &last);
    memset(in, 0x44, MIB);
    op = t_am_send(pair.endpoint[0], 6, NULL, 0, out, MIB, HWS_OP_RNDV);
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
    t_am_seen last;
    char *out = t_alloc(MIB);

    t_pair_open_flags(&pair, flags);
    t_am_handle(pair.worker[1], 6, HWS_AM_DEFER, &last);
    for (int i = 0; i < 5; i++) {
        hws_id op = t_am_send(pair.endpoint[0], 6, NULL, 0, out, MIB, HWS_OP_RNDV);
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
    t_am_seen last;
    char *out = t_alloc(MIB), *in = t_alloc(MIB);
    hws_id op, fetch = 0;

    t_pair_open_flags(&pair, flags);
    t_am_handle(pair.worker[1], 6, HWS_AM_DEFER, &last);
    op = t_am_send(pair.endpoint[0], 6, NULL, 0, out, MIB, HWS_OP_RNDV);
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

CASE_BOTH(deferred_into_pieces)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_IOV};
    t_pair pair;
    t_am_seen last;
    char *out = t_alloc(MIB), *in = t_alloc(MIB);
    hws_iov iov[7];
    hws_id op, fetch = 0;

    t_pair_open_flags(&pair, flags);
    t_am_handle(pair.worker[1], 6, HWS_AM_DEFER, &last);
    t_fill(out, MIB, 8);
    for (size_t i = 0; i < 7; i++) {
        iov[i].base = in + i * 100001;
        iov[i].length = i < 6 ? 100001 : MIB - 6 * 100001;
    }
    op = t_am_send(pair.endpoint[0], 6, NULL, 0, out, MIB, HWS_OP_RNDV);
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
