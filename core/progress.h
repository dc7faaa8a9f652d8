/*
 * Progress: whoever waits, works.
 *
 * The owner of a worker (own.h) is the one thread that makes progress on it. Only the owner touches the
 * worker's UCX objects and lists. A thread that finds the worker owned by another hands its
 * operation over (submission.c); the owner takes it up in its next sweep.
 *
 * User code runs under ownership, so that a callback is recognised by `owner` being its own thread.
 * Callbacks are called after the sweep, but for the two that make up most traffic: small active
 * messages, and operations that ended well, are told of inside UCX's own callback while nothing
 * earlier waits to be told (hws__call_now()). What must not happen inside UCX, closing and dialling,
 * is then put off to the end of the sweep (hws__owned_outside()).
 *
 * A submission that just misses a leaving owner waits until the next progress: the caller's own in
 * the manual modes, the progress thread's within HWS__LOOK_NS otherwise; a sleeper is signalled.
 */
#ifndef HWS_CORE_PROGRESS_H
#define HWS_CORE_PROGRESS_H

#include "own.h"
#include <pthread.h>
#include <sched.h>

/** How often waiters and the progress thread look whether the owner is still at work. */
#define HWS__LOOK_NS 1000000u
/** Empty sweeps between the slow checks: deadlines, cold workers. About 50 us. */
#define HWS__TICK 2048u
/** How often UCX workers that the peer cannot wake are looked at. */
#define HWS__DEAF_NS 1000000u
/** The safety net: how long a sleep may be, and how often cold UCX workers are looked at unasked. A look takes four
 * calls of the kernel each: at once a second a hundred idle connections cost up to 0.2 % of a core. */
#define HWS__SAFETY_NS 1000000000u
#define HWS__COLD_NS 2000000000u

extern _Thread_local uint32_t hws__callback_depth __attribute__((tls_model("initial-exec")));

static inline bool hws__in_callback(void)
{
    return hws__callback_depth != 0;
}

/** Call the user. */
static inline void hws__call(hws_event_fn fn, void *arg, const hws_event *event)
{
    hws__callback_depth++;
    fn(arg, event);
    hws__callback_depth--;
}

/** Whether a callback may run inside the sweep: nothing that happened earlier waits. Owner only. */
static inline bool hws__call_now(const struct hws__worker *w)
{
    return w->sweeping && !w->todo && !hws__in_callback() &&
           atomic_load_explicit(&w->submissions, memory_order_relaxed) == NULL;
}

/** Owned by this thread, which is not inside UCX: closing and dialling may be done at once. */
static inline bool hws__owned_outside(const struct hws__worker *w)
{
    return hws__owned(w) && !w->sweeping;
}

/** One sweep over the hot UCX workers, submissions, deliveries. Owner only. How much was done. */
int hws__sweep(struct hws__worker *w);
/** A sweep and, now and then, the slow checks. */
int hws__progress(struct hws__worker *w);

/** Callbacks are called for so long, then it is the turn of others. */
#define HWS__CALLS_NS 1000000u
/** So many are called between looks at the clock; only one where they take long. */
#define HWS__CALLS 16u

static inline bool hws__calls_due(const struct hws__worker *w)
{
    return __builtin_expect(
        atomic_load_explicit(&w->count.events, memory_order_relaxed) >= w->calls_next, 0);
}

/** Look at the clock. Owner only. */
void hws__calls_look(struct hws__worker *w);

/** After a sweep with work: whether callbacks took so long that the slow checks are due. */
static inline bool hws__calls_took_long(struct hws__worker *w)
{
    if (hws__calls_due(w)) {
        hws__calls_look(w);
    }
    return w->called_at > w->slow_at + HWS__CALLS_NS;
}

/** The slow checks: deadlines, cold UCX workers, closing. */
int hws__slow(struct hws__worker *w);
/** Cold UCX workers whose descriptor became readable are swept again. Owner only. How many. */
int hws__look_at_cold(struct hws__worker *w);
/** Call the callbacks that are due: `todo` is set if they made others due. Owner only. How many. */
int hws__deliver(struct hws__worker *w);
/** All of them: for a worker that ends. */
void hws__deliver_all(struct hws__worker *w);

