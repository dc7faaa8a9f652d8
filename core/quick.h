/*
 * The short way of a send, and of a receive that has to wait. A message that UCX takes at once, on an endpoint that
 * no other thread uses just now, needs no hws__post to describe it: the call looks at everything that could be out of
 * the ordinary, hands the message to UCX and counts it. Whatever is out of the ordinary goes the general way of
 * post.h, before anything was done; a message that UCX keeps becomes an operation like any other.
 */
#ifndef HWS_CORE_QUICK_H
#define HWS_CORE_QUICK_H

#include "post.h"
#include "raw.h"
#include "ucx_loader.h"

/** Not an answer: nothing was done, take the general way. */
#define HWS__GENERAL INT32_MIN

/** A send on the short way. */
struct hws__quick {
    hws_id endpoint;
    const void *buffer;
    uint64_t length;
    uint64_t tag;  /* or the id of an active message */
    uint32_t kind; /* HWS_EVENT_*, HWS_TRAFFIC_*, HWS__CREDIT_* of such a message */
    uint32_t traffic;
    uint32_t sort;
    uint64_t header;          /* bytes that count as credit besides those of `length` */
    void *extra;              /* for the operation to free, if UCX keeps the message */
    struct hws__endpoint *ep; /* from hws__quick_begin() */
    struct hws__op *op;
    bool nested; /* inside a callback: the worker was owned before */
};

/** A send of `kind`, before hws__quick_begin(). */
static inline __attribute__((always_inline)) struct hws__quick hws__quick_send(
    uint32_t kind, hws_id endpoint, const void *buffer, uint64_t length, uint64_t tag)
{
    bool am = kind == HWS_EVENT_AM_SEND, multi = kind == HWS_EVENT_MULTI_SEND;

    return (struct hws__quick){.endpoint = endpoint,
                               .buffer = buffer,
                               .length = length,
                               .tag = tag,
                               .kind = kind,
                               .traffic = am      ? HWS_TRAFFIC_AM
                                          : multi ? HWS_TRAFFIC_MULTI
                                                  : HWS_TRAFFIC_TAG,
                               .sort = am      ? HWS__CREDIT_AM
                                       : multi ? HWS__CREDIT_MULTI
                                               : HWS__CREDIT_TAG};
}

/** Own the worker, also inside a callback, if nothing that was submitted earlier waits. */
static inline __attribute__((always_inline)) bool hws__quick_enter(struct hws__worker *w,
                                                                   bool *nested)
{
    *nested = hws__owned(w);
    if (__builtin_expect(!*nested && !hws__own_try(w), 0)) {
        return false;
    }
    if (__builtin_expect(atomic_load_explicit(&w->submissions, memory_order_relaxed) != NULL, 0)) {
        hws__disown(w, *nested);
        return false;
    }
    return true;
}

/**
 * Own the worker, if the options let the call itself be the end, of host memory in one piece. False: the
 * general way.
 */
static inline __attribute__((always_inline)) bool hws__quick_own(struct hws__worker *w,
                                                                 const void *buffer,
                                                                 uint64_t length,
                                                                 const hws_op_opts *in,
                                                                 const hws_id *out, bool *nested)
{
    uint32_t timed = atomic_load_explicit(&w->timed, memory_order_relaxed);

    if (__builtin_expect(
            in->struct_size != sizeof *in ||
                ((in->flags & ~(uint32_t)HWS_OP_DETACHED) | timed) != HWS_OP_INLINE ||
                (in->queue | in->timeout_ns | in->memory_kind) != 0 ||
                (out == NULL && in->callback == NULL && (in->flags & HWS_OP_DETACHED) == 0) ||
                (buffer == NULL && length != 0) || (int64_t)length < 0,
            0)) {
        return false;
    }
    return hws__quick_enter(w, nested);
}

/** Own the worker of a send; the endpoint is open and has credit, and nothing to tell. False: the general way. */
static inline __attribute__((always_inline)) bool hws__quick_begin(struct hws__quick *q,
                                                                   const hws_op_opts *in,
                                                                   const hws_id *out)
{
    struct hws__endpoint *ep;
    struct hws__worker *w;

    if (__builtin_expect(in == NULL || hws__id_kind(q->endpoint) != HWS_KIND_ENDPOINT, 0) ||
        (ep = hws__obj_find(&hws__objects, q->endpoint)) == NULL ||
        !hws__quick_own(w = ep->worker, q->buffer, q->length, in, out, &q->nested)) {
        return false;
    }
    if (__builtin_expect(atomic_load_explicit(&ep->obj.id, memory_order_relaxed) != q->endpoint ||
                             !ep->open || ep->gap.untold || w->free_ops == NULL ||
                             !hws__credit_fits(&ep->credit, q->sort, q->length),
                         0)) {
        hws__disown(w, q->nested);
        return false;
    }
    q->ep = ep;
    q->op = w->free_ops;
    return true;
}

/** After hws__quick_begin(): whether it went into a bundle, and is done. */
static inline __attribute__((always_inline)) bool hws__quick_bundled(const struct hws__quick *q)
{
    return __builtin_expect(++q->ep->worker->bundles.burst >= HWS__BUNDLE_TIMED, 0) &&
           !q->ep->raw && hws__bundle_add(q->ep, q->kind, q->tag, q->buffer, q->length);
}

