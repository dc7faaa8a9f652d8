/*
 * Progress by the program's own loop: made, slept on by a descriptor, and woken.
 */
#include "worker.h"
#include "error.h"
#include "guard.h"
#include "own.h"
#include "progress.h"
#include "time.h"

/* How often the slow checks are made for a caller that makes progress without a pause. */
#define SLOW_NS 20000u

/*
 * The caller's pace is not known: the slow checks come by the clock, which is read now and then. They ask the
 * kernel for cold UCX workers with work, as long as a message takes: too much for each few idle calls.
 */
static bool slow_due(struct hws__worker *w)
{
    if (w->tick >= HWS__TICK) {
        return true; /* asked for */
    }
    if ((w->tick += 32) < HWS__TICK) {
        return false;
    }
    if (hws__now() - w->slow_at >= SLOW_NS) {
        return true;
    }
    w->tick = 0;
    return false;
}

int32_t hws_worker_progress(hws_id id)
{
    struct hws__worker *w;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((w = hws__worker_find(id, &r)) == NULL) {
        return r;
    }
    if (hws__in_callback()) {
        return hws__fail(HWS_E_DEADLOCK, id, "progress inside a callback");
    }
    if (!hws__own_try(w) && !hws__own_after_watch(w)) {
        return hws__fail(HWS_E_BUSY, id, "another thread makes progress");
    }
    if (atomic_load_explicit(&w->obj.id, memory_order_relaxed) != id) {
        hws__own_release(w);
        return hws__id_error(&hws__objects, id, HWS_KIND_WORKER);
    }
    if (atomic_load_explicit(&w->armed, memory_order_relaxed)) {
        atomic_store(&w->armed, false);
        hws__wakefd_drain(w);
        w->tick = HWS__TICK;
    }
    r = hws__sweep(w);
    /* With work too: there may always be some. */
    if (slow_due(w) || (r > 0 && hws__calls_took_long(w))) {
        r += hws__slow(w);
    }
    hws__hand_over(w);
    hws__own_release(w);
    hws__let_in(w);
    return r;
}

int32_t hws_worker_fd(hws_id id, int32_t *fd)
{
    struct hws__worker *w;
    int32_t r = HWS_OK;
    int epfd;

    HWS__ENTER();
    if ((w = hws__worker_find(id, &r)) == NULL) {
        return r;
    }
    if (fd == NULL) {
        return hws__fail(HWS_E_INVALID, id, "fd is null");
    }
    if (w->mode == HWS_PROGRESS_THREAD_POLLING) {
        return hws__fail(HWS_E_MODE, id, "a polling worker has no descriptor");
    }
    epfd = atomic_load(&w->epfd);
    if (epfd < 0 || atomic_load(&w->obj.id) != id) { /* closed just now by another thread */
        return hws__fail(HWS_E_STALE, id, "the worker is gone");
    }
    *fd = epfd;
    return HWS_OK;
}

int32_t hws_worker_arm(hws_id id)
{
    struct hws__worker *w;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((w = hws__worker_find(id, &r)) == NULL) {
        return r;
    }
    if (hws__in_callback()) {
        return hws__fail(HWS_E_DEADLOCK, id, "arm inside a callback");
    }
    if (w->mode == HWS_PROGRESS_THREAD_POLLING) {
        return hws__fail(HWS_E_MODE, id, "a polling worker is never armed");
    }
    if (!hws__own_try(w)) {
        return hws__fail(HWS_E_BUSY, id, "another thread makes progress");
    }
    if (atomic_load(&w->obj.id) != id) {
        hws__own_release(w);
        return hws__id_error(&hws__objects, id, HWS_KIND_WORKER);
    }
    r = hws__arm(w);
    hws__own_release(w);
    return r == HWS_OK ? r : hws__fail(r, id, "there is work");
}

int32_t hws_worker_signal(hws_id id)
{
    struct hws__worker *w;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((w = hws__worker_find(id, &r)) == NULL) {
        return r;
    }
    atomic_fetch_add(&w->pokes, 1);
    hws__wake_waiters(w);
    hws__wake(w);
    return HWS_OK;
}
