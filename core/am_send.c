/*
 * Active messages of the user: sending.
 */
#include "am.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "post.h"
#include "quick.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

/* Prefix and header, where they stay until UCX is done. */
static int32_t build_header(struct hws__post *p, struct hws__op *op, char **out)
{
    char *to = op->header;

    if (p->header == op->header + HWS__AM_PREFIX) {
        *out = to; /* a submission has copied it here already */
    } else if (op->extra != NULL && p->op == op) {
        *out = to = op->extra;
    } else {
        if (p->mask + HWS__AM_PREFIX > HWS__OP_HEADER &&
            (to = op->extra = malloc(p->mask + HWS__AM_PREFIX)) == NULL) {
            return hws__fail(HWS_E_NO_MEMORY, p->source, "header of %llu bytes",
                             (unsigned long long)p->mask);
        }
        if (p->mask != 0) {
            memcpy(to + HWS__AM_PREFIX, p->header, p->mask);
        }
        *out = to;
    }
    memset(to, 0, HWS__AM_PREFIX);
    memcpy(to, &(uint16_t){(uint16_t)p->am_id}, sizeof(uint16_t));
    return HWS_OK;
}

/* header: prefix and header; null: the message has none, and its id is one of UCX's. */
static ucs_status_ptr_t hand_to_ucx(const struct hws__post *p, const char *header,
                                    const void *buffer, const ucp_request_param_t *param)
{
    const struct hws__endpoint *ep = p->ep;

    if (header == NULL) {
        return hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_DIRECT + p->am_id, NULL, 0, buffer,
                                        p->length, param);
    }
    if (ep->raw) {
        return hws__ucx.ucp_am_send_nbx(ep->ucx, p->am_id, header + HWS__AM_PREFIX, p->mask, buffer,
                                        p->length, param);
    }
    return hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_USER, header, p->mask + HWS__AM_PREFIX, buffer,
                                    p->length, param);
}

static int32_t am_send_run(struct hws__post *p)
{
    uint64_t bytes = hws__bytes(p->buffer, p->length, p->opts->flags);
    struct hws__endpoint *ep = p->ep;
    ucp_request_param_t param;
    bool direct = !ep->raw && p->mask == 0 && p->am_id < HWS__AM_DIRECTS;
    struct hws__op *op;
    char *header = NULL;
    void *extra;
    int32_t r;

    if (!ep->open && ep->credit.resumed != p) {
        return hws__endpoint_refuse(ep, p->source);
    }
    if (__builtin_expect(!hws__credit_fits(&ep->credit, HWS__CREDIT_AM, bytes + p->mask), 0) &&
        (r = hws__credit_wait(p, HWS__CREDIT_AM, bytes + p->mask)) != HWS_DONE) {
        return r;
    }
    if ((op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    if (p->op == NULL) {
        op->extra = NULL;
    }
    if (!direct && (r = build_header(p, op, &header)) < 0) {
        return r;
    }
    if (ep->gap.untold && bytes + p->mask <= HWS__GAP_SINGLE) {
        hws__gap_tell(ep);
    }
    hws__op_param(p, op, &param);
    param.flags = ep->send_flags;
    if (p->opts->flags & HWS_OP_EAGER) {
        param.flags |= UCP_AM_SEND_FLAG_EAGER;
    } else if (p->opts->flags & HWS_OP_RNDV) {
        param.flags |= UCP_AM_SEND_FLAG_RNDV;
    }
    extra = op->extra;
    r = hws__op_posted(p, op, ep->uworker, hand_to_ucx(p, header, hws__op_buffer(p, op), &param));
    if (r == HWS_OK) {
        op->extra = extra;
    } else if (p->op == NULL) {
        free(extra);
        op->extra = NULL;
    }
    p->done_tag = p->am_id;
    if (r >= 0) {
        hws__gap_sent(&ep->gap, bytes + p->mask, (param.flags & UCP_AM_SEND_FLAG_RNDV) != 0);
    }
    return hws__post_sent(p, op, r, HWS_TRAFFIC_AM, HWS__CREDIT_AM, bytes, p->mask);
}

/* A message without a header. HWS__GENERAL: not on this way. */
static inline __attribute__((always_inline)) int32_t quick_am(struct hws__quick *q,
                                                              const hws_op_opts *opts, hws_id *out)
{
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;

    if (q->tag >= HWS__AM_DIRECTS || !hws__quick_begin(q, opts, out)) {
        return HWS__GENERAL;
    }
    if (hws__quick_bundled(q)) {
        return hws__quick_end(q, opts, NULL, out);
    }
    hws__quick_param(q, &param);
    ptr = hws__ucx.ucp_am_send_nbx(q->ep->ucx, (unsigned)q->tag + (q->ep->raw ? 0 : HWS__AM_DIRECT),
                                   NULL, 0, q->buffer, q->length, &param);
    return hws__quick_end(q, opts, ptr, out);
}

static __attribute__((noinline)) int32_t general_am(hws_id endpoint, uint32_t am_id,
                                                    const void *header, uint64_t header_length,
                                                    const void *buffer, uint64_t length,
                                                    const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p;
    int32_t r;

    hws__post_init(&p, am_send_run, HWS_EVENT_AM_SEND, endpoint, buffer, length);
    p.am_id = am_id;
    p.header = header;
    p.mask = header_length;
    if ((r = hws__post_endpoint(&p)) < 0) {
        return r;
    }
    if (header_length > p.worker->max_header - HWS__AM_PREFIX) {
        return hws__fail(HWS_E_TOO_BIG, endpoint, "header of %llu bytes, at most %llu",
                         (unsigned long long)header_length,
                         (unsigned long long)(p.worker->max_header - HWS__AM_PREFIX));
    }
    if (am_id > HWS_AM_ID_MAX || (header == NULL && header_length != 0)) {
        return hws__fail(HWS_E_INVALID, endpoint, "am_id %u, at most %u, or a null header", am_id,
                         HWS_AM_ID_MAX);
    }
    return hws__post(&p, opts, op);
}

int32_t hws_am_send(hws_id endpoint, uint32_t am_id, const void *header, uint64_t header_length,
                    const void *buffer, uint64_t length, const hws_op_opts *opts, hws_id *op)
{
    struct hws__quick q = hws__quick_send(HWS_EVENT_AM_SEND, endpoint, buffer, length, am_id);
    int32_t r;

    HWS__ENTER();
    r = header_length == 0 ? quick_am(&q, opts, op) : HWS__GENERAL;
    return r != HWS__GENERAL
               ? r
               : general_am(endpoint, am_id, header, header_length, buffer, length, opts, op);
}

int32_t hws_am_header_max(hws_id worker, uint64_t *out)
{
    struct hws__worker *w;
    int32_t r = HWS_OK;
    uint64_t max;

    HWS__ENTER();
    if ((w = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    if (out == NULL) {
        return hws__fail(HWS_E_INVALID, worker, "out is null");
    }
    max = w->max_header;
    if (!hws__obj_is_still(&w->obj, worker)) {
        return hws__id_error(&hws__objects, worker, HWS_KIND_WORKER);
    }
    *out = max - HWS__AM_PREFIX;
    return HWS_OK;
}
