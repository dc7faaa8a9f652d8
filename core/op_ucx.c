/*
 * Operations that UCX keeps: held until it tells of their end, or until its worker is gone.
 */
#include "op.h"
#include "endpoint.h"
#include "error.h"
#include "multi.h"
#include "progress.h"
#include "ucx_loader.h"
#include "undo.h"
#include <string.h>

/* With these UCX ends what is under way as its endpoint ends. */
static bool is_end(int32_t code)
{
    return code == HWS_E_CONNECTION_RESET || code == HWS_E_KEEPALIVE || code == HWS_E_CANCELED;
}

/* A peer that said goodbye lets go of what it was sent; where that did not get here before its end did, it was the goodbye
 * all the same. UCX cancels what comes from a peer that is gone, perhaps before it tells that the peer is: nobody asked
 * for that. */
int32_t hws__endpoint_cause(const struct hws__endpoint *ep, int32_t code)
{
    if (code >= 0 || ep == NULL) {
        return code;
    }
    if (ep->failed && ep->status != 0) {
        return ep->status;
    }
    if (ep->closing || !is_end(code)) {
        return code;
    }
    return ep->peer_closed          ? HWS_E_PEER_CLOSED
           : code == HWS_E_CANCELED ? HWS_E_CONNECTION_RESET
                                    : code;
}

int32_t hws__op_cause(const struct hws__op *op, int32_t code)
{
    return op->wanted != 0 ? op->wanted : hws__endpoint_cause(op->ep, code);
}

int32_t hws__op_held_cause(const struct hws__op *op, int32_t code)
{
    const struct hws__uworker *u = op->uworker;
    const struct hws__endpoint *from;

    if (op->ep != NULL || op->wanted != 0 || code >= 0) {
        return hws__op_cause(op, code);
    }
    if (op->from != 0 && (from = hws__obj_find(&hws__objects, op->from)) != NULL) {
        return hws__endpoint_cause(from, code);
    }
    return u->only != NULL      ? hws__endpoint_cause(u->only, code)
           : u->only_cause != 0 ? u->only_cause
                                : code;
}

void hws__op_hold(struct hws__op *op, struct hws__uworker *u, void *request)
{
    op->stage = HWS__STAGE_UCX;
    op->ucx = request;
    op->uworker = u;
    op->from = 0;
    u->pending++;
    op->worker->pending_ucx++;
}

void hws__op_unhold(struct hws__op *op)
{
    op->ucx = NULL;
    op->uworker->pending--;
    op->worker->pending_ucx--;
}

/*
 * The peer completes a rendezvous that it drops as one that it receives. Of a send that was cancelled on an endpoint
 * that is being closed, where dropping is the rule, success would say too much.
 */
static bool perhaps_dropped(const struct hws__op *op)
{
    return op->wanted != 0 && (op->kind == HWS_EVENT_TAG_SEND || op->kind == HWS_EVENT_AM_SEND) &&
           op->ep != NULL && op->ep->closing;
}

void hws__op_ucx_done(void *request, ucs_status_t status, void *user_data)
{
    struct hws__op *op = user_data;
    int32_t code = hws__from_ucx(status);

    hws__ucx.ucp_request_free(request);
    if (hws__uworker_destroying) {
        return; /* the owner ends it, see hws__op_orphans() */
    }
    if (op->stage != HWS__STAGE_UCX) {
        /* Inside the call that posts it: hws__op_pending() takes it up. */
        op->status = code;
        op->stage = HWS__STAGE_ENDED;
        return;
    }
    hws__op_unhold(op);
    if (op->multi != NULL) {
        code = hws__undo_fetched(op, code);
    }
    hws__op_finish_now(op, code < 0 || perhaps_dropped(op) ? hws__op_held_cause(op, code) : code);
}

void *hws__op_keep_iov(const struct hws__post *p, struct hws__op *op)
{
    if (p->buffer != op->iov && p->length != 0) {
        memcpy(op->iov, p->buffer, p->length * sizeof *op->iov);
    }
    return op->iov;
}

int32_t hws__op_pending(struct hws__post *p, struct hws__op *op, struct hws__uworker *u,
                        ucs_status_ptr_t ptr)
{
    if (UCS_PTR_IS_ERR(ptr)) {
        hws__refused_by_ucx(u);
        return hws__fail_ucx(UCS_PTR_STATUS(ptr), p->source, "%s",
                             hws__ucx.ucs_status_string(UCS_PTR_STATUS(ptr)));
    }
    if (op->stage == HWS__STAGE_ENDED) {
        op->stage = HWS__STAGE_FREE;
        p->done_status = hws__endpoint_cause(p->ep, op->status);
        return HWS_DONE;
    }
    hws__op_take(p);
    hws__op_hold(op, u, ptr);
    return HWS_OK;
}

static void end_orphans(struct hws__list *ops, const struct hws__uworker *u)
{
    for (struct hws__list *n = ops->next, *next; n != ops; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);

        next = n->next;
        if (op->stage == HWS__STAGE_UCX && op->uworker == u) {
            bool others = op->multi != NULL; /* may end with it, see undo.h */

            op->worker->pending_ucx--;
            if (others && op->kind != HWS_EVENT_TAG_RECV) {
                hws__multi_orphan(op);
            }
            hws__op_finish(op, hws__op_held_cause(op, HWS_E_CANCELED));
            next = others ? ops->next : next;
        }
    }
}

void hws__op_orphans(struct hws__worker *w, const struct hws__uworker *u)
{
    end_orphans(&w->ops, u);
    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        end_orphans(&hws__container(n, struct hws__endpoint, link)->ops, u);
    }
}
