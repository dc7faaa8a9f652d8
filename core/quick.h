/*
 * The short way of a send. A message that UCX takes at once, on an endpoint that nobody else uses just
 * now, needs no hws__post to describe it: the call looks at everything that could be out of the
 * ordinary, hands the message to UCX and counts it. Whatever is out of the ordinary goes the general
 * way of post.h, before anything was done; a message that UCX keeps becomes an operation like any other.
 */
#ifndef HWS_CORE_QUICK_H
#define HWS_CORE_QUICK_H

#include "post.h"
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
    struct hws__endpoint *ep; /* from hws__quick_begin() */
    struct hws__op *op;
};

/**
 * Own the worker, if the options let the call itself be the end, of host memory in one piece, and
 * nothing that was submitted earlier waits. False: the general way.
 */
static inline __attribute__((always_inline)) bool hws__quick_own(struct hws__worker *w,
                                                                 const void *buffer,
                                                                 uint64_t length,
                                                                 const hws_op_opts *in,
                                                                 const hws_id *out)
{
    uint64_t head;

    memcpy(&head, in, sizeof head);
    if (__builtin_expect(
            (head & ~((uint64_t)HWS_OP_DETACHED << 32)) !=
                    atomic_load_explicit(&w->quick, memory_order_relaxed) ||
                (in->queue | in->timeout_ns | in->memory_kind) != 0 ||
                (out == NULL && in->callback == NULL && (in->flags & HWS_OP_DETACHED) == 0) ||
                (buffer == NULL && length != 0) || !hws__own_try(w),
            0)) {
        return false;
    }
    if (__builtin_expect(atomic_load_explicit(&w->submissions, memory_order_relaxed) != NULL, 0)) {
        hws__own_release(w);
        return false;
    }
    return true;
}

/** Own the worker of a send; the endpoint is open and has credit. False: the general way. */
static inline __attribute__((always_inline)) bool hws__quick_begin(struct hws__quick *q,
                                                                   const hws_op_opts *in,
                                                                   const hws_id *out)
{
    struct hws__endpoint *ep;
    struct hws__worker *w;

    if (__builtin_expect(in == NULL || hws__id_kind(q->endpoint) != HWS_KIND_ENDPOINT, 0) ||
        (ep = hws__obj_find(&hws__objects, q->endpoint)) == NULL ||
        !hws__quick_own(w = ep->worker, q->buffer, q->length, in, out)) {
        return false;
    }
    if (__builtin_expect(atomic_load_explicit(&ep->obj.id, memory_order_relaxed) != q->endpoint ||
                             !ep->open || w->free_ops == NULL ||
                             !hws__credit_fits(&ep->credit, q->sort, q->length),
                         0)) {
        hws__own_release(w);
        return false;
    }
    q->ep = ep;
    q->op = w->free_ops;
    return true;
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

/** UCX did not take it at once. */
int32_t hws__quick_pending(const struct hws__quick *q, const hws_op_opts *in, ucs_status_ptr_t ptr,
                           hws_id *out);
/** Fill opts.result. */
void hws__quick_result(const struct hws__quick *q, const hws_op_opts *in);

/** It is done: give the worker back. */
static inline void hws__quick_leave(struct hws__worker *w)
{
    HWS__COUNT(w, ops_inline, 1);
    hws__own_release(w);
}

/** What UCX said. */
static inline __attribute__((always_inline)) int32_t hws__quick_end(const struct hws__quick *q,
                                                                    const hws_op_opts *in,
                                                                    ucs_status_ptr_t ptr,
                                                                    hws_id *out)
{
    struct hws__endpoint *ep = q->ep;

    if (__builtin_expect(ptr != NULL, 0)) {
        return hws__quick_pending(q, in, ptr, out);
    }
    hws__credit_spend(&ep->credit, q->sort, q->length);
    ep->traffic.out[q->traffic].count++;
    ep->traffic.out[q->traffic].bytes += q->length;
    if (__builtin_expect(!ep->uworker->hot, 0)) {
        hws__uworker_heat(ep->uworker);
    }
    hws__quick_leave(ep->worker);
    if (in->result != NULL) {
        hws__quick_result(q, in);
    }
    if (out != NULL) {
        *out = 0;
    }
    return HWS_DONE;
}

#endif
