/*
 * Multi-buffer messages: receiving (see multi.h).
 */
#include "multi.h"
#include "cuda.h"
#include "error.h"
#include "guard.h"
#include "options.h"
#include "post.h"
#include "quick.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

/* Segments that came with the list have a place already. */
static bool is_inline(const struct hws__multi *x, uint64_t i)
{
    return x->inline_at != 0 && !hws__multi_own(x, i);
}

/* The receive's limits; a message over them is refused. */
static int32_t admit(struct hws__multi *x, const struct hws__multi_want *want)
{
    if (x->status == HWS_OK &&
        (x->detail.total > want->bytes_max || x->detail.count > want->count_max)) {
        hws__multi_refuse(x, HWS_E_TOO_BIG);
    }
    return x->status;
}

/* One block for every segment that has no place. */
static bool allocate_block(struct hws__multi *x)
{
    uint64_t bytes = 0;
    char *to;

    for (uint64_t i = 0; i < x->detail.count; i++) {
        if (!is_inline(x, i)) {
            bytes +=
                (x->segments[i].length + HWS__POOL_ALIGN - 1) & ~(uint64_t)(HWS__POOL_ALIGN - 1);
        }
    }
    if (bytes == 0) {
        return true;
    }
    if ((to = x->block = hws__pool_take(&x->message->worker->pool, bytes)) == NULL) {
        return false;
    }
    x->block_length = bytes;
    for (uint64_t i = 0; i < x->detail.count; i++) {
        if (!is_inline(x, i)) {
            x->segments[i].base = to;
            x->segments[i].memory_kind = HWS_MEMORY_HOST;
            to += (x->segments[i].length + HWS__POOL_ALIGN - 1) & ~(uint64_t)(HWS__POOL_ALIGN - 1);
        }
    }
    return true;
}

/* The user's memory for every segment. Not inside UCX. */
static bool allocate_hooked(struct hws__multi *x)
{
    bool all = true;

    x->hooked = true;
    hws__callback_depth++;
    for (uint64_t i = 0; i < x->detail.count; i++) {
        hws_segment *s = &x->segments[i];

        if (!hws__cuda_can(x->message->worker->context, s->memory_kind)) {
            s->memory_kind = HWS_MEMORY_HOST; /* what the sender has is nothing for this UCX */
        }
        s->base = s->length != 0 && all
                      ? x->want.alloc(x->want.alloc_arg, s->length, s->memory_kind)
                      : NULL;
        all = all && (s->base != NULL || s->length == 0);
    }
    hws__callback_depth--;
    return all;
}

/* What came with the list, into the segments' own memory. */
static void copy_inline(struct hws__multi *x)
{
    const char *from = x->message->data;

    if (x->inline_at == 0) {
        return;
    }
    from += x->inline_at;
    for (uint64_t i = 0; i < x->detail.count; i++) {
        if (!hws__multi_own(x, i)) {
            if (x->segments[i].length != 0) {
                memcpy(x->segments[i].base, from, x->segments[i].length);
            }
            from += x->segments[i].length;
        }
    }
}

/* The user's hook may have ended the endpoint, and with it the message. */
static int32_t allocate(struct hws__multi *x)
{
    x->ours = true;
    if (x->want.alloc == NULL) {
        return allocate_block(x) ? HWS_OK : HWS_E_NO_MEMORY;
    }
    if (!allocate_hooked(x)) {
        return HWS_E_ALLOCATOR;
    }
    copy_inline(x);
    return x->status;
}

/* Received: the buffer is the user's. */
static const hws_multi_detail *hand_out(struct hws__multi *x)
{
    x->detail.buffer = hws__message_publish(x->message);
    return &x->detail;
}

/* The operation is over, one way or the other. */
static void end(struct hws__multi *x, int32_t code)
{
    struct hws__op *op = x->op;
    struct hws__endpoint *ep = x->message->ep;

    op->multi = NULL;
    x->op = NULL;
    hws__list_remove(&x->link);
    if (code < 0) {
        bool same = ep->obj.id == x->message->ep_id;

        code = op->wanted != 0                               ? op->wanted
               : same && ep->failed && code != HWS_E_TOO_BIG ? ep->status
                                                             : code;
    }
    if (code == HWS_OK && x->ours) {
        op->record = hand_out(x);
        op->tag = x->detail.buffer;
        op->event_flags |= HWS_EVENT_FLAG_BUFFER;
    } else {
        hws__message_release(x->message);
    }
    hws__op_finish(op, code);
}

/* The UCX worker that brings the parts. A message that was given back has outlived it, perhaps, or never had one. */
static struct hws__uworker *brought_by(const struct hws__multi *x)
{
    struct hws__worker *w = x->message->worker;

