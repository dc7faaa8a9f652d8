/*
 * A tagged message and a receive that are meant for each other: copied, fetched from the sender, or given as it is.
 */
#include "tag.h"
#include "error.h"
#include "post.h"
#include "raw.h"
#include "room.h"
#include "ucx_loader.h"
#include "undo.h"

/* UCX has fetched the data of a rendezvous message. */
static void fetched(void *request, ucs_status_t status, size_t length, void *user_data)
{
    struct hws__op *op = user_data;

    (void)length; /* known from the announcement */
    hws__op_ucx_done(request, status, op);
}

int32_t hws__fetch(struct hws__post *p, struct hws__uworker *u, void *desc, uint64_t length,
                   hws_id from)
{
    ucp_request_param_t param;
    struct hws__op *op = hws__op_next(p);
    size_t got = 0;
    int32_t r;

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    hws__op_param(p, op, &param);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_RECV_INFO;
    param.recv_info.length = &got;
    param.cb.recv_am = fetched;
    r = hws__op_posted(
        p, op, u,
        hws__ucx.ucp_am_recv_data_nbx(u->ucx, desc, hws__op_buffer(p, op), p->length, &param));
    p->done_length = length;
    if (r == HWS_OK) {
        op->from = from;
        op->source = p->source;
        op->memory_kind = p->opts->memory_kind;
        op->done_length = length;
        op->done_tag = p->done_tag;
    } else if (r == HWS_DONE) {
        p->done_status = hws__endpoint_cause(hws__obj_find(&hws__objects, from), p->done_status);
    }
    return r;
}

/* Eager data into the posting's buffer. */
static int32_t copy_out(struct hws__post *p, const void *data, uint64_t length)
{
    uint64_t room = hws__bytes(p->buffer, p->length, p->opts->flags);
    int32_t r = hws__room_fill(
        p->worker->context,
        (struct hws__room){p->buffer, p->length, p->opts->flags, p->opts->memory_kind}, data,
        length < room ? length : room);

    p->done_length = length;
    p->done_status = r == HWS_OK && length > room ? HWS_E_TRUNCATED : r;
    return HWS_DONE;
}

/* Give the message itself to a receive with HWS_OP_TAKE. */
static int32_t give(struct hws__post *p, struct hws__message *m)
{
    hws__match_unwait(m);
    p->source = hws__message_publish(m);
    p->done_length = m->length;
    p->done_flags = m->rndv ? HWS_EVENT_FLAG_RNDV : 0;
    return HWS_DONE;
}

int32_t hws__message_to(struct hws__post *p, struct hws__message *m)
{
    int32_t r;

    if (!hws__post_can_tell(p)) {
        return HWS_E_TOO_MANY;
    }
    if (m->coming != NULL) {
        return hws__undo_meet(p, m);
    }
    p->done_tag = m->tag;
    if (p->opts->flags & HWS_OP_TAKE) {
        return give(p, m);
    }
    if (m->raw) {
        return hws__raw_message_to(p, m);
    }
    if (!m->rndv && m->data == NULL && m->length != 0) {
        r = hws__fail(HWS_E_CONNECTION_RESET, p->source, "the data was at a peer that is gone");
    } else if (!m->rndv) {
        r = copy_out(p, m->data, m->length);
    } else if (m->length > hws__bytes(p->buffer, p->length, p->opts->flags)) {
        p->done_length = m->length;
        p->done_status = HWS_E_TRUNCATED;
        r = HWS_DONE;
    } else {
        r = hws__fetch(p, m->uworker, m->desc, m->length, m->ep_id);
        if (r == HWS_E_TOO_MANY) {
            return r;
        }
        /* UCX has taken the descriptor over, also when it failed. */
        m->desc = NULL;
        m->uworker = NULL;
        hws__list_remove(&m->held);
    }
    hws__message_release(m);
    return r;
}

void hws__message_meet(struct hws__op *op, struct hws__message *m)
{
    hws_op_opts opts;
    struct hws__post p = hws__post_again(op, &opts);
    int32_t r;

    op->stage = HWS__STAGE_OWN;
    hws__op_leave(op);
    r = hws__message_to(&p, m);
    if (r != HWS_OK) {
        op->source = p.source;
        op->event_flags = p.done_flags;
        op->done_length = p.done_length;
        op->done_tag = p.done_tag;
        hws__op_rejoin(op);
        hws__op_finish(op, r == HWS_DONE ? p.done_status : r);
    }
}
