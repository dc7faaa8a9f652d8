/*
 * Ids of objects: kind, generation and slot in 53 bits.
 *
 * Memory of objects is never given back, only used again for the same kind; when the generations of
 * its slot are used up it moves to a new slot. So a pointer found through an id may always be read;
 * whether it still is the object is told by its `id` field, checked again once the object is
 * protected (by ownership of its worker, or by its lock).
 */
#ifndef HWS_CORE_HANDLE_H
#define HWS_CORE_HANDLE_H

#include "list.h"
#include <hawser.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define HWS__KIND_SHIFT 49
#define HWS__KINDS 16

/** First member of every object. */
struct hws__obj {
    _Atomic uint64_t id; /* 0 while the slot is free. ORDER: release when it becomes visible */
    _Atomic uint64_t user;
    struct hws__list free;
    uint32_t slot, kind;
    _Atomic uint32_t generation; /* the last one issued */
    /* Of a worker (progress.h). Here because it must outlive the object: somebody may come late. */
    _Atomic uint32_t want; /* threads that need ownership at once */
    _Atomic uintptr_t owner;
    /* HWS__ASKED_*: commands on their way, so that they do not pile up. Above them the id that they are for: the
     * memory may be another object's by the time that somebody has found it. */
    _Atomic uint64_t asked;
};

#define HWS__ASKED_CLOSE 1u
#define HWS__ASKED_ABORT 2u
#define HWS__ASKED_CREDIT 4u
#define HWS__ASKED_SHIFT 8 /* ids have 53 bits */
#define HWS__ASKED ((UINT64_C(1) << HWS__ASKED_SHIFT) - 1)

struct hws__table {
    unsigned generation_bits, slot_bits, chunk_bits;
    pthread_mutex_t lock; /* LOCK: innermost; allocation and release only */
    _Atomic(struct hws__obj *_Atomic *) *chunks;
    _Atomic uint32_t used; /* slots ever given out */
    struct hws__list free[HWS__KINDS];
};

/** The table of the process, and its widths, which the compiler may rely on. */
extern struct hws__table hws__objects;
#define HWS__GENERATION_BITS 21u
#define HWS__SLOT_BITS 28u
#define HWS__CHUNK_BITS 10u

int32_t hws__table_init(struct hws__table *t, unsigned generation_bits, unsigned slot_bits);
void hws__table_destroy(struct hws__table *t);

/**
 * Memory for an object of `kind`, not yet visible under any id: hws__obj_publish() does that.
 * Zero behind the header, but for the `keep` bytes that follow it: these are zero the first time
 * and as they were when the memory is used again, for whoever found the last object and comes late
 * (a lock, a pointer that may be read).
 */
struct hws__obj *hws__obj_alloc(struct hws__table *t, uint32_t kind, size_t size, size_t keep);
/** What `keep` must be so that the members before `member` are kept. */
#define HWS__KEEP(type, member) (offsetof(type, member) - sizeof(struct hws__obj))
/** Why there is none: HWS_E_TOO_MANY if the slots are used up, else HWS_E_NO_MEMORY. */
int32_t hws__obj_missing(const struct hws__table *t);
hws_id hws__obj_publish(struct hws__table *t, struct hws__obj *o);
/** Make the id stale. The memory stays untouched until hws__obj_free(). */
void hws__obj_hide(struct hws__obj *o);
void hws__obj_free(struct hws__table *t, struct hws__obj *o);

/** Note a command for the object `id`; false: `o` is not that one any more. Any thread. */
bool hws__obj_ask(struct hws__obj *o, hws_id id, uint32_t what);

/** The commands that were noted, which are taken off. Owner only. */
static inline uint32_t hws__obj_asked(struct hws__obj *o)
{
    return (uint32_t)(atomic_fetch_and(&o->asked, ~HWS__ASKED) & HWS__ASKED);
}

/** Whether the slot has no generation left: the object must go through hws__obj_free(). */
static inline bool hws__obj_spent(const struct hws__table *t, const struct hws__obj *o)
{
    return atomic_load_explicit(&o->generation, memory_order_relaxed) >=
           (1u << t->generation_bits) - 1;
}

/** The error of an id that did not resolve to `kind` (0: any kind); sets the last error. */
int32_t hws__id_error(struct hws__table *t, hws_id id, uint32_t kind);

static inline uint32_t hws__id_kind(hws_id id)
{
    return (uint32_t)(id >> HWS__KIND_SHIFT);
}

/** The id of the object in a slot below `used`, or 0. */
static inline hws_id hws__obj_at(struct hws__table *t, uint32_t slot)
{
    struct hws__obj *o = atomic_load_explicit(
        &atomic_load_explicit(&t->chunks[slot >> t->chunk_bits],
                              memory_order_acquire)[slot & ((1u << t->chunk_bits) - 1)],
        memory_order_acquire);

    return o == NULL ? 0 : atomic_load_explicit(&o->id, memory_order_acquire);
}

/** The object named by `id`, or null. The pointer is readable for ever, the answer is a snapshot. */
static inline void *hws__obj_find(struct hws__table *t, hws_id id)
{
    unsigned slot_bits = t == &hws__objects ? HWS__SLOT_BITS : t->slot_bits;
    unsigned chunk_bits = t == &hws__objects ? HWS__CHUNK_BITS : t->chunk_bits;
    uint32_t slot = (uint32_t)(id & ((UINT64_C(1) << slot_bits) - 1));
    struct hws__obj *o;

    if (slot >= atomic_load_explicit(&t->used, memory_order_acquire) || id == 0) {
        return NULL;
    }
    o = atomic_load_explicit(
        &atomic_load_explicit(&t->chunks[slot >> chunk_bits],
                              memory_order_acquire)[slot & ((1u << chunk_bits) - 1)],
        memory_order_acquire);
    if (o == NULL || atomic_load_explicit(&o->id, memory_order_acquire) != id) {
        return NULL;
    }
    return o;
}

/** After a look into an object that is neither owned nor locked: whether what was read is of `id` still. */
static inline bool hws__obj_is_still(const struct hws__obj *o, hws_id id)
{
    /* ORDER: what was read comes before the id. gcc refuses fences to the thread sanitizer, which does without. */
#ifndef __SANITIZE_THREAD__
    atomic_thread_fence(memory_order_acquire);
#endif
    return atomic_load_explicit(&o->id, memory_order_relaxed) == id;
}

/** The object of an id that must be of `kind`; null: `*error` is set, and the last error. */
static inline void *hws__obj_get(hws_id id, uint32_t kind, int32_t *error)
{
    void *o = hws__id_kind(id) == kind ? hws__obj_find(&hws__objects, id) : NULL;

    if (__builtin_expect(o == NULL, 0)) {
        *error = hws__id_error(&hws__objects, id, kind);
    }
    return o;
}

#endif
