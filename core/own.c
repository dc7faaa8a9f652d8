#include "own.h"
#include "error.h"
#include "progress.h"
#include "time.h"
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Thread_local char hws__token __attribute__((tls_model("initial-exec")));

/* So often must a thread own without a competitor to become the favourite; twice as often each time that
 * the favour has ended. */
#define STREAK 256u
#define STREAK_MAX (1u << 24)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool can_favour;

static void ask_system(void)
{
    can_favour = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* The owner counts how often it came unhindered. */
static void grant(struct hws__worker *w, uintptr_t self)
{
    struct hws__favour *f = &w->favour;

    if (f->last != self) {
        f->last = self;
        f->streak = 0;
    } else if (++f->streak >= (f->needed != 0 ? f->needed : STREAK)) {
        f->streak = 0;
        pthread_once(&once, ask_system);
        /* Only one thread ever, until it says itself that it is not on its way in: another could be in
         * the middle of stepping back, and take the announcement of the next one away. */
        if (can_favour && (f->only == 0 || f->only == self)) {
            f->only = self;
            atomic_store_explicit(&f->thread, self, memory_order_relaxed);
        }
    }
}

/* What other threads have written before is visible to this one afterwards. */
static void barrier_of_all(void)
{
    const struct timespec long_enough = {.tv_nsec = 1000000};

    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
        /* A filter of system calls that came later forbids it. No processor holds a store back for so long. */
        nanosleep(&long_enough, NULL);
    }
}

bool hws__own_compete(struct hws__worker *w)
{
    struct hws__favour *f = &w->favour;
    uintptr_t none = 0, self = hws__self(), favourite;

    if (atomic_load_explicit(&w->obj.owner, memory_order_relaxed) != 0 ||
        !atomic_compare_exchange_strong_explicit(&w->obj.owner, &none, self, memory_order_seq_cst,
                                                 memory_order_relaxed)) {
        return false;
    }
    favourite = atomic_load_explicit(&f->thread, memory_order_relaxed);
    if (favourite == 0 || favourite == self) {
        if (f->only == self && f->last != self) {
            f->only = 0; /* others came meanwhile, and this thread is not on its way in */
        }
        grant(w, self);
        return true;
    }
    barrier_of_all();
    if (atomic_load_explicit(&f->inside, memory_order_acquire) != 0) {
        /* Unless the favourite has written over it already. */
        atomic_compare_exchange_strong(&w->obj.owner, &self, 0);
        return false;
    }
    /* The favourite may have written over it, and left: then nobody owns. From here on it cannot. */
    if (atomic_load_explicit(&w->obj.owner, memory_order_relaxed) != self) {
        return false;
    }
    atomic_store_explicit(&f->thread, 0, memory_order_relaxed);
    f->needed = f->needed == 0 ? 2 * STREAK : f->needed < STREAK_MAX ? 2 * f->needed : f->needed;
    f->last = self;
    f->streak = 0;
    return true;
}

/** A thread inside a callback, and the worker that it waits for. It keeps those that it owns meanwhile. */
struct waiter {
    struct waiter *next;
    uintptr_t thread;
    struct hws__worker *worker;
};

static pthread_mutex_t waiters_lock = PTHREAD_MUTEX_INITIALIZER; /* LOCK: leaf */
static struct waiter *waiters;

static struct waiter *waiter_of(uintptr_t thread)
{
    struct waiter *x = waiters;

    while (x != NULL && x->thread != thread) {
        x = x->next;
    }
    return x;
}

static void unlist(const struct waiter *me)
{
    struct waiter **at = &waiters;

    while (*at != me) {
        at = &(*at)->next;
    }
    *at = me->next;
}

/* Whether whoever owns the worker waits in the end for this thread. If so this one waits no more, so that the
 * others of the circle get what they wait for. */
static bool in_circle(struct waiter *me, bool *listed)
{
    const struct waiter *x = me;
    uintptr_t owner = 0;

    pthread_mutex_lock(&waiters_lock);
    if (!*listed) {
        me->next = waiters;
        waiters = me;
        *listed = true;
    }
    /* Not for ever: a thread that has just got its worker is still listed. */
    for (int i = 0; i < 1000 && x != NULL && owner != me->thread; i++) {
        owner = atomic_load(&x->worker->obj.owner);
        x = waiter_of(owner);
    }
    if (owner == me->thread) {
        unlist(me);
        *listed = false;
    }
    pthread_mutex_unlock(&waiters_lock);
    return owner == me->thread;
}

/* Somebody else owns it. False: not before `end`, or never, see in_circle(). */
static bool wait_to_own(struct hws__worker *w, uint64_t end, bool may_circle)
{
    struct waiter me = {.thread = hws__self(), .worker = w};
    bool got = false, listed = false;

    atomic_fetch_add(&w->obj.want, 1);
    for (uint32_t i = 0; !(got = hws__own_try(w)); i++) {
        if (i % 64 != 63) {
            hws__pause();
        } else if ((end != UINT64_MAX && hws__now() >= end) ||
                   (may_circle && in_circle(&me, &listed))) {
            break;
        } else {
            sched_yield();
        }
    }
    if (listed) {
        pthread_mutex_lock(&waiters_lock);
        unlist(&me);
        pthread_mutex_unlock(&waiters_lock);
    }
    atomic_fetch_sub(&w->obj.want, 1);
    return got;
}

bool hws__own(struct hws__worker *w)
{
    if (hws__own_try(w)) {
        return false;
    }
    if (hws__owned(w)) {
        return true;
    }
    (void)wait_to_own(w, UINT64_MAX, false);
    return false;
}

int32_t hws__own_call(struct hws__worker *w, hws_id id, bool *nested)
{
    *nested = false;
    if (hws__own_try(w)) {
        return HWS_OK;
    }
    if (!hws__owned(w) && wait_to_own(w, UINT64_MAX, hws__in_callback())) {
        return HWS_OK;
    }
    *nested = true;
    return hws__owned(w) ? HWS_OK
                         : hws__fail(HWS_E_DEADLOCK, id,
                                     "callbacks of several workers wait for each other's worker");
}

bool hws__own_until(struct hws__worker *w, uint64_t end)
{
    return hws__own_try(w) || hws__owned(w) || wait_to_own(w, end, false);
}
