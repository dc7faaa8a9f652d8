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
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

_Thread_local uint32_t hws__callback_depth __attribute__((tls_model("initial-exec")));

void hws__futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
    struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_ns == UINT64_MAX ? NULL : &t, NULL,
            0);
}

void hws__futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

void hws__wake(struct hws__worker *w)
{
    uint64_t one = 1;

    if (atomic_load(&w->sleepers) == 0 && !atomic_load(&w->armed)) {
        return;
    }
    /* ORDER: seq_cst; the end of a worker takes `wakeable` back first, then waits for `waking` to be 0:
     * the caller may come when the worker is over. */
    atomic_fetch_add(&w->waking, 1);
    /* Once until somebody wakes: the sleeper resets it. */
    if (atomic_load(&w->wakeable) && atomic_exchange(&w->signalled, 1) == 0) {
        atomic_fetch_add_explicit(&w->count.signals, 1, memory_order_relaxed);
        if (write(w->wakefd, &one, sizeof one) < 0 && errno != EAGAIN) {
            atomic_store(&w->signalled, 0);
        }
    }
    atomic_fetch_sub(&w->waking, 1);
}

void hws__refused_by_ucx(struct hws__uworker *u)
{
    hws__uworker_heat(u);
    hws__wake(u->worker);
}

/* The endpoint that an event is about; null if it is about another object, or that one is gone. */
static struct hws__endpoint *about(const struct hws__notice *t)
{
    return hws__id_kind(t->event.source) == HWS_KIND_ENDPOINT
               ? hws__obj_find(&hws__objects, t->event.source)
               : NULL;
}

/* The first of an endpoint that had no turn in this round. What is about no endpoint does not wait. The list has
 * one. */
static struct hws__list *take_turns(struct hws__worker *w, struct hws__list *due)
{
    for (struct hws__list *n = due->next;; n = n->next) {
        struct hws__endpoint *ep;

        if (n == due) {
            w->told_round++;
            n = n->next;
        }
        ep = about(hws__container(n, struct hws__notice, link));
        if (ep == NULL || ep->told_round != w->told_round) {
            if (ep != NULL) {
                ep->told_round = w->told_round;
            }
            hws__list_remove(n);
            return n;
        }
    }
}

static void tell_op(struct hws__worker *w, struct hws__list *n)
{
    (void)w;
    hws__op_tell(hws__container(n, struct hws__op, match));
}

/* An object's CLOSED is its last event: callbacks of its operations that are still to come go before, also of those that
 * other threads posted. */
static bool is_too_early(struct hws__worker *w, const struct hws__notice *t)
{
    if (t->event.kind != HWS_EVENT_CLOSED) {
        return false;
    }
    hws__submissions_catch_up(w);
    for (const struct hws__list *n = w->ready_ops.next; n != &w->ready_ops; n = n->next) {
        if (hws__container(n, struct hws__op, match)->source == t->event.source) {
            return true;
        }
    }
    return false;
}

static void tell_notice(struct hws__worker *w, struct hws__list *n)
{
    struct hws__notice *t = hws__container(n, struct hws__notice, link);

    if (is_too_early(w, t)) {
        hws__list_append(&w->ready, n);
        return;
    }
    if (t->event.kind != HWS_EVENT_AM || hws__am_due(w, t)) {
        HWS__COUNT(w, events, 1);
        hws__call(t->callback, t->callback_arg, &t->event);
    }
    if (t->message != NULL) {
        hws__message_release(t->message);
    }
    hws__notice_give_back(w, t);
}

void hws__calls_look(struct hws__worker *w)
{
    uint64_t before = w->called_at > w->slow_at ? w->called_at : w->slow_at;

    w->called_at = hws__now();
    w->calls_slow = w->called_at - before > HWS__CALLS_NS;
    w->calls_next = atomic_load_explicit(&w->count.events, memory_order_relaxed) +
                    (w->calls_slow ? 1 : HWS__CALLS);
}

/* Messages that no window bounds are all told of before more come. Operations are as many as the program posted. */
static bool bounded(const struct hws__worker *w, const struct hws__list *list)
{
    return list == &w->ready_ops || (w->raw_count == 0 && w->credit_messages != 0);
}

