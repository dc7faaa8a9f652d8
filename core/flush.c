/*
 * Flush: everything posted before has reached the peer.
 *
 * First the sends posted before must have ended (a rendezvous waits for its receiver); then a
 * message of Hawser's own makes the round trip behind them. UCX's flush is used on raw endpoints
 * only: it covers neither, and on TCP it does not get along with a connection that is cut.
 */
#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "post.h"
#include "progress.h"
#include "rma.h"
#include "ucx_loader.h"

static bool is_send(const struct hws__op *op)
{
    if (op->stage == HWS__STAGE_STREAM) {
        return true;
    }
    switch (op->kind) {
    case HWS_EVENT_TAG_SEND:
    case HWS_EVENT_AM_SEND:
    case HWS_EVENT_STREAM_SEND:
    case HWS_EVENT_MULTI_SEND:
        return op->stage == HWS__STAGE_UCX || op->stage == HWS__STAGE_CREDIT;
    case HWS_EVENT_PUT:
    case HWS_EVENT_GET:
    case HWS_EVENT_ATOMIC:
        return op->stage == HWS__STAGE_UCX || op->stage == HWS__STAGE_OWN;
    default:
        return false;
    }
}

/* Closing does not wait for what was cancelled: a rendezvous that nobody receives would hold it up. */
static bool given_up(const struct hws__op *op)
{
    return op->wanted != 0 && op->ep->closing;
}

bool hws__flush_sends(const struct hws__endpoint *ep, uint64_t sequence)
{
    for (struct hws__list *n = ep->ops.next; n != &ep->ops; n = n->next) {
        const struct hws__op *op = hws__container(n, struct hws__op, link);

        if (op->sequence < sequence && is_send(op) && !given_up(op)) {
            return true;
        }
    }
    return false;
}

/* Nothing that needs the peer since the last flush: what is left is done, or UCX has flushed it. */
static bool rma_only(const struct hws__endpoint *ep)
{
    return hws__traffic_remote(&ep->traffic) != 0 && hws__endpoint_sent(ep) == ep->flush_messages &&
           ep->flush_acked >= ep->flush_sent;
}

/* What a flush asks of each endpoint it is about: true if this one is done with. */
static bool passed(struct hws__endpoint *ep, const struct hws__op *op)
{
    if (!ep->open || ep->flush_acked >= op->sequence) {
        return true;
    }
    if (hws__flush_sends(ep, op->sequence)) {
        return false;
    }
    if (!hws__rma_flushed(ep)) {
        return false;
    }
    if (ep->raw || rma_only(ep)) {
        return true;
    }
    if (ep->flush_sent < op->sequence) {
        ep->flush_sent = op->sequence;
        ep->flush_messages = hws__endpoint_sent(ep);
        ep->rma.messages_flushing = ep->rma.messages;
        hws__flush_send(ep, op->sequence);
    }
    return false;
}

static bool all_passed(struct hws__worker *w, const struct hws__op *op)
{
    bool all = true;

    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        all = passed(hws__container(n, struct hws__endpoint, link), op) && all;
    }
    return all;
}

void hws__flush_step(struct hws__worker *w)
{
    for (struct hws__list *n = w->flushing.next, *next; n != &w->flushing; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, match);

        next = n->next;
        if (op->ep != NULL && !op->ep->open) {
            hws__op_finish(op, op->ep->failed        ? op->ep->status
                               : op->ep->peer_closed ? HWS_E_PEER_CLOSED
                                                     : HWS_E_CANCELED);
        } else if (op->ep != NULL ? passed(op->ep, op) : all_passed(w, op)) {
            hws__op_finish(op, HWS_OK);
        }
    }
}

static int32_t flush_run(struct hws__post *p)
{
    struct hws__worker *w = p->worker;
    struct hws__op *op;

    if (p->ep != NULL && !p->ep->open) {
        return hws__endpoint_refuse(p->ep, p->source);
    }
    if (p->ep == NULL && w->closing) {
        return hws__fail(HWS_E_CLOSING, p->source, "the worker is closing");
    }
    if ((op = hws__op_take(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    op->stage = HWS__STAGE_OWN;
    hws__list_append(&w->flushing, &op->match);
    w->watching++;
    w->todo = true;
    return HWS_OK;
}

static int32_t raw_run(struct hws__post *p)
{
    ucp_request_param_t param;
    struct hws__op *op;

    if (!p->ep->raw) {
        return flush_run(p);
    }
    if (!p->ep->open) {
        return hws__endpoint_refuse(p->ep, p->source);
    }
    if ((op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    hws__op_param(p, op, &param);
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    hws__uworker_heat(p->ep->uworker);
    return hws__op_posted(p, op, p->ep->uworker, hws__ucx.ucp_ep_flush_nbx(p->ep->ucx, &param));
}

int32_t hws_flush(hws_id source, const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p = {.source = source, .kind = HWS_EVENT_FLUSH};
    int32_t r = HWS_OK;

    HWS__ENTER();
    if (hws__id_kind(source) == HWS_KIND_WORKER) {
        if ((p.worker = hws__worker_find(source, &r)) == NULL) {
            return r;
        }
        p.run = flush_run;
    } else {
        if ((r = hws__post_endpoint(&p)) < 0) {
            return r;
        }
        p.run = raw_run;
    }
    return hws__post(&p, opts, op);
}
