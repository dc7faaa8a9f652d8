#include "handle.h"
#include "error.h"
#include "op.h"
#include <stdlib.h>
#include <string.h>

struct hws__table hws__objects;

int32_t hws__table_init(struct hws__table *t, unsigned generation_bits, unsigned slot_bits)
{
    memset(t, 0, sizeof *t);
    t->generation_bits = generation_bits;
    t->slot_bits = slot_bits;
    t->chunk_bits = slot_bits < HWS__CHUNK_BITS ? slot_bits : HWS__CHUNK_BITS;
    t->chunks = calloc((size_t)1 << (slot_bits - t->chunk_bits), sizeof *t->chunks);
    if (t->chunks == NULL) {
        return HWS_E_NO_MEMORY;
    }
    pthread_mutex_init(&t->lock, NULL);
    for (unsigned k = 0; k < HWS__KINDS; k++) {
        hws__list_init(&t->free[k]);
    }
    return HWS_OK;
}

/* The entry of a slot whose chunk exists. */
static struct hws__obj *_Atomic *entry(struct hws__table *t, uint32_t slot)
{
    return &atomic_load_explicit(&t->chunks[slot >> t->chunk_bits],
                                 memory_order_acquire)[slot & ((1u << t->chunk_bits) - 1)];
}

void hws__table_destroy(struct hws__table *t)
{
    uint32_t used = atomic_load(&t->used);

    for (uint32_t s = 0; s < used; s++) {
        free(atomic_load(entry(t, s)));
    }
    for (uint32_t c = 0; c << t->chunk_bits < used; c++) {
        free(atomic_load(&t->chunks[c]));
    }
    free(t->chunks);
    pthread_mutex_destroy(&t->lock);
}

/* Bind an object to the next slot; false: there is none. Called with the lock held. */
static bool bind_slot(struct hws__table *t, struct hws__obj *o)
{
    uint32_t slot = atomic_load_explicit(&t->used, memory_order_relaxed);
    uint32_t c = slot >> t->chunk_bits;

    if (slot >> t->slot_bits != 0) {
        return false;
    }
    if (atomic_load_explicit(&t->chunks[c], memory_order_relaxed) == NULL) {
        void *chunk = calloc((size_t)1 << t->chunk_bits, sizeof(struct hws__obj *));
        if (chunk == NULL) {
            return false;
        }
        atomic_store_explicit(&t->chunks[c], chunk, memory_order_release);
    }
    o->slot = slot;
    atomic_store_explicit(&o->generation, 0, memory_order_relaxed);
    atomic_store(entry(t, slot), o);
    /* ORDER: the entry is visible before the bound that lets readers look at it. */
    atomic_store_explicit(&t->used, slot + 1, memory_order_release);
    return true;
}

/* A new object. Called with the lock held. */
static struct hws__obj *create(struct hws__table *t, uint32_t kind, size_t size)
{
    struct hws__obj *o = aligned_alloc(64, (size + 63) & ~(size_t)63);

    if (o == NULL) {
        return NULL;
    }
    memset(o, 0, size);
    o->kind = kind;
    if (!bind_slot(t, o)) {
        free(o);
        return NULL;
    }
    return o;
}

struct hws__obj *hws__obj_alloc(struct hws__table *t, uint32_t kind, size_t size, size_t keep)
{
    struct hws__list *n;
    struct hws__obj *o;

    pthread_mutex_lock(&t->lock);
    n = hws__list_pop(&t->free[kind]);
    if (n != NULL) {
        o = hws__container(n, struct hws__obj, free);
        memset((char *)(o + 1) + keep, 0, size - sizeof *o - keep);
        atomic_store_explicit(&o->user, 0, memory_order_relaxed);
    } else {
        o = create(t, kind, size);
    }
    pthread_mutex_unlock(&t->lock);
    return o;
}

int32_t hws__obj_missing(const struct hws__table *t)
{
    return atomic_load_explicit(&t->used, memory_order_relaxed) >> t->slot_bits != 0
               ? HWS_E_TOO_MANY
               : HWS_E_NO_MEMORY;
}

hws_id hws__obj_publish(struct hws__table *t, struct hws__obj *o)
{
    /* Generation 0 is never issued, so that a bare slot number is not an id. */
    uint32_t generation = atomic_load_explicit(&o->generation, memory_order_relaxed) + 1;
    hws_id id = (uint64_t)o->kind << HWS__KIND_SHIFT |
                (uint64_t)generation << (HWS__KIND_SHIFT - t->generation_bits) | o->slot;

    atomic_store_explicit(&o->generation, generation, memory_order_relaxed);
    atomic_store_explicit(&o->asked, id << HWS__ASKED_SHIFT, memory_order_relaxed);
    atomic_store_explicit(&o->id, id, memory_order_release);
    return id;
}

void hws__obj_hide(struct hws__obj *o)
{
    atomic_store_explicit(&o->asked, 0, memory_order_relaxed);
    atomic_store_explicit(&o->id, 0, memory_order_release);
}

bool hws__obj_ask(struct hws__obj *o, hws_id id, uint32_t what)
{
    uint64_t asked = atomic_load(&o->asked);

    do {
        if (asked >> HWS__ASKED_SHIFT != id) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&o->asked, &asked, asked | what));
    return true;
}

void hws__obj_free(struct hws__table *t, struct hws__obj *o)
{
    hws__obj_hide(o);
    pthread_mutex_lock(&t->lock);
    if (hws__obj_spent(t, o)) {
        struct hws__obj *_Atomic *last = entry(t, o->slot);

        /* The slot is retired and its memory gets another; where there is none both are lost. */
        if (!bind_slot(t, o)) {
            pthread_mutex_unlock(&t->lock);
            return;
        }
        atomic_store(last, NULL);
    }
    hws__list_append(&t->free[o->kind], &o->free);
    pthread_mutex_unlock(&t->lock);
}

static int32_t object_id_error(struct hws__table *t, hws_id id, uint32_t kind)
{
    uint32_t slot = (uint32_t)(id & ((UINT64_C(1) << t->slot_bits) - 1));
    uint64_t generation =
        (id >> (HWS__KIND_SHIFT - t->generation_bits)) & ((UINT64_C(1) << t->generation_bits) - 1);
    struct hws__obj *o;

    if (id == 0 || id >> 53 != 0 || slot >= atomic_load(&t->used) || generation == 0) {
        return hws__fail(HWS_E_BAD_ID, id, "%#llx names nothing", (unsigned long long)id);
    }
    o = atomic_load(entry(t, slot)); /* null: retired */
    if (o != NULL && (hws__id_kind(id) != o->kind ||
                      generation > atomic_load_explicit(&o->generation, memory_order_relaxed))) {
        return hws__fail(HWS_E_BAD_ID, id, "%#llx names nothing", (unsigned long long)id);
    }
    if (kind != 0 && hws__id_kind(id) != kind) {
        return hws__fail(HWS_E_KIND, id, "this call takes an id of kind %s, not of kind %s",
                         hws__kind_name(kind), hws__kind_name(hws__id_kind(id)));
    }
    return hws__fail(HWS_E_STALE, id, "the %s is gone", hws__kind_name(hws__id_kind(id)));
}

int32_t hws__id_error(struct hws__table *t, hws_id id, uint32_t kind)
{
    if (hws__id_kind(id) == HWS_KIND_OP && t == &hws__objects) {
        return hws__op_find(id) != NULL
                   ? hws__fail(HWS_E_KIND, id, "this call does not take an operation")
                   : hws__op_id_error(id);
    }
    return object_id_error(t, id, kind);
}
