/*
 * The memory that messages arrive in: blocks are used again, within their limit, and go back when nobody
 * needs them; buffers of the user from the same pool. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>

#define ALL UINT64_MAX
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static void open_pair(t_pair *pair, uint32_t flags, uint64_t pool_bytes)
{
    hws_worker_opts worker = {.struct_size = sizeof worker, .pool_bytes = pool_bytes};
    t_pair_opts opts = {
        .endpoint_flags = flags, .worker = {NULL, &worker}, .close_timeout_ns = 100 * T_MS};

    t_pair_open(pair, &opts);
}

/* Send an active message and take it out of the queue as a buffer. */
static hws_id am(t_pair *pair, hws_id queue, const void *data, uint64_t length, uint64_t seed)
{
    const hws_am_detail *detail;
    hws_event event;
    hws_id op = 0;

    CHECK_OK(hws_am_send(pair->endpoint[0], 3, NULL, 0, data, length, NULL, &op));
    UNTIL(pair, hws_queue_pop(queue, &event, 1, 0) == 1);
    CHECK_OK(event.status);
    detail = event.detail;
    CHECK_EQ(detail->data_length, length);
    CHECK_FILLED(detail->data, length, seed);
    WAIT_OK(pair, op);
    return detail->buffer;
}

static hws_id am_queue(const t_pair *pair)
{
    hws_am_opts opts = {.struct_size = sizeof opts};

    CHECK_OK(hws_queue_open(NULL, &opts.sink.queue));
    CHECK_OK(hws_am_handler(pair->worker[1], 3, &opts));
    return opts.sink.queue;
}

CASE_BOTH(active_messages_use_a_block_again)
{
    char *data = t_alloc(3 * MIB);
    hws_id queue;
    hws_stats s;
    t_pair pair;

    open_pair(&pair, flags, 0);
    queue = am_queue(&pair);
    t_fill(data, 3 * MIB, 1);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(hws_close(am(&pair, queue, data, 3 * MIB, 1)));
    }
    s = t_stats(pair.worker[1]);
    CHECK_EQ(s.pool_fresh, 1);
    CHECK_EQ(s.pool_reused, 9);
    CHECK(s.pool_bytes >= 3 * MIB && s.pool_bytes <= 4 * MIB);
    /* It goes back to the system while nothing comes. */
    UNTIL(&pair, t_stats(pair.worker[1]).pool_bytes == 0);
    CHECK_OK(hws_close(am(&pair, queue, data, 3 * MIB, 1)));
    CHECK_EQ(t_stats(pair.worker[1]).pool_fresh, 2);
    CHECK_OK(hws_close(queue));
    free(data);
    t_pair_close(&pair);
}

CASE_BOTH(kept_buffers_are_not_used_again)
{
    enum { COUNT = 6 };
    char *data = t_alloc(MIB);
    hws_id queue, kept[COUNT];
    t_pair pair;

    open_pair(&pair, flags, 4 * MIB);
    queue = am_queue(&pair);
    for (uint64_t i = 0; i < COUNT; i++) {
        t_fill(data, MIB, i);
        kept[i] = am(&pair, queue, data, MIB, i);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        void *at = NULL;

        CHECK_OK(hws_buffer_data(kept[i], &at, NULL));
        CHECK_FILLED(at, MIB, i);
        CHECK_OK(hws_close(kept[i]));
    }
    CHECK_EQ(t_stats(pair.worker[1]).pool_fresh, COUNT);
    CHECK_EQ(t_stats(pair.worker[1]).pool_bytes, 4 * MIB); /* the limit */
    CHECK_OK(hws_close(queue));
    free(data);
    t_pair_close(&pair);
}

CASE_BOTH(no_pool)
{
    char *data = t_alloc(MIB);
    hws_id queue;
    t_pair pair;

    open_pair(&pair, flags, UINT64_MAX);
    queue = am_queue(&pair);
    t_fill(data, MIB, 5);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(hws_close(am(&pair, queue, data, MIB, 5)));
    }
    CHECK_EQ(t_stats(pair.worker[1]).pool_fresh, 3);
    CHECK_EQ(t_stats(pair.worker[1]).pool_reused, 0);
    CHECK_EQ(t_stats(pair.worker[1]).pool_bytes, 0);
    CHECK_OK(hws_close(queue));
    free(data);
    t_pair_close(&pair);
}

