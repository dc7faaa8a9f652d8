#include "post.h"
#include "cuda.h"
#include "endpoint.h"
#include "error.h"
#include "heap.h"
#include "latency.h"
#include "options.h"
#include "progress.h"
#include "queue.h"
#include "time.h"
#include <stdlib.h>
#include <string.h>

static const hws_op_opts no_options = {.struct_size = sizeof(hws_op_opts)};

int32_t hws__op_deadline(struct hws__op *op, uint64_t timeout_ns)
{
    op->deadline = hws__deadline(hws__now(), timeout_ns);
    return hws__heap_add(op->worker, op) ? HWS_OK : HWS_E_NO_MEMORY;
}

void hws__post_result(const struct hws__post *p)
{
    *p->opts->result = (hws_event){.size = sizeof(hws_event),
                                   .kind = p->kind,
                                   .source = p->source,
                                   .status = p->done_status,
                                   .flags = p->done_flags,
                                   .length = p->done_length,
                                   .tag = p->done_tag,
                                   .user = p->opts->user,
                                   .detail = p->done_status >= 0 ? p->done_record : NULL};
}

/* Complete without an event. */
static int32_t done_inline(struct hws__post *p)
{
    HWS__COUNT(p->worker, ops_inline, 1);
    if (p->opts->result != NULL) {
        hws__post_result(p);
    }
    return HWS_DONE;
}

int32_t hws__post_settle(struct hws__post *p, int32_t r, hws_id *out)
{
    struct hws__op *op;

    if (r == HWS_DONE && (p->opts->flags & HWS_OP_INLINE) && p->op == NULL) {
        return done_inline(p);
    }
    if (r == HWS_DONE) {
        if ((op = hws__op_take(p)) == NULL) {
            /* UCX has done the work already: the only thing lost would be the event. */
            return HWS_E_TOO_MANY;
        }
        op->stage = HWS__STAGE_OWN;
        op->source = p->source;
        op->done_length = p->done_length;
        op->done_tag = p->done_tag;
        op->event_flags = p->done_flags;
        if ((op->record = p->done_record) != NULL) {
            op->tag = ((const hws_multi_detail *)op->record)->buffer;
        }
        if (out != NULL) {
            *out = atomic_load_explicit(&op->id, memory_order_relaxed);
        }
        hws__op_finish(op, p->done_status);
        return HWS_OK;
    }
    if (out != NULL) {
        *out = atomic_load_explicit(&p->op->id, memory_order_relaxed);
    }
    if (p->opts->timeout_ns != 0 && p->op->heap == 0 && p->op->stage != HWS__STAGE_ENDED) {
        hws__op_deadline(p->op, p->opts->timeout_ns);
    }
    return HWS_OK;
}

/* What the caller's memory holds only during the call. */
static int32_t keep(struct hws__op *op, struct hws__post *p)
{
    if (p->kind == HWS_EVENT_AM_SEND && p->mask != 0) {
        char *to = op->header + 8;

        if (p->mask > HWS__OP_HEADER - 8) {
            if ((op->extra = malloc(p->mask + 8)) == NULL) {
                return HWS_E_NO_MEMORY;
            }
            to = (char *)op->extra + 8;
        }
        memcpy(to, p->header, p->mask);
        p->header = to;
    }
    if (p->keep != 0) {
        void *to = op->header;

        if (p->keep > HWS__OP_HEADER && (to = op->extra = malloc(p->keep)) == NULL) {
            return HWS_E_NO_MEMORY;
        }
        memcpy(to, p->header, p->keep);
        p->header = to;
    }
    if ((p->opts->flags & HWS_OP_IOV) && p->length <= HWS__OP_IOV && p->length != 0) {
        memcpy(op->iov, p->buffer, p->length * sizeof *op->iov);
        p->buffer = op->iov;
    }
    return HWS_OK;
}

/* The worker has ended meanwhile: perhaps nobody else will ever look at its submissions. */
static void run_late(struct hws__worker *w)
{
    bool nested = hws__own(w);

    if (atomic_load(&w->obj.id) == 0) {
        hws__submissions_run(w);
        hws__deliver_all(w);
    }
    hws__disown(w, nested);
}

