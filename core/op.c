#include "op.h"
#include "endpoint.h"
#include "error.h"
#include "heap.h"
#include "latency.h"
#include "multi.h"
#include "options.h"
#include "progress.h"
#include "queue.h"
#include "rma.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

#define CHUNK 256u
#define CHUNKS ((1u << HWS__OP_SLOT_BITS) / CHUNK)

static _Atomic(struct hws__op *) chunks[CHUNKS];
static _Atomic uint32_t used_chunks;
static uint32_t chunk_limit = CHUNKS;
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER; /* LOCK: leaf */
static struct hws__op *pool;
static _Atomic bool pool_short; /* somebody went away without */

/* A chunk of new operations on the pool's list. Called with the lock held. */
static bool pool_grow(void)
{
    uint32_t c = atomic_load_explicit(&used_chunks, memory_order_relaxed);
    struct hws__op *ops;

    if (c >= chunk_limit) {
        return false;
    }
    ops = aligned_alloc(64, CHUNK * sizeof *ops);
    if (ops == NULL) {
        return false;
    }
    memset(ops, 0, CHUNK * sizeof *ops);
    for (uint32_t i = CHUNK; i-- > 0;) {
        ops[i].slot = c * CHUNK + i;
        hws__list_init(&ops[i].match); /* a free one is in no list */
        hws__list_init(&ops[i].link);
        ops[i].next = pool;
        pool = &ops[i];
    }
    atomic_store_explicit(&chunks[c], ops, memory_order_release);
    atomic_store_explicit(&used_chunks, c + 1, memory_order_release);
    return true;
}

void hws__op_limit(uint32_t slots)
{
    pthread_mutex_lock(&pool_lock);
    chunk_limit = slots / CHUNK;
    pthread_mutex_unlock(&pool_lock);
}

static hws_id new_id(struct hws__op *op)
{
    hws_id id;

    if (++op->generation >= 1u << HWS__OP_GENERATION_BITS) {
        op->generation = 1;
    }
    id = (uint64_t)HWS_KIND_OP << HWS__KIND_SHIFT | (uint64_t)op->generation << HWS__OP_SLOT_BITS |
         op->slot;
    atomic_store_explicit(&op->id, id, memory_order_release);
    return id;
}

struct hws__op *hws__op_pool_take(void)
{
    struct hws__op *op = NULL;

    pthread_mutex_lock(&pool_lock);
    if (pool != NULL || pool_grow()) {
        op = pool;
        pool = op->next;
    }
    atomic_store_explicit(&pool_short, op == NULL, memory_order_relaxed);
    pthread_mutex_unlock(&pool_lock);
    if (op != NULL) {
        op->pooled = true;
        op->stage = HWS__STAGE_SUBMITTED;
        op->extra = NULL;
    }
    return op;
}

/* Operations for the worker's list: those that other threads gave back, else a chunk. */
static void refill(struct hws__worker *w)
{
    struct hws__op *op = atomic_exchange_explicit(&w->returned, NULL, memory_order_acquire);

    if (op != NULL) {
        w->free_ops = op;
        return;
    }
    pthread_mutex_lock(&pool_lock);
    if (pool != NULL || pool_grow()) {
        for (uint32_t i = 0; i < CHUNK && pool != NULL; i++) {
            op = pool;
            pool = op->next;
            op->next = w->free_ops;
            w->free_ops = op;
        }
    }
    pthread_mutex_unlock(&pool_lock);
}

bool hws__op_short(void)
{
    return atomic_load_explicit(&pool_short, memory_order_relaxed);
}

void hws__op_drain(struct hws__worker *w)
{
    struct hws__op *op = atomic_exchange_explicit(&w->returned, NULL, memory_order_acquire);

    pthread_mutex_lock(&pool_lock);
    for (struct hws__op *next; op != NULL; op = next) {
        next = op->next;
        op->next = pool;
        pool = op;
    }
    for (struct hws__op *next; (op = w->free_ops) != NULL; w->free_ops = next) {
        next = op->next;
        op->next = pool;
        pool = op;
    }
    pthread_mutex_unlock(&pool_lock);
}