    return x->uworker != NULL &&
                   (x->uworker == x->message->ep->uworker || !hws__uworker_stale(w, x->uworker))
               ? x->uworker
               : w->main;
}

/* The operation waits for parts: UCX holds its memory. */
static void hold(struct hws__op *op, struct hws__multi *x)
{
    hws__op_hold(op, brought_by(x), NULL);
    op->multi = x->message;
    op->done_tag = x->message->tag;
    op->done_length = x->detail.total;
    x->op = op;
}

void hws__multi_part_done(struct hws__multi *x, int32_t status)
{
    if (status < 0 && x->status == HWS_OK) {
        x->status = status;
    }
    if (--x->left == 0 && x->op != NULL) {
        hws__op_unhold(x->op);
        end(x, x->status);
    }
}

static void part_received(void *request, ucs_status_t status, size_t length, void *user_data)
{
    struct hws__multi *x = user_data;

    (void)length; /* known from the list */
    hws__ucx.ucp_request_free(request);
    if (atomic_load(&x->uworker->destroying)) {
        return; /* on the background thread; the owner ends it, see hws__op_orphans() */
    }
    hws__multi_part_done(x, hws__from_ucx(status));
}

void hws__multi_orphan(struct hws__op *op)
{
    struct hws__message *m = op->multi;

    op->multi = NULL;
    m->multi->op = NULL;
    hws__message_release(m);
}

/* The places of the gathered segments; how many. */
static uint64_t gather(struct hws__multi *x)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < x->detail.count; i++) {
        if (!hws__multi_own(x, i) && x->segments[i].length != 0) {
            x->iov[n++] = (ucp_dt_iov_t){x->segments[i].base, x->segments[i].length};
        }
    }
    return n;
}

void hws__multi_part_fetch(struct hws__multi *x, struct hws__message *part)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                     UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_RECV_INFO |
                                     UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .cb.recv_am = part_received,
                                 .datatype = ucp_dt_make_contig(1),
                                 .user_data = x,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    struct hws__uworker *u = part->uworker;
    uint64_t count = part->length;
    void *buffer = x->iov, *desc = part->desc;
    ucs_status_ptr_t r;
    size_t got;

    param.recv_info.length = &got;
    if (part->tag == HWS__MULTI_GATHER) {
        count = gather(x);
        param.datatype = ucp_dt_make_iov();
    } else {
        const hws_segment *s = &x->segments[part->tag];

        buffer = s->base;
        param.memory_type = (ucs_memory_type_t)s->memory_kind;
        if (s->memory_kind == HWS_MEMORY_UNKNOWN) {
            param.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        }
    }
    if (desc == NULL) { /* its UCX worker is gone */
        hws__message_release(part);
        hws__multi_part_done(x, HWS_E_CONNECTION_RESET);
        return;
    }
    /* UCX takes the descriptor over, also when it fails. */
    part->desc = NULL;
    part->uworker = NULL;
    hws__list_remove(&part->held);
    hws__message_release(part);
    r = hws__ucx.ucp_am_recv_data_nbx(u->ucx, desc, buffer, count, &param);
    if (!UCS_PTR_IS_PTR(r)) {
        hws__multi_part_done(x, r == NULL ? HWS_OK : hws__from_ucx(UCS_PTR_STATUS(r)));
    }
}

/* Fetch what is there; the rest follows as it comes. True if everything is in place. */
static bool start(struct hws__multi *x)
{
    struct hws__list *n;

    x->left = x->part_count + 1;
    while ((n = hws__list_pop(&x->parts)) != NULL) {
        hws__multi_part_fetch(x, hws__container(n, struct hws__message, order_ep));
    }
    x->left--;
    return x->left == 0;
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

/* Wait with a posting's operation for the parts. */
static int32_t wait_for_parts(struct hws__post *p, struct hws__multi *x)
{
    struct hws__op *op = hws__op_take(p); /* one is at hand, see the callers */

    hold(op, x);
    return HWS_OK;
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
        if ((r = allocate(x)) < 0) {
            hws__multi_refuse(x, r);
            return done_failed(p, x, r);
        }
        if (!start(x)) {
            return wait_for_parts(p, x);
        }
        if (x->status < 0) {
            return done_failed(p, x, x->status);
        }
        hws__list_remove(&x->link);
    }
    p->done_flags = flags_of(x);
    p->done_record = hand_out(x);
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
        op->record = hand_out(x);
        op->tag = x->detail.buffer;
        hws__op_finish(op, HWS_OK);
        return;
    }
    /* Neither an allocator nor the release of the message may run inside UCX. */
    x->want = *want;
    hold(op, x);
    hws__list_append(&op->worker->multi_pending, &x->message->order_worker);
    op->worker->todo = true;
}

