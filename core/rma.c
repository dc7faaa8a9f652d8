#include "rma.h"
#include "error.h"
#include "guard.h"
#include "progress.h"
#include "quick.h"
#include "ucx_loader.h"
#include <string.h>

bool hws__rma_init(struct hws__post *p, int32_t (*run)(struct hws__post *), uint32_t kind,
                   hws_id rkey, uint64_t address, const void *buffer, uint64_t length,
                   int32_t *error)
{
    struct hws__rkey *k = hws__obj_get(rkey, HWS_KIND_RKEY, error);

    if (k == NULL) {
        return false;
    }
    hws__post_init(p, run, kind, atomic_load_explicit(&k->ep->obj.id, memory_order_relaxed), buffer,
                   length);
    /* The key may go while this runs: hws__rma_key() looks again, under ownership. */
    p->ep = k->ep;
    p->worker = k->worker;
    p->rkey = rkey;
    p->mask = address;
    return true;
}

struct hws__rkey *hws__rma_key(const struct hws__post *p, uint64_t feature, uint64_t length,
                               int32_t *error)
{
    struct hws__rkey *k = hws__rkey_ready(p->rkey, error);

    if (__builtin_expect(k == NULL, 0)) {
        return NULL;
    }
    if (__builtin_expect((p->worker->context->features & feature) == 0, 0)) {
        *error = hws__fail(HWS_E_UNSUPPORTED, p->rkey, "the context has not HWS_FEATURE_%s",
                           feature == HWS_FEATURE_RMA ? "RMA" : "ATOMIC");
        return NULL;
    }
    *error = hws__rkey_bounds(k, p->mask, length);
    return *error == HWS_OK ? k : NULL;
}

bool hws__rma_direct(const struct hws__rkey *k, uint32_t memory_kind)
{
    return k->way == HWS__WAY_DIRECT && !k->ep->rma.fenced && memory_kind == HWS_MEMORY_HOST;
}

void hws__rma_acked(struct hws__endpoint *ep)
{
    ep->rma.messages_flushed = ep->rma.messages_flushing;
    if (ep->rma.messages_flushed == ep->rma.messages) {
        ep->rma.fenced = false;
    }
}

void hws__rma_fence(struct hws__endpoint *ep)
{
    hws__rma_copy_now(ep);
    atomic_thread_fence(memory_order_seq_cst);
    ep->rma.fenced = ep->rma.messages_flushed != ep->rma.messages;
}

/* A number is one load and one store, which no peer sees half done; and a call costs more than that. */
static inline void copy(void *to, const void *from, uint64_t length)
{
    if (length == sizeof(uint64_t)) {
        memcpy(to, from, sizeof(uint64_t));
    } else {
        memcpy(to, from, length);
    }
}

static int32_t put_message(struct hws__post *p, struct hws__rkey *k, uint64_t bytes)
{
    struct hws__rma_job *job = hws__rma_job_of(p, k, HWS__RMA_PUT);

    if (job == NULL) {
        return HWS_E_TOO_MANY;
    }
    job->msg.flags = HWS__RMA_LAST;
    job->length = job->msg.length = bytes;
    p->done_length = bytes;
    return hws__rma_job_post(p, job);
}