/* An operation that holds the whole posting, to be run by whoever owns the worker. */
static inline struct hws__op *package(struct hws__post *p, hws_id *out, int32_t *error)
{
    struct hws__op *op = hws__op_pool_take();
    struct hws__submission *s;

    if (op == NULL) {
        *error = hws__fail(HWS_E_TOO_MANY, p->source, "no operation is free");
        return NULL;
    }
    if ((*error = keep(op, p)) < 0) {
        atomic_store_explicit(&op->worker, p->worker, memory_order_relaxed);
        hws__op_release(op);
        hws__fail(*error, p->source, "header of %llu bytes", (unsigned long long)p->mask);
        return NULL;
    }
    op->ep = NULL; /* joins the endpoint's operations when the owner takes it up */
    hws__op_prepare(op, p);
    s = hws__submission(op);
    /* Without `timing`: the operation has it. */
    memcpy(&s->opts, p->opts, offsetof(hws_op_opts, timing));
    s->post = *p;
    s->post.op = op;
    s->post.opts = &s->opts;
    op->command = NULL;
    if (out != NULL) {
        *out = atomic_load_explicit(&op->id, memory_order_relaxed);
    }
    return op;
}

/* Hand it to the thread that owns the worker. */
static void hand_over(struct hws__worker *w, struct hws__op *op)
{
    hws__submit(w, op);
    /* ORDER: seq_cst, pairs with the fence in hws__worker_ended(). */
    if (__builtin_expect(atomic_load(&w->obj.id) == 0, 0) && atomic_load(&w->submissions) != NULL) {
        run_late(w);
    }
}

static int32_t submit(struct hws__post *p, hws_id *out)
{
    struct hws__worker *w = p->worker;
    struct hws__op *op;
    int32_t r;

    /* It ends when nothing is left: who goes on posting would keep it from that. */
    if (atomic_load_explicit(&w->closing, memory_order_relaxed)) {
        return hws__fail(HWS_E_CLOSING, p->source, "the worker is closing");
    }
    if ((op = package(p, out, &r)) == NULL) {
        return r;
    }
    hand_over(w, op);
    return HWS_OK;
}

int32_t hws__post_park(struct hws__post *p)
{
    struct hws__op *op = hws__op_next(p);
    struct hws__submission *s;
    void *extra;
    int32_t r;

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    if (p->op != NULL) {
        hws__op_take(p); /* it was submitted: everything is kept already */
        return HWS_OK;
    }
    op->extra = NULL;
    if ((r = keep(op, p)) < 0) {
        return hws__fail(r, p->source, "header of %llu bytes", (unsigned long long)p->mask);
    }
    extra = op->extra;
    hws__op_take(p);
    op->extra = extra;
    s = hws__submission(op);
    s->opts = *p->opts;
    s->post = *p;
    s->post.opts = &s->opts;
    return HWS_OK;
}

/* What was parked goes on; `admitted`: also without credit, or while its endpoint is closing. */
static void run_again(struct hws__op *op, bool admitted)
{
    struct hws__submission *s = hws__submission(op);
    uint64_t sequence = op->sequence;
    struct hws__post *p = &s->post;
    int32_t r;

    hws__op_leave(op);
    op->stage = HWS__STAGE_OWN;
    p->ep->credit.resumed = admitted ? p : NULL;
    r = p->run(p);
    p->ep->credit.resumed = NULL;
    if (r == HWS_OK) {
        op->sequence = sequence; /* a flush posted meanwhile comes after it */
    } else if (r == HWS_DONE) {
        hws__post_settle(p, r, NULL);
    } else {
        hws__op_rejoin(op);
        hws__op_finish(op, r);
    }
}

void hws__post_resume(struct hws__op *op)
{
    hws__credit_unwait(op);
    run_again(op, true);
}

void hws__post_continue(struct hws__op *op)
{
    const struct hws__endpoint *ep = op->ep;

    run_again(op, !ep->open && ep->ucx != NULL && !ep->failed);
}

void hws__post_earlier(const struct hws__post *p)
{
    if (p->op == NULL) {
        hws__submissions_catch_up(p->worker);
    }
}

/* In a callback: whether it may be run at once. */
static bool may_run(const struct hws__post *p)
{
    return p->kind == HWS_EVENT_CONNECT ? hws__owned_outside(p->worker) : hws__owned(p->worker);
}

int32_t hws__post_not_free(struct hws__post *p, hws_id *out)
{
    if (may_run(p)) {
        return hws__post_run(p, out);
    }
    return hws__own_after_watch(p->worker) ? hws__post_leave(p, hws__post_run(p, out))
                                           : submit(p, out);
}

/* A sleeper armed before this operation existed: it must see what only progress moves on. */
bool hws__wants_wake(const struct hws__worker *w)
{
    return w->pending_ucx != 0 || w->todo || w->tick >= HWS__TICK;
}

