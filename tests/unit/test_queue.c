/*
 * Unit tests of queue.c: bounds, overflow, order, many producers. Whole operations on queues are in
 * tests/loopback/test_queue.c.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "queue.h"
#include "support/check.h"
#include "worker.h"

#define CAPACITY 8u

static hws_id id;
static struct hws__queue *queue;
static _Atomic uint64_t overflows;

static void setup(void)
{
    hws_queue_opts opts = {.struct_size = sizeof opts, .capacity = CAPACITY};
    int32_t r = 0;

    CHECK_OK(hws_queue_open(&opts, &id));
    cr_assert_neq(queue = hws__queue_find(id, &r), NULL);
    overflows = 0;
}

static void teardown(void)
{
    hws_close(id);
}

TestSuite(queue, .init = setup, .fini = teardown);

static bool push(uint64_t number, bool reserved)
{
    hws_event e = {.size = sizeof e, .kind = HWS_EVENT_AM, .user = number};

    return hws__queue_push(queue, id, &e, reserved, &overflows);
}

/* The next event's number, -1: none. */
static int64_t pop(void)
{
    hws_event e;
    int32_t n = hws_queue_pop(id, &e, 1, 0);

    cr_assert_geq(n, 0);
    return n == 0 ? -1 : (int64_t)e.user;
}

static int readable(void)
{
    struct pollfd p = {.events = POLLIN};

    CHECK_OK(hws_queue_fd(id, &p.fd));
    return poll(&p, 1, 0);
}

Test(queue, events_come_out_in_order)
{
    cr_assert_eq(pop(), -1);
    for (uint64_t i = 0; i < 100; i++) {
        cr_assert(push(i, false));
        cr_assert(push(i + 1000, false));
        cr_assert_eq(pop(), (int64_t)i);
        cr_assert_eq(pop(), (int64_t)i + 1000);
    }
    cr_assert_eq(overflows, 0);
}

/* A thread that posts to a queue may give its place back when the queue is closed, and another has its memory. */
Test(queue, who_comes_late_does_not_count_in_the_next_queue)
{
    hws_queue_opts opts = {.struct_size = sizeof opts, .capacity = CAPACITY};
    hws_id last = id;
    int32_t r = 0;

    cr_assert(hws__queue_reserve(queue, id));
    CHECK_OK(hws_close(id));
    cr_assert_not(hws__queue_reserve(queue, last));
    CHECK_OK(hws_queue_open(&opts, &id));
    cr_assert_eq(hws__queue_find(id, &r), queue, "it has another memory");
    hws__queue_unreserve(queue, last);
    cr_assert_not(hws__queue_reserve(queue, last));
    for (uint32_t i = 0; i < CAPACITY; i++) {
        cr_assert(hws__queue_reserve(queue, id));
    }
    cr_assert_not(hws__queue_reserve(queue, id));
}

Test(queue, the_capacity_is_rounded_up)
{
    const uint32_t sizes[][2] = {{0, 4096}, {1, 1}, {2, 2}, {3, 4}, {1000, 1024}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        hws_queue_opts opts = {.struct_size = sizeof opts, .capacity = sizes[i][0]};
        hws_id other;
        int32_t r = 0;

        CHECK_OK(hws_queue_open(&opts, &other));
        cr_assert_eq(hws__queue_find(other, &r)->mask + 1, sizes[i][1]);
        CHECK_OK(hws_close(other));
    }
}

Test(queue, what_does_not_fit_is_kept_in_order_and_counted)
{
    for (uint64_t i = 0; i < 5 * CAPACITY; i++) {
        cr_assert(push(i, false));
    }
    cr_assert_eq(overflows, 4 * CAPACITY);
    for (uint64_t i = 0; i < 5 * CAPACITY; i++) {
        cr_assert_eq(pop(), (int64_t)i);
        if (i == 2 * CAPACITY) { /* behind those that wait, whatever is free */
            cr_assert(push(5 * CAPACITY, false));
        }
    }
    cr_assert_eq(pop(), 5 * CAPACITY);
    cr_assert_eq(pop(), -1);
    for (uint64_t i = 0; i < CAPACITY; i++) {
        cr_assert(push(i, false));
    }
    cr_assert_eq(overflows, 4 * CAPACITY + 1, "the ring is used again");
}

