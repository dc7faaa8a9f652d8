/*
 * The loops that are measured. Each is written once and compiled once for each kind of message, so
 * that nothing is decided inside them; like ucx_perftest's they read the time once an iteration.
 *
 * A message is sent before the next receive is posted: nothing can arrive meanwhile, as only this
 * thread makes progress, and posting the receive costs nothing while the message is on its way.
 */
#include "perf_clock.h"
#include "perf_window.h"

#define INLINE static inline __attribute__((always_inline))

INLINE int32_t post_send(perf_lane *l, enum perf_api api, hws_id *op)
{
    switch (api) {
    case PERF_TAG:
        return hws_tag_send(l->to, l->send, l->send_length, l->tag, &l->send_opts, op);
    case PERF_TAG_SYNC:
        return hws_tag_send_sync(l->to, l->send, l->send_length, l->tag, &l->send_opts, op);
    case PERF_STREAM:
        return hws_stream_send(l->to, l->send, l->send_length, &l->send_opts, op);
    case PERF_MULTI:
        return hws_multi_send(l->to, l->tag, l->send_segments, l->params->size_count, NULL,
                              &l->send_opts, op);
    default:
        return hws_am_send(l->to, l->index, l->header, l->params->am_header, l->send,
                           l->send_length, &l->send_opts, op);
    }
}

INLINE int32_t post_receive(perf_lane *l, enum perf_api api, hws_id *op)
{
    if (api == PERF_STREAM) {
        return hws_stream_recv(l->from, l->receive, l->receive_length, &l->receive_opts, op);
    }
    return hws_tag_recv(l->from, l->receive, l->receive_length, l->tag, UINT64_MAX,
                        &l->receive_opts, op);
}

INLINE int32_t send_one(perf_lane *l, enum perf_api api)
{
    hws_id op = 0;
    int32_t r = perf_window_room(&l->sends);

    if (r < 0 || (r = post_send(l, api, &op)) < 0) {
        return r;
    }
    perf_window_put(&l->sends, r == HWS_DONE ? 0 : op);
    return HWS_OK;
}

/* Wait for an active message: its handler counts them. */
INLINE int32_t await_message(perf_lane *l)
{
    int32_t r = HWS_OK;

    while (atomic_load_explicit(&l->arrived, memory_order_relaxed) == l->taken) {
        r = atomic_load_explicit(&l->gone, memory_order_relaxed);
        if (__builtin_expect(r < 0, 0)) {
            return r;
        }
        if (l->queue != 0) {
            r = perf_am_queue_wait(l);
        } else if (l->options->sleep) {
            r = hws_worker_wait(l->worker, HWS_FOREVER);
        } else {
            r = hws_worker_progress(l->worker);
        }
        if (r < 0) {
            return r;
        }
        if (__builtin_expect(l->status < 0, 0)) {
            return l->status;
        }
    }
    l->taken++;
    return HWS_OK;
}

/* Receive one message and wait for it. */
INLINE int32_t receive_one(perf_lane *l, enum perf_api api)
{
    hws_id op = 0;
    int32_t r;

    if (api == PERF_AM) {
        return await_message(l);
    }
    if (api == PERF_MULTI) {
        return perf_multi_receive(l);
    }
    r = post_receive(l, api, &op);
    return r == HWS_OK ? hws_wait(op, HWS_FOREVER, NULL) : r;
}

void perf_count_receive(void *lane, const hws_event *event)
{
    perf_lane *l = lane;
    /* No read-modify-write: whoever makes progress is the only one that counts. */
    uint64_t n = atomic_load_explicit(&l->arrived, memory_order_relaxed);

    if (event->status < 0) {
        l->status = event->status;
    }
    atomic_store_explicit(&l->arrived, n + 1, memory_order_relaxed);
}

/* Until no more than `most` of the counted receives are under way. */
INLINE int32_t await_receives(perf_lane *l, uint64_t most)
{
    while (l->taken - atomic_load_explicit(&l->arrived, memory_order_relaxed) > most) {
        int32_t r = hws_worker_progress(l->worker);

        if (r < 0 && r != HWS_E_BUSY) {
            return r;
        }
    }
    return l->status;
}

/* Receive one message, told of by a callback as ucx_perftest's are, with a window of them under way. */
INLINE int32_t receive_counted(perf_lane *l, enum perf_api api)
{
    int32_t r = await_receives(l, l->receives.size - 1);

    if (r < 0 || (r = post_receive(l, api, NULL)) < 0) {
        return r;
    }
    l->taken += r == HWS_OK;
    return HWS_OK;
}