/* What is in the list now. */
static int tell_all(struct hws__worker *w, struct hws__list *list,
                    void (*tell)(struct hws__worker *, struct hws__list *))
{
    uint64_t start = w->calls_slow ? hws__now() : 0;
    struct hws__list due, *n;
    int done = 0;

    hws__list_init(&due);
    hws__list_splice(&due, list);
    while (!hws__list_empty(&due)) {
        /* Where callbacks take long a peer that floods would have all others wait. */
        n = w->calls_slow && list == &w->ready ? take_turns(w, &due) : hws__list_pop(&due);
        tell(w, n);
        done++;
        if (hws__calls_due(w)) {
            hws__calls_look(w);
            start = start == 0 ? w->called_at : start;
            if (w->called_at - start >= HWS__CALLS_NS && bounded(w, list)) {
                break;
            }
        }
    }
    hws__list_splice(&due, list);
    hws__list_splice(list, &due);
    return done;
}

/*
 * A callback may post, and what it posts may end at once, and so on: what is added while callbacks run is due the next
 * time, after UCX, what came in otherwise and the clock.
 */
int hws__deliver(struct hws__worker *w)
{
    int done = 0;

    if (!hws__list_empty(&w->ready_ops)) {
        done += tell_all(w, &w->ready_ops, tell_op);
    }
    if (!hws__list_empty(&w->ready)) {
        done += tell_all(w, &w->ready, tell_notice);
    }
    w->todo |= !hws__list_empty(&w->ready_ops) || !hws__list_empty(&w->ready);
    return done;
}

void hws__deliver_all(struct hws__worker *w)
{
    while (hws__deliver(w) != 0) {}
}

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
/* Sweeps without work after which one that holds nothing is quiet. */
#define QUIET 4

/* Whether it may still give back what it holds. */
static bool drains(const struct hws__uworker *u, uint64_t now)
{
    return (u->pending != 0 || u->idle < QUIET) && now - u->dead_since < DRAIN_NS;
}

/* UCX workers whose connection is over. One that still holds requests is swept on for a while; one
 * that holds data of the user's buffers stays until these are closed. */
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
            uint64_t due = u->pending != 0 ? u->dead_since + DRAIN_NS : now;

            w->dead_count++;
            w->drain_due = due < w->drain_due ? due : w->drain_due;
        } else if (w->closing || (u->pinned == 0 && hws__messages_let_go(u))) {
            hws__uworker_retire(u);
            continue;
        }
        hws__uworker_heat_again(u);
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
    do {
        r = (int)hws__ucx.ucp_worker_progress(u->ucx);
    } while (r == 0 && --looks != 0);
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

/* Cold UCX workers whose descriptor became readable are swept again. */
static int look_at_cold(struct hws__worker *w)
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

        if (u->hot || !(all || u->deaf)) {
            continue;
        }
        if (hws__ucx.ucp_worker_progress(u->ucx) != 0) {
            u->half_made.due = u->half_made.possible;
            /* A sender that was stopped between writing and announcing it still may: cooling tells. */
            u->unannounced = !u->deaf;
            found++;
            hws__uworker_heat(u);
            if (u->raw) {
                raw_worked(w, u);
            }
            look_at_cold(w);
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
    done = look_at_cold(w);
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

static uint64_t next_deadline(struct hws__worker *w)
{
    uint64_t d = w->deaf_count == 0 ? UINT64_MAX : hws__now() + HWS__DEAF_NS;

    d = w->next_deadline < d ? w->next_deadline : d;
    d = w->lost_due < d ? w->lost_due : d;
    d = w->dead_count != 0 && w->drain_due < d ? w->drain_due : d;
    if (w->heap_size != 0 && w->heap[0]->deadline < d) {
        d = w->heap[0]->deadline;
    }
    return d;
}

/* Everything that can be done is done and all UCX workers are armed. `done`: how much was. */
static int32_t quiesce(struct hws__worker *w, int *done)
{
    struct hws__list *n, *next;

    if ((*done = hws__sweep(w)) != 0 || (*done = hws__slow(w)) != 0 ||
        (*done = hws__sweep(w)) != 0) {
        return HWS_E_BUSY;
    }
    for (n = w->hot.next; n != &w->hot; n = next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, hot_link);

        next = n->next;
        if (hws__uworker_cool(u) < 0) {
            return HWS_E_BUSY;
        }
    }
    return HWS_OK;
}

/* Have the descriptor of an armed worker become readable when the next deadline is due; at 0 not. */
static void set_timer(struct hws__worker *w, uint64_t deadline)
{
    struct itimerspec t = {
        .it_value = {(time_t)(deadline / 1000000000u), (long)(deadline % 1000000000u)}};

    if (deadline != w->timer_at && timerfd_settime(w->timerfd, TFD_TIMER_ABSTIME, &t, NULL) == 0) {
        w->timer_at = deadline;
    }
}