CASE_BOTH(multi_buffer_messages_use_a_block_again)
{
    hws_segment segments[3];
    hws_stats s;
    t_pair pair;

    open_pair(&pair, flags, 0);
    for (uint64_t i = 0; i < 3; i++) {
        segments[i] = (hws_segment){.base = t_alloc(100 * KIB), .length = 100 * KIB};
        t_fill(segments[i].base, 100 * KIB, i);
    }
    for (int i = 0; i < 10; i++) {
        hws_id receive = 0, send = 0;
        const hws_multi_detail *d;
        hws_event event;

        CHECK_OK(hws_multi_recv(pair.worker[1], 7, ALL, NULL, NULL, &receive));
        CHECK_OK(hws_multi_send(pair.endpoint[0], 7, segments, 3, NULL, NULL, &send));
        event = WAIT_OK(&pair, receive);
        d = event.detail;
        CHECK_EQ(d->count, 3);
        for (uint64_t k = 0; k < 3; k++) {
            CHECK_FILLED(d->segments[k].base, 100 * KIB, k);
        }
        CHECK_OK(hws_close(d->buffer));
        WAIT_OK(&pair, send);
    }
    s = t_stats(pair.worker[1]);
    CHECK_EQ(s.pool_fresh, 1);
    CHECK_EQ(s.pool_reused, 9);
    for (int i = 0; i < 3; i++) {
        free(segments[i].base);
    }
    t_pair_close(&pair);
}

CASE_BOTH(a_stream_receives_into_the_pool)
{
    char *data = t_alloc(MIB);
    void *first = NULL;
    t_pair pair;

    open_pair(&pair, flags, 0);
    for (uint64_t i = 0; i < 5; i++) {
        hws_op_opts all = {.struct_size = sizeof all, .flags = HWS_OP_WAIT_ALL};
        hws_id receive = 0, send = 0, buffer = 0;
        void *at = NULL;

        CHECK_OK(hws_buffer_alloc(pair.worker[1], MIB, &at, &buffer));
        CHECK_EQ((uintptr_t)at % 64, 0);
        CHECK(first == NULL || at == first);
        first = at;
        t_fill(data, MIB, i);
        CHECK_OK(hws_stream_send(pair.endpoint[0], data, MIB, NULL, &send));
        CHECK_OK(hws_stream_recv(pair.endpoint[1], at, MIB, &all, &receive));
        CHECK_EQ(WAIT_OK(&pair, receive).length, MIB);
        WAIT_OK(&pair, send);
        CHECK_FILLED(at, MIB, i);
        CHECK_OK(hws_close(buffer));
        CHECK_CODE(hws_buffer_data(buffer, &at, NULL), HWS_E_STALE);
    }
    free(data);
    t_pair_close(&pair);
}

/* An allocator of the user's takes the place of the pool. */
static void *own_alloc(void *arg, uint64_t length, uint32_t kind)
{
    (void)kind;
    ++*(int *)arg;
    return malloc(length);
}

static void own_free(void *arg, void *memory, uint64_t length)
{
    (void)length;
    --*(int *)arg;
    free(memory);
}

CASE_BOTH(an_allocator_takes_its_place)
{
    int taken = 0;
    hws_am_opts opts = {
        .struct_size = sizeof opts, .alloc = own_alloc, .free = own_free, .alloc_arg = &taken};
    char *data = t_alloc(MIB);
    hws_id buffer;
    t_pair pair;

    open_pair(&pair, flags, 0);
    CHECK_OK(hws_queue_open(NULL, &opts.sink.queue));
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    t_fill(data, MIB, 5);
    buffer = am(&pair, opts.sink.queue, data, MIB, 5);
    CHECK_EQ(taken, 1);
    CHECK_OK(hws_close(buffer));
    UNTIL(&pair, taken == 0);
    CHECK_EQ(t_stats(pair.worker[1]).pool_fresh, 0);
    CHECK_OK(hws_close(opts.sink.queue));
    free(data);
    t_pair_close(&pair);
}

CASE(what_cannot_be)
{
    hws_id worker, buffer = 0, empty = 0;
    void *at = NULL;
    uint64_t length = 1;
    t_pair pair;

    open_pair(&pair, 0, 0);
    worker = pair.worker[1];
    CHECK_CODE(hws_buffer_alloc(worker, 5, &at, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_buffer_alloc(pair.context, 5, &at, &buffer), HWS_E_KIND);
    CHECK_CODE(hws_buffer_alloc(worker, UINT64_MAX, &at, &buffer), HWS_E_NO_MEMORY);
    CHECK_CODE(hws_buffer_alloc(worker, (uint64_t)1 << 60, &at, &buffer), HWS_E_NO_MEMORY);
    CHECK_EQ(buffer, 0);
    CHECK_OK(hws_buffer_alloc(worker, 0, NULL, &empty));
    CHECK_OK(hws_buffer_data(empty, &at, &length));
    CHECK_EQ(length, 0);
    CHECK_OK(hws_buffer_alloc(worker, 5 * MIB, &at, &buffer)); /* goes with the worker */
    CHECK_CODE(hws_am_recv(buffer, at, 5, NULL, &empty), HWS_E_IN_USE);
    t_pair_close(&pair);
    CHECK_CODE(hws_buffer_data(buffer, &at, NULL), HWS_E_STALE);
    CHECK_CODE(hws_buffer_alloc(worker, 5, &at, &buffer), HWS_E_STALE);
}

CASES_MAIN