/* The queue of the final event, with a place reserved in it. */
static int32_t reserve(struct hws__post *p)
{
    int32_t r = HWS_OK;

    if (p->opts->queue == 0 || p->opts->callback != NULL) {
        return HWS_OK;
    }
    if ((p->queue = hws__queue_find(p->opts->queue, &r)) == NULL) {
        return r;
    }
    if (!hws__queue_reserve(p->queue, p->opts->queue)) {
        p->queue = NULL;
        (void)hws__queue_find(p->opts->queue, &r); /* closed just now by another thread? */
        return r < 0 ? r
                     : hws__fail(HWS_E_QUEUE_FULL, p->opts->queue, "the queue has no place left");
    }
    hws__queue_feed(p->queue, atomic_load_explicit(&p->worker->obj.id, memory_order_relaxed));
    return HWS_OK;
}

/* What UCX would take as it is, and read or write wherever that leads. */
static int32_t check_buffer(const struct hws__post *p)
{
    const hws_iov *v = p->buffer;
    uint64_t bytes = p->length;

    if (p->buffer == NULL && p->length != 0) {
        return hws__fail(HWS_E_INVALID, p->source, "the buffer is null");
    }
    if ((p->opts->flags & HWS_OP_IOV) != 0 && p->length <= INT64_MAX) {
        bytes = 0;
        for (uint64_t i = 0; i < p->length && bytes <= INT64_MAX; i++) {
            if (v[i].base == NULL && v[i].length != 0) {
                return hws__fail(HWS_E_INVALID, p->source, "piece %llu of the buffer is null",
                                 (unsigned long long)i);
            }
            bytes = v[i].length <= INT64_MAX ? bytes + v[i].length : UINT64_MAX;
        }
    }
    return bytes <= INT64_MAX
               ? HWS_OK
               : hws__fail(HWS_E_INVALID, p->source, "a buffer has less than 2^63 bytes");
}

/* Whether the posting can be run and told of. */
static int32_t admit(struct hws__post *p, hws_id *out)
{
    int32_t r;

    if (out != NULL) {
        *out = 0;
    } else if (p->opts->callback == NULL && p->opts->queue == 0 &&
               (p->opts->flags & HWS_OP_DETACHED) == 0) {
        return hws__fail(HWS_E_INVALID, p->source, "no callback, no queue and no place for the id");
    }
    if ((r = check_buffer(p)) < 0) {
        return r;
    }
    return reserve(p);
}

static int32_t post_admitted(struct hws__post *p, hws_id *out)
{
    struct hws__worker *w = p->worker;
    int32_t r;

    if (!hws__own_try(w)) {
        r = hws__post_not_free(p, out);
    } else {
        bool wake;

        r = hws__post_run(p, out);
        wake = r == HWS_OK && hws__wants_wake(p->worker);
        hws__own_release(w);
        if (wake) {
            hws__wake(w);
        }
    }
    if (r != HWS_OK && p->queue != NULL) {
        hws__queue_unreserve(p->queue, p->opts->queue);
    }
    return r;
}

/* Under ownership: the turn of an operation whose time is taken. */
static int32_t timed_run(struct hws__post *p)
{
    struct hws__op *op = p->op;
    int32_t r;

    hws__latency_start(op);
    p->run = op->run;
    if ((r = p->run(p)) < 0) {
        hws__latency_forget(op);
    }
    return r;
}

/* What an operation must keep of its options, as their copy does not: times, a stream. */
static void remember(struct hws__op *op, const hws_op_opts *opts, uint64_t now)
{
    struct hws__post *p = &hws__submission(op)->post;

    if (opts->flags & HWS_OP_STREAM) {
        op->after_stream = p->run;
        op->stream = opts->stream;
        op->cuda = hws__cuda_current();
        p->run = hws__cuda_wait_run;
    }
    if ((opts->flags & HWS_OP_TIMED) != 0 || p->worker->latency != NULL) {
        op->posted_at = now;
        op->timing = opts->flags & HWS_OP_TIMED ? opts->timing : NULL;
        op->run = p->run;
        p->run = timed_run;
    }
}

