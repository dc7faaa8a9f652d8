/*
 * Multi-buffer messages: sends, and the messages that are no more than their list.
 */
#include "multi_layout.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "options.h"
#include "own.h"
#include "post.h"
#include "quick.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

/* The worker's memory for a list on its way into UCX. Null: no memory. */
static void *scratch(struct hws__worker *w, uint64_t bytes)
{
    if (w->multi_scratch_room < bytes) {
        uint64_t room = bytes < 2 * HWS__MULTI_COALESCE ? 2 * HWS__MULTI_COALESCE : bytes;

        free(w->multi_scratch);
        w->multi_scratch = malloc(room);
        w->multi_scratch_room = w->multi_scratch != NULL ? room : 0;
    }
    return w->multi_scratch;
}

/* UCX keeps the list: its memory is the operation's from here on. */
static void *take_scratch(struct hws__worker *w)
{
    void *list = w->multi_scratch;

    w->multi_scratch = NULL;
    w->multi_scratch_room = 0;
    return list;
}

/* Post the list that stands in the worker's memory. */
static int32_t post_list(struct hws__post *p, struct hws__op *op, uint64_t bytes)
{
    struct hws__endpoint *ep = p->ep;
    struct hws__worker *w = p->worker;
    ucp_request_param_t param;
    int32_t r;

    hws__op_param(p, op, &param);
    param.datatype = ucp_dt_make_contig(1);
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.flags = ep->send_flags | UCP_AM_SEND_FLAG_EAGER;
    r = hws__op_posted(
        p, op, ep->uworker,
        hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_MULTI, NULL, 0, w->multi_scratch, bytes, &param));
    if (r == HWS_OK) {
        free(op->extra); /* the segments of a submission */
        op->extra = take_scratch(w);
    }
    if (r >= 0) {
        ep->multi_sent++;
    }
    return r;
}