/** UCX's parameters: contiguous bytes, which is what they are when nothing is said. */
static inline void hws__quick_param(const struct hws__quick *q, ucp_request_param_t *param)
{
    param->op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param->flags = q->ep->send_flags;
    param->cb.send = hws__op_ucx_done;
    param->user_data = q->op;
    param->memory_type = UCS_MEMORY_TYPE_HOST;
}

/* By value, so that what describes a send stays in registers until one of these needs it. */
/** UCX did not take it at once. */
int32_t hws__quick_pending(struct hws__quick q, const hws_op_opts *in, ucs_status_ptr_t ptr,
                           hws_id *out);
/** Fill opts.result. */
void hws__quick_result(struct hws__quick q, const hws_op_opts *in);

/** It is done: give the worker back. */
static inline void hws__quick_leave(struct hws__worker *w, bool nested)
{
    HWS__COUNT(w, ops_inline, 1);
    hws__disown(w, nested);
}

/** What UCX said. */
static inline __attribute__((always_inline)) int32_t hws__quick_end(const struct hws__quick *q,
                                                                    const hws_op_opts *in,
                                                                    ucs_status_ptr_t ptr,
                                                                    hws_id *out)
{
    struct hws__endpoint *ep = q->ep;

    if (__builtin_expect(ptr != NULL, 0)) {
        return hws__quick_pending(*q, in, ptr, out);
    }
    hws__credit_spend(&ep->credit, q->sort, q->length + q->header);
    hws__flow_add(&ep->traffic.out[q->traffic], q->length);
    if (q->kind != HWS_EVENT_MULTI_SEND) {
        hws__gap_sent(&ep->gap, q->length, false);
    }
    if (__builtin_expect(!ep->uworker->hot, 0)) {
        hws__uworker_heat(ep->uworker);
    }
    hws__quick_leave(ep->worker, q->nested);
    if (in->result != NULL) {
        hws__quick_result(*q, in);
    }
    if (out != NULL) {
        *out = 0;
    }
    return HWS_DONE;
}

/**
 * Take the operation of a receive on an endpoint for which nothing has arrived, with options that have
 * no other flags than `flags`. Null: the general way. The caller says what is to be received, then calls
 * hws__quick_posted() with the scope that this one fills.
 * @param[out] arrived  nullable: the endpoint, if messages wait there: the worker is still owned then
 */
static inline __attribute__((always_inline)) struct hws__op *hws__quick_receive(
    hws_id endpoint, uint32_t kind, uint32_t flags, const hws_op_opts *in, const hws_id *out,
    struct hws__scope **scope, bool *nested, struct hws__endpoint **arrived)
{
    struct hws__endpoint *ep;
    struct hws__worker *w;
    uint32_t waiting;

    if (__builtin_expect(in == NULL || hws__id_kind(endpoint) != HWS_KIND_ENDPOINT, 0) ||
        (ep = hws__obj_find(&hws__objects, endpoint)) == NULL) {
        return NULL;
    }
    w = ep->worker;
    if (__builtin_expect(!hws__post_plain(w, in) || (hws__post_flags(in) & ~flags) != 0 ||
                             (in->queue | in->timeout_ns | in->memory_kind) != 0 ||
                             (out == NULL && in->callback == NULL),
                         0) ||
        !hws__quick_enter(w, nested)) {
        return NULL;
    }
    *scope = kind == HWS_EVENT_TAG_RECV ? &ep->scope : &ep->multi_scope;
    if (__builtin_expect(ep->raw, 0)) {
        *scope = kind == HWS_EVENT_TAG_RECV ? hws__raw_quiet(ep) : NULL;
    }
    if (__builtin_expect(atomic_load_explicit(&ep->obj.id, memory_order_relaxed) != endpoint ||
                             !ep->open || *scope == NULL || w->credit_blocked != 0,
                         0)) {
        hws__disown(w, *nested);
        return NULL;
    }
    waiting = atomic_load_explicit(&(*scope)->messages, memory_order_relaxed);
    /* What is there needs no operation, and a program that always finds it there has none. */
    if (__builtin_expect(waiting != 0 || w->free_ops == NULL, 0)) {
        if (waiting != 0 && arrived != NULL && !ep->raw) {
            *arrived = ep;
        } else {
            hws__disown(w, *nested);
        }
        return NULL;
    }
    return hws__op_take_free(ep, in, kind);
}

/** It is posted: give the worker back. */
static inline void hws__quick_posted(struct hws__op *op, struct hws__scope *scope, bool nested,
                                     hws_id *out)
{
    struct hws__worker *w = op->worker;
    bool wake = __builtin_expect(hws__asleep(w), 0) && hws__wants_wake(w);

    if (out != NULL) {
        *out = atomic_load_explicit(&op->id, memory_order_relaxed);
    }
    hws__match_post(scope, op);
    if (nested) {
        return;
    }
    hws__own_release(w);
    if (wake) {
        hws__wake(w);
    }
}

#endif
