/*
 * Multi-buffer messages: sending (see multi.h).
 */
#include "multi.h"
#include "cuda.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "options.h"
#include "post.h"
#include "quick.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

/* A message with parts, until UCX has done all of them. In the operation's `extra`, freed with it. */
struct outgoing {
    struct hws__op *op; /* null while they are being posted */
    struct hws__uworker *uworker;
    uint64_t sequence;
    uint32_t left; /* requests that UCX holds; 1 more while they are being posted */
    int32_t status;
    struct hws__multi_part *headers;
    ucp_dt_iov_t *iov;
    struct hws__multi_wire wire; /* the list follows: last member */
};

/* What is to be sent, summed up. */
struct plan {
    const hws_segment *segments;
    uint64_t count;
    uint64_t total;
    uint64_t gathered; /* bytes */
    uint32_t large;    /* parts of their own */
    bool within;       /* the gathered segments travel in the list */
};

static bool is_own(const hws_segment *s)
{
    return s->length != 0 && (s->memory_kind != HWS_MEMORY_HOST || s->length >= HWS__MULTI_LARGE);
}

/* Whether UCX can handle the segment's memory. */
static int32_t check_kind(const struct hws__post *p, const hws_segment *s)
{
    uint32_t kind = s->memory_kind;

    return kind == HWS_MEMORY_HOST || s->length == 0
               ? HWS_OK
               : hws__cuda_check(p->worker->context, p->source, s->base, &kind);
}

static int32_t make_plan(struct plan *plan, const struct hws__post *p)
{
    int32_t r;

    *plan = (struct plan){.segments = p->header, .count = p->mask};
    for (uint64_t i = 0; i < plan->count; i++) {
        const hws_segment *s = &plan->segments[i];

        if (s->length > HWS__ENTRY_LENGTH || (s->base == NULL && s->length != 0) ||
            (s->memory_kind >= HWS__ENTRY_KIND_UNKNOWN && s->memory_kind != HWS_MEMORY_UNKNOWN) ||
            plan->total + s->length < plan->total) {
            return hws__fail(HWS_E_INVALID, p->source, "segment %llu", (unsigned long long)i);
        }
        if ((r = check_kind(p, s)) < 0) {
            return r;
        }
        plan->total += s->length;
        if (is_own(s)) {
            plan->large++;
        } else {
            plan->gathered += s->length;
        }
    }
    plan->within = plan->gathered <= p->am_id;
    return HWS_OK;
}

/* The list, and behind it the gathered data if that travels along. */
static void write_list(struct hws__multi_wire *to, const struct plan *plan, uint64_t tag,
                       uint64_t sequence)
{
    uint64_t *entries = (uint64_t *)(void *)(to + 1);
    char *data = (char *)(entries + plan->count);

    *to = (struct hws__multi_wire){.tag = tag,
                                   .sequence = sequence,
                                   .total = plan->total,
                                   .count = (uint32_t)plan->count,
                                   .flags = plan->within ? HWS__MULTI_DATA : 0};
    for (uint64_t i = 0; i < plan->count; i++) {
        const hws_segment *s = &plan->segments[i];
        bool own = is_own(s);

        entries[i] = hws__entry(s, own);
        if (!own && plan->within && s->length != 0) {
            memcpy(data, s->base, s->length);
            data += s->length;
        }
    }
}

static uint64_t list_bytes(const struct plan *plan)
{
    return sizeof(struct hws__multi_wire) + hws__multi_entries(plan->count, 0) +
           (plan->within ? plan->gathered : 0);
}

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
static int32_t send_list(struct hws__post *p, const struct plan *plan)
{
    uint64_t bytes = list_bytes(plan);
    void *list = scratch(p->worker, bytes);
    struct hws__op *op;

    if (list == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, p->source, "list of %llu bytes",
                         (unsigned long long)bytes);
    }
    if ((op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    write_list(list, plan, p->tag, p->ep->multi_sent + 1);
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

/* UCX has done one of the messages. */
static void part_sent(void *request, ucs_status_t status, void *user_data)
{
    struct outgoing *out = user_data;
    struct hws__op *op = out->op;
    int32_t code = hws__from_ucx(status);

    hws__ucx.ucp_request_free(request);
    if (atomic_load(&out->uworker->destroying)) {
        return; /* on the background thread; the owner ends it, see hws__op_orphans() */
    }
    if (code < 0 && out->status == HWS_OK) {
        out->status = code;
    }
    if (--out->left != 0) {
        return;
    }
    code = out->status;
    hws__op_unhold(op);
    hws__op_finish(op, code < 0 ? hws__op_cause(op, code) : code);
}

/* Hand one message to UCX. */
static void post_part(struct hws__endpoint *ep, struct outgoing *out, unsigned am_id,
                      const void *header, const void *buffer, uint64_t count,
                      ucp_request_param_t *param)
{
    ucs_status_ptr_t r;

    param->user_data = out;
    param->cb.send = part_sent;
    param->flags |= ep->send_flags;
    out->left++;
    r = hws__ucx.ucp_am_send_nbx(ep->ucx, am_id, header,
                                 header != NULL ? sizeof(struct hws__multi_part) : 0, buffer, count,
                                 param);
    if (UCS_PTR_IS_PTR(r)) {
        return;
    }
    out->left--;
    if (r != NULL && out->status == HWS_OK) {
        hws__refused_by_ucx(ep->uworker);
        out->status = hws__from_ucx(UCS_PTR_STATUS(r));
    }
}

static void post_own(struct hws__endpoint *ep, struct outgoing *out, uint64_t i,
                     const hws_segment *s)
{
    uint32_t kind = s->memory_kind;
    bool known;

    if (kind == HWS_MEMORY_UNKNOWN) {
        (void)hws__cuda_kind(ep->obj.id, s->base, &kind, &known); /* it could tell: make_plan() */
    }
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS |
                        (kind != HWS_MEMORY_UNKNOWN ? UCP_OP_ATTR_FIELD_MEMORY_TYPE : 0u),
        .flags = UCP_AM_SEND_FLAG_RNDV,
        .memory_type = (ucs_memory_type_t)kind};

    *out->headers = (struct hws__multi_part){.sequence = out->sequence, .index = (uint32_t)i};
    post_part(ep, out, HWS__AM_MULTI_PART, out->headers++, s->base, s->length, &param);
}

static void post_gathered(struct hws__endpoint *ep, struct outgoing *out, const struct plan *plan)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                     UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE |
                                     UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .flags = UCP_AM_SEND_FLAG_RNDV,
                                 .datatype = ucp_dt_make_iov(),
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    uint64_t n = 0;

    for (uint64_t i = 0; i < plan->count; i++) {
        const hws_segment *s = &plan->segments[i];

        if (!is_own(s) && s->length != 0) {
            out->iov[n++] = (ucp_dt_iov_t){s->base, s->length};
        }
    }
    *out->headers = (struct hws__multi_part){.sequence = out->sequence, .index = HWS__MULTI_GATHER};
    post_part(ep, out, HWS__AM_MULTI_PART, out->headers++, out->iov, n, &param);
}