/* A receive that met its message inside UCX goes on. */
static void resume(struct hws__multi *x)
{
    int32_t r = admit(x, &x->want);

    if (r == HWS_OK && (r = allocate(x)) < 0) {
        hws__multi_refuse(x, r);
    }
    if (r < 0 || start(x)) {
        hws__op_unhold(x->op);
        end(x, r < 0 ? r : x->status);
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

static int32_t recv_run(struct hws__post *p)
{
    struct hws__endpoint *ep = p->ep;
    struct hws__scope *scope = ep != NULL ? &ep->multi_scope : &p->worker->multi_scope;
    const struct hws__multi_want *want = p->header;
    struct hws__message *m;
    struct hws__op *op;

    if ((m = hws__match_find(scope, ep == NULL, p->tag, p->mask)) != NULL) {
        return hws__multi_to(p, m->multi, want);
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

/* The caller's memory becomes the places of the segments. */
static int32_t take_places(const struct hws__post *p, struct hws__multi *x)
{
    const hws_segment *to = p->header;

    if (p->mask != x->detail.count) {
        return hws__fail(HWS_E_INVALID, p->tag, "%llu segments given, %llu listed",
                         (unsigned long long)p->mask, (unsigned long long)x->detail.count);
    }
    for (uint64_t i = 0; i < p->mask; i++) {
        uint64_t length = x->segments[i].length;
        uint32_t kind = to[i].memory_kind;
        int32_t r;

        if (to[i].length < length) {
            return hws__fail(HWS_E_TRUNCATED, p->tag, "segment %llu has %llu bytes",
                             (unsigned long long)i, (unsigned long long)length);
        }
        if (length != 0 && to[i].base == NULL) {
            return hws__fail(HWS_E_INVALID, p->tag, "segment %llu is null", (unsigned long long)i);
        }
        if (length != 0 &&
            (r = hws__cuda_check(p->worker->context, p->tag, to[i].base, &kind)) < 0) {
            return r;
        }
        if (kind == HWS_MEMORY_CUDA && length != 0 && !hws__multi_own(x, i)) {
            return hws__fail(HWS_E_BUFFER_KIND, p->tag,
                             "segment %llu comes together with others: into host memory only",
                             (unsigned long long)i);
        }
    }
    for (uint64_t i = 0; i < p->mask; i++) {
        x->segments[i].base = to[i].base;
        x->segments[i].memory_kind = to[i].memory_kind;
    }
    return HWS_OK;
}

static int32_t fetch_run(struct hws__post *p)
{
    struct hws__message *m = hws__obj_find(&hws__objects, p->tag);
    struct hws__multi *x;
    int32_t r;

    if (m == NULL) {
        return hws__id_error(&hws__objects, p->tag, HWS_KIND_BUFFER);
    }
    if ((x = m->multi) == NULL) {
        return hws__fail(HWS_E_INVALID, p->tag, "the buffer is not of a multi-buffer message");
    }
    if (x->ours) {
        return hws__fail(HWS_E_IN_USE, p->tag, "the data was fetched");
    }
    if (x->status < 0) {
        return hws__fail(x->status, p->tag, "%s", hws_error_text(x->status));
    }
    if (hws__op_next(p) == NULL) {
        return HWS_E_TOO_MANY;
    }
    if ((r = take_places(p, x)) < 0) {
        return r;
    }
    p->source = m->ep_id;
    p->done_tag = m->tag;
    p->done_length = x->detail.total;
    hws__list_remove(&m->kept);
    hws__obj_hide(&m->obj);
    copy_inline(x);
    if (!start(x)) {
        return wait_for_parts(p, x);
    }
    p->done_status = x->status;
    hws__message_release(m);
    return HWS_DONE;
}

int32_t hws_multi_fetch(hws_id buffer, const hws_segment *segments, uint64_t count,
                        const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p = {.run = fetch_run,
                          .tag = buffer,
                          .mask = count,
                          .header = segments,
                          .keep = count * sizeof *segments,
                          .kind = HWS_EVENT_MULTI_RECV};
    struct hws__message *m;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((m = hws__obj_get(buffer, HWS_KIND_BUFFER, &r)) == NULL) {
        return r;
    }
    if (segments == NULL && count != 0) {
        return hws__fail(HWS_E_INVALID, buffer, "segments is null");
    }
    p.worker = m->worker;
    return hws__post(&p, opts, op);
}
