/*
 * Progress: the sweep over hot UCX workers, what follows it, and the slow checks.
 */
#include "progress.h"
#include "am.h"
#include "cuda.h"
#include "endpoint.h"
#include "gate.h"
#include "late_cut.h"
#include "listener.h"
#include "lost.h"
#include "multi.h"
#include "raw.h"
#include "rma.h"
#include "stats.h"
#include "time.h"
#include "ucx_loader.h"
#include <sys/epoll.h>

_Thread_local uint32_t hws__callback_depth __attribute__((tls_model("initial-exec")));

/* Endpoints that something happened to. */
static int attend(struct hws__worker *w)
{
    struct hws__list *n;
    int done = 0;

    while ((n = hws__list_pop(&w->attention)) != NULL) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, attention);

        ep->in_attention = false;
        hws__endpoint_step(ep);
        done++;
    }
    return done;
}

/* How long a UCX worker may take to give back what it holds once its connection was cut. */
#define DRAIN_NS 100000000u
/* And UCX to close that connection: where the queue of a dead peer is full it may wait for room for ever. */
#define BURY_NS 1000000000u
/* Sweeps without work after which one that holds nothing is quiet. */
#define QUIET 4

/* When it has given back what it will. */
static uint64_t drained_at(const struct hws__uworker *u, uint64_t now)
{
    return u->burying != 0   ? u->dead_since + BURY_NS
           : u->pending != 0 ? u->dead_since + DRAIN_NS
                             : now;
}

/* Whether it may still give back what it holds. */
static bool drains(const struct hws__uworker *u, uint64_t now)
{
    return now < drained_at(u, now) || (u->idle < QUIET && now - u->dead_since < DRAIN_NS);
}

/* UCX workers whose connection is over. One that still holds requests is swept on for a while; one
 * that holds data of the user's buffers stays until these are closed, with nothing else. */
static void retire_dead(struct hws__worker *w)
{
    uint64_t now = hws__now();

    w->dead_count = 0;
    w->drain_due = UINT64_MAX;
    for (struct hws__list *n = w->uworkers.next, *next; n != &w->uworkers; n = next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        next = n->next;
        if (!u->dead) {
            continue;
        }
        u->dead_since = u->dead_since != 0 ? u->dead_since : now;
        if (drains(u, now)) {
            uint64_t due = drained_at(u, now);

            w->dead_count++;
            w->drain_due = due < w->drain_due ? due : w->drain_due;
            hws__uworker_heat_again(u);
        } else if (w->closing || (u->pinned == 0 && hws__messages_let_go(u))) {
            hws__uworker_retire(u);
        } else {
            hws__uworker_strand(u);
        }
    }
    w->todo |= w->dead_count != 0;
}

/* What UCX callbacks and submissions left for the time after the sweep. */
static int finish_sweep(struct hws__worker *w)
{
    /* First: nothing may make progress between the sweep and a cut. */
    int done = w->late_cuts != 0 ? hws__late_cuts(w) : 0;

    if (atomic_load_explicit(&w->submissions, memory_order_relaxed) != NULL) {
        done += hws__submissions_run(w);
    }
    if (atomic_load_explicit(&w->asked, memory_order_relaxed)) {
        hws__worker_asked(w);
        done++;
    }
    w->todo = w->late_cuts != 0;
    hws__bundles_send(&w->bundles);
    if (w->dead_count != 0) {
        retire_dead(w);
    }
    if (!hws__list_empty(&w->am_pending)) {
        done += hws__am_step(w);
    }
    hws__messages_drop(w);
    if (!hws__list_empty(&w->copying)) {
        done += hws__rma_copy_step(w);
    }
    if (!hws__list_empty(&w->multi_pending)) {
        done += hws__multi_step(w);
    }
    if (!hws__list_empty(&w->attention)) {
        done += attend(w);
    }
    if (w->watching != 0) {
        hws__flush_step(w);
    }
    return done + hws__deliver(w);
}

/*
 * A UCX worker that is swept alone is looked at so often in a sweep that finds nothing: a message which is waited for
 * is found without the rest of the sweep between two looks. Not over TCP: each look calls the kernel, next to which
 * the rest is nothing, and who waits for a connection must come to hws__spin_yield() soon.
 */
#define LOOKS 16

static int look(struct hws__worker *w, struct hws__uworker *u)
{
    int looks = u->shm && w->hot.next == w->hot.prev ? LOOKS : 1, r;

    /* Not over TCP: a send that fails there closes the connection which UCX reads from just then. */
    w->sweeping = u->shm;
    r = (int)hws__uworker_look(u, looks);
    if (__builtin_expect(u->half_made.possible, 0)) {
        r += hws__half_made_step(u, r);
    }
    return r;
}

/* A raw endpoint's receives are UCX's own; those of its worker, and all of peers by address, are not. */
static void raw_worked(struct hws__worker *w, struct hws__uworker *u)
{
    u->unread = true;
    if ((w->scope.receives | w->address_scope.receives) != 0) {
        hws__raw_arrived(u);
    }
}