Test(queue, places_are_bounded_until_their_events_are_taken)
{
    for (uint32_t i = 0; i < CAPACITY; i++) {
        cr_assert(hws__queue_reserve(queue, id));
    }
    cr_assert_not(hws__queue_reserve(queue, id));
    hws__queue_unreserve(queue, id);
    cr_assert(hws__queue_reserve(queue, id));
    cr_assert(push(0, true));
    cr_assert_not(hws__queue_reserve(queue, id), "the event holds the place");
    cr_assert_eq(pop(), 0);
    cr_assert(hws__queue_reserve(queue, id));
}

/* Arrivals that nobody posted must not take the places of operations. */
Test(queue, a_promised_place_is_free_when_its_event_comes)
{
    for (uint32_t i = 0; i < CAPACITY / 2; i++) {
        cr_assert(hws__queue_reserve(queue, id));
    }
    for (uint32_t i = 0; i < CAPACITY / 2; i++) {
        cr_assert(push(i, false));
    }
    cr_assert_eq(overflows, 0);
    for (uint32_t i = 0; i < CAPACITY / 2; i++) {
        cr_assert(push(100 + i, true));
    }
    cr_assert_eq(overflows, 0, "an event of an operation always fits");
    cr_assert(push(200, false));
    cr_assert_eq(overflows, 1);
    for (uint32_t i = 0; i < CAPACITY / 2; i++) {
        cr_assert_eq(pop(), (int64_t)i);
    }
    for (uint32_t i = 0; i < CAPACITY / 2; i++) {
        cr_assert_eq(pop(), 100 + i);
    }
    cr_assert_eq(pop(), 200);
}

Test(queue, batches)
{
    hws_event events[2 * CAPACITY];
    uint64_t next = 0;

    for (uint64_t i = 0; i < 3 * CAPACITY; i++) {
        cr_assert(push(i, false));
    }
    cr_assert_eq(hws_queue_pop(id, events, 3, 0), 3);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(events[i].user, next++);
    }
    /* Over the end of the ring, into the chain. */
    cr_assert_eq(hws_queue_pop(id, events, 2 * CAPACITY, 0), 2 * CAPACITY);
    for (uint32_t i = 0; i < 2 * CAPACITY; i++) {
        cr_assert_eq(events[i].user, next++);
    }
    cr_assert_eq(hws_queue_pop(id, events, 2 * CAPACITY, 0), CAPACITY - 3);
    cr_assert_eq(hws_queue_pop(id, events, 2 * CAPACITY, 0), 0);
}

Test(queue, the_descriptor_is_readable_exactly_while_there_are_events)
{
    cr_assert_eq(readable(), 0);
    for (uint64_t i = 0; i < 3 * CAPACITY; i++) {
        cr_assert(push(i, false));
        cr_assert_eq(readable(), 1);
    }
    for (uint64_t i = 0; i < 3 * CAPACITY; i++) {
        cr_assert_eq(readable(), 1);
        pop();
    }
    cr_assert_eq(readable(), 0);
    cr_assert_eq(pop(), -1);
    cr_assert(push(1, false));
    cr_assert_eq(readable(), 1, "an empty pop does not silence it");
}

Test(queue, a_pop_without_events_waits_for_its_time)
{
    hws_event e;
    uint64_t start = t_now();

    cr_assert_eq(hws_queue_pop(id, &e, 1, 20 * T_MS), 0);
    cr_assert_geq(t_now() - start, 20 * T_MS);
}