/* Wait for what is under way. */
INLINE int32_t drain_receives(perf_lane *l)
{
    return l->counts_receives ? await_receives(l, 0) : perf_window_drain(&l->receives);
}

/* Receive one message, with a window of receives under way. */
INLINE int32_t receive_ahead(perf_lane *l, enum perf_api api)
{
    hws_id op = 0;
    int32_t r;

    if (api == PERF_AM) {
        return await_message(l);
    }
    if (api == PERF_MULTI) {
        return perf_multi_receive(l);
    }
    if (l->counts_receives) {
        return receive_counted(l, api);
    }
    r = perf_window_room(&l->receives);
    if (r < 0 || (r = post_receive(l, api, &op)) < 0) {
        return r;
    }
    perf_window_put(&l->receives, r == HWS_DONE ? 0 : op);
    return HWS_OK;
}

INLINE int32_t ping(perf_lane *l, enum perf_api api, uint64_t count, bool pause)
{
    for (uint64_t i = 0; i < count; i++) {
        int32_t r;

        if (pause) {
            perf_clock_pause(l);
        }
        r = send_one(l, api);
        if (r < 0 || (r = receive_one(l, api)) < 0) {
            return r;
        }
        perf_clock_tick(l);
    }
    return perf_window_drain(&l->sends);
}

INLINE int32_t pong(perf_lane *l, enum perf_api api, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        int32_t r = receive_one(l, api);

        if (r < 0 || (r = send_one(l, api)) < 0) {
            return r;
        }
        perf_clock_tick(l);
    }
    return perf_window_drain(&l->sends);
}

/* The last message of a run in one direction: the receiver has got them all. */
static int32_t acknowledge(perf_lane *l)
{
    hws_op_opts opts = {.struct_size = sizeof opts};
    uint64_t tag = ~l->tag;
    hws_id op = 0;
    char byte = 0;
    int32_t r = l->client ? hws_tag_recv(l->from, &byte, 1, tag, UINT64_MAX, &opts, &op)
                          : hws_tag_send(l->to, &byte, 1, tag, &opts, &op);

    return r < 0 ? r : hws_wait(op, HWS_FOREVER, NULL);
}

INLINE int32_t source(perf_lane *l, enum perf_api api, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        int32_t r = send_one(l, api);

        if (r < 0) {
            return r;
        }
        perf_clock_tick(l);
    }
    int32_t r = perf_window_drain(&l->sends);

    return r < 0 ? r : acknowledge(l);
}

INLINE int32_t sink(perf_lane *l, enum perf_api api, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        int32_t r = receive_ahead(l, api);

        if (r < 0) {
            return r;
        }
        perf_clock_tick(l);
    }
    int32_t r = drain_receives(l);

    return r < 0 ? r : acknowledge(l);
}

/* One process with itself (-l): every message is sent and received here. */
INLINE int32_t loop(perf_lane *l, enum perf_api api, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        int32_t r = send_one(l, api);

        if (r < 0 || (r = receive_ahead(l, api)) < 0) {
            return r;
        }
        perf_clock_tick(l);
    }
    int32_t r = drain_receives(l);

    return r < 0 ? r : perf_window_drain(&l->sends);
}

INLINE int32_t run(perf_lane *l, enum perf_api api, uint64_t count)
{
    if (l->options->loopback) {
        return loop(l, api, count);
    }
    if (l->test->ping_pong) {
        if (!l->client) {
            return pong(l, api, count);
        }
        return l->options->pause_us != 0 ? ping(l, api, count, true) : ping(l, api, count, false);
    }
    return l->client ? source(l, api, count) : sink(l, api, count);
}

int32_t perf_loop_run(perf_lane *l, uint64_t count)
{
    if (l->test->api >= PERF_PUT) {
        return perf_rma_run(l, count);
    }
    switch (l->test->api) {
    case PERF_TAG:
        return run(l, PERF_TAG, count);
    case PERF_TAG_SYNC:
        return run(l, PERF_TAG_SYNC, count);
    case PERF_STREAM:
        return run(l, PERF_STREAM, count);
    case PERF_MULTI:
        return run(l, PERF_MULTI, count);
    default:
        return run(l, PERF_AM, count);
    }
}
