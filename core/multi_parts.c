/*
 * Multi-buffer messages: the parts of one as they arrive, wait for its receive, are fetched, and end its operation.
 */
#include "multi_recv.h"
#include "error.h"
#include "post.h"
#include "ucx_loader.h"
#include "undo.h"
#include <string.h>

/* Note a part; false if it is none of the message's, or comes twice. */
static bool note_part(struct hws__multi *x, const struct hws__message *part)
{
    uint64_t i = part->tag, bit = UINT64_C(1) << (i % 64);

    if (i == HWS__MULTI_GATHER) {
        if (x->inline_at != 0 || x->gathered == 0 || x->seen_gathered ||
            part->length != x->gathered) {
            return false;
        }
        x->seen_gathered = true;
    } else {
        if (i >= x->detail.count || !hws__multi_own(x, i) || (x->seen[i / 64] & bit) != 0 ||
            part->length != x->segments[i].length) {
            return false;
        }
        x->seen[i / 64] |= bit;
    }
    x->part_arrived++;
    return true;
}

/* Give a part to its message; false if nobody wants it. */
static bool add_part(struct hws__endpoint *ep, struct hws__multi *x, struct hws__message *part)
{
    if (x->status < 0) {
        return false;
    }
    if (!note_part(x, part)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged part of a multi-buffer message");
        return false;
    }
    if (x->left != 0) {
        hws__multi_part_fetch(x, part);
    } else {
        hws__list_append(&x->parts, &part->order_ep);
    }
    return true;
}

/* The message of a number. Its list came just before, as a rule. */
static struct hws__multi *find(struct hws__endpoint *ep, uint64_t sequence)
{
    for (struct hws__list *n = ep->multis.prev; n != &ep->multis; n = n->prev) {
        struct hws__multi *x = hws__container(n, struct hws__multi, link);

        if (x->sequence == sequence) {
            return x;
        }
    }
    return NULL;
}

/* A part whose list is still to come; false if it was received, refused or dropped. */
static bool keep_early(struct hws__endpoint *ep, struct hws__message *part)
{
    if (part->sequence <= ep->multi_received) {
        return false;
    }
    if (ep->multi_early_count == HWS__MULTI_EARLY) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "parts of messages that never came");
        return false;
    }
    ep->multi_early_count++;
    hws__list_append(&ep->multi_early, &part->order_ep);
    return true;
}

void hws__multi_add_early(struct hws__endpoint *ep, struct hws__multi *x)
{
    for (struct hws__list *n = ep->multi_early.next, *next; n != &ep->multi_early; n = next) {
        struct hws__message *part = hws__container(n, struct hws__message, order_ep);

        next = n->next;
        if (part->sequence == x->sequence) {
            hws__list_remove(n);
            ep->multi_early_count--;
            if (!add_part(ep, x, part)) {
                hws__message_release(part);
            }
        }
    }
}

ucs_status_t hws__multi_part_cb(void *arg, const void *header, size_t header_length, void *data,
                                size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    struct hws__endpoint *ep = hws__am_sender(u, param);
    struct hws__multi_part h;
    struct hws__message *part;
    struct hws__multi *x;

    if (ep == NULL || !ep->hello_done || ep->failed) {
        HWS__COUNT(u->worker, am_dropped, 1);
        return UCS_OK;
    }
    if (header_length != sizeof h || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged part of a multi-buffer message");
        return UCS_OK;
    }
    memcpy(&h, header, sizeof h);
    if ((part = hws__message_take(u->worker, HWS_KIND_BUFFER)) == NULL) {
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for a multi-buffer message");
        return UCS_OK;
    }
    ep->traffic.in[HWS_TRAFFIC_MULTI].bytes += length;
    hws__message_fill(part, u, data, length, param->recv_attr);
    part->ep = ep;
    part->ep_id = ep->obj.id;
    part->tag = h.index;
    part->sequence = h.sequence;
    x = find(ep, h.sequence);
    if (x != NULL ? add_part(ep, x, part) : keep_early(ep, part)) {
        return UCS_INPROGRESS;
    }
    /* UCX drops it, and the sender completes. Inside its own callback it must not be released. */
    part->desc = NULL;
    part->uworker = NULL;
    hws__list_remove(&part->held);
    hws__message_release(part);
    return UCS_OK;
}

/* Of those that wait: what will never be whole, or whose data can no longer be fetched. */
static bool is_unfetched(const struct hws__message *m)
{
    return m->multi->part_count != 0 || m->coming != NULL;
}

void hws__multi_lost(struct hws__endpoint *ep)
{
    struct hws__list *n;

    hws__match_lose(&ep->multi_scope, is_unfetched);
    while ((n = hws__list_pop(&ep->multi_early)) != NULL) {
        hws__message_release(hws__container(n, struct hws__message, order_ep));
    }
    ep->multi_early_count = 0;
    while ((n = hws__list_pop(&ep->multis)) != NULL) {
        struct hws__multi *x = hws__container(n, struct hws__multi, link);
        uint32_t missing = x->part_count - x->part_arrived;

        hws__multi_drop_parts(x);
        if (x->status == HWS_OK && (x->left == 0 || missing != 0)) {
            x->status = ep->failed        ? ep->status
                        : ep->peer_closed ? HWS_E_PEER_CLOSED
                                          : HWS_E_CANCELED;
        }
        if (x->left != 0 && missing != 0) {
            x->left -= missing - 1;
            hws__multi_part_done(x, x->status);
        }
    }
}

const hws_multi_detail *hws__multi_hand_out(struct hws__multi *x)
{
    x->detail.buffer = hws__message_publish(x->message);
    return &x->detail;
}

int32_t hws__multi_status(const struct hws__multi *x)
{
    const struct hws__endpoint *ep = x->message->ep;

    return x->status < 0 && x->status != HWS_E_TOO_BIG && ep->obj.id == x->message->ep_id
               ? hws__endpoint_cause(ep, x->status)
               : x->status;
}

static int32_t cause(const struct hws__op *op, int32_t code)
{
    return code == HWS_E_TOO_BIG && op->wanted == 0 ? code : hws__op_held_cause(op, code);
}

void hws__multi_end(struct hws__multi *x, int32_t code)
{
    struct hws__op *op = x->op;

    if (x->undone != NULL) {
        code = hws__undo_multi_fetched(x, code);
    }
    op->multi = NULL;
    x->op = NULL;
    hws__list_remove(&x->link);
    if (code < 0) {
        code = cause(op, code);
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
    op->from = x->message->ep_id;
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
    if (hws__uworker_destroying) {
        return; /* the owner ends it, see hws__op_orphans() */
    }
    hws__multi_part_done(x, hws__from_ucx(status));
}

void hws__multi_orphan(struct hws__op *op)
{
    struct hws__message *m = op->multi;

    if (m->multi->undone != NULL) {
        hws__undo_multi_orphan(m->multi);
    }
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