void hws__due_at(struct hws__worker *w, uint64_t when)
{
    if (hws__asleep(w) && (w->timer_at == 0 || when < w->timer_at)) {
        set_timer(w, when);
    }
}

int32_t hws__arm(struct hws__worker *w)
{
    uint64_t deadline;
    int done;

    hws__wakefd_drain(w);
    /* ORDER: announce, then look at the submissions; a submitter does the reverse (seq_cst). */
    atomic_store(&w->armed, true);
    if (quiesce(w, &done) != HWS_OK || atomic_load(&w->submissions) != NULL ||
        atomic_load(&w->asked)) {
        atomic_store(&w->armed, false);
        return HWS_E_BUSY;
    }
    deadline = next_deadline(w);
    set_timer(w, deadline == UINT64_MAX ? 0 : deadline);
    return HWS_OK;
}

/* The part of a sleep without ownership; how many events of cold UCX workers were taken. */
static int wait_for_events(int epfd, struct epoll_event *events, int room, uint64_t timeout_ns,
                           int extra_fd)
{
    uint64_t ms = timeout_ns / 1000000u + (timeout_ns % 1000000u != 0);
    struct pollfd p[2] = {{.fd = epfd, .events = POLLIN}, {.fd = extra_fd, .events = POLLIN}};
    int n;

    if (extra_fd < 0) {
        n = epoll_wait(epfd, events, room, (int)ms);
        return n < 0 ? 0 : n;
    }
    poll(p, 2, (int)ms);
    return 0;
}

void hws__wakefd_drain(struct hws__worker *w)
{
    uint64_t dummy;

    if (atomic_load_explicit(&w->signalled, memory_order_relaxed) != 0 &&
        read(w->wakefd, &dummy, sizeof dummy) > 0) {
        atomic_store(&w->signalled, 0);
    }
}

/* Nothing is left to do, and whoever brings something from now on signals the sleeper. */
static bool fall_asleep(struct hws__worker *w, int *done)
{
    bool idle;

    set_timer(w, 0); /* who sleeps here minds the deadlines itself */
    w->dozing = 1;
    /* ORDER: announce, then look at the submissions; a submitter does the reverse (seq_cst). */
    atomic_fetch_add(&w->sleepers, 1);
    idle = quiesce(w, done) == HWS_OK && atomic_load(&w->submissions) == NULL &&
           !atomic_load(&w->asked) && atomic_load(&w->obj.id) != 0;
    if (!idle) {
        atomic_fetch_sub(&w->sleepers, 1);
    }
    w->dozing = 0;
    return idle;
}

/* Its event may come from UCX's thread, see hws__spin_yield(). */
static bool may_connect(const struct hws__uworker *u)
{
    return u->role != HWS__ISOLATED || u->only == NULL || !u->only->open;
}

int hws__sleep(struct hws__worker *w, uint64_t timeout_ns, int extra_fd)
{
    struct epoll_event events[32];
    uint64_t now, deadline;
    bool connecting = false;
    int epfd, n, done = 0;

    if (!fall_asleep(w, &done)) {
        return done;
    }
    now = hws__now();
    deadline = next_deadline(w);
    if (deadline != UINT64_MAX) {
        deadline = deadline <= now ? 0 : deadline - now;
        timeout_ns = deadline < timeout_ns ? deadline : timeout_ns;
    }
    timeout_ns = timeout_ns < HWS__SAFETY_NS ? timeout_ns : HWS__SAFETY_NS;
    epfd = w->epfd; /* the worker may end, and its number be another's, once it is not owned */
    hws__own_release(w);
    n = wait_for_events(epfd, events, 32, timeout_ns, extra_fd);
    /* Before it is owned again: the end of the worker waits for this, as its owner. */
    atomic_fetch_sub(&w->sleepers, 1);
    hws__own(w);
    HWS__COUNT(w, wakeups, 1);
    hws__wakefd_drain(w);
    if (atomic_load_explicit(&w->obj.id, memory_order_relaxed) == 0) {
        hws__wake(w); /* a signal wakes one sleeper, and all have to leave */
    }
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr != NULL && !hws__uworker_stale(w, events[i].data.ptr)) {
            hws__uworker_announced(events[i].data.ptr);
            connecting |= may_connect(events[i].data.ptr);
        }
    }
    if (connecting) {
        sched_yield();
    }
    if (extra_fd >= 0) {
        (void)look_at_cold(w);
    }
    return done;
}