struct hws__op *hws__op_peek(struct hws__post *p)
{
    if (p->op != NULL) {
        return p->op;
    }
    if (p->worker->free_ops == NULL) {
        refill(p->worker);
        if (p->worker->free_ops == NULL) {
            hws__fail(HWS_E_TOO_MANY, p->source, "no operation is free");
        }
    }
    return p->worker->free_ops;
}

/* What the caller said about the final event. */
static inline void set_sink(struct hws__op *op, struct hws__worker *w, const hws_op_opts *opts,
                            struct hws__queue *queue, uint32_t kind, hws_id source)
{
    op->callback = opts->callback;
    op->callback_arg = opts->callback_arg;
    op->queue = queue;
    if (queue != NULL) {
        op->queue_id = opts->queue;
    }
    op->user = opts->user;
    atomic_store_explicit(&op->flags, opts->flags, memory_order_relaxed);
    op->kind = (uint8_t)kind;
    op->source = source;
    atomic_store_explicit(&op->worker, w, memory_order_relaxed);
    op->wanted = 0;
    op->event_flags = 0;
    op->record = NULL;
    op->multi = NULL;
    op->done_length = 0;
    op->heap = 0;
    op->ucx = NULL;
    atomic_store_explicit(&op->done, HWS__PENDING, memory_order_relaxed);
    new_id(op);
}

/* The first of the worker's own, which is there. */
static inline struct hws__op *pop_free(struct hws__worker *w, const hws_op_opts *opts,
                                       struct hws__queue *queue, uint32_t kind, hws_id source)
{
    struct hws__op *op = w->free_ops;

    w->free_ops = op->next;
    op->pooled = false;
    op->extra = NULL;
    set_sink(op, w, opts, queue, kind, source);
    return op;
}

struct hws__op *hws__op_take(struct hws__post *p)
{
    struct hws__op *op = p->op;

    if (op == NULL) {
        if (hws__op_peek(p) == NULL) {
            return NULL;
        }
        op = p->op = pop_free(p->worker, p->opts, p->queue, p->kind, p->source);
    }
    op->ep = p->ep;
    op->buffer = p->buffer;
    op->length = p->length;
    op->tag = p->tag;
    op->mask = p->mask;
    op->sequence = ++p->worker->sequence;
    hws__op_rejoin(op);
    if (op->stage != HWS__STAGE_OWN) { /* else it goes on, from matching to fetching */
        HWS__COUNT(p->worker, ops_posted, 1);
    }
    return op;
}

struct hws__op *hws__op_take_free(struct hws__endpoint *ep, const hws_op_opts *opts, uint32_t kind)
{
    struct hws__worker *w = ep->worker;
    struct hws__op *op = pop_free(w, opts, NULL, kind, ep->obj.id);

    op->ep = ep;
    op->sequence = ++w->sequence;
    hws__op_rejoin(op);
    HWS__COUNT(w, ops_posted, 1);
    return op;
}

void hws__op_rejoin(struct hws__op *op)
{
    if (op->ep != NULL) {
        hws__list_append(&op->ep->ops, &op->link);
        op->ep->op_count++;
    } else {
        hws__list_append(&op->worker->ops, &op->link);
    }
}

void hws__op_leave(struct hws__op *op)
{
    hws__list_remove(&op->link);
    if (op->ep != NULL) {
        op->ep->op_count--;
    }
}

static void release_common(struct hws__op *op)
{
    atomic_store_explicit(&op->id, 0, memory_order_release);
    op->stage = HWS__STAGE_FREE;
    if (op->extra != NULL) {
        free(op->extra);
        op->extra = NULL;
    }
}

static void release_pooled(struct hws__op *op)
{
    pthread_mutex_lock(&pool_lock);
    op->next = pool;
    pool = op;
    pthread_mutex_unlock(&pool_lock);
}

void hws__op_release(struct hws__op *op)
{
    release_common(op);
    if (op->pooled) {
        release_pooled(op);
    } else {
        op->next = op->worker->free_ops;
        op->worker->free_ops = op;
    }
}

