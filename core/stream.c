#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "post.h"
#include "progress.h"
#include "ucx_loader.h"

/* It does not fit as a whole: it goes in parts, behind those that wait already. */
static int32_t send_later(struct hws__post *p, uint64_t bytes)
{
    int32_t r = hws__credit_park(p, HWS__CREDIT_STREAM, bytes);

    if (r == HWS_OK) {
        p->op->memory_kind = p->opts->memory_kind;
        p->op->done_tag = 0;
        hws__endpoint_attend(p->ep);
    }
    return r;
}

static int32_t send_run(struct hws__post *p)
{
    uint64_t bytes = hws__bytes(p->buffer, p->length, p->opts->flags);
    struct hws__endpoint *ep = p->ep;
    ucp_request_param_t param;
    struct hws__op *op;
    int32_t r;

    if (!ep->open && ep->credit.resumed != p) {
        return hws__endpoint_refuse(p->ep, p->source);
    }
    if (bytes == 0) {
        return HWS_DONE; /* UCX takes an empty piece of a stream for a mistake */
    }
    if (__builtin_expect(!hws__credit_fits(&ep->credit, HWS__CREDIT_STREAM, bytes), 0)) {
        return send_later(p, bytes);
    }
    if ((op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    hws__op_param(p, op, &param);
    r = hws__op_posted(
        p, op, ep->uworker,
        hws__ucx.ucp_stream_send_nbx(ep->ucx, hws__op_buffer(p, op), p->length, &param));
    return hws__post_sent(p, op, r, HWS_TRAFFIC_STREAM, HWS__CREDIT_STREAM, bytes, 0);
}

int32_t hws_stream_send(hws_id endpoint, const void *buffer, uint64_t length,
                        const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p;
    int32_t r;

    HWS__ENTER();
    hws__post_init(&p, send_run, HWS_EVENT_STREAM_SEND, endpoint, buffer, length);
    if ((r = hws__post_endpoint(&p)) < 0) {
        return r;
    }
    return hws__post(&p, opts, op);
}
