/*
 * The way of an operation out: what it is linked into, its end, and how the program is told of it.
 */
#include "op.h"
#include "endpoint.h"
#include "heap.h"
#include "latency.h"
#include "multi.h"
#include "progress.h"
#include "queue.h"
#include "rma.h"
#include "undo.h"
#include <string.h>

void hws__op_rejoin(struct hws__op *op)
{
    if (op->ep != NULL) {
        hws__list_append(&op->ep->ops, &op->link);
        op->ep->op_count++;
    } else {
        hws__list_append(&op->worker->ops, &op->link);
    }
}

void hws__op_leave(struct hws__op *op)
{
    hws__list_remove(&op->link);
    if (op->ep != NULL) {
        op->ep->op_count--;
    }
}

void hws__op_event(const struct hws__op *op, hws_event *event)
{
    /* Alone: loaded together with its neighbour, both just stored, it would wait for both to leave the store buffer. */
    int32_t status = *(const volatile int32_t *)&op->status;

    *event = (hws_event){.size = sizeof *event,
                         .kind = op->kind,
                         .op = atomic_load_explicit(&op->id, memory_order_relaxed),
                         .source = op->source,
                         .status = status,
                         .flags = op->event_flags,
                         .length = op->done_length,
                         .tag = op->done_tag,
                         .user = op->user,
                         .detail = status >= 0 ? op->record : op->detail};
}

/* Out of what its kind and stage put it in. */
static void unlink_kind(struct hws__op *op)
{
    if (op->stage == HWS__STAGE_MATCHING) {
        hws__match_unpost(op);
    }
    if (op->stage == HWS__STAGE_READING) {
        hws__stream_unwait(op);
    }
    if (op->stage == HWS__STAGE_CREDIT ||
        (op->kind == HWS_EVENT_STREAM_SEND && !hws__list_empty(&op->match))) {
        hws__credit_unwait(op);
    }
    if (op->kind == HWS_EVENT_FLUSH && !hws__list_empty(&op->match)) {
        hws__list_remove(&op->match);
        op->worker->watching--;
    }
    if (op->stage == HWS__STAGE_COMING || (op->multi != NULL && op->kind == HWS_EVENT_TAG_RECV)) {
        hws__undo_forget(op);
    }
    if (op->kind >= HWS_EVENT_PUT && op->kind <= HWS_EVENT_ATOMIC) {
        hws__rma_forget(op);
    }
}

void hws__op_unlink(struct hws__op *op)
{
    /* A receive whose message has come is in none of these structures. */
    if (op->stage != HWS__STAGE_OWN || op->kind != HWS_EVENT_TAG_RECV) {
        unlink_kind(op);
    }
    if (op->heap != 0) {
        hws__heap_remove(op->worker, op);
    }
    hws__list_remove(&op->link);
    if (op->ep != NULL) {
        op->ep->op_count--;
        if (op->ep->closing) {
            hws__endpoint_attend(op->ep); /* it waits for its operations */
        }
    }
    if (op->worker->watching != 0) {
        op->worker->todo = true;
        if (op->started_at != 0) {
            hws__latency_end(op);
        }
    }
}

void hws__op_unclaimed(struct hws__op *op)
{
    struct hws__message *m;

    if (!hws__op_carries(op)) {
        return;
    }
    if (op->record != NULL) {
        hws__multi_unclaimed(op->tag);
    } else if (hws__id_kind(op->source) == HWS_KIND_MESSAGE &&
               (m = hws__obj_find(&hws__objects, op->source)) != NULL) {
        hws__message_drop(m);
    }
}

/*
 * The result is there for whoever claims it.
 * ORDER: release, so that the waiter that sees ENDED sees the result. Who begins to wait between the two
 * lines of the plain way sleeps on until its next look, HWS__LOOK_NS at most.
 */
static void publish_end(struct hws__op *op)
{
    struct hws__worker *w = op->worker;

    if (atomic_load_explicit(&w->waiters, memory_order_relaxed) == 0) {
        atomic_store_explicit(&op->done, HWS__ENDED, memory_order_release);
    } else if (atomic_exchange_explicit(&op->done, HWS__ENDED, memory_order_acq_rel) ==
               HWS__SLEPT_ON) {
        hws__wake_waiters(w);
    }
}

/* Count a failure; its text. */
static __attribute__((noinline, cold)) const char *failed(const struct hws__op *op, int32_t status)
{
    HWS__COUNT(op->worker, op_failures[-status & (HWS__CODES - 1)], 1);
    if (status == HWS_E_CUDA && op->record != NULL) {
        return op->record;
    }
    return op->ep != NULL && op->ep->status == status && op->ep->detail != NULL
               ? op->ep->detail
               : hws_error_text(status);
}

static inline __attribute__((always_inline)) void end(struct hws__op *op, int32_t status)
{
    hws__op_unlink(op);
    op->stage = HWS__STAGE_ENDED;
    op->status = status;
    op->detail = status >= 0 ? NULL : failed(op, status);
    HWS__COUNT(op->worker, ops_ended, 1);
}

void hws__op_tell(struct hws__op *op)
{
    hws_event event;

    hws__op_event(op, &event);
    HWS__COUNT(op->worker, events, 1);
    hws__call(op->callback, op->callback_arg, &event);
    hws__op_release(op);
}

void hws__op_finish_now(struct hws__op *op, int32_t status)
{
    /* UCX tells of failures one after the other, and must have told them all before the next posting. */
    if (op->callback == NULL || status < 0 || !hws__call_now(op->worker)) {
        hws__op_finish(op, status);
        return;
    }
    end(op, status);
    hws__op_tell(op);
}

void hws__op_finish(struct hws__op *op, int32_t status)
{
    struct hws__worker *w = op->worker;
    hws_event event;

    end(op, status);
    if (op->callback != NULL) {
        hws__list_append(&w->ready_ops, &op->match);
        w->todo = true;
        return;
    }
    if (op->queue != NULL) {
        hws__op_event(op, &event);
        HWS__COUNT(w, events, 1);
        if (!hws__queue_push(op->queue, op->queue_id, &event, true, &w->count.queue_overflows)) {
            hws__op_unclaimed(op);
        }
        hws__op_release(op);
        return;
    }
    if (op->flags & HWS_OP_DETACHED) {
        hws__op_unclaimed(op);
        hws__op_release(op);
        return;
    }
    if (w->taking != atomic_load_explicit(&op->id, memory_order_relaxed)) {
        publish_end(op);
    }
}

void hws__scatter_iov(const hws_iov *v, uint64_t count, const void *data, uint64_t length)
{
    const char *from = data;

    for (uint64_t i = 0; i < count && length > 0; i++) {
        uint64_t n = v[i].length < length ? v[i].length : length;

        if (n != 0) {
            memcpy(v[i].base, from, n);
        }
        from += n;
        length -= n;
    }
}
