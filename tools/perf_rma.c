/*
 * Tests of remote memory access. Each side gives the other a block of its memory; the client works on
 * the server's. In one direction the server takes no part but for its progress, until the client
 * tells it that all is done; in ucp_put_lat both look at the last byte of their own memory.
 */
#include "perf_clock.h"
#include "perf_side.h"
#include "perf_window.h"

#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define KEY_MAX 4096
#define LOOK_EVERY 1024 /* posts: some 50 us of small ones */

/** What a side tells the other of its memory. */
struct offer {
    uint64_t address, length;
    unsigned char key[KEY_MAX];
};

static int32_t offer_memory(perf_lane *l, struct offer *mine)
{
    hws_mem_info info = {.struct_size = sizeof info};
    int32_t r;

    if ((r = hws_mem_alloc(l->context, l->bytes < 8 ? 8 : l->bytes, NULL, &l->memory)) < 0 ||
        (r = hws_mem_query(l->memory, &info)) < 0 ||
        (r = hws_rkey_pack(l->memory, 0, mine->key, KEY_MAX, &mine->length)) < 0) {
        return r;
    }
    mine->address = (uint64_t)(uintptr_t)info.base;
    l->mine = info.base;
    memset(info.base, 0, info.length);
    return HWS_OK;
}

static int32_t exchange(perf_lane *l, const struct offer *mine, struct offer *theirs)
{
    int32_t r;

    if (l->options->loopback) {
        *theirs = *mine;
        return HWS_OK;
    }
    r = perf_side_send(l->to, PERF_TAG_MEMORY, mine, sizeof *mine);
    return r < 0 ? r
                 : perf_side_receive(l->from, PERF_TAG_MEMORY, theirs, sizeof *theirs,
                                     30 * PERF_SECOND);
}

/* One list of as many puts as the window says, to the same place. */
static int32_t open_plan(perf_lane *l)
{
    uint32_t count = l->params->window;
    hws_transfer *list = calloc(count, sizeof *list);
    int32_t r;

    if (list == NULL) {
        return HWS_E_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        list[i] = (hws_transfer){.kind = HWS_EVENT_PUT,
                                 .rkey = l->rkey,
                                 .address = l->theirs,
                                 .buffer = l->send,
                                 .length = l->bytes};
    }
    r = hws_plan_open(l->to, list, count, &l->plan);
    free(list);
    return r;
}

int32_t perf_rma_open(perf_lane *l)
{
    struct offer mine = {0}, theirs = {0};
    int32_t r;

    if ((r = offer_memory(l, &mine)) < 0 || (r = exchange(l, &mine, &theirs)) < 0) {
        return r;
    }
    if (theirs.length > KEY_MAX) {
        return HWS_E_PROTOCOL;
    }
    l->theirs = theirs.address;
    r = hws_rkey_unpack(l->to, theirs.key, theirs.length, 0, &l->rkey);
    return r == HWS_OK && l->test->api == PERF_PLAN && l->client ? open_plan(l) : r;
}

INLINE int32_t atomic(perf_lane *l, uint32_t action, hws_id *op)
{
    return hws_atomic(l->rkey, l->theirs, action, (uint32_t)l->bytes, 1, 0,
                      action == HWS_ATOMIC_ADD ? NULL : &l->fetched, &l->send_opts, op);
}

INLINE int32_t post(perf_lane *l, enum perf_api api, hws_id *op)
{
    switch (api) {
    case PERF_PUT:
        return hws_put(l->rkey, l->theirs, l->send, l->send_length, &l->send_opts, op);
    case PERF_GET:
        return hws_get(l->rkey, l->theirs, l->receive, l->receive_length, &l->receive_opts, op);
    case PERF_ADD:
        return atomic(l, HWS_ATOMIC_ADD, op);
    case PERF_FADD:
        return atomic(l, HWS_ATOMIC_ADD | HWS_ATOMIC_FETCH, op);
    case PERF_SWAP:
        return atomic(l, HWS_ATOMIC_SWAP, op);
    case PERF_CSWAP:
        return atomic(l, HWS_ATOMIC_CSWAP, op);
    default:
        return hws_plan_post(l->plan, &l->send_opts, op);
    }
}