/* The record, with its list, room for the headers of the parts and for the gathered pieces. */
static struct outgoing *outgoing_new(const struct hws__post *p, const struct plan *plan)
{
    uint64_t list = (list_bytes(plan) + 7) & ~UINT64_C(7);
    uint64_t headers = (plan->large + 1) * sizeof(struct hws__multi_part);
    uint64_t iov = plan->within ? 0 : plan->count * sizeof(ucp_dt_iov_t);
    struct outgoing *out = malloc(offsetof(struct outgoing, wire) + list + headers + iov);

    if (out == NULL) {
        hws__fail(HWS_E_NO_MEMORY, p->source, "list of %llu segments",
                  (unsigned long long)plan->count);
        return NULL;
    }
    *out = (struct outgoing){.uworker = p->ep->uworker, .sequence = p->ep->multi_sent + 1};
    out->headers = (struct hws__multi_part *)(void *)((char *)&out->wire + list);
    out->iov = (ucp_dt_iov_t *)(void *)((char *)out->headers + headers);
    write_list(&out->wire, plan, p->tag, out->sequence);
    return out;
}

/* The messages are with UCX: the operation waits for them, or is done. */
static int32_t settle(struct hws__post *p, struct hws__op *op, struct outgoing *out)
{
    if (out->status < 0) {
        /* A list without its parts: the peer would wait for ever. */
        hws__endpoint_fail(p->ep, out->status, "a multi-buffer message was cut off: %s",
                           hws_error_text(out->status));
    }
    if (--out->left == 0) {
        p->done_status = out->status;
        free(out);
        return HWS_DONE;
    }
    op = hws__op_take(p);
    free(op->extra); /* the segments of a submission */
    op->extra = out;
    out->op = op;
    hws__op_hold(op, out->uworker, NULL);
    return HWS_OK;
}

static int32_t send_parts(struct hws__post *p, const struct plan *plan)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                     UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .flags = UCP_AM_SEND_FLAG_EAGER,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    struct hws__op *op = hws__op_next(p);
    struct hws__endpoint *ep = p->ep;
    struct outgoing *out;

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    if ((out = outgoing_new(p, plan)) == NULL) {
        return HWS_E_NO_MEMORY;
    }
    out->left = 1;
    post_part(ep, out, HWS__AM_MULTI, NULL, &out->wire, list_bytes(plan), &param);
    if (out->status < 0) {
        int32_t status = out->status;

        free(out);
        return hws__fail(status, p->source, "%s", hws_error_text(status));
    }
    ep->multi_sent++;
    if (!plan->within) {
        post_gathered(ep, out, plan);
    }
    for (uint64_t i = 0; i < plan->count; i++) {
        if (is_own(&plan->segments[i])) {
            post_own(ep, out, i, &plan->segments[i]);
        }
    }
    return settle(p, op, out);
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

/* What a message costs its receiver while it waits. */
static uint64_t price_of(const struct plan *plan)
{
    uint64_t parts = (uint64_t)plan->large + (plan->within ? 0 : 1);

    return list_bytes(plan) + parts * HWS__CREDIT_PART;
}

static int32_t send_any(struct hws__post *p, uint64_t *total, uint64_t *price)
{
    struct hws__op *op;
    struct plan plan;
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
    if ((r = make_plan(&plan, p)) < 0 || (r = check_limits(p, plan.total)) < 0) {
        return r;
    }
    *total = plan.total;
    *price = price_of(&plan);
    if ((r = may_go(p, *price)) != HWS_DONE) {
        return r;
    }
    return plan.large == 0 && plan.within ? send_list(p, &plan) : send_parts(p, &plan);
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

void hws__multi_refused(struct hws__endpoint *ep, uint64_t sequence, int32_t code)
{
    for (struct hws__list *n = ep->ops.next; n != &ep->ops; n = n->next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);
        struct outgoing *out = op->extra;

        /* One whose list is all there is has the list there and a request of UCX's, not this record. */
        if (op->kind == HWS_EVENT_MULTI_SEND && op->stage == HWS__STAGE_UCX && op->ucx == NULL &&
            out->sequence == sequence) {
            out->status = code < 0 ? code : HWS_E_TOO_BIG;
            return;
        }
    }
}