void hws__op_release_any(struct hws__op *op)
{
    struct hws__worker *w = op->worker;

    release_common(op);
    if (op->pooled) {
        release_pooled(op);
        return;
    }
    op->next = atomic_load_explicit(&w->returned, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&w->returned, &op->next, op, memory_order_release,
                                                  memory_order_relaxed)) {}
}

/* The slot of an operation id, or null if there is no such slot. */
static struct hws__op *slot_of(hws_id id)
{
    uint32_t slot = (uint32_t)id & ((1u << HWS__OP_SLOT_BITS) - 1);

    if (hws__id_kind(id) != HWS_KIND_OP ||
        slot / CHUNK >= atomic_load_explicit(&used_chunks, memory_order_acquire)) {
        return NULL;
    }
    return &atomic_load_explicit(&chunks[slot / CHUNK], memory_order_acquire)[slot % CHUNK];
}

struct hws__op *hws__op_find(hws_id id)
{
    struct hws__op *op = slot_of(id);

    return op != NULL && atomic_load_explicit(&op->id, memory_order_acquire) == id ? op : NULL;
}

struct hws__op *hws__op_find_open(const struct hws__worker *w, hws_id id)
{
    struct hws__op *op = hws__op_find(id);

    if (op == NULL || op->worker != w ||
        atomic_load_explicit(&op->done, memory_order_acquire) == HWS__ENDED) {
        return NULL;
    }
    /* Not claimed before the look at `done` either. */
    return atomic_load_explicit(&op->id, memory_order_acquire) == id ? op : NULL;
}

int32_t hws__op_id_error(hws_id id)
{
    uint32_t generation =
        (uint32_t)(id >> HWS__OP_SLOT_BITS) & ((1u << HWS__OP_GENERATION_BITS) - 1);

    if (hws__id_kind(id) != HWS_KIND_OP) {
        return hws__obj_find(&hws__objects, id) != NULL
                   ? hws__fail(HWS_E_KIND, id,
                               "this call takes an id of kind operation, not of kind %s",
                               hws__kind_name(hws__id_kind(id)))
                   : hws__id_error(&hws__objects, id, 0);
    }
    if (id >> 53 != 0 || slot_of(id) == NULL || generation == 0) {
        return hws__fail(HWS_E_BAD_ID, id, "%#llx names nothing", (unsigned long long)id);
    }
    return hws__fail(HWS_E_STALE, id, "the operation has ended");
}

void hws__op_event(const struct hws__op *op, hws_event *event)
{
    /* Alone: loaded together with its neighbour, both just stored, it would wait for both to leave the store buffer. */
    int32_t status = *(const volatile int32_t *)&op->status;

    *event = (hws_event){.size = sizeof *event,
                         .kind = op->kind,
                         .op = atomic_load_explicit(&op->id, memory_order_relaxed),
                         .source = op->source,
                         .status = status,
                         .flags = op->event_flags,
                         .length = op->done_length,
                         .tag = op->done_tag,
                         .user = op->user,
                         .detail = status >= 0 ? op->record : op->detail};
}

/* Out of what its kind and stage put it in. */
static void unlink_kind(struct hws__op *op)
{
    if (op->stage == HWS__STAGE_MATCHING) {
        hws__match_unpost(op);
    }
    if (op->stage == HWS__STAGE_READING) {
        hws__stream_unwait(op);
    }
    if (op->stage == HWS__STAGE_CREDIT ||
        (op->kind == HWS_EVENT_STREAM_SEND && !hws__list_empty(&op->match))) {
        hws__credit_unwait(op);
    }
    if (op->kind == HWS_EVENT_FLUSH && !hws__list_empty(&op->match)) {
        hws__list_remove(&op->match);
        op->worker->watching--;
    }
    if (op->kind >= HWS_EVENT_PUT && op->kind <= HWS_EVENT_ATOMIC) {
        hws__rma_forget(op);
    }
}

