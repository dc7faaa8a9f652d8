/*
 * The library's thread of a worker: the waiter of last resort, which makes progress only while nobody
 * else does, or one that stands by (standby.h).
 */
#include "error.h"
#include "guard.h"
#include "progress.h"
#include "quiet_thread.h"
#include "standby.h"
#include "time.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How the thread stands aside (hws__worker.thread_parked). */
#define LOOKING 1 /* looks again after HWS__LOOK_NS */
#define PARKED 2  /* somebody sleeps in a wait: the one who leaves wakes it */

/* Looks without change after which a sleeping waiter is taken to sleep for long. */
#define LOOKS 10

static void stand_aside(struct hws__worker *w, uint32_t *looks, uint32_t *seen)
{
    uint32_t activity = atomic_load(&w->activity);
    bool still = activity == *seen && atomic_load(&w->sleepers) != 0;
    uint32_t state = still && ++*looks > LOOKS ? PARKED : LOOKING;

    *looks = still ? *looks : 0;
    *seen = activity;
    atomic_store(&w->thread_parked, state);
    /* ORDER: seq_cst; the last waiter counts itself out, then looks here. */
    if (atomic_load(&w->waiters) != 0 || state == LOOKING) {
        hws__futex_wait(&w->thread_parked, state, state == PARKED ? HWS__SAFETY_NS : HWS__LOOK_NS);
    }
    atomic_store(&w->thread_parked, 0);
}

static void idle(struct hws__worker *w, uint64_t *since)
{
    uint64_t now = hws__now();

    if (*since == 0) {
        *since = now;
    } else if (now - *since >= w->spin_ns) {
        (void)hws__sleep(w, HWS_FOREVER, -1);
        *since = 0;
    }
}

/* Progress while there is something to do; sleep when there was nothing for a while. */
static void work(struct hws__worker *w)
{
    uint64_t idle_since = 0;
    uint32_t empty = 0;

    while (atomic_load_explicit(&w->obj.id, memory_order_relaxed) != 0) {
        if (hws__progress(w) != 0) {
            idle_since = 0;
            empty = 0;
        } else if (++empty % 32 == 0) {
            hws__spin_yield(w);
            if (empty % 256 == 0 && w->mode == HWS_PROGRESS_THREAD) {
                idle(w, &idle_since);
            }
        }
        if (atomic_load_explicit(&w->obj.want, memory_order_relaxed) != 0 ||
            atomic_load_explicit(&w->waiters, memory_order_relaxed) != 0) {
            return;
        }
    }
}

static void serve(struct hws__worker *w)
{
    uint32_t looks = 0, seen = 0;

    while (atomic_load(&w->obj.id) != 0 && !hws__library_ending()) {
        if (atomic_load(&w->waiters) != 0 || !hws__own_try(w)) {
            stand_aside(w, &looks, &seen);
            continue;
        }
        work(w);
        hws__hand_over(w);
        hws__own_release(w);
        if (atomic_load(&w->obj.want) != 0) {
            sched_yield();
        }
    }
}

static void stand_by(struct hws__worker *w)
{
    struct hws__standby s = {.nap = HWS__STANDBY_NS};

    while (atomic_load(&w->obj.id) != 0 && !hws__library_ending()) {
        hws__stand_by(w, &s);
    }
}

static void *loop(void *arg)
{
    struct hws__worker *w = arg;
    char name[16];

    snprintf(name, sizeof name, "%.15s", w->name);
    pthread_setname_np(pthread_self(), name);
    if (w->thread_start != NULL) {
        w->thread_start(w->thread_start_arg);
    }
    if (w->mode >= HWS_PROGRESS_THREAD) {
        serve(w);
    } else {
        stand_by(w);
    }
    if (hws__library_ending()) {
        return NULL; /* the worker may be one that exit() did not see yet */
    }
    /* Whoever closed the worker may still be inside it: ownership is the last thing to get. */
    hws__own(w);
    hws__worker_ended(w, w->thread_of);
    hws__own_release(w);
    return NULL;
}

static void set_cpus(pthread_attr_t *attr, const struct hws__worker *w)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (uint32_t i = 0; i < w->cpu_words * 64 && i < CPU_SETSIZE; i++) {
        if (w->cpu_mask[i / 64] >> (i % 64) & 1) {
            CPU_SET(i, &set);
        }
    }
    pthread_attr_setaffinity_np(attr, sizeof set, &set);
}

/* There is no thread: the worker is closed; if somebody has done that meanwhile, it ends here. */
static void without_thread(struct hws__worker *w, hws_id id)
{
    hws__own(w);
    w->thread_running = false;
    if (atomic_load(&w->obj.id) == 0) {
        hws__worker_ended(w, id);
    }
    hws__own_release(w);
    (void)hws__worker_close(id);
}

int32_t hws__thread_start(struct hws__worker *w, hws_id id)
{
    pthread_attr_t attr;
    int err;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (w->cpu_words != 0) {
        set_cpus(&attr, w);
    }
    err = hws__quiet_thread(&w->thread, &attr, loop, w);
    pthread_attr_destroy(&attr);
    if (err != 0) {
        without_thread(w, id);
        return hws__fail_errno(err, id, "progress thread: %s", strerror(err));
    }
    return HWS_OK;
}
