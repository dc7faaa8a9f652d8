#include "queue.h"
#include "credit.h"
#include "error.h"
#include "guard.h"
#include "options.h"
#include "progress.h"
#include "time.h"
#include "turn.h"
#include "worker.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct hws__queue *hws__queue_find(hws_id id, int32_t *error)
{
    return hws__obj_get(id, HWS_KIND_QUEUE, error);
}

int32_t hws_queue_open(const hws_queue_opts *opts, hws_id *out)
{
    hws_queue_opts o;
    struct hws__queue *q;
    uint32_t size = 1;
    int32_t r;

    HWS__ENTER();
    if (out == NULL) {
        return hws__fail(HWS_E_INVALID, 0, "out is null");
    }
    if ((r = hws__options(&o, sizeof o, opts, "queue")) < 0) {
        return r;
    }
    if (o.capacity > 1u << 24) {
        return hws__fail(HWS_E_INVALID, 0, "capacity is above 2^24");
    }
    while (size < (o.capacity != 0 ? o.capacity : 4096)) {
        size *= 2;
    }
    q = (struct hws__queue *)hws__obj_alloc(&hws__objects, HWS_KIND_QUEUE, sizeof *q,
                                            HWS__KEEP(struct hws__queue, ring));
    if (q == NULL) {
        return hws__fail(hws__obj_missing(&hws__objects), 0, "no queue is free");
    }
    if ((q->ring = malloc(size * sizeof *q->ring)) == NULL) {
        hws__obj_free(&hws__objects, &q->obj);
        return hws__fail(HWS_E_NO_MEMORY, 0, "queue of %u events", size);
    }
    q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->fd < 0) {
        r = hws__fail_errno(errno, 0, "eventfd: %s", strerror(errno));
        free(q->ring);
        hws__obj_free(&hws__objects, &q->obj);
        return r;
    }
    q->mask = size - 1;
    q->overflow_end = &q->overflow;
    *out = hws__obj_publish(&hws__objects, &q->obj);
    atomic_store_explicit(&q->reserved, hws__queue_era(*out), memory_order_relaxed);
    return HWS_OK;
}

int32_t hws__queue_close(hws_id id)
{
    struct hws__entry *e;
    struct hws__queue *q;
    int32_t r = HWS_OK;

    if ((q = hws__queue_find(id, &r)) == NULL) {
        return r;
    }
    pthread_mutex_lock(&q->lock);
    if (atomic_load(&q->obj.id) != id) {
        pthread_mutex_unlock(&q->lock);
        return hws__id_error(&hws__objects, id, HWS_KIND_QUEUE);
    }
    hws__obj_hide(&q->obj);
    atomic_store_explicit(&q->reserved, 0, memory_order_relaxed); /* no queue's */
    close(q->fd);
    for (; q->head != q->tail; q->head++) {
        hws__credit_popped(&q->ring[q->head & q->mask].event, 1);
    }
    free(q->ring);
    while ((e = q->overflow) != NULL) {
        q->overflow = e->next;
        hws__credit_popped(&e->event, 1);
        free(e);
    }
    pthread_mutex_unlock(&q->lock);
    /* The lock stays as it is, also when the memory is used again: late producers take it and find
     * the id changed. */
    hws__obj_free(&hws__objects, &q->obj);
    return HWS_OK;
}

/* Where a new worker goes: the place of one that is gone, else behind the others. With the lock. */
static uint32_t feeder_place(struct hws__queue *q)
{
    uint32_t n = atomic_load_explicit(&q->feeder_count, memory_order_relaxed);

    for (uint32_t i = 0; i < n; i++) {
        if (hws__obj_find(&hws__objects, q->feeders[i]) == NULL) {
            return i;
        }
    }
    return n;
}

void hws__queue_feed(struct hws__queue *q, hws_id worker)
{
    uint32_t n = atomic_load_explicit(&q->feeder_count, memory_order_acquire);

    for (uint32_t i = 0; i < n; i++) {
        if (atomic_load_explicit(&q->feeders[i], memory_order_relaxed) == worker) {
            return;
        }
    }
    pthread_mutex_lock(&q->lock);
    n = feeder_place(q);
    if (n < HWS__QUEUE_FEEDERS) {
        atomic_store_explicit(&q->feeders[n], worker, memory_order_relaxed);
        if (n == atomic_load_explicit(&q->feeder_count, memory_order_relaxed)) {
            atomic_store_explicit(&q->feeder_count, n + 1, memory_order_release);
        }
    }
    pthread_mutex_unlock(&q->lock);
}

