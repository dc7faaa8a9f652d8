/*
 * Matching of tagged messages and receives, in order (see section 10 of hawser.h).
 *
 * A scope is an endpoint or a worker. A receive is posted in one scope; a message that nobody wants
 * yet waits in the scope of its endpoint and in that of the worker. Exact receives and messages are
 * found by a hash of the tag, receives with a mask by walking.
 */
#ifndef HWS_CORE_MATCH_H
#define HWS_CORE_MATCH_H

#include "op.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HWS__BUCKETS 32

struct hws__message;

struct hws__scope {
    uint32_t receives;      /* posted, exact or not */
    uint32_t masked;        /* of these with a mask */
    struct hws__list rests; /* see rest.h; behind `arrived` */
    /* Written by the worker's owner, read by anybody's hws_stats_get(). */
    _Atomic uint32_t messages; /* waiting, with those in `rests` */
    _Atomic uint64_t bytes;    /* of the messages */
    struct hws__list masked_receives;
    struct hws__list arrived; /* messages in order of arrival */
    struct hws__list exact[HWS__BUCKETS];
    struct hws__list by_tag[HWS__BUCKETS];
};

void hws__scope_init(struct hws__scope *s);

/**
 * So many more messages wait, or fewer. `bytes` modulo 2^64: what was counted is taken off by its negative. Owner only.
 * ORDER: relaxed, by load and store: there is one writer, and a reader takes the figure as it is.
 */
static inline void hws__scope_count(struct hws__scope *s, int32_t messages, uint64_t bytes)
{
    uint32_t n = atomic_load_explicit(&s->messages, memory_order_relaxed);
    uint64_t b = atomic_load_explicit(&s->bytes, memory_order_relaxed);

    atomic_store_explicit(&s->messages, n + (uint32_t)messages, memory_order_relaxed);
    atomic_store_explicit(&s->bytes, b + bytes, memory_order_relaxed);
}

static inline uint32_t hws__bucket(uint64_t tag)
{
    return (uint32_t)((tag * UINT64_C(0x9e3779b97f4a7c15)) >> 59);
}

/** Post a receive that found no message. */
void hws__match_post(struct hws__scope *s, struct hws__op *op);
/** Take a posted receive back. */
static inline void hws__match_unpost(struct hws__op *op)
{
    op->scope->receives--;
    op->scope->masked -= op->mask != UINT64_MAX;
    hws__list_remove(&op->match);
}
/** The receive that takes a message of this tag, whatever is posted; null if none. */
struct hws__op *hws__match_first(struct hws__scope *ep, struct hws__scope *worker, uint64_t tag);
/** The same, taken out. Quick where the endpoint's receives all name their tag, and the worker has none. */
static inline struct hws__op *hws__match_arrived(struct hws__scope *ep, struct hws__scope *worker,
                                                 uint64_t tag)
{
    struct hws__list *head = &ep->exact[hws__bucket(tag)];
    struct hws__op *op = hws__container(head->next, struct hws__op, match);

    if (__builtin_expect(
            (ep->masked | worker->receives) != 0 || hws__list_empty(head) || op->tag != tag, 0) &&
        (op = hws__match_first(ep, worker, tag)) == NULL) {
        return NULL;
    }
    hws__match_unpost(op);
    op->stage = HWS__STAGE_OWN;
    return op;
}
/** Let a message wait: behind all others, or behind those that were returned if it was itself. */
void hws__match_wait(struct hws__scope *ep, struct hws__scope *worker, struct hws__message *m);
/** Take a waiting message out of both scopes. */
void hws__match_unwait(struct hws__message *m);
/**
 * The messages of an endpoint that `lost` says are lost wait no more, and neither does what waits behind one of them
 * with its tag: it would be received in its place.
 */
void hws__match_lose(struct hws__scope *ep, bool (*lost)(const struct hws__message *));
/** The first waiting message that matches, left where it is; null if none. */
struct hws__message *hws__match_find(struct hws__scope *s, bool of_worker, uint64_t tag,
                                     uint64_t mask);
/** The same, and nothing is done about rests: there may be a message in them. */
struct hws__message *hws__match_listed(struct hws__scope *s, bool of_worker, uint64_t tag,
                                       uint64_t mask);
/** The rests of the worker become messages that wait (rest.c), if the scope has any. Owner only. */
void hws__rests_unpack_all(struct hws__scope *s, bool of_worker);
static inline void hws__rests_unpack(struct hws__scope *s, bool of_worker)
{
    if (__builtin_expect(!hws__list_empty(&s->rests), 0)) {
        hws__rests_unpack_all(s, of_worker);
    }
}

#endif
