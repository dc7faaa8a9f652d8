/*
 * Multi-buffer messages: sending one that is more than its list. UCX has several requests of it then, and the last one
 * that is done ends the operation.
 */
#include "multi_layout.h"
#include "cuda.h"
#include "error.h"
#include "hello.h"
#include "post.h"
#include "progress.h"
#include "ucx_loader.h"
#include <stdlib.h>

/* A message with parts, until UCX has done all of them. In the operation's `extra`, freed with it. */
struct outgoing {
    struct hws__op *op; /* null while they are being posted */
    struct hws__uworker *uworker;
    uint64_t sequence;
    uint32_t left; /* requests that UCX holds; 1 more while they are being posted */
    int32_t status;
    struct hws__multi_part *headers;
    ucp_dt_iov_t *iov;
    struct hws__multi_wire wire; /* the list follows: last member */
};

/* UCX has done one of the messages. */
static void part_sent(void *request, ucs_status_t status, void *user_data)
{
    struct outgoing *out = user_data;
    struct hws__op *op;
    int32_t code = hws__from_ucx(status);

    hws__ucx.ucp_request_free(request);
    if (hws__uworker_destroying) {
        return; /* the owner ends it, see hws__op_orphans() */
    }
    op = out->op;
    if (code < 0 && out->status == HWS_OK) {
        out->status = code;
    }
    if (--out->left != 0) {
        return;
    }
    code = out->status;
    hws__op_unhold(op);
    hws__op_finish(op, code < 0 ? hws__op_cause(op, code) : code);
}

/* Hand one message to UCX. */
static void post_part(struct hws__endpoint *ep, struct outgoing *out, unsigned am_id,
                      const void *header, const void *buffer, uint64_t count,
                      ucp_request_param_t *param)
{
    ucs_status_ptr_t r;

    param->user_data = out;
    param->cb.send = part_sent;
    param->flags |= ep->send_flags;
    out->left++;
    r = hws__ucx.ucp_am_send_nbx(ep->ucx, am_id, header,
                                 header != NULL ? sizeof(struct hws__multi_part) : 0, buffer, count,
                                 param);
    if (UCS_PTR_IS_PTR(r)) {
        return;
    }
    out->left--;
    if (r != NULL && out->status == HWS_OK) {
        hws__refused_by_ucx(ep->uworker);
        out->status = hws__from_ucx(UCS_PTR_STATUS(r));
    }
}

static void post_own(struct hws__endpoint *ep, struct outgoing *out, uint64_t i,
                     const hws_segment *s)
{
    uint32_t kind = s->memory_kind;
    bool known;

    if (kind == HWS_MEMORY_UNKNOWN) {
        /* It can tell: hws__multi_layout_of() has asked it before. */
        (void)hws__cuda_kind(ep->obj.id, s->base, &kind, &known);
    }
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS |
                        (kind != HWS_MEMORY_UNKNOWN ? UCP_OP_ATTR_FIELD_MEMORY_TYPE : 0u),
        .flags = UCP_AM_SEND_FLAG_RNDV,
        .memory_type = (ucs_memory_type_t)kind};

    *out->headers = (struct hws__multi_part){.sequence = out->sequence, .index = (uint32_t)i};
    post_part(ep, out, HWS__AM_MULTI_PART, out->headers++, s->base, s->length, &param);
}

static void post_gathered(struct hws__endpoint *ep, struct outgoing *out,
                          const struct hws__multi_layout *layout)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                     UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE |
                                     UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .flags = UCP_AM_SEND_FLAG_RNDV,
                                 .datatype = ucp_dt_make_iov(),
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    uint64_t n = 0;

    for (uint64_t i = 0; i < layout->count; i++) {
        const hws_segment *s = &layout->segments[i];

        if (!hws__multi_is_own(s) && s->length != 0) {
            out->iov[n++] = (ucp_dt_iov_t){s->base, s->length};
        }
    }
    *out->headers = (struct hws__multi_part){.sequence = out->sequence, .index = HWS__MULTI_GATHER};
    post_part(ep, out, HWS__AM_MULTI_PART, out->headers++, out->iov, n, &param);
}

/* The record, with its list, room for the headers of the parts and for the gathered pieces. */
static struct outgoing *outgoing_new(const struct hws__post *p,
                                     const struct hws__multi_layout *layout)
{
    uint64_t list = (hws__multi_layout_bytes(layout) + 7) & ~UINT64_C(7);
    uint64_t headers = (layout->large + 1) * sizeof(struct hws__multi_part);
    uint64_t iov = layout->within ? 0 : layout->count * sizeof(ucp_dt_iov_t);
    struct outgoing *out = malloc(offsetof(struct outgoing, wire) + list + headers + iov);

    if (out == NULL) {
        hws__fail(HWS_E_NO_MEMORY, p->source, "list of %llu segments",
                  (unsigned long long)layout->count);
        return NULL;
    }
    *out = (struct outgoing){.uworker = p->ep->uworker, .sequence = p->ep->multi_sent + 1};
    out->headers = (struct hws__multi_part *)(void *)((char *)&out->wire + list);
    out->iov = (ucp_dt_iov_t *)(void *)((char *)out->headers + headers);
    hws__multi_layout_write(&out->wire, layout, p->tag, out->sequence);
    return out;
}

/* The messages are with UCX: the operation waits for them, or is done. */
static int32_t settle(struct hws__post *p, struct hws__op *op, struct outgoing *out)
{
    if (out->status < 0) {
        /* A list without its parts: the peer would wait for ever. */
        hws__endpoint_fail(p->ep, out->status, "a multi-buffer message was cut off: %s",
                           hws_error_text(out->status));
    }
    if (--out->left == 0) {
        p->done_status = out->status;
        free(out);
        return HWS_DONE;
    }
    op = hws__op_take(p);
    free(op->extra); /* the segments of a submission */
    op->extra = out;
    out->op = op;
    hws__op_hold(op, out->uworker, NULL);
    return HWS_OK;
}

int32_t hws__multi_send_parts(struct hws__post *p, const struct hws__multi_layout *layout)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                     UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .flags = UCP_AM_SEND_FLAG_EAGER,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    struct hws__op *op = hws__op_next(p);
    struct hws__endpoint *ep = p->ep;
    struct outgoing *out;

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    if ((out = outgoing_new(p, layout)) == NULL) {
        return HWS_E_NO_MEMORY;
    }
    out->left = 1;
    post_part(ep, out, HWS__AM_MULTI, NULL, &out->wire, hws__multi_layout_bytes(layout), &param);
    if (out->status < 0) {
        int32_t status = out->status;

        free(out);
        return hws__fail(status, p->source, "%s", hws_error_text(status));
    }
    ep->multi_sent++;
    if (!layout->within) {
        post_gathered(ep, out, layout);
    }
    for (uint64_t i = 0; i < layout->count; i++) {
        if (hws__multi_is_own(&layout->segments[i])) {
            post_own(ep, out, i, &layout->segments[i]);
        }
    }
    return settle(p, op, out);
}

void hws__multi_refused(struct hws__endpoint *ep, uint64_t sequence, int32_t code)
{
    for (struct hws__list *n = ep->ops.next; n != &ep->ops; n = n->next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);
        struct outgoing *out = op->extra;

        /* One whose list is all there is has the list there and a request of UCX's, not this record. */
        if (op->kind == HWS_EVENT_MULTI_SEND && op->stage == HWS__STAGE_UCX && op->ucx == NULL &&
            out->sequence == sequence) {
            out->status = code < 0 ? code : HWS_E_TOO_BIG;
            return;
        }
    }
}