/* Make the eventfd say that there are events. Called with the lock held. */
static void signal_fd(struct hws__queue *q)
{
    uint64_t one = 1;

    if (!q->signalled && !q->popping) {
        q->signalled = true;
        if (write(q->fd, &one, sizeof one) < 0) {
            q->signalled = false;
        }
    }
}

/* Whether the ring has room: places promised to operations stay free for them. With the lock. */
static bool fits(struct hws__queue *q, bool reserved)
{
    uint32_t used = q->tail - q->head;

    return used <= q->mask && (reserved || used - q->reserved_held +
                                                   (uint32_t)atomic_load_explicit(
                                                       &q->reserved, memory_order_relaxed) <=
                                               q->mask);
}

static void put(struct hws__queue *q, const hws_event *event, bool reserved)
{
    q->ring[q->tail++ & q->mask] = (struct hws__entry){.event = *event, .reserved = reserved};
    q->reserved_held += reserved;
}

bool hws__queue_push(struct hws__queue *q, hws_id id, const hws_event *event, bool reserved,
                     _Atomic uint64_t *overflows)
{
    struct hws__entry *e;
    bool kept = true;

    pthread_mutex_lock(&q->lock);
    if (atomic_load_explicit(&q->obj.id, memory_order_relaxed) != id) {
        pthread_mutex_unlock(&q->lock);
        return false;
    }
    /* What does not fit is chained, and once something is chained everything goes behind it, so
     * that the order holds. An operation's event has its place in the ring even without memory. */
    if (q->overflow == NULL && fits(q, reserved)) {
        put(q, event, reserved);
    } else if ((e = malloc(sizeof *e)) != NULL) {
        *e = (struct hws__entry){.event = *event, .reserved = reserved};
        *q->overflow_end = e;
        q->overflow_end = &e->next;
        atomic_fetch_add_explicit(overflows, 1, memory_order_relaxed);
    } else if (reserved && fits(q, true)) {
        put(q, event, true);
    } else {
        kept = false;
    }
    signal_fd(q);
    pthread_mutex_unlock(&q->lock);
    return kept;
}

/* An operation's place is free again once its event is taken. */
static void unreserve_popped(struct hws__queue *q, const struct hws__entry *e)
{
    if (e->reserved) {
        hws__queue_unreserve(q, atomic_load_explicit(&q->obj.id, memory_order_relaxed));
    }
}

/* Take what is there. Called with the lock held. */
static uint32_t take(struct hws__queue *q, hws_event *events, uint32_t count)
{
    uint32_t n = 0;

    while (n < count && q->head != q->tail) {
        struct hws__entry *e = &q->ring[q->head++ & q->mask];

        events[n++] = e->event;
        q->reserved_held -= e->reserved;
        unreserve_popped(q, e);
    }
    while (n < count && q->head == q->tail && q->overflow != NULL) {
        struct hws__entry *e = q->overflow;

        events[n++] = e->event;
        unreserve_popped(q, e);
        if ((q->overflow = e->next) == NULL) {
            q->overflow_end = &q->overflow;
        }
        free(e);
    }
    return n;
}

/* Leave the consumer's role: the eventfd must be readable exactly if something is left. */
static void settle(struct hws__queue *q)
{
    uint64_t dummy;
    bool empty = q->head == q->tail && q->overflow == NULL;

    q->popping = false;
    if (empty && q->signalled) {
        q->signalled = false;
        if (read(q->fd, &dummy, sizeof dummy) < 0) {
            return;
        }
    } else if (!empty) {
        signal_fd(q);
    }
}

/* One round of progress on the workers that feed the queue. */
static int work(struct hws__queue *q)
{
    int done = 0;

    for (uint32_t i = 0; i < q->feeder_count; i++) {
        struct hws__worker *w = hws__obj_find(&hws__objects, q->feeders[i]);

        if (w != NULL && hws__own_try(w)) {
            done += hws__progress(w);
            hws__hand_over(w);
            hws__own_release(w);
            hws__let_in(w);
        }
    }
    return done;
}