void hws__op_unlink(struct hws__op *op)
{
    /* A receive whose message has come is in none of these structures. */
    if (op->stage != HWS__STAGE_OWN || op->kind != HWS_EVENT_TAG_RECV) {
        unlink_kind(op);
    }
    if (op->heap != 0) {
        hws__heap_remove(op->worker, op);
    }
    hws__list_remove(&op->link);
    if (op->ep != NULL) {
        op->ep->op_count--;
        if (op->ep->closing) {
            hws__endpoint_attend(op->ep); /* it waits for its operations */
        }
    }
    if (op->worker->watching != 0) {
        op->worker->todo = true;
        if (op->started_at != 0) {
            hws__latency_end(op);
        }
    }
}

void hws__op_unclaimed(struct hws__op *op)
{
    struct hws__message *m;

    if (!hws__op_carries(op)) {
        return;
    }
    if (op->record != NULL) {
        hws__multi_unclaimed(op->tag);
    } else if (hws__id_kind(op->source) == HWS_KIND_MESSAGE &&
               (m = hws__obj_find(&hws__objects, op->source)) != NULL) {
        hws__message_drop(m);
    }
}

/*
 * The result is there for whoever claims it.
 * ORDER: release, so that the waiter that sees ENDED sees the result. Who begins to wait between the two
 * lines of the plain way sleeps on until its next look, HWS__LOOK_NS at most.
 */
static void publish_end(struct hws__op *op)
{
    struct hws__worker *w = op->worker;

    if (atomic_load_explicit(&w->waiters, memory_order_relaxed) == 0) {
        atomic_store_explicit(&op->done, HWS__ENDED, memory_order_release);
    } else if (atomic_exchange_explicit(&op->done, HWS__ENDED, memory_order_acq_rel) ==
               HWS__SLEPT_ON) {
        hws__wake_waiters(w);
    }
}

/* Count a failure; its text. */
static __attribute__((noinline, cold)) const char *failed(const struct hws__op *op, int32_t status)
{
    HWS__COUNT(op->worker, op_failures[-status & (HWS__CODES - 1)], 1);
    if (status == HWS_E_CUDA && op->record != NULL) {
        return op->record;
    }
    return op->ep != NULL && op->ep->status == status && op->ep->detail != NULL
               ? op->ep->detail
               : hws_error_text(status);
}

static inline __attribute__((always_inline)) void end(struct hws__op *op, int32_t status)
{
    hws__op_unlink(op);
    op->stage = HWS__STAGE_ENDED;
    op->status = status;
    op->detail = status >= 0 ? NULL : failed(op, status);
    HWS__COUNT(op->worker, ops_ended, 1);
}

void hws__op_tell(struct hws__op *op)
{
    hws_event event;

    hws__op_event(op, &event);
    HWS__COUNT(op->worker, events, 1);
    hws__call(op->callback, op->callback_arg, &event);
    hws__op_release(op);
}

void hws__op_finish_now(struct hws__op *op, int32_t status)
{
    /* UCX tells of failures one after the other, and must have told them all before the next posting. */
    if (op->callback == NULL || status < 0 || !hws__call_now(op->worker)) {
        hws__op_finish(op, status);
        return;
    }
    end(op, status);
    hws__op_tell(op);
}

void hws__op_finish(struct hws__op *op, int32_t status)
{
    struct hws__worker *w = op->worker;
    hws_event event;

    end(op, status);
    if (op->callback != NULL) {
        hws__list_append(&w->ready_ops, &op->match);
        w->todo = true;
        return;
    }
    if (op->queue != NULL) {
        hws__op_event(op, &event);
        HWS__COUNT(w, events, 1);
        if (!hws__queue_push(op->queue, op->queue_id, &event, true, &w->count.queue_overflows)) {
            hws__op_unclaimed(op);
        }
        hws__op_release(op);
        return;
    }
    if (op->flags & HWS_OP_DETACHED) {
        hws__op_unclaimed(op);
        hws__op_release(op);
        return;
    }
    if (w->taking != atomic_load_explicit(&op->id, memory_order_relaxed)) {
        publish_end(op);
    }
}

/* An error of UCX's on an endpoint that failed is the failure's. */
static int32_t endpoint_cause(const struct hws__endpoint *ep, int32_t code)
{
    return code < 0 && ep != NULL && ep->failed && ep->status != 0 ? ep->status : code;
}