/* Everything in one UCX message. */
static int32_t send_list(struct hws__post *p, const struct hws__multi_layout *layout)
{
    uint64_t bytes = hws__multi_layout_bytes(layout);
    void *list = scratch(p->worker, bytes);
    struct hws__op *op;

    if (list == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, p->source, "list of %llu bytes",
                         (unsigned long long)bytes);
    }
    if ((op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    hws__multi_layout_write(list, layout, p->tag, p->ep->multi_sent + 1);
    return post_list(p, op, bytes);
}

/*
 * A short list of a few small segments, written while they are looked at, of at most `room` bytes of
 * data. Returns its bytes, data included, or 0 if the long way must be gone.
 */
static inline uint64_t write_small(const struct hws__endpoint *ep, uint64_t tag,
                                   const hws_segment *s, uint64_t count, uint64_t room,
                                   uint64_t *sum)
{
    struct hws__worker *w = ep->worker;
    struct hws__multi_wire *wire = w->multi_scratch;
    uint64_t list = sizeof *wire + hws__multi_entries(count, HWS__MULTI_SHORT), total = 0;
    uint16_t *entry;
    char *to;

    if (count > HWS__MULTI_INLINE || w->multi_scratch_room < 2 * HWS__MULTI_COALESCE) {
        return 0; /* there may be no scratch at all */
    }
    entry = (uint16_t *)(void *)(wire + 1);
    to = (char *)wire + list;
    room = room < HWS__MULTI_COALESCE ? room : HWS__MULTI_COALESCE;
    for (const hws_segment *end = s + count; s != end; s++) {
        if (s->memory_kind != HWS_MEMORY_HOST || s->base == NULL || s->length > room - total) {
            return 0;
        }
        *entry++ = (uint16_t)s->length;
        memcpy(to + total, s->base, s->length);
        total += s->length;
    }
    *wire = (struct hws__multi_wire){.tag = tag,
                                     .sequence = ep->multi_sent + 1,
                                     .total = total,
                                     .count = (uint32_t)count,
                                     .flags = HWS__MULTI_DATA | HWS__MULTI_SHORT};
    *sum = total;
    return total != 0 ? list + total : 0;
}

static int32_t check_limits(const struct hws__post *p, uint64_t total)
{
    const struct hws__endpoint *ep = p->ep;

    if (p->mask <= ep->multi_count_max && total <= ep->multi_bytes_max) {
        return HWS_OK;
    }
    return hws__fail(HWS_E_TOO_BIG, p->source,
                     "%llu segments, %llu bytes; the peer takes %u segments, %llu bytes",
                     (unsigned long long)p->mask, (unsigned long long)total, ep->multi_count_max,
                     (unsigned long long)ep->multi_bytes_max);
}

/* HWS_DONE: it may go, at this price; HWS_OK: it waits. */
static int32_t may_go(struct hws__post *p, uint64_t price)
{
    return hws__credit_fits(&p->ep->credit, HWS__CREDIT_MULTI, price)
               ? HWS_DONE
               : hws__credit_wait(p, HWS__CREDIT_MULTI, price);
}

static int32_t send_any(struct hws__post *p, uint64_t *total, uint64_t *price)
{
    struct hws__op *op;
    struct hws__multi_layout layout;
    int32_t r;

    if ((*price = write_small(p->ep, p->tag, p->header, p->mask, p->am_id, total)) != 0) {
        if ((r = check_limits(p, *total)) < 0) {
            return r;
        }
        if (!hws__credit_fits(&p->ep->credit, HWS__CREDIT_MULTI, *price)) {
            if ((r = hws__credit_wait(p, HWS__CREDIT_MULTI, *price)) != HWS_DONE) {
                return r;
            }
            /* What arrived meanwhile may have let another message go, by the same memory. */
            *price = write_small(p->ep, p->tag, p->header, p->mask, p->am_id, total);
        }
        if (*price != 0) {
            return (op = hws__op_next(p)) == NULL ? HWS_E_TOO_MANY : post_list(p, op, *price);
        }
    }
    if ((r = hws__multi_layout_of(&layout, p)) < 0 || (r = check_limits(p, layout.total)) < 0) {
        return r;
    }
    *total = layout.total;
    *price = hws__multi_layout_price(&layout);
    if ((r = may_go(p, *price)) != HWS_DONE) {
        return r;
    }
    return layout.large == 0 && layout.within ? send_list(p, &layout)
                                              : hws__multi_send_parts(p, &layout);
}

static int32_t multi_send_run(struct hws__post *p)
{
    struct hws__endpoint *ep = p->ep;
    uint64_t total = 0, price = 0;
    int32_t r;

    if (!ep->open && ep->credit.resumed != p) {
        return hws__endpoint_refuse(ep, p->source);
    }
    if (ep->raw) {
        return hws__fail(HWS_E_UNSUPPORTED, p->source, "a plain UCX program takes no such message");
    }
    r = send_any(p, &total, &price);
    if (r == HWS_OK && p->op->stage == HWS__STAGE_CREDIT) {
        return r;
    }
    if (r >= 0) {
        hws__credit_spend(&ep->credit, HWS__CREDIT_MULTI, price);
        p->done_tag = p->tag;
        p->done_length = total;
        hws__flow_add(&ep->traffic.out[HWS_TRAFFIC_MULTI], total);
        if (r == HWS_OK) {
            p->op->done_tag = p->tag;
            p->op->done_length = total;
        }
        if (!ep->uworker->hot) {
            hws__uworker_heat(ep->uworker);
        }
    }
    return r;
}

/* A few small segments, by quick.h. HWS__GENERAL: not on this way. */
static inline int32_t quick_multi(struct hws__quick *q, const hws_segment *segments, uint64_t count,
                                  const hws_op_opts *opts, hws_id *out)
{
    ucp_request_param_t param;
    struct hws__endpoint *ep;
    struct hws__worker *w;
    ucs_status_ptr_t ptr;
    uint64_t bytes;

    if (!hws__quick_begin(q, opts, out)) {
        return HWS__GENERAL;
    }
    ep = q->ep;
    w = ep->worker;
    hws__bundles_send(&w->bundles);
    bytes = ep->raw ? 0 : write_small(ep, q->tag, segments, count, HWS__MULTI_COALESCE, &q->length);
    if (__builtin_expect(bytes == 0 || count > ep->multi_count_max ||
                             q->length > ep->multi_bytes_max ||
                             !hws__credit_fits(&ep->credit, q->sort, bytes),
                         0)) {
        hws__disown(w, q->nested);
        return HWS__GENERAL;
    }
    q->header = bytes - q->length;
    hws__quick_param(q, &param);
    param.flags |= UCP_AM_SEND_FLAG_EAGER;
    ptr =
        hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_MULTI, NULL, 0, w->multi_scratch, bytes, &param);
    if (__builtin_expect(UCS_PTR_IS_PTR(ptr), 0)) {
        q->extra = take_scratch(w);
    }
    ep->multi_sent += !UCS_PTR_IS_ERR(ptr);
    return hws__quick_end(q, opts, ptr, out);
}

int32_t hws_multi_send(hws_id endpoint, uint64_t tag, const hws_segment *segments, uint64_t count,
                       const hws_multi_opts *multi_opts, const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p;
    hws_multi_opts o;
    int32_t r;

    HWS__ENTER();
    if (multi_opts == NULL && segments != NULL && count <= HWS__MULTI_INLINE) {
        struct hws__quick q = hws__quick_send(HWS_EVENT_MULTI_SEND, endpoint, NULL, 0, tag);

        if ((r = quick_multi(&q, segments, count, opts, op)) != HWS__GENERAL) {
            return r;
        }
    }
    hws__post_init(&p, multi_send_run, HWS_EVENT_MULTI_SEND, endpoint, NULL, 0);
    p.tag = tag;
    p.mask = count;
    p.header = segments;
    p.keep = count * sizeof *segments;
    p.am_id = HWS__MULTI_COALESCE;
    if ((r = hws__post_endpoint(&p)) < 0) {
        return r;
    }
    if (multi_opts != NULL) {
        if ((r = hws__options(&o, sizeof o, multi_opts, "multi-buffer")) < 0) {
            return r;
        }
        if (o.flags != 0 || o.coalesce > HWS__MULTI_COALESCE_MAX) {
            return hws__fail(HWS_E_INVALID, endpoint, "flags %#x, coalesce %llu", o.flags,
                             (unsigned long long)o.coalesce);
        }
        p.am_id = o.coalesce != 0 ? (uint32_t)o.coalesce : HWS__MULTI_COALESCE;
    }
    if ((segments == NULL && count != 0) || count > UINT32_MAX - 1) {
        return hws__fail(HWS_E_INVALID, endpoint, "segments is null, or count is %llu",
                         (unsigned long long)count);
    }
    return hws__post(&p, opts, op);
}
