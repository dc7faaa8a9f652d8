/*
 * Credits, the sender's side: what does not fit waits, and the answers let it go.
 */
#include "credit_wire.h"
#include "own.h"
#include "post.h"
#include "progress.h"
#include "ucx_loader.h"

/* How often a send that finds no credit looks whether some has come. */
#define LOOKS 16

static uint32_t sort_of(const struct hws__op *op)
{
    return op->kind == HWS_EVENT_AM_SEND       ? HWS__CREDIT_AM
           : op->kind == HWS_EVENT_MULTI_SEND  ? HWS__CREDIT_MULTI
           : op->kind == HWS_EVENT_STREAM_SEND ? HWS__CREDIT_STREAM
                                               : HWS__CREDIT_TAG;
}

static bool waits(const struct hws__credit_out *out)
{
    return !hws__list_empty(&out->waiting);
}

/* Larger than the window goes when nothing else is on its way. */
static bool may_go(const struct hws__credit_out *out, uint64_t bytes)
{
    int64_t shift = waits(out) ? HWS__CREDIT_MUCH : 0;

    return out->messages + shift > 0 && ((int64_t)bytes <= out->bytes + shift ||
                                         out->bytes + shift >= (int64_t)out->window_bytes);
}

/*
 * Whether it may go after all: the peer's word may be here already, since a program that does nothing but send
 * makes no progress. Nothing that arrives with it is told of before the program does, so this is not for workers
 * at which others sleep.
 */
static bool look_for_credit(const struct hws__post *p, const struct hws__credit_out *out,
                            uint64_t bytes)
{
    struct hws__worker *w = p->worker;
    struct hws__uworker *u = p->ep->uworker;

    if (hws__in_callback() || w->sweeping || p->op != NULL || hws__asleep(w)) {
        return false;
    }
    for (int i = 0; i < LOOKS && p->ep->open && !may_go(out, bytes); i++) {
        if (hws__uworker_progress(u) == 0) {
            break;
        }
        u->idle = 0;
    }
    return p->ep->open && may_go(out, bytes);
}

int32_t hws__credit_wait(struct hws__post *p, uint32_t sort, uint64_t bytes)
{
    struct hws__credit_out *out = &p->ep->credit.out[sort];
    bool first = !waits(out), ask = first || out->listened;
    int32_t r;

    if (p->ep->credit.resumed == p ||
        (first && (may_go(out, bytes) || look_for_credit(p, out, bytes)))) {
        return HWS_DONE;
    }
    if (!p->ep->open) {
        return hws__endpoint_refuse(p->ep, p->source); /* that is what it found */
    }
    if ((r = hws__credit_park(p, sort, bytes)) == HWS_OK && ask) {
        hws__credit_tell(p->ep, HWS__SAY_ASK, sort, p->tag, 0);
    }
    return r;
}

int32_t hws__credit_park(struct hws__post *p, uint32_t sort, uint64_t bytes)
{
    struct hws__credit *c = &p->ep->credit;
    struct hws__credit_out *out = &c->out[sort];
    struct hws__op *op;
    int32_t r;

    if ((r = hws__post_park(p)) < 0) {
        return r;
    }
    op = p->op;
    op->stage = HWS__STAGE_CREDIT;
    op->credit_bytes = bytes;
    if (!waits(out)) {
        out->messages -= HWS__CREDIT_MUCH;
        out->bytes -= HWS__CREDIT_MUCH;
    }
    hws__list_append(&out->waiting, &op->match);
    c->waiting++;
    HWS__COUNT(p->worker, credit_waits, 1);
    p->worker->todo = true; /* a sleeper must see the answer */
    return HWS_OK;
}

