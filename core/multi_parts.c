/*
 * Multi-buffer messages: the parts of one that is received are fetched, and the last one ends its operation.
 */
#include "multi_recv.h"
#include "error.h"
#include "post.h"
#include "ucx_loader.h"

const hws_multi_detail *hws__multi_hand_out(struct hws__multi *x)
{
    x->detail.buffer = hws__message_publish(x->message);
    return &x->detail;
}

void hws__multi_end(struct hws__multi *x, int32_t code)
{
    struct hws__op *op = x->op;
    struct hws__endpoint *ep = x->message->ep;

    op->multi = NULL;
    x->op = NULL;
    hws__list_remove(&x->link);
    if (code < 0) {
        bool same = ep->obj.id == x->message->ep_id;

        code = op->wanted != 0                               ? op->wanted
               : same && ep->failed && code != HWS_E_TOO_BIG ? ep->status
                                                             : code;
    }
    if (code == HWS_OK && x->ours) {
        op->record = hws__multi_hand_out(x);
        op->tag = x->detail.buffer;
        op->event_flags |= HWS_EVENT_FLAG_BUFFER;
    } else {
        hws__message_release(x->message);
    }
    hws__op_finish(op, code);
}

/* The UCX worker that brings the parts. A message that was given back has outlived it, perhaps, or never had one. */
static struct hws__uworker *brought_by(const struct hws__multi *x)
{
    struct hws__worker *w = x->message->worker;

    return x->uworker != NULL &&
                   (x->uworker == x->message->ep->uworker || !hws__uworker_stale(w, x->uworker))
               ? x->uworker
               : w->main;
}

void hws__multi_hold(struct hws__op *op, struct hws__multi *x)
{
    hws__op_hold(op, brought_by(x), NULL);
    op->multi = x->message;
    op->done_tag = x->message->tag;
    op->done_length = x->detail.total;
    x->op = op;
}

void hws__multi_part_done(struct hws__multi *x, int32_t status)
{
    if (status < 0 && x->status == HWS_OK) {
        x->status = status;
    }
    if (--x->left == 0 && x->op != NULL) {
        hws__op_unhold(x->op);
        hws__multi_end(x, x->status);
    }
}

static void part_received(void *request, ucs_status_t status, size_t length, void *user_data)
{
    struct hws__multi *x = user_data;

    (void)length; /* known from the list */
    hws__ucx.ucp_request_free(request);
    if (atomic_load(&x->uworker->destroying)) {
        return; /* on the background thread; the owner ends it, see hws__op_orphans() */
    }
    hws__multi_part_done(x, hws__from_ucx(status));
}

void hws__multi_orphan(struct hws__op *op)
{
    struct hws__message *m = op->multi;

    op->multi = NULL;
    m->multi->op = NULL;
    hws__message_release(m);
}

/* The places of the gathered segments; how many. */
static uint64_t gather(struct hws__multi *x)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < x->detail.count; i++) {
        if (!hws__multi_own(x, i) && x->segments[i].length != 0) {
            x->iov[n++] = (ucp_dt_iov_t){x->segments[i].base, x->segments[i].length};
        }
    }
    return n;
}

void hws__multi_part_fetch(struct hws__multi *x, struct hws__message *part)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                     UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_RECV_INFO |
                                     UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .cb.recv_am = part_received,
                                 .datatype = ucp_dt_make_contig(1),
                                 .user_data = x,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    struct hws__uworker *u = part->uworker;
    uint64_t count = part->length;
    void *buffer = x->iov, *desc = part->desc;
    ucs_status_ptr_t r;
    size_t got;

    param.recv_info.length = &got;
    if (part->tag == HWS__MULTI_GATHER) {
        count = gather(x);
        param.datatype = ucp_dt_make_iov();
    } else {
        const hws_segment *s = &x->segments[part->tag];

        buffer = s->base;
        param.memory_type = (ucs_memory_type_t)s->memory_kind;
        if (s->memory_kind == HWS_MEMORY_UNKNOWN) {
            param.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        }
    }
    if (desc == NULL) { /* its UCX worker is gone */
        hws__message_release(part);
        hws__multi_part_done(x, HWS_E_CONNECTION_RESET);
        return;
    }
    /* UCX takes the descriptor over, also when it fails. */
    part->desc = NULL;
    part->uworker = NULL;
    hws__list_remove(&part->held);
    hws__message_release(part);
    r = hws__ucx.ucp_am_recv_data_nbx(u->ucx, desc, buffer, count, &param);
    if (!UCS_PTR_IS_PTR(r)) {
        hws__multi_part_done(x, r == NULL ? HWS_OK : hws__from_ucx(UCS_PTR_STATUS(r)));
    }
}

bool hws__multi_start(struct hws__multi *x)
{
    struct hws__list *n;

    x->left = x->part_count + 1;
    while ((n = hws__list_pop(&x->parts)) != NULL) {
        hws__multi_part_fetch(x, hws__container(n, struct hws__message, order_ep));
    }
    x->left--;
    return x->left == 0;
}

int32_t hws__multi_wait(struct hws__post *p, struct hws__multi *x)
{
    hws__multi_hold(hws__op_take(p), x);
    return HWS_OK;
}
