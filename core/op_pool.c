/*
 * Operations as records: taken from a worker's own list or the one of the process, named by ids, given back.
 */
#include "op.h"
#include "endpoint.h"
#include "error.h"
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

bool hws__op_reserve(struct hws__post *p, struct hws__op **reserved)
{
    *reserved = NULL;
    if (p->op == NULL) {
        if ((*reserved = hws__op_peek(p)) == NULL) {
            return false;
        }
        p->worker->free_ops = (*reserved)->next;
    }
    return true;
}

void hws__op_unreserve(struct hws__post *p, struct hws__op *reserved)
{
    if (reserved != NULL) {
        reserved->next = p->worker->free_ops;
        p->worker->free_ops = reserved;
    }
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

void hws__op_prepare(struct hws__op *op, const struct hws__post *p)
{
    set_sink(op, p->worker, p->opts, p->queue, p->kind, p->source);
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
