/*
 * Multi-buffer messages: receives, and the messages that they meet.
 */
#include "multi_recv.h"
#include "error.h"
#include "guard.h"
#include "options.h"
#include "post.h"
#include "quick.h"
#include "undo.h"
#include <string.h>

/* The receive's limits; a message over them is refused. */
static int32_t admit(struct hws__multi *x, const struct hws__multi_want *want)
{
    if (x->status == HWS_OK &&
        (x->detail.total > want->bytes_max || x->detail.count > want->count_max)) {
        hws__multi_refuse(x, HWS_E_TOO_BIG);
    }
    return x->status;
}

/* Everything is there and has its place, or only the list is wanted. */
static bool at_once(const struct hws__multi *x, const struct hws__multi_want *want)
{
    return (want->flags & HWS_MULTI_LIST) || (x->part_count == 0 && want->alloc == NULL);
}

static uint32_t flags_of(const struct hws__multi *x)
{
    return HWS_EVENT_FLAG_BUFFER | (x->part_count != 0 && !x->ours ? HWS_EVENT_FLAG_RNDV : 0);
}

/* A failed message is consumed by its receive. */
static int32_t done_failed(struct hws__post *p, struct hws__multi *x, int32_t code)
{
    struct hws__endpoint *ep = x->message->ep;

    if (ep->obj.id == x->message->ep_id && ep->failed && code != HWS_E_TOO_BIG) {
        code = ep->status;
    }
    p->done_status = code;
    hws__message_release(x->message);
    return HWS_DONE;
}

int32_t hws__multi_to(struct hws__post *p, struct hws__multi *x, const struct hws__multi_want *want)
{
    int32_t r;

    if (hws__op_next(p) == NULL) {
        return HWS_E_TOO_MANY;
    }
    hws__match_unwait(x->message);
    p->done_tag = x->message->tag;
    p->done_length = x->detail.total;
    if ((r = admit(x, want)) < 0) {
        return done_failed(p, x, r);
    }
    if (!at_once(x, want)) {
        x->want = *want;
        if ((r = hws__multi_allocate(x)) < 0) {
            hws__multi_refuse(x, r);
            return done_failed(p, x, r);
        }
        if (!hws__multi_start(x)) {
            return hws__multi_wait(p, x);
        }
        if (x->status < 0) {
            return done_failed(p, x, hws__multi_status(x));
        }
        hws__list_remove(&x->link);
    }
    p->done_flags = flags_of(x);
    p->done_record = hws__multi_hand_out(x);
    return HWS_DONE;
}

void hws__multi_meet(struct hws__op *op, struct hws__multi *x)
{
    const struct hws__multi_want *want = (const void *)op->header;

    if (at_once(x, want) && x->status == HWS_OK && x->detail.total <= want->bytes_max &&
        x->detail.count <= want->count_max) {
        op->done_tag = x->message->tag;
        op->done_length = x->detail.total;
        op->event_flags |= flags_of(x);
        op->record = hws__multi_hand_out(x);
        op->tag = x->detail.buffer;
        hws__op_finish(op, HWS_OK);
        return;
    }
    /* Neither an allocator nor the release of the message may run inside UCX. */
    x->want = *want;
    hws__multi_hold(op, x);
    hws__list_append(&op->worker->multi_pending, &x->message->order_worker);
    op->worker->todo = true;
}

/* A receive that met its message inside UCX goes on. */
static void resume(struct hws__multi *x)
{
    int32_t r = admit(x, &x->want);

    if (r == HWS_OK && (r = hws__multi_allocate(x)) < 0) {
        hws__multi_refuse(x, r);
    }
    if (r < 0 || hws__multi_start(x)) {
        hws__op_unhold(x->op);
        hws__multi_end(x, r < 0 ? r : x->status);
    }
}

int hws__multi_step(struct hws__worker *w)
{
    struct hws__list *n;
    int done = 0;

    for (; (n = hws__list_pop(&w->multi_pending)) != NULL; done++) {
        struct hws__message *m = hws__container(n, struct hws__message, order_worker);

        if (m->multi->op != NULL) {
            resume(m->multi);
        } else {
            hws__message_release(m); /* nobody took the result, see hws__multi_unclaimed() */
        }
    }
    return done;
}

/* For the bytes of a message that another receive still fetches. */
static int32_t wait_for(struct hws__post *p, struct hws__message *m)
{
    struct hws__op *op = hws__op_take(p);

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    memmove(op->header, p->header, sizeof(struct hws__multi_want));
    hws__match_unwait(m);
    hws__undo_wait(op, m);
    return HWS_OK;
}