static int32_t get_message(struct hws__post *p, struct hws__rkey *k, uint64_t bytes)
{
    struct hws__rma_job *job;

    if ((job = hws__rma_job_of(p, k, HWS__RMA_GET)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    /* What is sent has no data; the answer's goes where the operation says. */
    job->memory_kind = HWS_MEMORY_HOST;
    job->op->memory_kind = p->opts->memory_kind;
    job->msg.length = bytes;
    p->tag = bytes; /* how much the answer must bring */
    return hws__rma_job_post(p, job);
}

/* A put or get of bytes that the key allows, by the way that leads to its memory. */
static int32_t move(struct hws__post *p, struct hws__rkey *k, bool put, uint64_t bytes)
{
    if (hws__rma_direct(k, p->opts->memory_kind)) {
        if (bytes > HWS__RMA_AT_ONCE) {
            return hws__rma_copy_long(p, k, bytes);
        }
        if (!hws__post_can_tell(p)) {
            return HWS_E_TOO_MANY;
        }
        hws__rma_copy(p, k, bytes);
        p->done_length = bytes;
        return HWS_DONE;
    }
    if (k->way == HWS__WAY_UCX) {
        return put ? hws__rma_ucx_put(p, k) : hws__rma_ucx_get(p, k);
    }
    return put ? put_message(p, k, bytes) : get_message(p, k, bytes);
}

static int32_t transfer_run(struct hws__post *p)
{
    uint64_t bytes = hws__bytes(p->buffer, p->length, p->opts->flags);
    bool put = p->kind == HWS_EVENT_PUT;
    struct hws__rkey *k;
    int32_t r;

    if ((k = hws__rma_key(p, HWS_FEATURE_RMA, bytes, &r)) == NULL) {
        return r;
    }
    if ((r = bytes != 0 ? move(p, k, put, bytes) : HWS_DONE) >= 0) {
        hws__flow_add(&k->ep->traffic.out[put ? HWS_TRAFFIC_PUT : HWS_TRAFFIC_GET], bytes);
    }
    return r;
}

/*
 * The short way of quick.h: a copy. `k` may be another key by now, or none: that shows under ownership.
 * False: nothing was done.
 */
static inline bool copy_quickly(struct hws__rkey *k, bool put, hws_id rkey, uint64_t address,
                                void *buffer, uint64_t length, const hws_op_opts *opts,
                                const hws_id *op)
{
    struct hws__worker *w = k->worker;
    bool nested;

    if (opts == NULL || opts->result != NULL ||
        !hws__quick_own(w, buffer, length, opts, op, &nested)) {
        return false;
    }
    if (__builtin_expect(atomic_load_explicit(&k->obj.id, memory_order_relaxed) != rkey ||
                             k->worker != w || k->ucx == NULL || !k->ep->open ||
                             !hws__rma_direct(k, HWS_MEMORY_HOST) ||
                             (w->context->features & HWS_FEATURE_RMA) == 0 || length == 0 ||
                             length > HWS__RMA_AT_ONCE || address - k->base > k->length ||
                             length > k->length - (address - k->base),
                         0)) {
        hws__disown(w, nested);
        return false;
    }
    hws__flow_add(&k->ep->traffic.out[put ? HWS_TRAFFIC_PUT : HWS_TRAFFIC_GET], length);
    address -= k->base;
    copy(put ? k->direct + address : buffer, put ? buffer : k->direct + address, length);
    hws__quick_leave(w, nested);
    return true;
}

static inline int32_t transfer(uint32_t kind, hws_id rkey, uint64_t address, const void *buffer,
                               uint64_t length, const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p;
    struct hws__rkey *k;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if (hws__id_kind(rkey) == HWS_KIND_RKEY && (k = hws__obj_find(&hws__objects, rkey)) != NULL &&
        copy_quickly(k, kind == HWS_EVENT_PUT, rkey, address, (void *)(uintptr_t)buffer, length,
                     opts, op)) {
        if (op != NULL) {
            *op = 0;
        }
        return HWS_DONE;
    }
    return hws__rma_init(&p, transfer_run, kind, rkey, address, buffer, length, &r)
               ? hws__post(&p, opts, op)
               : r;
}

int32_t hws_put(hws_id rkey, uint64_t address, const void *buffer, uint64_t length,
                const hws_op_opts *opts, hws_id *op)
{
    return transfer(HWS_EVENT_PUT, rkey, address, buffer, length, opts, op);
}

int32_t hws_get(hws_id rkey, uint64_t address, void *buffer, uint64_t length,
                const hws_op_opts *opts, hws_id *op)
{
    return transfer(HWS_EVENT_GET, rkey, address, buffer, length, opts, op);
}
