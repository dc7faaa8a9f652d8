/*
 * Completion queues: many producers (owners of workers), one consumer.
 */
#ifndef HWS_CORE_QUEUE_H
#define HWS_CORE_QUEUE_H

#include "handle.h"

#define HWS__QUEUE_FEEDERS 16

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
    _Atomic uint32_t reserved; /* places promised to operations, until their events are taken */
};

/** Promise a place to an operation. False: full. */
static inline bool hws__queue_reserve(struct hws__queue *q)
{
    if (atomic_fetch_add_explicit(&q->reserved, 1, memory_order_relaxed) > q->mask) {
        atomic_fetch_sub_explicit(&q->reserved, 1, memory_order_relaxed);
        return false;
    }
    return true;
}

static inline void hws__queue_unreserve(struct hws__queue *q)
{
    atomic_fetch_sub_explicit(&q->reserved, 1, memory_order_relaxed);
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