/* Sleep until the queue has events: through the only feeder if there is one, else in slices. */
static void sleep_for_events(struct hws__queue *q, uint64_t timeout_ns)
{
    struct hws__worker *w = NULL;
    struct pollfd p = {.fd = q->fd, .events = POLLIN};
    uint64_t slice = q->feeder_count == 0 ? timeout_ns : 1000000;

    if (q->feeder_count == 1) {
        w = hws__obj_find(&hws__objects, q->feeders[0]);
    }
    if (w != NULL && hws__own_try(w)) {
        (void)hws__sleep(w, timeout_ns, q->fd);
        hws__own_release(w);
        return;
    }
    if (timeout_ns < slice) {
        slice = timeout_ns;
    }
    poll(&p, 1, (int)(slice / 1000000 < 1000 ? (slice + 999999) / 1000000 : 1000));
}

/* Nanoseconds in which others ran. */
static uint64_t give_way(void)
{
    uint64_t since = hws__now();

    sched_yield();
    return hws__now() - since;
}

/* Rounds without work between looks whether another waiter should run. */
#define ROUNDS 8

/* `w` is the only feeder, or null. */
static int32_t pop(struct hws__queue *q, struct hws__worker *w, hws_id id, hws_event *events,
                   uint32_t count, uint64_t timeout_ns)
{
    uint64_t end = 0, spin_end = 0;
    uint32_t n, empty = 0;

    for (bool worked = false;; worked = true) {
        pthread_mutex_lock(&q->lock);
        if (atomic_load_explicit(&q->obj.id, memory_order_relaxed) != id) {
            pthread_mutex_unlock(&q->lock);
            return hws__id_error(&hws__objects, id, HWS_KIND_QUEUE);
        }
        n = take(q, events, count);
        if (n > 0 || (worked && (timeout_ns == 0 || hws__library_ending() || hws__now() >= end))) {
            settle(q);
            pthread_mutex_unlock(&q->lock);
            hws__credit_popped(events, n);
            return (int32_t)n;
        }
        /* While spinning the eventfd is left alone; before sleeping it must work. */
        q->popping = spin_end == 0 || hws__now() < spin_end;
        if (!q->popping) {
            settle(q);
        }
        bool spin = q->popping;
        pthread_mutex_unlock(&q->lock);
        if (!worked && timeout_ns != 0) {
            uint64_t now = hws__now();
            end = hws__deadline(now, timeout_ns);
            spin_end = now + HWS__SPIN_NS;
        }
        if (work(q) != 0) {
            empty = 0;
        } else if (!spin) {
            sleep_for_events(q, hws__left(end));
        } else if (w != NULL && ++empty % ROUNDS == 0 && hws__turn_over(w)) {
            spin_end += give_way();
        }
    }
}

int32_t hws_queue_pop(hws_id id, hws_event *events, uint32_t count, uint64_t timeout_ns)
{
    struct hws__worker *w = NULL;
    struct hws__queue *q;
    int32_t r = HWS_OK;
    int state;

    HWS__ENTER();
    if (events == NULL || count == 0) {
        return hws__fail(HWS_E_INVALID, id, "no room for events");
    }
    if ((q = hws__queue_find(id, &r)) == NULL) {
        return r;
    }
    if (hws__in_callback()) {
        return hws__fail(HWS_E_DEADLOCK, id, "hws_queue_pop inside a callback");
    }
    if (timeout_ns == 0) {
        return pop(q, NULL, id, events, count, 0);
    }
    if (q->feeder_count == 1) {
        w = hws__obj_find(&hws__objects, q->feeders[0]);
    }
    state = hws__uncancellable();
    if (w != NULL) {
        hws__wait_enter(w);
    }
    r = pop(q, w, id, events, count, timeout_ns);
    if (w != NULL) {
        hws__wait_leave(w);
    }
    pthread_setcancelstate(state, NULL);
    return r;
}

int32_t hws_queue_fd(hws_id id, int32_t *fd)
{
    struct hws__queue *q;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((q = hws__queue_find(id, &r)) == NULL) {
        return r;
    }
    if (fd == NULL) {
        return hws__fail(HWS_E_INVALID, id, "fd is null");
    }
    pthread_mutex_lock(&q->lock);
    if (atomic_load_explicit(&q->obj.id, memory_order_relaxed) == id) {
        *fd = q->fd;
    } else { /* closed just now by another thread */
        r = hws__id_error(&hws__objects, id, HWS_KIND_QUEUE);
    }
    pthread_mutex_unlock(&q->lock);
    return r;
}
