/*
 * Completion queues: many producers (owners of workers), one consumer.
 */
#ifndef HWS_CORE_QUEUE_H
#define HWS_CORE_QUEUE_H

#include "handle.h"

#define HWS__QUEUE_FEEDERS 16
#define HWS__QUEUE_GENERATION 28 /* where an id's generation begins */

struct hws__message;
struct hws__worker;

/** An event in a queue, and what must be given back once the consumer has moved on. */
struct hws__entry {
    hws_event event;
    struct hws__entry *next; /* overflow only */
    bool reserved;           /* an operation's: its place was promised */
};

struct hws__queue {
    struct hws__obj obj;
    pthread_mutex_t
        lock; /* LOCK: leaf; protects everything below. Zero is unlocked; never destroyed */
    struct hws__entry *ring;
    uint32_t mask, head, tail; /* free-running */
    struct hws__entry *overflow, **overflow_end;
    int fd;
    bool signalled; /* the eventfd is readable */
    bool popping;   /* a consumer looks: it will see new events without the eventfd */
    _Atomic uint32_t feeder_count;              /* ORDER: release after the entry is written */
    _Atomic hws_id feeders[HWS__QUEUE_FEEDERS]; /* workers a pop makes progress on */
    uint32_t reserved_held;                     /* of these in the ring */
    /* Places promised to operations, until their events are taken; above, from HWS__QUEUE_ERA on, which queue's:
     * who comes late does not count in the next one that has this memory. */
    _Atomic uint64_t reserved;
};

#define HWS__QUEUE_ERA 32

/** What stands above the count while the queue is `id`: kind and generation, never 0. */
static inline uint64_t hws__queue_era(hws_id id)
{
    return id >> HWS__QUEUE_GENERATION << HWS__QUEUE_ERA;
}

/** Promise a place of the queue `id` to an operation. False: it is full, or gone. */
static inline bool hws__queue_reserve(struct hws__queue *q, hws_id id)
{
    uint64_t now = atomic_load_explicit(&q->reserved, memory_order_relaxed);

    do {
        if (now - hws__queue_era(id) > q->mask) { /* also where it is another's */
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&q->reserved, &now, now + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/** A promise to an operation of the queue `id` is over. */
static inline void hws__queue_unreserve(struct hws__queue *q, hws_id id)
{
    uint64_t now = atomic_load_explicit(&q->reserved, memory_order_relaxed);

    do {
        if (now >> HWS__QUEUE_ERA << HWS__QUEUE_ERA != hws__queue_era(id)) {
            return;
        }
    } while (!atomic_compare_exchange_weak_explicit(&q->reserved, &now, now - 1,
                                                    memory_order_relaxed, memory_order_relaxed));
}

/** The queue named by `id`, or null with the last error set. */
struct hws__queue *hws__queue_find(hws_id id, int32_t *error);
/** Remember that `worker` feeds the queue. */
void hws__queue_feed(struct hws__queue *q, hws_id worker);
/**
 * Append an event, counting it if it has to be chained. False, and it is dropped: the queue is not
 * `id` any more, or there is no memory for an event that nobody reserved a place for.
 */
bool hws__queue_push(struct hws__queue *q, hws_id id, const hws_event *event, bool reserved,
                     _Atomic uint64_t *overflows);
int32_t hws__queue_close(hws_id id);

#endif