void hws__credit_unwait(struct hws__op *op)
{
    struct hws__endpoint *ep = op->ep;
    uint32_t sort = sort_of(op);
    struct hws__credit_out *out = &ep->credit.out[sort];

    hws__list_remove(&op->match);
    ep->credit.waiting--;
    if (!waits(out)) {
        out->messages += HWS__CREDIT_MUCH;
        out->bytes += HWS__CREDIT_MUCH;
        out->listened = false;
        if (sort != HWS__CREDIT_STREAM) {
            hws__credit_tell(ep, HWS__SAY_CLEAR, sort, 0, 0);
        }
    } else {
        hws__endpoint_attend(ep); /* one that fits may be the first now */
    }
}

static struct hws__op *first_waiting(struct hws__credit_out *out, uint64_t tag, uint64_t mask)
{
    for (struct hws__list *n = out->waiting.next; n != &out->waiting; n = n->next) {
        struct hws__op *op = hws__container(n, struct hws__op, match);

        if (((op->tag ^ tag) & mask) == 0) {
            return op;
        }
    }
    return NULL;
}

uint64_t hws__credit_stream_left(const struct hws__credit *c)
{
    const struct hws__credit_out *out = &c->out[HWS__CREDIT_STREAM];
    int64_t left = out->bytes + (waits(out) ? HWS__CREDIT_MUCH : 0);

    return left > 0 ? (uint64_t)left : 0;
}

uint64_t hws__credit_stream_step(const struct hws__credit *c)
{
    return hws__credit_step(c->out[HWS__CREDIT_STREAM].window_bytes);
}

void hws__credit_push(struct hws__endpoint *ep)
{
    hws__stream_push(ep);
    for (uint32_t i = 0; i < HWS__CREDIT_STREAM; i++) {
        struct hws__credit_out *out = &ep->credit.out[i];

        while (waits(out) && ep->ucx != NULL && !ep->failed) {
            struct hws__op *op = hws__container(out->waiting.next, struct hws__op, match);

            if (!may_go(out, op->credit_bytes)) {
                break;
            }
            hws__post_resume(op);
        }
    }
}

void hws__credit_on_limit(struct hws__endpoint *ep, uint32_t sort, uint64_t messages,
                          uint64_t bytes)
{
    struct hws__credit_out *out = &ep->credit.out[sort];
    uint64_t more = messages - out->limit_messages, more_bytes = bytes - out->limit_bytes;
    int64_t room =
        waits(out) ? 0 : HWS__CREDIT_MUCH; /* what was not taken yet is never given back */

    if (more > (uint64_t)(room - out->messages) || more_bytes > (uint64_t)(room - out->bytes)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "credits that make no sense");
        return;
    }
    out->limit_messages = messages;
    out->limit_bytes = bytes;
    out->messages += (int64_t)more;
    out->bytes += (int64_t)more_bytes;
    if (waits(out)) {
        hws__endpoint_attend(ep);
    }
}

void hws__credit_on_want(struct hws__endpoint *ep, uint32_t sort, uint64_t tag, hws_id receive)
{
    struct hws__op *op = first_waiting(&ep->credit.out[sort], tag, UINT64_MAX);

    if (op == NULL) {
        hws__credit_tell(ep, HWS__SAY_NONE, sort, receive, 0);
    } else {
        hws__post_resume(op);
    }
}

void hws__credit_on_listen(struct hws__endpoint *ep, uint32_t sort)
{
    struct hws__credit_out *out = &ep->credit.out[sort];

    if (!waits(out)) {
        return;
    }
    out->listened = true;
    for (struct hws__list *n = out->waiting.next; n != &out->waiting; n = n->next) {
        hws__credit_tell(ep, HWS__SAY_ASK, sort, hws__container(n, struct hws__op, match)->tag, 0);
    }
}

void hws__credit_on_recall(struct hws__endpoint *ep, uint32_t sort, uint64_t tag, uint64_t mask)
{
    struct hws__credit_out *out = &ep->credit.out[sort];
    struct hws__op *op = first_waiting(out, tag, mask);

    out->listened = waits(out);
    if (op != NULL) {
        hws__credit_tell(ep, HWS__SAY_ASK, sort, op->tag, 0);
    }
}
