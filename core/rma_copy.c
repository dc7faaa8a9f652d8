/*
 * Direct access: copies. Of long ones a piece in each sweep, so that whoever posts is not held up, messages and
 * deadlines are minded meanwhile, and a cancel takes effect.
 */
#include "progress.h"
#include "rma.h"
#include <string.h>

/* In the operation, where a message would have its job. */
struct copy {
    const hws_iov *pieces; /* the poster's side: entries, the one in turn and how far in it */
    uint64_t index, offset;
    hws_iov one;
    char *at; /* the peer's side */
    uint64_t left;
};

_Static_assert(sizeof(struct copy) <= sizeof(((struct hws__op *)0)->rma),
               "hws__op.rma is too small");

static struct copy *copy_of(struct hws__op *op)
{
    return (struct copy *)(void *)op->rma;
}

/* Of a posting whose buffer stays as it is until the copy has ended. */
static void begin(struct copy *c, const struct hws__post *p, const struct hws__rkey *k,
                  uint64_t bytes)
{
    *c = (struct copy){.at = k->direct + (p->mask - k->base), .left = bytes};
    c->one = (hws_iov){p->buffer, p->length};
    c->pieces = p->opts->flags & HWS_OP_IOV ? p->buffer : &c->one;
}

/* Up to `room` bytes more. */
static void go_on(struct copy *c, bool put, uint64_t room)
{
    while (room != 0 && c->left != 0) {
        const hws_iov *v = &c->pieces[c->index];
        uint64_t n = v->length - c->offset < room ? v->length - c->offset : room;
        char *here = (char *)v->base + c->offset;

        if (n == 0) {
            c->index++;
            c->offset = 0;
            continue;
        }
        memcpy(put ? c->at : here, put ? here : c->at, n);
        c->at += n;
        c->offset += n;
        c->left -= n;
        room -= n;
    }
}

void hws__rma_copy(const struct hws__post *p, const struct hws__rkey *k, uint64_t bytes)
{
    struct copy c;

    begin(&c, p, k, bytes);
    go_on(&c, p->kind == HWS_EVENT_PUT, bytes);
}

int32_t hws__rma_copy_long(struct hws__post *p, struct hws__rkey *k, uint64_t bytes)
{
    struct hws__op *op = hws__op_next(p);

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    p->buffer = hws__op_buffer(p, op); /* the operation's own copy of a short array */
    begin(copy_of(op), p, k, bytes);
    op = hws__op_take(p);
    op->stage = HWS__STAGE_OWN;
    op->job = NULL;
    op->done_length = bytes;
    op->rkey = k;
    hws__rkey_use(k);
    hws__list_append(&p->worker->copying, &op->match);
    p->worker->todo = true;
    return HWS_OK;
}

void hws__rma_copy_forget(struct hws__op *op)
{
    hws__list_remove(&op->match);
    hws__rkey_unuse(op->rkey);
}

static void copy_piece(struct hws__op *op)
{
    go_on(copy_of(op), op->kind == HWS_EVENT_PUT, HWS__RMA_AT_ONCE);
    if (copy_of(op)->left == 0) {
        hws__op_finish(op, HWS_OK);
    }
}

int hws__rma_copy_step(struct hws__worker *w)
{
    struct hws__list *n = hws__list_pop(&w->copying);

    if (n == NULL) {
        return 0;
    }
    hws__list_append(&w->copying, n); /* they take turns */
    copy_piece(hws__container(n, struct hws__op, match));
    w->todo |= !hws__list_empty(&w->copying);
    return 1;
}

void hws__rma_copy_now(struct hws__endpoint *ep)
{
    for (struct hws__list *n = ep->worker->copying.next, *next; n != &ep->worker->copying;
         n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, match);

        next = n->next;
        while (op->ep == ep && copy_of(op)->left != 0) {
            copy_piece(op);
        }
    }
}
