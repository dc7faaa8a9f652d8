/*
 * Remote memory access by UCX itself: RDMA, and raw endpoints.
 */
#include "error.h"
#include "rma.h"
#include "ucx_loader.h"

static const hws_op_opts unseen = {.struct_size = sizeof(hws_op_opts), .flags = HWS_OP_DETACHED};

void hws__rma_done(void *request, ucs_status_t status, void *user_data)
{
    struct hws__op *op = user_data;
    bool counted = !hws__uworker_destroying && op->stage == HWS__STAGE_UCX;
    struct hws__rkey *k = counted ? op->rkey : NULL;

    hws__op_ucx_done(request, status, op);
    if (counted) {
        hws__rkey_unuse(k);
    }
}

int32_t hws__rma_posted(struct hws__post *p, struct hws__op *op, struct hws__rkey *k,
                        ucs_status_ptr_t ptr)
{
    struct hws__endpoint *ep = k->ep;
    int32_t r = hws__op_posted(p, op, ep->uworker, ptr);

    if (r == HWS_OK) {
        op->rkey = k;
        op->job = NULL;
        hws__rkey_use(k);
    }
    ep->rma.ucx++;
    hws__uworker_heat(ep->uworker);
    return r;
}

/* One piece only: UCX takes no list. */
static int32_t contiguous(struct hws__post *p, struct hws__op **op, ucp_request_param_t *param)
{
    if (p->opts->flags & HWS_OP_IOV) {
        return hws__fail(HWS_E_UNSUPPORTED, p->rkey, "UCX's remote access takes no HWS_OP_IOV");
    }
    if ((*op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    hws__op_param(p, *op, param);
    param->cb.send = hws__rma_done;
    return HWS_OK;
}

static int32_t posted(struct hws__post *p, struct hws__op *op, struct hws__rkey *k,
                      ucs_status_ptr_t ptr)
{
    int32_t r = hws__rma_posted(p, op, k, ptr);

    p->done_length = p->length;
    if (r == HWS_OK) {
        op->done_length = p->length;
    }
    return r;
}

int32_t hws__rma_ucx_put(struct hws__post *p, struct hws__rkey *k)
{
    ucp_request_param_t param;
    struct hws__op *op = NULL;
    int32_t r = contiguous(p, &op, &param);

    return r < 0 ? r
                 : posted(p, op, k,
                          hws__ucx.ucp_put_nbx(k->ep->ucx, p->buffer, p->length, p->mask, k->ucx,
                                               &param));
}

int32_t hws__rma_ucx_get(struct hws__post *p, struct hws__rkey *k)
{
    ucp_request_param_t param;
    struct hws__op *op = NULL;
    int32_t r = contiguous(p, &op, &param);

    return r < 0 ? r
                 : posted(p, op, k,
                          hws__ucx.ucp_get_nbx(k->ep->ucx, p->buffer, p->length, p->mask, k->ucx,
                                               &param));
}

static void flushed(void *request, ucs_status_t status, void *user_data)
{
    struct hws__op *op = user_data;

    if (!hws__uworker_destroying && op->stage == HWS__STAGE_UCX) {
        op->ep->rma.flushing = false;
        op->ep->rma.ucx_flushed = op->mask;
        op->worker->todo = true;
    }
    hws__op_ucx_done(request, status, op);
}

/* An operation of nobody's, so that an endpoint that is cut waits for it. */
static void start(struct hws__endpoint *ep)
{
    struct hws__post p = {.worker = ep->worker,
                          .ep = ep,
                          .source = ep->obj.id,
                          .kind = HWS_EVENT_FLUSH,
                          .mask = ep->rma.ucx,
                          .opts = &unseen};
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = flushed};
    struct hws__op *op = hws__op_peek(&p);
    int32_t r;

    if (op == NULL) {
        return; /* the next step tries again */
    }
    param.user_data = op;
    r = hws__op_posted(&p, op, ep->uworker, hws__ucx.ucp_ep_flush_nbx(ep->ucx, &param));
    hws__uworker_heat(ep->uworker);
    if (r == HWS_OK) {
        ep->rma.flushing = true;
    } else {
        ep->rma.ucx_flushed = ep->rma.ucx; /* complete, or the endpoint fails */
    }
}

bool hws__rma_flushed(struct hws__endpoint *ep)
{
    if (ep->rma.ucx == ep->rma.ucx_flushed || ep->ucx == NULL) {
        return true;
    }
    if (!ep->rma.flushing) {
        start(ep);
    }
    return ep->rma.ucx == ep->rma.ucx_flushed;
}
