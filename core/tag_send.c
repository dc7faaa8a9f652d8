/*
 * Sends of tagged messages.
 */
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "post.h"
#include "quick.h"
#include "raw.h"
#include "tag.h"
#include "ucx_loader.h"

static int32_t send_run(struct hws__post *p)
{
    uint64_t bytes = hws__bytes(p->buffer, p->length, p->opts->flags);
    struct hws__endpoint *ep = p->ep;
    ucp_request_param_t param;
    struct hws__op *op;
    int32_t r;

    if (!ep->open && ep->credit.resumed != p) {
        return hws__endpoint_refuse(ep, p->source);
    }
    if (__builtin_expect(!hws__credit_fits(&ep->credit, HWS__CREDIT_TAG, bytes), 0) &&
        (r = hws__credit_wait(p, HWS__CREDIT_TAG, bytes)) != HWS_DONE) {
        return r;
    }
    if ((op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    if (ep->gap.untold && bytes <= HWS__GAP_SINGLE) {
        hws__gap_tell(ep);
    }
    hws__op_param(p, op, &param);
    if (ep->raw) {
        r = hws__raw_send(p, op, &param);
    } else {
        param.flags = ep->send_flags | (uint32_t)p->mask;
        op->tag = p->tag; /* the header must live until UCX is done */
        r = hws__op_posted(p, op, ep->uworker,
                           hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_TAG, &op->tag, sizeof op->tag,
                                                    hws__op_buffer(p, op), p->length, &param));
    }
    p->done_tag = p->tag;
    if (r >= 0) {
        hws__gap_sent(&ep->gap, bytes, p->mask != 0);
    }
    return hws__post_sent(p, op, r, HWS_TRAFFIC_TAG, HWS__CREDIT_TAG, bytes, 0);
}

/* HWS__GENERAL: not on this way. */
static inline __attribute__((always_inline)) int32_t quick_send(struct hws__quick *q,
                                                                const hws_op_opts *opts,
                                                                hws_id *out)
{
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;

    if (!hws__quick_begin(q, opts, out)) {
        return HWS__GENERAL;
    }
    if (hws__quick_bundled(q)) {
        return hws__quick_end(q, opts, NULL, out);
    }
    hws__quick_param(q, &param);
    if (q->ep->raw) {
        ptr = hws__ucx.ucp_tag_send_nbx(q->ep->ucx, q->buffer, q->length, q->tag, &param);
    } else {
        q->op->tag = q->tag; /* the header must live until UCX is done */
        ptr = hws__ucx.ucp_am_send_nbx(q->ep->ucx, HWS__AM_TAG, &q->op->tag, sizeof q->op->tag,
                                       q->buffer, q->length, &param);
    }
    return hws__quick_end(q, opts, ptr, out);
}

static __attribute__((noinline)) int32_t general_send(hws_id endpoint, const void *buffer,
                                                      uint64_t length, uint64_t tag,
                                                      uint64_t am_flags, const hws_op_opts *opts,
                                                      hws_id *op)
{
    struct hws__post p;
    int32_t r;

    hws__post_init(&p, send_run, HWS_EVENT_TAG_SEND, endpoint, buffer, length);
    p.tag = tag;
    p.mask = am_flags;
    r = hws__post_endpoint(&p);
    return r < 0 ? r : hws__post(&p, opts, op);
}

int32_t hws_tag_send(hws_id endpoint, const void *buffer, uint64_t length, uint64_t tag,
                     const hws_op_opts *opts, hws_id *op)
{
    struct hws__quick q = hws__quick_send(HWS_EVENT_TAG_SEND, endpoint, buffer, length, tag);
    int32_t r;

    HWS__ENTER();
    r = quick_send(&q, opts, op);
    return r != HWS__GENERAL ? r : general_send(endpoint, buffer, length, tag, 0, opts, op);
}

int32_t hws_tag_send_sync(hws_id endpoint, const void *buffer, uint64_t length, uint64_t tag,
                          const hws_op_opts *opts, hws_id *op)
{
    HWS__ENTER();
    /* A rendezvous send completes when the receiver has matched and fetched it. */
    return general_send(endpoint, buffer, length, tag, UCP_AM_SEND_FLAG_RNDV, opts, op);
}
