/*
 * Posting an operation: take the worker and run, or hand over to its owner.
 *
 * This is the hot path of every operation, so the common case (options of the current size, no
 * queue, the worker free) is inline and everything else is out of line in post.c.
 */
#ifndef HWS_CORE_POST_H
#define HWS_CORE_POST_H

#include "endpoint.h"
#include "heap.h"
#include "progress.h"

/** Posts with options of another size or none, with a queue, of pieces, of a GPU's memory, or with mistakes. */
int32_t hws__post_slow(struct hws__post *p, const hws_op_opts *in, hws_id *out);
/** Another thread owns the worker, or this one does, inside a callback. */
int32_t hws__post_not_free(struct hws__post *p, hws_id *out);
/** Fill opts.result, which must be given. */
void hws__post_result(const struct hws__post *p);
/** The rest of a posting that ran and did not fail: its event, its deadline. */
int32_t hws__post_settle(struct hws__post *p, int32_t r, hws_id *out);
/** Whether who sleeps at the worker must be woken: there is what only progress moves on. */
bool hws__wants_wake(const struct hws__worker *w);

/** Take an operation that runs the posting again later. As hws__post.run, but for HWS_DONE. */
int32_t hws__post_park(struct hws__post *p);
/** Run it again, and end it if that ends it. Its list must be hws__credit_out.waiting. */
void hws__post_resume(struct hws__op *op);
/** The same of one that waited for a stream of CUDA: whether it has credit is still to be seen. */
void hws__post_continue(struct hws__op *op);

/** What a submission keeps until the owner runs it. */
struct hws__submission {
    struct hws__post post;
    hws_op_opts opts;
};

_Static_assert(sizeof(struct hws__submission) <= sizeof(((struct hws__op *)0)->submitted),
               "hws__op.submitted is too small");

static inline struct hws__submission *hws__submission(struct hws__op *op)
{
    return (struct hws__submission *)(void *)op->submitted;
}

/** Run the submissions that are waiting, unless this posting is one of them. */
void hws__post_earlier(const struct hws__post *p);

/**
 * The flags, by a load of their own: the compiler would join it with that of `struct_size`, and a load of
 * both waits until the two stores by which the caller has just written them have left the store buffer.
 */
static inline uint32_t hws__post_flags(const hws_op_opts *in)
{
    return *(const volatile uint32_t *)&in->flags;
}

/** Options of the current size with known flags, on a worker that takes no times. */
static inline bool hws__post_plain(const struct hws__worker *w, const hws_op_opts *in)
{
    uint32_t timed = atomic_load_explicit(&w->timed, memory_order_relaxed);

    return in->struct_size == sizeof *in && ((hws__post_flags(in) & ~HWS__OP_FLAGS) | timed) == 0;
}

/** Run under ownership. */
static inline int32_t hws__post_run(struct hws__post *p, hws_id *out)
{
    const struct hws__obj *o = p->ep != NULL ? &p->ep->obj : &p->worker->obj;
    int32_t r;

    if (__builtin_expect(
            atomic_load_explicit(&p->worker->submissions, memory_order_relaxed) != NULL, 0)) {
        hws__post_earlier(p); /* this thread's own submissions among them: they come first */
    }
    if (__builtin_expect(atomic_load_explicit(&o->id, memory_order_relaxed) != p->source, 0) &&
        p->source != 0) {
        return hws__id_error(&hws__objects, p->source, 0);
    }
    if (__builtin_expect(p->opts->timeout_ns != 0, 0) && !hws__heap_reserve(p->worker)) {
        return hws__fail(HWS_E_NO_MEMORY, p->source, "no memory for a deadline");
    }
    hws__bundles_send(&p->worker->bundles);
    if ((r = p->run(p)) < 0) {
        return r;
    }
    if (__builtin_expect(r == HWS_DONE && (p->opts->flags & HWS_OP_INLINE) && p->op == NULL &&
                             p->opts->result == NULL,
                         1)) {
        HWS__COUNT(p->worker, ops_inline, 1);
        return HWS_DONE;
    }
    if (r == HWS_OK && p->opts->timeout_ns == 0) {
        if (out != NULL) {
            *out = atomic_load_explicit(&p->op->id, memory_order_relaxed);
        }
        return HWS_OK;
    }
    return hws__post_settle(p, r, out);
}

/** Give the worker back after a posting that ended in `r`, and wake who sleeps, if it must know. */
static inline int32_t hws__post_leave(struct hws__post *p, int32_t r)
{
    struct hws__worker *w = p->worker;
    bool wake = __builtin_expect(hws__asleep(w), 0) && r == HWS_OK && hws__wants_wake(w);

    hws__own_release(w);
    if (wake) {
        hws__wake(w);
    }
    return r;
}

/** Post with the caller's options (any size, nullable); fills `*out` (nullable). */
static inline __attribute__((always_inline)) int32_t hws__post(struct hws__post *p,
                                                               const hws_op_opts *in, hws_id *out)
{
    struct hws__worker *w = p->worker;

    if (__builtin_expect(
            in == NULL || !hws__post_plain(w, in) || (in->queue | in->memory_kind) != 0 ||
                (out == NULL && in->callback == NULL && (in->flags & HWS_OP_DETACHED) == 0) ||
                (p->buffer == NULL && p->length != 0) || (int64_t)p->length < 0,
            0)) {
        return hws__post_slow(p, in, out);
    }
    if (out != NULL) {
        *out = 0;
    }
    p->opts = in;
    if (__builtin_expect(!hws__own_try(w), 0)) {
        return hws__post_not_free(p, out);
    }
    return hws__post_leave(p, hws__post_run(p, out));
}

