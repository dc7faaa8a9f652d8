/*
 * Ownership of a worker: a lock that costs the thread that takes it nearly always no locked instruction.
 *
 * The owner is the thread whose token stands in `obj.owner`. Threads compete for it by compare and
 * exchange. That is a full barrier, so each posting would wait until the message that the last one wrote
 * to shared memory has reached the other process's core. A thread that took the worker often enough
 * without a competitor becomes its favourite: it announces itself in `inside`, looks whether the worker
 * is free, and writes its token, all by plain loads and stores. A competitor makes the system run a
 * barrier on every thread of the process (membarrier) after its exchange and before it looks at
 * `inside`. So one of the two sees the other: either the favourite's look came after the exchange and it
 * steps back, or its announcement is visible and the competitor does. A competitor that wins ends the
 * favour, so that the next ones need no such call.
 */
#ifndef HWS_CORE_OWN_H
#define HWS_CORE_OWN_H

#include "worker.h"

extern _Thread_local char hws__token __attribute__((tls_model("initial-exec")));

static inline uintptr_t hws__self(void)
{
    return (uintptr_t)&hws__token;
}

static inline bool hws__owned(const struct hws__worker *w)
{
    return atomic_load_explicit(&w->obj.owner, memory_order_relaxed) == hws__self();
}

/** By compare and exchange; grants and ends favours. */
bool hws__own_compete(struct hws__worker *w);

/** Own if nobody does. */
static inline __attribute__((always_inline)) bool hws__own_try(struct hws__worker *w)
{
    uintptr_t self = hws__self();

    if (__builtin_expect(atomic_load_explicit(&w->favour.thread, memory_order_relaxed) != self,
                         0)) {
        return hws__own_compete(w);
    }
    if (atomic_load_explicit(&w->obj.owner, memory_order_relaxed) != 0) {
        return false;
    }
    atomic_store_explicit(&w->favour.inside, 1, memory_order_relaxed);
    /* ORDER: the competitor's system call is the barrier between these lines. */
    atomic_signal_fence(memory_order_seq_cst);
    /* The owner first: a competitor that has come and gone has ended the favour before it left. */
    if (__builtin_expect(atomic_load_explicit(&w->obj.owner, memory_order_acquire) != 0 ||
                             atomic_load_explicit(&w->favour.thread, memory_order_relaxed) != self,
                         0)) {
        atomic_store_explicit(&w->favour.inside, 0, memory_order_release);
        return hws__own_compete(w);
    }
    atomic_store_explicit(&w->obj.owner, self, memory_order_relaxed);
    return true;
}

static inline __attribute__((always_inline)) void hws__own_release(struct hws__worker *w)
{
    /* In this order: a competitor that finds no owner may trust `inside`. */
    atomic_store_explicit(&w->favour.inside, 0, memory_order_release);
    atomic_store_explicit(&w->obj.owner, 0, memory_order_release);
}

/** Whether a thread or the program's own loop sleeps until something happens. */
static inline bool hws__asleep(const struct hws__worker *w)
{
    return (atomic_load_explicit(&w->sleepers, memory_order_relaxed) |
            (uint32_t)atomic_load_explicit(&w->armed, memory_order_relaxed)) != 0;
}

/** Own for a short time, whoever owns now; true if it is owned already (inside a callback). */
bool hws__own(struct hws__worker *w);
/**
 * The same for a call that may come from a callback: HWS_E_DEADLOCK, with nothing to give back, if each of
 * several callbacks waits for the worker of another.
 */
int32_t hws__own_call(struct hws__worker *w, hws_id id, bool *nested);
/** Own it, not after `end`; false: it is not to be had. */
bool hws__own_until(struct hws__worker *w, uint64_t end);
static inline void hws__disown(struct hws__worker *w, bool nested)
{
    if (!nested) {
        hws__own_release(w);
    }
}

#endif