Test(queue, wrong_arguments)
{
    hws_queue_opts opts = {.struct_size = sizeof opts, .capacity = (1u << 24) + 1};
    hws_event e;
    hws_id other;

    CHECK_CODE(hws_queue_open(&opts, &other), HWS_E_INVALID);
    CHECK_CODE(hws_queue_open(NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_queue_pop(id, NULL, 1, 0), HWS_E_INVALID);
    CHECK_CODE(hws_queue_pop(id, &e, 0, 0), HWS_E_INVALID);
    CHECK_CODE(hws_queue_fd(id, NULL), HWS_E_INVALID);
}

Test(queue, a_closed_one_takes_nothing)
{
    struct hws__queue *old = queue;
    hws_event e;
    int32_t fd;

    for (uint64_t i = 0; i < 3 * CAPACITY; i++) {
        cr_assert(push(i, false)); /* closing frees what is left */
    }
    CHECK_OK(hws_close(id));
    cr_assert_not(push(1, false));
    CHECK_CODE(hws_queue_pop(id, &e, 1, 0), HWS_E_STALE);
    CHECK_CODE(hws_queue_fd(id, &fd), HWS_E_STALE);
    CHECK_CODE(hws_close(id), HWS_E_STALE);
    /* The memory is used again: a late producer must not reach the new queue. */
    hws_id late = id;
    setup();
    cr_assert_eq(queue, old);
    e = (hws_event){.size = sizeof e};
    cr_assert_not(hws__queue_push(queue, late, &e, false, &overflows));
    cr_assert_eq(pop(), -1);
}

/* ---- Feeders -------------------------------------------------------------------------------- */

static struct hws__obj *open_worker(void)
{
    struct hws__obj *w =
        hws__obj_alloc(&hws__objects, HWS_KIND_WORKER, sizeof(struct hws__worker), 0);

    hws__obj_publish(&hws__objects, w);
    return w;
}

static bool feeds(hws_id worker)
{
    for (uint32_t i = 0; i < queue->feeder_count; i++) {
        if (queue->feeders[i] == worker) {
            return true;
        }
    }
    return false;
}

Test(queue, a_worker_feeds_once)
{
    struct hws__obj *a = open_worker(), *b = open_worker();

    hws__queue_feed(queue, a->id);
    hws__queue_feed(queue, b->id);
    hws__queue_feed(queue, a->id);
    cr_assert_eq(queue->feeder_count, 2);
    cr_assert(feeds(a->id) && feeds(b->id));
    hws__obj_free(&hws__objects, a); /* the end of the process looks at workers */
    hws__obj_free(&hws__objects, b);
}

/* Workers come and go during the life of a queue. */
Test(queue, the_place_of_a_worker_that_is_gone_is_used_again)
{
    struct hws__obj *stays = open_worker();

    hws__queue_feed(queue, stays->id);
    for (uint32_t i = 0; i < 10 * HWS__QUEUE_FEEDERS; i++) {
        struct hws__obj *w = open_worker();

        hws__queue_feed(queue, w->id);
        cr_assert(feeds(w->id), "worker %u", i);
        cr_assert(feeds(stays->id));
        hws__obj_free(&hws__objects, w);
    }
    hws__obj_free(&hws__objects, stays);
}

/* ---- Threads -------------------------------------------------------------------------------- */

#define PRODUCERS 4
#define EACH 20000

static void *produce(void *arg)
{
    uint64_t base = (uint64_t)(uintptr_t)arg << 32;

    for (uint64_t i = 0; i < EACH; i++) {
        bool reserved = hws__queue_reserve(queue, id);

        cr_assert(push(base | i, reserved));
    }
    return NULL;
}

Test(queue, many_producers_one_consumer)
{
    pthread_t threads[PRODUCERS];
    uint64_t next[PRODUCERS] = {0};
    hws_event events[5];
    int left = PRODUCERS * EACH;

    for (uintptr_t i = 0; i < PRODUCERS; i++) {
        pthread_create(&threads[i], NULL, produce, (void *)i);
    }
    for (uint64_t start = t_now(); left > 0;) {
        int32_t n = hws_queue_pop(id, events, 5, T_MS);

        cr_assert_geq(n, 0);
        for (int32_t i = 0; i < n; i++) {
            uint64_t from = events[i].user >> 32;

            cr_assert_eq(events[i].user & UINT32_MAX, next[from], "in order, none lost");
            next[from]++;
        }
        left -= n;
        t_check_patience(__FILE__, __LINE__, start, "all events arrive");
    }
    for (int i = 0; i < PRODUCERS; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_assert_eq((uint32_t)queue->reserved, 0);
    cr_assert_eq(readable(), 0);
}

static _Atomic int stop;
static _Atomic hws_id current;

static void *push_late(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        hws_id to = atomic_load(&current);
        hws_event e = {.size = sizeof e, .user = to};

        hws__queue_push(queue, to, &e, false, &overflows);
    }
    return NULL;
}

/* Producers that come too late, while the queue is closed and its memory is used again. */
Test(queue, closing_while_others_push)
{
    pthread_t threads[2];

    atomic_store(&current, id);
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, push_late, NULL);
    }
    for (int i = 0; i < 5000; i++) {
        hws_queue_opts opts = {.struct_size = sizeof opts, .capacity = CAPACITY};
        hws_event e;
        int32_t n = 1;

        /* Bounded: two that push can keep one that pops busy for ever. */
        for (int k = 0; k < 8 && n > 0 && i % 4 != 0; k++) {
            n = hws_queue_pop(id, &e, 1, 0);
            cr_assert(n <= 0 || e.user == id, "an event of another queue");
        }
        cr_assert_geq(n, 0);
        CHECK_OK(hws_close(id));
        CHECK_OK(hws_queue_open(&opts, &id));
        atomic_store(&current, id);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
}