int32_t hws__op_cause(const struct hws__op *op, int32_t code)
{
    return op->wanted != 0 ? op->wanted : endpoint_cause(op->ep, code);
}

void hws__op_hold(struct hws__op *op, struct hws__uworker *u, void *request)
{
    op->stage = HWS__STAGE_UCX;
    op->ucx = request;
    op->uworker = u;
    u->pending++;
    op->worker->pending_ucx++;
}

void hws__op_unhold(struct hws__op *op)
{
    op->ucx = NULL;
    op->uworker->pending--;
    op->worker->pending_ucx--;
}

/*
 * The peer completes a rendezvous that it drops as one that it receives. Of a send that was cancelled on an endpoint
 * that is being closed, where dropping is the rule, success would say too much.
 */
static bool perhaps_dropped(const struct hws__op *op)
{
    return op->wanted != 0 && (op->kind == HWS_EVENT_TAG_SEND || op->kind == HWS_EVENT_AM_SEND) &&
           op->ep != NULL && op->ep->closing;
}

void hws__op_ucx_done(void *request, ucs_status_t status, void *user_data)
{
    struct hws__op *op = user_data;
    int32_t code = hws__from_ucx(status);

    hws__ucx.ucp_request_free(request);
    if (op->stage != HWS__STAGE_UCX) {
        /* Inside the call that posts it: hws__op_pending() takes it up. */
        op->status = code;
        op->stage = HWS__STAGE_ENDED;
        return;
    }
    if (op->uworker->destroying) {
        return; /* on the background thread; the owner ends it, see hws__op_orphans() */
    }
    hws__op_unhold(op);
    hws__op_finish_now(op, code < 0 || perhaps_dropped(op) ? hws__op_cause(op, code) : code);
}

void *hws__op_keep_iov(const struct hws__post *p, struct hws__op *op)
{
    if (p->buffer != op->iov && p->length != 0) {
        memcpy(op->iov, p->buffer, p->length * sizeof *op->iov);
    }
    return op->iov;
}

int32_t hws__op_pending(struct hws__post *p, struct hws__op *op, struct hws__uworker *u,
                        ucs_status_ptr_t ptr)
{
    if (UCS_PTR_IS_ERR(ptr)) {
        hws__refused_by_ucx(u);
        return hws__fail_ucx(UCS_PTR_STATUS(ptr), p->source, "%s",
                             hws__ucx.ucs_status_string(UCS_PTR_STATUS(ptr)));
    }
    if (op->stage == HWS__STAGE_ENDED) {
        op->stage = HWS__STAGE_FREE;
        p->done_status = endpoint_cause(p->ep, op->status);
        return HWS_DONE;
    }
    hws__op_take(p);
    hws__op_hold(op, u, ptr);
    return HWS_OK;
}

static void end_orphans(struct hws__list *ops, const struct hws__uworker *u)
{
    for (struct hws__list *n = ops->next, *next; n != ops; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);

        next = n->next;
        if (op->stage == HWS__STAGE_UCX && op->uworker == u) {
            op->worker->pending_ucx--;
            if (op->multi != NULL) {
                hws__multi_orphan(op);
            }
            hws__op_finish(op, hws__op_cause(op, HWS_E_CANCELED));
        }
    }
}

void hws__op_orphans(struct hws__worker *w, const struct hws__uworker *u)
{
    end_orphans(&w->ops, u);
    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        end_orphans(&hws__container(n, struct hws__endpoint, link)->ops, u);
    }
}

void hws__scatter_iov(const hws_iov *v, uint64_t count, const void *data, uint64_t length)
{
    const char *from = data;

    for (uint64_t i = 0; i < count && length > 0; i++) {
        uint64_t n = v[i].length < length ? v[i].length : length;

        if (n != 0) {
            memcpy(v[i].base, from, n);
        }
        from += n;
        length -= n;
    }
}

void hws__op_prepare(struct hws__op *op, const struct hws__post *p)
{
    set_sink(op, p->worker, p->opts, p->queue, p->kind, p->source);
}