INLINE int32_t post_one(perf_lane *l, enum perf_api api)
{
    hws_id op = 0;
    int32_t r = post(l, api, &op);

    if (r >= 0) {
        perf_window_put(&l->sends, r == HWS_DONE ? 0 : op);
    }
    return r < 0 ? r : HWS_OK;
}

/* The client is done: the server may go on. */
static int32_t tell(perf_lane *l)
{
    hws_op_opts opts = {.struct_size = sizeof opts};
    hws_id op = 0;
    int32_t r;

    if ((r = hws_flush(l->to, &opts, &op)) < 0 || (r = hws_wait(op, HWS_FOREVER, NULL)) < 0) {
        return r;
    }
    return l->options->loopback ? HWS_OK
                                : perf_side_send(l->to, PERF_TAG_DONE, &l->index, sizeof l->index);
}

/* What ends at once makes no progress, so that nothing would tell of a peer that is gone: progress is made now and
 * then, and the next post fails. */
INLINE int32_t look_up(perf_lane *l, uint64_t posted)
{
    int32_t r = posted % LOOK_EVERY == 0 ? hws_worker_progress(l->worker) : 0;

    return r == HWS_E_BUSY ? HWS_OK : r;
}

INLINE int32_t one_direction(perf_lane *l, enum perf_api api, uint64_t count)
{
    uint32_t index;
    int32_t r;

    if (!l->client) {
        return perf_side_receive(l->from, PERF_TAG_DONE, &index, sizeof index, 0);
    }
    for (uint64_t i = 0; i < count; i++) {
        if ((r = perf_window_room(&l->sends)) < 0 || (r = post_one(l, api)) < 0 ||
            (r = look_up(l, i)) < 0) {
            return r;
        }
        perf_clock_tick(l);
    }
    r = perf_window_drain(&l->sends);
    return r < 0 ? r : tell(l);
}

/* Until the peer's put of this turn is in the memory of this side. */
INLINE int32_t await_byte(perf_lane *l, uint8_t turn)
{
    const volatile uint8_t *last = (const volatile uint8_t *)l->mine + l->bytes - 1;

    while (*last != turn) {
        int32_t r = atomic_load_explicit(&l->gone, memory_order_relaxed);

        if (__builtin_expect(r < 0, 0)) {
            return r;
        }
        r = hws_worker_progress(l->worker);
        if (r < 0 && r != HWS_E_BUSY) {
            return r;
        }
    }
    return HWS_OK;
}

INLINE int32_t put_byte(perf_lane *l, uint8_t turn)
{
    int32_t r = perf_window_room(&l->sends);

    if (r < 0) {
        return r;
    }
    ((uint8_t *)l->buffers[0])[l->bytes - 1] = turn; /* the last put has left the buffer */
    return post_one(l, PERF_PUT);
}

static int32_t ping_pong(perf_lane *l, uint64_t count)
{
    int32_t r;

    for (uint64_t i = 0; i < count; i++) {
        uint8_t turn = ++l->turn;

        if (l->client && l->options->pause_us != 0) {
            perf_clock_pause(l);
        }
        if ((l->client && (r = put_byte(l, turn)) < 0) || (r = await_byte(l, turn)) < 0 ||
            (!l->client && (r = put_byte(l, turn)) < 0)) {
            return r;
        }
        perf_clock_tick(l);
    }
    return perf_window_drain(&l->sends);
}

int32_t perf_rma_run(perf_lane *l, uint64_t count)
{
    if (l->test->ping_pong) {
        return ping_pong(l, count);
    }
    switch (l->test->api) {
    case PERF_PUT:
        return one_direction(l, PERF_PUT, count);
    case PERF_GET:
        return one_direction(l, PERF_GET, count);
    case PERF_ADD:
        return one_direction(l, PERF_ADD, count);
    case PERF_FADD:
        return one_direction(l, PERF_FADD, count);
    case PERF_SWAP:
        return one_direction(l, PERF_SWAP, count);
    case PERF_CSWAP:
        return one_direction(l, PERF_CSWAP, count);
    default:
        return one_direction(l, PERF_PLAN, count);
    }
}
