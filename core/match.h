/*
 * Matching of tagged messages and receives, in order (see section 10 of hawser.h).
 *
 * A scope is an endpoint or a worker. A receive is posted in one scope; a message that nobody wants
 * yet waits in the scope of its endpoint and in that of the worker. Exact receives and messages are
 * found by a hash of the tag, receives with a mask by walking.
 */
#ifndef HWS_CORE_MATCH_H
#define HWS_CORE_MATCH_H

#include "list.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HWS__BUCKETS 32

struct hws__op;
struct hws__message;

struct hws__scope {
    uint32_t receives; /* posted, exact or not */
    uint32_t masked;   /* of these with a mask */
    /* Written by the worker's owner, read by anybody's hws_stats_get(). */
    _Atomic uint32_t messages; /* waiting */
    _Atomic uint64_t bytes;    /* of the messages */
    struct hws__list masked_receives;
    struct hws__list arrived; /* messages in order of arrival */
    struct hws__list exact[HWS__BUCKETS];
    struct hws__list by_tag[HWS__BUCKETS];
};

void hws__scope_init(struct hws__scope *s);

static inline uint32_t hws__bucket(uint64_t tag)
{
    return (uint32_t)((tag * UINT64_C(0x9e3779b97f4a7c15)) >> 59);
}

/** Post a receive that found no message. */
void hws__match_post(struct hws__scope *s, struct hws__op *op);
/** Take a posted receive back. */
void hws__match_unpost(struct hws__op *op);
/** The receive that takes a message of this tag, taken out; null if none. */
struct hws__op *hws__match_arrived(struct hws__scope *ep, struct hws__scope *worker, uint64_t tag);
/** Let a message wait: behind all others, or behind those that were returned if it was itself. */
void hws__match_wait(struct hws__scope *ep, struct hws__scope *worker, struct hws__message *m);
/** Take a waiting message out of both scopes. */
void hws__match_unwait(struct hws__message *m);
/** The first waiting message that matches, left where it is; null if none. */
struct hws__message *hws__match_find(struct hws__scope *s, bool of_worker, uint64_t tag,
                                     uint64_t mask);

#endif