static int32_t recv_run(struct hws__post *p)
{
    struct hws__endpoint *ep = p->ep;
    struct hws__scope *scope = ep != NULL ? &ep->multi_scope : &p->worker->multi_scope;
    const struct hws__multi_want *want = p->header;
    struct hws__message *m;
    struct hws__op *op;

    if ((m = hws__match_find(scope, ep == NULL, p->tag, p->mask)) != NULL) {
        return m->coming == NULL ? hws__multi_to(p, m->multi, want) : wait_for(p, m);
    }
    if (ep == NULL && p->worker->closing) {
        return hws__fail(HWS_E_CLOSING, p->source, "the worker is closing");
    }
    if (ep != NULL && (!ep->open || ep->raw)) {
        int32_t r = ep->open ? HWS_E_UNSUPPORTED : hws__endpoint_check(ep);

        return hws__fail(r, p->source, "%s", ep->text[0] ? ep->text : hws_error_text(r));
    }
    if ((op = hws__op_take(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    memmove(op->header, want, sizeof *want);
    hws__match_post(scope, op);
    if (p->worker->credit_blocked != 0) {
        hws__credit_recall(p->worker, ep, HWS__CREDIT_MULTI, op);
    }
    return HWS_OK;
}

static int32_t read_options(struct hws__multi_want *want, const hws_multi_recv_opts *opts,
                            hws_id source)
{
    hws_multi_recv_opts o;
    int32_t r;

    if (opts == NULL || opts->struct_size != sizeof o) {
        if ((r = hws__options(&o, sizeof o, opts, "multi-buffer receive")) < 0) {
            return r;
        }
        opts = &o;
    }
    if (opts->flags & ~(uint32_t)HWS_MULTI_LIST) {
        return hws__fail(HWS_E_INVALID, source, "unknown flags %#x", opts->flags);
    }
    want->flags = opts->flags;
    want->bytes_max = opts->bytes_max != 0 ? opts->bytes_max : UINT64_MAX;
    want->count_max = opts->count_max != 0 ? opts->count_max : UINT64_MAX;
    want->alloc = opts->alloc;
    want->free = opts->free;
    want->alloc_arg = opts->alloc_arg;
    return HWS_OK;
}

/* A result that is not looked at would be a buffer that nobody closes. */
static int32_t check_result(hws_op_opts *ours, const hws_op_opts *opts, hws_id source)
{
    int32_t r = hws__options(ours, sizeof *ours, opts, "operation");

    ours->struct_size = sizeof *ours;
    if (r == HWS_OK && (ours->flags & HWS_OP_DETACHED)) {
        return hws__fail(HWS_E_INVALID, source, "a detached receive would lose its buffer");
    }
    if (ours->result == NULL) {
        ours->flags &= ~(uint32_t)HWS_OP_INLINE;
    }
    return r;
}

/* By quick.h. False: not on this way. */
static inline bool quick_recv(hws_id source, uint64_t tag, uint64_t mask,
                              const struct hws__multi_want *want, const hws_op_opts *opts,
                              hws_id *out)
{
    uint32_t kind = want->flags & HWS_MULTI_LIST ? HWS_EVENT_MULTI_LIST : HWS_EVENT_MULTI_RECV;
    struct hws__scope *scope;
    struct hws__op *op;
    bool nested;

    if ((op = hws__quick_receive(source, kind, 0, opts, out, &scope, &nested, NULL)) == NULL) {
        return false;
    }
    op->buffer = NULL;
    op->length = 0;
    op->tag = tag;
    op->mask = mask;
    memcpy(op->header, want, sizeof *want);
    hws__quick_posted(op, scope, nested, out);
    return true;
}

int32_t hws_multi_recv(hws_id source, uint64_t tag, uint64_t mask,
                       const hws_multi_recv_opts *recv_opts, const hws_op_opts *opts, hws_id *op)
{
    struct hws__multi_want want;
    struct hws__post p;
    hws_op_opts o;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((r = read_options(&want, recv_opts, source)) < 0) {
        return r;
    }
    if (quick_recv(source, tag, mask, &want, opts, op)) {
        return HWS_OK;
    }
    hws__post_init(&p, recv_run, HWS_EVENT_MULTI_RECV, source, NULL, 0);
    p.tag = tag;
    p.mask = mask;
    p.header = &want;
    p.keep = sizeof want;
    if ((r = hws__post_source(&p)) < 0 || (r = check_result(&o, opts, source)) < 0) {
        return r;
    }
    if (want.flags & HWS_MULTI_LIST) {
        p.kind = HWS_EVENT_MULTI_LIST;
    }
    return hws__post(&p, &o, op);
}
