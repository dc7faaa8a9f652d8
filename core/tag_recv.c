/*
 * Receives of tagged messages.
 */
#include "error.h"
#include "guard.h"
#include "post.h"
#include "progress.h"
#include "quick.h"
#include "raw.h"
#include "rest.h"
#include "tag.h"
#include <string.h>

static int32_t recv_run(struct hws__post *p)
{
    struct hws__endpoint *ep = p->ep;
    struct hws__worker *w = p->worker;
    struct hws__scope *scope = ep != NULL ? &ep->scope : &w->scope;
    struct hws__message *m;
    struct hws__op *op;

    if (ep != NULL && ep->raw) {
        return p->opts->flags & HWS_OP_TAKE
                   ? hws__fail(HWS_E_UNSUPPORTED, p->source, "HWS_OP_TAKE on a raw endpoint")
                   : hws__raw_recv(p);
    }
    if ((m = hws__match_find(scope, ep == NULL, p->tag, p->mask)) != NULL) {
        return hws__message_to(p, m);
    }
    if (ep == NULL && w->raw_count != 0 && (m = hws__raw_probe_all(w, p->tag, p->mask)) != NULL) {
        return hws__message_to(p, m);
    }
    if (ep == NULL && w->closing) {
        return hws__fail(HWS_E_CLOSING, p->source, "the worker is closing");
    }
    if (ep != NULL && !ep->open) {
        return hws__endpoint_refuse(ep, p->source);
    }
    if ((op = hws__op_take(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    op->buffer = hws__op_buffer(p, op);
    op->memory_kind = p->opts->memory_kind;
    hws__match_post(scope, op);
    if (w->credit_blocked != 0) {
        hws__credit_recall(w, ep, HWS__CREDIT_TAG, op);
    }
    return HWS_OK;
}

static void tell_result(struct hws__endpoint *ep, uint64_t tag, uint64_t length,
                        const hws_op_opts *opts)
{
    if (opts->result != NULL) {
        hws__quick_result((struct hws__quick){.endpoint = ep->obj.id,
                                              .kind = HWS_EVENT_TAG_RECV,
                                              .tag = tag,
                                              .length = length,
                                              .ep = ep},
                          opts);
    }
}

/* Under ownership: a message that is there as a whole goes into the buffer. False: there is none. */
static __attribute__((noinline)) bool take_arrived(struct hws__endpoint *ep, void *buffer,
                                                   uint64_t length, uint64_t tag, uint64_t mask,
                                                   const hws_op_opts *opts)
{
    struct hws__message *m = hws__match_listed(&ep->scope, false, tag, mask);
    struct hws__record r;

    if (m == NULL) {
        if (!hws__rest_take(ep, buffer, length, tag, mask, &r)) {
            return false;
        }
        tell_result(ep, r.tag, r.length, opts);
        return true;
    }
    if (m->rndv || m->length > length || (m->data == NULL && m->length != 0)) {
        return false;
    }
    if (m->length != 0) {
        memcpy(buffer, m->data, m->length);
    }
    tell_result(ep, m->tag, m->length, opts);
    hws__message_release(m);
    return true;
}

/* By quick.h: HWS_OK, it is posted; HWS_DONE; HWS__GENERAL, not on this way. */
static inline int32_t quick_recv(hws_id source, void *buffer, uint64_t length, uint64_t tag,
                                 uint64_t mask, const hws_op_opts *opts, hws_id *out)
{
    struct hws__endpoint *arrived = NULL;
    struct hws__scope *scope;
    struct hws__op *op;
    bool nested, done;

    if ((buffer == NULL && length != 0) || (int64_t)length < 0) {
        return HWS__GENERAL;
    }
    op = hws__quick_receive(source, HWS_EVENT_TAG_RECV, HWS_OP_INLINE, opts, out, &scope, &nested,
                            &arrived);
    if (__builtin_expect(arrived != NULL, 0)) {
        done = (opts->flags & HWS_OP_INLINE) != 0 &&
               take_arrived(arrived, buffer, length, tag, mask, opts);
        if (!done) {
            hws__disown(arrived->worker, nested);
            return HWS__GENERAL;
        }
        hws__quick_leave(arrived->worker, nested);
        if (out != NULL) {
            *out = 0;
        }
        return HWS_DONE;
    }
    if (op == NULL) {
        return HWS__GENERAL;
    }
    op->buffer = buffer;
    op->length = length;
    op->tag = tag;
    op->mask = mask;
    op->memory_kind = HWS_MEMORY_HOST;
    hws__quick_posted(op, scope, nested, out);
    return HWS_OK;
}

int32_t hws_tag_recv(hws_id source, void *buffer, uint64_t length, uint64_t tag, uint64_t mask,
                     const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p;
    int32_t r;

    HWS__ENTER();
    if ((r = quick_recv(source, buffer, length, tag, mask, opts, op)) != HWS__GENERAL) {
        return r;
    }
    hws__post_init(&p, recv_run, HWS_EVENT_TAG_RECV, source, buffer, length);
    p.tag = tag;
    p.mask = mask;
    if ((r = hws__post_source(&p)) < 0) {
        return r;
    }
    return hws__post(&p, opts, op);
}