/* Like a submission, also where the poster runs it: times and stream stay with the operation. */
static int32_t run_packaged(struct hws__post *p, hws_id *out)
{
    struct hws__worker *w = p->worker;
    uint64_t now = hws__now();
    struct hws__op *op;
    bool nested, wake;
    int32_t r;

    if ((op = package(p, out, &r)) == NULL) {
        return r;
    }
    remember(op, p->opts, now);
    nested = may_run(p);
    if (!nested && !hws__own_try(w) && !hws__own_after_watch(w)) {
        hand_over(w, op);
        return HWS_OK;
    }
    hws__submissions_catch_up(w);
    r = hws__post_run(&hws__submission(op)->post, NULL);
    if (r < 0) {
        hws__op_release(op);
    }
    wake = r >= 0 && hws__wants_wake(p->worker);
    hws__disown(w, nested);
    if (wake && !nested) {
        hws__wake(w);
    }
    return r;
}

static int32_t post_packaged(struct hws__post *p, hws_id *out)
{
    int32_t r = run_packaged(p, out);

    if (r < 0 && out != NULL) {
        *out = 0;
    }
    if (r < 0 && p->queue != NULL) {
        hws__queue_unreserve(p->queue, p->opts->queue);
    }
    return r;
}

/* The flags that no plain posting has. */
static int32_t check_flags(const struct hws__post *p)
{
    uint32_t flags = p->opts->flags;

    if (flags & ~(uint32_t)(HWS__OP_FLAGS | HWS_OP_IOV | HWS_OP_TIMED | HWS_OP_STREAM)) {
        return hws__fail(HWS_E_INVALID, p->source, "unknown flags %#x", flags);
    }
    if ((flags & HWS_OP_TIMED) != 0 && p->opts->timing == NULL) {
        return hws__fail(HWS_E_INVALID, p->source, "HWS_OP_TIMED without `timing`");
    }
    return flags & HWS_OP_STREAM ? hws__cuda_wait_check(p) : HWS_OK;
}

/* Where the buffer is, or its first piece: what UCX asks of all pieces is one kind of memory. */
static int32_t check_kind(const struct hws__post *p, uint32_t *kind)
{
    const hws_iov *v = p->buffer;
    const void *at = p->buffer;

    if (p->buffer == NULL || p->length == 0) {
        return HWS_OK;
    }
    if (p->opts->flags & HWS_OP_IOV) {
        uint64_t i = 0;

        while (i + 1 < p->length && v[i].length == 0) {
            i++;
        }
        at = v[i].base;
    }
    return hws__cuda_check(p->worker->context, p->source, at, kind);
}

/* Everything is checked. On memory of a GPU in its CUDA context, which from now on is there for
 * progress too. */
static int32_t post_checked(struct hws__post *p, hws_id *out)
{
    bool packaged = (p->opts->flags & (HWS_OP_TIMED | HWS_OP_STREAM)) != 0 || p->worker->latency;
    struct hws__context *c = p->worker->context;
    bool pushed;
    int32_t r;

    if (p->opts->memory_kind == HWS_MEMORY_HOST) {
        return packaged ? post_packaged(p, out) : post_admitted(p, out);
    }
    hws__cuda_adopt(c, hws__cuda_current(), false);
    pushed = hws__cuda_enter(c);
    r = packaged ? post_packaged(p, out) : post_admitted(p, out);
    hws__cuda_pop(pushed);
    return r;
}

/* Options of another size, flags that are none, an operation whose time is taken or that waits for
 * a stream, memory that is not plainly the host's. */
static int32_t post_unusual(struct hws__post *p, const hws_op_opts *in, hws_id *out)
{
    hws_op_opts local;
    int32_t r;

    if (in != NULL && (in->struct_size != sizeof *in || in->memory_kind != HWS_MEMORY_HOST)) {
        if ((r = hws__options(&local, sizeof local, in, "operation")) < 0) {
            return r;
        }
        p->opts = &local;
    }
    if ((r = check_flags(p)) < 0) {
        return r;
    }
    if (p->opts->memory_kind != HWS_MEMORY_HOST &&
        ((r = check_buffer(p)) < 0 || (r = check_kind(p, &local.memory_kind)) < 0)) {
        return r;
    }
    if ((r = admit(p, out)) < 0) {
        return r;
    }
    return post_checked(p, out);
}

int32_t hws__post_slow(struct hws__post *p, const hws_op_opts *in, hws_id *out)
{
    int32_t r;

    p->opts = in == NULL ? &no_options : in;
    if (!hws__post_plain(p->worker, p->opts) || p->opts->memory_kind != HWS_MEMORY_HOST) {
        return post_unusual(p, in, out);
    }
    r = admit(p, out);
    return r < 0 ? r : post_admitted(p, out);
}