static int sweep(struct hws__worker *w)
{
    struct hws__list *n, *next;
    int done = 0;

    for (n = w->hot.next; n != &w->hot; n = next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, hot_link);
        int r = look(w, u);

        if (__builtin_expect(!hws__list_empty(&u->readers), 0)) {
            w->sweeping = false;
            hws__streams_read(u);
        }
        if (__builtin_expect(u->raw && r != 0, 0)) {
            w->sweeping = false;
            raw_worked(w, u);
        }

        next = n->next;
        u->idle = r != 0 ? 0 : u->idle + 1;
        done += r;
    }
    w->sweeping = false;
    w->bundles.burst = 0;
    if (__builtin_expect(w->todo || atomic_load_explicit(&w->asked, memory_order_relaxed) ||
                             atomic_load_explicit(&w->submissions, memory_order_relaxed) != NULL,
                         0)) {
        done += finish_sweep(w);
    }
    w->worked |= (uint32_t)done;
    return done;
}

/* Where UCX may move memory of a GPU. */
static __attribute__((noinline)) int in_cuda(struct hws__worker *w,
                                             int (*step)(struct hws__worker *))
{
    bool pushed = hws__cuda_enter(w->context);
    int done = step(w);

    hws__cuda_pop(pushed);
    return done;
}

static inline bool uses_cuda(void)
{
    return __builtin_expect(atomic_load_explicit(&hws__cuda_used, memory_order_relaxed), 0);
}

int hws__sweep(struct hws__worker *w)
{
    return uses_cuda() ? in_cuda(w, sweep) : sweep(w);
}

int hws__look_at_cold(struct hws__worker *w)
{
    struct epoll_event events[32];
    int n = epoll_wait(w->epfd, events, 32, 0), hot = 0;

    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr != NULL) {
            hws__uworker_announced(events[i].data.ptr);
            hot++;
        }
    }
    return hot;
}

/*
 * The safety net: work in cold UCX workers that nothing announced. By the clock, not by the length of
 * one sleep: a program may never sleep long. An empty progress may still have taken what the arming
 * stood for, so each is armed again. Deaf ones (uworker.h) are looked at each time.
 */
static int check_cold(struct hws__worker *w, uint64_t now)
{
    bool all = now - w->cold_checked >= HWS__COLD_NS;
    int found = 0;

    if (!all && w->deaf_count == 0) {
        return 0;
    }
    w->cold_checked = all ? now : w->cold_checked;
    for (struct hws__list *n = w->uworkers.next; n != &w->uworkers; n = n->next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        if (u->hot || u->stranded || !(all || u->deaf)) {
            continue;
        }
        if (hws__uworker_progress(u) != 0) {
            u->half_made.due = u->half_made.possible;
            /* A sender that was stopped between writing and announcing it still may: cooling tells. */
            u->unannounced = !u->deaf;
            found++;
            hws__uworker_heat(u);
            if (u->raw) {
                raw_worked(w, u);
            }
            hws__look_at_cold(w);
        } else if (hws__uworker_cool(u) < 0) {
            hws__uworker_heat(u);
        }
    }
    return found;
}

/* UCX workers that had nothing to do for long are watched instead of swept. */
static void cool_idle(struct hws__worker *w)
{
    struct hws__list *n, *next;

    for (n = w->hot.next; n != &w->hot; n = next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, hot_link);

        next = n->next;
        if (u->idle > 4 * HWS__TICK && hws__uworker_cool(u) < 0) {
            u->idle = 0;
        }
    }
}

static int step_all(struct hws__worker *w, uint64_t now)
{
    struct hws__list *n, *next;
    int done = 0;

    for (n = w->listeners.next; n != &w->listeners; n = n->next) {
        done += hws__listener_step(hws__container(n, struct hws__listener, link));
    }
    if (now < w->next_deadline) {
        return done;
    }
    w->next_deadline = UINT64_MAX;
    for (n = w->endpoints.next; n != &w->endpoints; n = next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, link);

        next = n->next;
        if (ep->deadline != 0 && ep->deadline <= now) {
            hws__endpoint_attend(ep);
        } else if (ep->deadline != 0 && ep->deadline < w->next_deadline) {
            w->next_deadline = ep->deadline;
        }
    }
    return done;
}

static int slow(struct hws__worker *w)
{
    uint64_t now = hws__now();
    int done;

    w->tick = 0;
    w->slow_at = now;
    w->calls_slow =
        w->calls_slow &&
        now - w->called_at < HWS__CALLS_NS; /* callbacks that came long ago count no more */
    hws__stats_tick(w, now);
    atomic_fetch_add_explicit(&w->activity, 1, memory_order_relaxed);
    done = hws__look_at_cold(w);
    done += check_cold(w, now);
    hws__lost_check(w, now);
    if (w->gated != 0 && now >= w->gates_due) {
        w->gates_due = now + HWS__GATE_NS;
        hws__gate_watch();
    }
    cool_idle(w);
    if (w->heap_size != 0) {
        hws__op_expire(w, now);
    }
    if (hws__op_short()) {
        hws__op_drain(w);
    }
    hws__pool_age(&w->pool, now);
    done += step_all(w, now);
    if (!hws__list_empty(&w->attention)) {
        done += attend(w);
    }
    done += hws__deliver(w);
    if (w->closing && hws__worker_step(w)) {
        done++;
    }
    w->worked |= (uint32_t)done;
    return done;
}

int hws__slow(struct hws__worker *w)
{
    return uses_cuda() ? in_cuda(w, slow) : slow(w);
}

int hws__progress(struct hws__worker *w)
{
    int done = hws__sweep(w);

    /* Work makes a sweep longer: count it as several, so that the slow checks keep their pace. */
    w->tick += done != 0 ? 8 + (uint32_t)done / 8 : 1;
    if (w->tick >= HWS__TICK || (done != 0 && hws__calls_took_long(w))) {
        done += hws__slow(w);
    }
    return done;
}