/**
 * Sleep until there is work, `timeout_ns` is over or `extra_fd` (or -1) is readable. The owner
 * calls it; ownership is given up meanwhile and taken back. Returns at once if there is work: how
 * much of it was done.
 */
int hws__sleep(struct hws__worker *w, uint64_t timeout_ns, int extra_fd);
/** Progress until nothing is left, then arm; 0 or HWS_E_BUSY. */
int32_t hws__arm(struct hws__worker *w);

/**
 * Something new is due then: who sleeps in the worker, or waits for its descriptor, wakes in time for it. Owner
 * only.
 */
void hws__due_at(struct hws__worker *w, uint64_t when);
/** Wake the threads that sleep in the worker, if any. Any thread. */
void hws__wake(struct hws__worker *w);
/**
 * Before ownership is given up: a thread that sleeps believes everything to be armed, so it must be
 * woken if something was made hot meanwhile. Owner only.
 */
static inline void hws__hand_over(struct hws__worker *w)
{
    if (__builtin_expect(atomic_load_explicit(&w->sleepers, memory_order_relaxed) != 0, 0) &&
        !hws__list_empty(&w->hot)) {
        hws__wake(w);
    }
}

/** After the worker was released, by who takes it again at once: those who wait for it come first. */
static inline void hws__let_in(const struct hws__worker *w)
{
    for (int i = 0; i < 16 && atomic_load_explicit(&w->obj.want, memory_order_relaxed) != 0 &&
                    atomic_load_explicit(&w->obj.owner, memory_order_relaxed) == 0;
         i++) {
        sched_yield();
    }
}

/**
 * For who spins: let others run on this core, now and then. UCX's own thread, which answers for its
 * connection manager under a spin lock, would else be kept from letting go of it until the scheduler's
 * slice ends: milliseconds for each step of a connection. Only UCX workers with TCP have that thread,
 * and their sweeps cost more than this.
 */
static inline void hws__spin_yield(const struct hws__worker *w)
{
    if ((w->main != NULL && w->main->hot) || (w->tcp != NULL && w->tcp->hot)) {
        sched_yield();
    }
}

/**
 * UCX refused a posting: that its endpoint has failed it may tell only while there is progress, and nothing else
 * would wake who sleeps. Owner only.
 */
void hws__refused_by_ucx(struct hws__uworker *u);

/**
 * No wait is a cancellation point of POSIX threads: what it counts must be counted back. What to set the state back
 * to.
 */
static inline int hws__uncancellable(void)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

/** Take the signal of hws__wake() back. Owner only. */
void hws__wakefd_drain(struct hws__worker *w);

/** A thread waits in the worker: the progress thread stands aside meanwhile. */
static inline void hws__wait_enter(struct hws__worker *w)
{
    atomic_fetch_add_explicit(&w->waiters, 1, memory_order_relaxed);
}

void hws__wait_leave(struct hws__worker *w);
/** Have all who sleep on a result look again. Any thread. */
void hws__wake_waiters(struct hws__worker *w);

/** Run a command under ownership: now, or by the current owner. Any thread; false: no memory. */
bool hws__command(struct hws__worker *w, void (*fn)(struct hws__worker *, void *), void *arg);
/** Run it with an id under ownership, and wake who sleeps; HWS_E_TOO_MANY if it cannot be handed over. */
int32_t hws__on_worker(struct hws__worker *w, void (*fn)(struct hws__worker *, void *), hws_id id);
/** The same, but not inside UCX. */
int32_t hws__on_worker_outside(struct hws__worker *w, void (*fn)(struct hws__worker *, void *),
                               hws_id id);
/**
 * Ask the owner to close or abort the object `id`, if `o` still is that: needs no memory, so it cannot fail. Any
 * thread.
 */
void hws__ask(struct hws__worker *w, struct hws__obj *o, hws_id id, uint32_t what);
/** Hand an operation to the owner. */
void hws__submit(struct hws__worker *w, struct hws__op *op);
int hws__submissions_run(struct hws__worker *w);
/** Before a call that does its work at once: what was posted before it, by its own thread too, comes before; but not
 * inside UCX. Owner only. */
void hws__submissions_catch_up(struct hws__worker *w);

/** Futex on a 32-bit word. */
void hws__futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);
void hws__futex_wake(_Atomic uint32_t *word, int count);

static inline void hws__pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

#endif