/** hws__op_peek() where an operation is at hand. */
static inline struct hws__op *hws__op_next(struct hws__post *p)
{
    struct hws__op *op = p->op != NULL ? p->op : p->worker->free_ops;

    return __builtin_expect(op != NULL, 1) ? op : hws__op_peek(p);
}

/** Before what is done at once: an operation is free for its event, or none is asked for. False: HWS_E_TOO_MANY. */
static inline bool hws__post_can_tell(struct hws__post *p)
{
    return (p->opts->flags & HWS_OP_INLINE) != 0 || hws__op_next(p) != NULL;
}

/** Request parameters of UCX: kind of memory, datatype, completion by hws__op_ucx_done(). */
static inline void hws__op_param(const struct hws__post *p, struct hws__op *op,
                                 ucp_request_param_t *param)
{
    param->op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS |
                          UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param->flags = 0;
    param->cb.send = hws__op_ucx_done;
    param->user_data = op;
    param->datatype = p->opts->flags & HWS_OP_IOV ? ucp_dt_make_iov() : ucp_dt_make_contig(1);
    param->memory_type = (ucs_memory_type_t)p->opts->memory_kind;
    if (__builtin_expect(p->opts->memory_kind == HWS_MEMORY_UNKNOWN, 0)) {
        param->op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    }
}

/** The buffer to give to UCX: a short array of pieces is copied into the operation. */
static inline void *hws__op_buffer(const struct hws__post *p, struct hws__op *op)
{
    if (__builtin_expect((p->opts->flags & HWS_OP_IOV) == 0 || p->length > HWS__OP_IOV, 1)) {
        return p->buffer;
    }
    return hws__op_keep_iov(p, op);
}

/** What UCX returned for a send-like call: done, failed, or pending (the operation is taken). */
static inline int32_t hws__op_posted(struct hws__post *p, struct hws__op *op,
                                     struct hws__uworker *u, ucs_status_ptr_t ptr)
{
    return __builtin_expect(ptr == NULL, 1) ? HWS_DONE : hws__op_pending(p, op, u, ptr);
}

/**
 * UCX has a message: done, or pending as `op`. Counts it and notes what its event says. Returns `r`.
 * @param bytes  of data; `header` more count as credit
 */
static inline int32_t hws__post_sent(struct hws__post *p, struct hws__op *op, int32_t r,
                                     uint32_t traffic, uint32_t sort, uint64_t bytes,
                                     uint64_t header)
{
    struct hws__endpoint *ep = p->ep;

    if (r < 0) {
        return r;
    }
    p->done_length = bytes;
    hws__credit_spend(&ep->credit, sort, bytes + header);
    hws__flow_add(&ep->traffic.out[traffic], bytes);
    if (r == HWS_OK) {
        op->done_tag = p->done_tag;
        op->done_length = bytes;
    }
    if (!ep->uworker->hot) {
        hws__uworker_heat(ep->uworker);
    }
    return r;
}

/**
 * What every posting starts with; all else is zero. Field by field: an initialiser of this size becomes
 * a string instruction, which takes longer than the rest of a posting.
 */
static inline void hws__post_init(struct hws__post *p, int32_t (*run)(struct hws__post *),
                                  uint32_t kind, hws_id source, const void *buffer, uint64_t length)
{
    p->run = run;
    p->worker = NULL;
    p->ep = NULL;
    p->source = source;
    p->buffer = (void *)(uintptr_t)buffer;
    p->length = length;
    p->tag = 0;
    p->mask = 0;
    p->header = NULL;
    p->keep = 0;
    p->opts = NULL;
    p->op = NULL;
    p->queue = NULL;
    p->done_length = 0;
    p->done_tag = 0;
    p->kind = kind;
    p->done_flags = 0;
    p->done_status = 0;
    p->am_id = 0;
    p->done_record = NULL;
    p->rkey = 0;
    p->operand = 0;
}

/** The posting of a receive that waited, now that its message is there. `opts` is filled, for as long as it is used. */
static inline struct hws__post hws__post_again(struct hws__op *op, hws_op_opts *opts)
{
    *opts = (hws_op_opts){.flags = op->flags, .memory_kind = op->memory_kind};
    return (struct hws__post){.worker = op->worker,
                              .ep = op->ep,
                              .buffer = op->buffer,
                              .length = op->length,
                              .op = op,
                              .tag = op->tag,
                              .mask = op->mask,
                              .source = op->source,
                              .opts = opts};
}

/** Find the endpoint of a posting. */
static inline int32_t hws__post_endpoint(struct hws__post *p)
{
    int32_t r = HWS_OK;

    p->ep = __builtin_expect(hws__id_kind(p->source) == HWS_KIND_ENDPOINT, 1)
                ? hws__obj_find(&hws__objects, p->source)
                : NULL;
    if (__builtin_expect(p->ep == NULL, 0)) {
        p->ep = hws__endpoint_find(p->source, &r);
        if (p->ep == NULL) {
            return r;
        }
    }
    p->worker = p->ep->worker;
    return HWS_OK;
}

/** The same where it may be a worker instead. */
static inline int32_t hws__post_source(struct hws__post *p)
{
    int32_t r = HWS_OK;

    if (hws__id_kind(p->source) != HWS_KIND_WORKER) {
        return hws__post_endpoint(p);
    }
    p->worker = hws__worker_find(p->source, &r);
    return r;
}

#endif
