#include "standby.h"
#include "guard.h"
#include "progress.h"
#include <poll.h>

/* Between the looks for work while it does not: the shorter after there was some. */
#define SOON_NS UINT64_C(1000000)
#define LATE_NS UINT64_C(32000000)
/* Sweeps without work after which there is none. */
#define IDLE_SWEEPS 64u

/* As hws__worker.thread_parked. */
#define NAPPING 1u

static void nap(struct hws__worker *w, uint64_t ns)
{
    atomic_store(&w->thread_parked, NAPPING);
    /* ORDER: seq_cst; who ends the worker takes the id away, then looks here. */
    if (atomic_load(&w->obj.id) != 0) {
        hws__futex_wait(&w->thread_parked, NAPPING, ns);
    }
    atomic_store(&w->thread_parked, 0);
}

void hws__standby_wake(struct hws__worker *w)
{
    atomic_store(&w->thread_parked, 0);
    hws__futex_wake(&w->thread_parked, 1);
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

/* Nobody has made progress since the last look, nobody waits, and no poller sleeps that would be told. */
static bool neglected(struct hws__worker *w, struct hws__standby *s)
{
    uint32_t activity = atomic_load(&w->activity);
    bool active = activity != s->seen;

    s->seen = activity;
    return !active && atomic_load(&w->waiters) == 0 && atomic_load(&w->sleepers) == 0 &&
           (!atomic_load(&w->armed) || readable(w->epfd));
}

/* Make progress until nothing is left or somebody else wants to. How much was done. */
static int serve(struct hws__worker *w, struct hws__standby *s)
{
    int done = hws__slow(w);

    for (uint32_t empty = 0; empty < IDLE_SWEEPS;) {
        int n = hws__progress(w);

        done += n;
        empty = n != 0 ? 0 : empty + 1;
        if (atomic_load_explicit(&w->obj.want, memory_order_relaxed) != 0 ||
            atomic_load_explicit(&w->waiters, memory_order_relaxed) != 0 ||
            atomic_load_explicit(&w->obj.id, memory_order_relaxed) == 0) {
            break;
        }
    }
    /* The poller believes everything to be armed. */
    if (atomic_load(&w->armed) && !hws__list_empty(&w->hot)) {
        hws__wake(w);
    }
    s->seen = atomic_load(&w->activity);
    return done;
}

void hws__stand_by(struct hws__worker *w, struct hws__standby *s)
{
    nap(w, s->nap);
    if (atomic_load(&w->obj.id) == 0 || hws__library_ending() || !neglected(w, s) ||
        !hws__own_try(w)) {
        s->nap = HWS__STANDBY_NS;
        return;
    }
    if (serve(w, s) != 0) {
        s->nap = SOON_NS;
    } else {
        s->nap = s->nap < LATE_NS / 2 ? 2 * s->nap : LATE_NS;
    }
    hws__own_release(w);
}
