/*
 * Sleep: all is done, all UCX workers are armed, and somebody wakes who sleeps.
 */
#include "endpoint.h"
#include "progress.h"
#include "time.h"
#include "uworker.h"
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

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
        (void)hws__look_at_cold(w);
    }
    return done;
}
