/*
 * Sends on a stream that wait for credit. UCX keeps what a stream brings until somebody reads it, however
 * large the send, so one that does not fit goes in parts, each as large as what is left. Only the first that
 * waits has a part in UCX; it stays at the head until its last part is done.
 */
#include "endpoint.h"
#include "op.h"
#include "progress.h"
#include "ucx_loader.h"

/* The rest of the piece that the next part begins in: `op->done_length` bytes went before. */
static char *next_piece(const struct hws__op *op, uint64_t *length)
{
    const hws_iov *v = op->buffer;
    uint64_t skip = op->done_length;

    if ((op->flags & HWS_OP_IOV) == 0) {
        *length = op->length - skip;
        return (char *)op->buffer + skip;
    }
    while (skip >= v->length) {
        skip -= v->length;
        v++;
    }
    *length = v->length - skip;
    return (char *)v->base + skip;
}

/* A part has left: more is to come, or that was all. */
static void part_sent(struct hws__op *op, uint64_t length)
{
    struct hws__traffic *t = &op->ep->traffic;

    t->out[HWS_TRAFFIC_STREAM].count += op->done_length == 0;
    t->out[HWS_TRAFFIC_STREAM].bytes += length;
    op->done_length += length;
}

static bool whole(const struct hws__op *op)
{
    return op->done_length == op->credit_bytes;
}

static void part_done(void *request, ucs_status_t status, void *user_data)
{
    struct hws__op *op = user_data;
    struct hws__endpoint *ep;
    int32_t code = hws__from_ucx(status);

    hws__ucx.ucp_request_free(request);
    if (hws__uworker_destroying) {
        return; /* the owner ends it, see hws__op_orphans() */
    }
    ep = op->ep;
    if (op->stage != HWS__STAGE_UCX) { /* inside the call that posts it */
        op->status = code;
        op->stage = HWS__STAGE_ENDED;
        return;
    }
    hws__op_unhold(op);
    if (code == HWS_OK && !whole(op)) {
        code = op->wanted != 0 ? op->wanted : ep->peer_closed ? HWS_E_PEER_CLOSED : HWS_OK;
        if (code == HWS_OK && ep->ucx != NULL && !ep->failed) {
            op->stage = HWS__STAGE_CREDIT;
            hws__endpoint_attend(ep);
            return;
        }
        code = code < 0 ? code : HWS_E_CANCELED;
    }
    hws__op_finish(op, code < 0 ? hws__op_cause(op, code) : code);
}

/* Hand a part to UCX. True: another one may follow. */
static bool send_part(struct hws__endpoint *ep, struct hws__op *op, char *from, uint64_t length)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .cb.send = part_done,
                                 .user_data = op,
                                 .memory_type = (ucs_memory_type_t)op->memory_kind};
    ucs_status_ptr_t r;
    bool inside;

    if (op->memory_kind == HWS_MEMORY_UNKNOWN) {
        param.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    }
    r = hws__ucx.ucp_stream_send_nbx(ep->ucx, from, length, &param);
    inside = op->stage == HWS__STAGE_ENDED; /* the callback came before the call's return */
    if (inside) {
        op->stage = HWS__STAGE_CREDIT;
    }
    if (UCS_PTR_IS_ERR(r) || (inside && op->status < 0)) {
        hws__refused_by_ucx(ep->uworker);
        hws__op_finish(op,
                       hws__op_cause(op, inside ? op->status : hws__from_ucx(UCS_PTR_STATUS(r))));
        return false;
    }
    hws__credit_spend(&ep->credit, HWS__CREDIT_STREAM, length);
    part_sent(op, length);
    hws__uworker_heat(ep->uworker);
    if (r == NULL || inside) {
        return true;
    }
    hws__op_hold(op, ep->uworker, r);
    return false;
}

void hws__stream_push(struct hws__endpoint *ep)
{
    struct hws__list *waiting = &ep->credit.out[HWS__CREDIT_STREAM].waiting;

    while (!hws__list_empty(waiting) && ep->ucx != NULL && !ep->failed) {
        struct hws__op *op = hws__container(waiting->next, struct hws__op, match);
        uint64_t left = hws__credit_stream_left(&ep->credit), least, length;
        char *from;

        if (op->stage != HWS__STAGE_CREDIT) {
            return; /* a part is on its way */
        }
        if (whole(op)) {
            hws__op_finish(op, HWS_OK);
            continue;
        }
        from = next_piece(op, &length);
        least = hws__credit_stream_step(&ep->credit);
        if (left < (length < least ? length : least)) {
            return;
        }
        if (!send_part(ep, op, from, length < left ? length : left)) {
            return;
        }
    }
}
