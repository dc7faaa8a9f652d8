#include "undo.h"
#include "endpoint.h"
#include "multi.h"
#include "post.h"
#include "tag.h"

/* Of a receive of a message that was probed or taken the endpoint is known by its id. */
static struct hws__endpoint *sender(const struct hws__op *op)
{
    return op->ep != NULL ? op->ep
           : hws__id_kind(op->source) == HWS_KIND_ENDPOINT
               ? hws__obj_find(&hws__objects, op->source)
               : NULL;
}

/* Contiguous host memory, of a message that UCX fetches for an active message: of another UCX knows no length. */
static bool can_undo(const struct hws__op *op)
{
    return op->kind == HWS_EVENT_TAG_RECV && op->multi == NULL && !op->uworker->raw &&
           (op->flags & HWS_OP_IOV) == 0 && op->memory_kind == HWS_MEMORY_HOST &&
           op->done_length != 0;
}

static bool in_host_memory(const struct hws__multi *x)
{
    for (uint64_t i = 0; i < x->detail.count; i++) {
        if (x->segments[i].length != 0 && x->segments[i].memory_kind != HWS_MEMORY_HOST) {
            return false;
        }
    }
    return true;
}

/* What the library has memory for is not lost: it is a buffer of the user's. */
static void undo_multi(struct hws__op *op)
{
    struct hws__multi *x = op->multi->multi;
    struct hws__endpoint *ep = op->multi->ep;
    struct hws__message *m;

    if (x->ours || x->undone != NULL || !in_host_memory(x) || ep->obj.id != op->multi->ep_id ||
        ep->closing || ep->failed ||
        (m = hws__multi_of(ep, op->multi->tag, x->segments, x->detail.count)) == NULL) {
        return;
    }
    m->returned = true;
    m->coming = op;
    x->undone = m;
    hws__message_offer(m);
}

void hws__undo(struct hws__op *op)
{
    struct hws__endpoint *ep = sender(op);
    struct hws__message *m;

    if (op->kind == HWS_EVENT_MULTI_RECV && op->multi != NULL) {
        undo_multi(op);
        return;
    }
    if (!can_undo(op) || (ep != NULL && (ep->closing || ep->failed)) ||
        (m = hws__message_take(op->worker, HWS_KIND_MESSAGE)) == NULL) {
        return;
    }
    if (ep != NULL) {
        m->ep = ep;
        m->ep_id = ep->obj.id;
    }
    m->tag = op->done_tag;
    m->length = op->done_length;
    m->returned = true;
    m->coming = op;
    op->multi = m;
    hws__message_offer(m);
}

int32_t hws__undo_meet(struct hws__post *p, struct hws__message *m)
{
    struct hws__op *op = hws__op_take(p);

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    hws__match_unwait(m);
    op->buffer = hws__op_buffer(p, op);
    op->memory_kind = p->opts->memory_kind;
    hws__undo_wait(op, m);
    return HWS_OK;
}

void hws__undo_wait(struct hws__op *op, struct hws__message *m)
{
    op->stage = HWS__STAGE_COMING;
    op->multi = m;
    m->meant = op;
}

void hws__undo_release(struct hws__message *m)
{
    struct hws__op *op = m->coming;

    if (op->kind == HWS_EVENT_TAG_RECV) {
        op->multi = NULL;
    } else {
        op->multi->multi->undone = NULL;
    }
    m->coming = NULL;
}

/* The two know nothing of each other any more; who waited for the message, or null. */
static struct hws__op *part(struct hws__message *m)
{
    struct hws__op *meant = m->meant;

    hws__undo_release(m);
    m->meant = NULL;
    if (meant != NULL) {
        meant->multi = NULL;
        meant->stage = HWS__STAGE_OWN;
    }
    return meant;
}

static void lose(struct hws__message *m, int32_t code)
{
    struct hws__op *meant = part(m);

    hws__message_release(m);
    if (meant != NULL) {
        hws__op_finish(meant, hws__op_cause(meant, code));
    }
}

int32_t hws__undo_fetched(struct hws__op *op, int32_t code)
{
    struct hws__message *m = op->multi;
    struct hws__op *meant = m->meant;

    if (code < 0) {
        lose(m, code);
        return code;
    }
    if (meant != NULL && (meant->flags & HWS_OP_TAKE) == 0) {
        m->data = op->buffer; /* until it is copied from there, which is at once */
    } else if (hws__message_fill(m, NULL, op->buffer, m->length, 0) == UCS_ERR_NO_MEMORY) {
        if (meant != NULL) {
            lose(m, HWS_E_NO_MEMORY);
        } else {
            part(m);
            hws__message_release(m);
        }
        return code;
    }
    if (part(m) != NULL) {
        hws__message_meet(meant, m);
    }
    return HWS_E_CANCELED;
}

int32_t hws__undo_multi_fetched(struct hws__multi *x, int32_t code)
{
    struct hws__message *m = x->undone;
    struct hws__op *meant;

    if (code < 0) {
        lose(m, code);
        return code;
    }
    hws__multi_fill(m, x->segments);
    if ((meant = part(m)) != NULL) {
        hws__multi_meet(meant, m->multi);
    }
    return HWS_E_CANCELED;
}

void hws__undo_multi_orphan(struct hws__multi *x)
{
    lose(x->undone, HWS_E_CONNECTION_RESET);
}

/* The receive that waits is cancelled itself. */
static void wait_again(struct hws__message *m)
{
    m->meant->multi = NULL;
    m->meant = NULL;
    if (m->worker->closing || (m->ep != NULL && m->ep->failed)) {
        hws__message_release(m);
    } else {
        hws__message_offer(m);
    }
}

void hws__undo_forget(struct hws__op *op)
{
    struct hws__message *m = op->multi;

    if (m->meant == op) {
        wait_again(m);
    } else {
        lose(m, HWS_E_CONNECTION_RESET);
    }
}
