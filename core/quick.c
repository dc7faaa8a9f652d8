#include "quick.h"
#include <stdlib.h>

/* The posting that it would have been. */
static void describe(struct hws__post *p, const struct hws__quick *q, const hws_op_opts *in)
{
    hws__post_init(p, NULL, q->kind, q->endpoint, q->buffer, q->length);
    p->ep = q->ep;
    p->worker = q->ep->worker;
    p->opts = in;
    p->tag = p->done_tag = q->tag;
}

int32_t hws__quick_pending(struct hws__quick q, const hws_op_opts *in, ucs_status_ptr_t ptr,
                           hws_id *out)
{
    struct hws__post p;
    int32_t r;

    describe(&p, &q, in);
    if (out != NULL) {
        *out = 0;
    }
    r = hws__op_posted(&p, q.op, q.ep->uworker, ptr);
    if (r == HWS_OK) {
        q.op->extra = q.extra;
    } else {
        free(q.extra);
    }
    if (r >= 0 && q.kind != HWS_EVENT_MULTI_SEND) {
        hws__gap_sent(&q.ep->gap, q.length, false);
    }
    r = hws__post_sent(&p, q.op, r, q.traffic, q.sort, q.length, q.header);
    r = r < 0 ? r : hws__post_settle(&p, r, out);
    return q.nested ? r : hws__post_leave(&p, r);
}

void hws__quick_result(struct hws__quick q, const hws_op_opts *in)
{
    struct hws__post p;

    describe(&p, &q, in);
    p.done_length = q.length;
    hws__post_result(&p);
}
