#include "bundle.h"
#include "am.h"
#include "bundle_record.h"
#include "endpoint.h"
#include "error.h"
#include "exit.h"
#include "hello.h"
#include "job.h"
#include "progress.h"
#include "tag.h"
#include "time.h"
#include "ucx_loader.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct bundle_memory {
    struct hws__uworker *u; /* that sends it */
    char data[HWS__BUNDLE_BYTES];
};

/* ---- Sending --------------------------------------------------------------------------------- */

/* Perhaps on the background thread, where the UCX worker is destroyed. */
static void sent(void *request, ucs_status_t status, void *user_data)
{
    struct bundle_memory *m = user_data;

    (void)status; /* an error of the endpoint is reported by its handler */
    m->u->bundles_held--;
    free(m);
    hws__ucx.ucp_request_free(request);
}

/* It is sent, or never will be. */
static void leave(struct hws__endpoint *ep)
{
    struct hws__bundles *all = &ep->worker->bundles;

    hws__list_remove(&ep->bundle.link);
    ep->bundle.used = 0;
    if (hws__list_empty(&all->list)) {
        atomic_store_explicit(&all->waiting, false, memory_order_relaxed);
    }
}

static void bundle_send(struct hws__endpoint *ep)
{
    struct bundle_memory *m = ep->bundle.memory;
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                             UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                                             UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                             .flags = UCP_AM_SEND_FLAG_EAGER | ep->send_flags,
                             .memory_type = UCS_MEMORY_TYPE_HOST,
                             .cb.send = sent,
                             .user_data = m};
    uint32_t used = ep->bundle.used;
    ucs_status_ptr_t r;

    leave(ep);
    m->u = ep->uworker;
    r = hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_BUNDLE, NULL, 0, m->data, used, &p);
    if (UCS_PTR_IS_PTR(r)) {
        m->u->bundles_held++;
        ep->bundle.memory = NULL;
    } else if (UCS_PTR_IS_ERR(r)) {
        /* Their sends have ended well: the program must hear of it. */
        hws__endpoint_fail(ep, hws__from_ucx(UCS_PTR_STATUS(r)), "UCX refused messages: %s",
                           hws__ucx.ucs_status_string(UCS_PTR_STATUS(r)));
    }
    hws__uworker_heat(ep->uworker);
}

void hws__bundles_send_all(struct hws__bundles *all)
{
    while (!hws__list_empty(&all->list)) {
        bundle_send(hws__container(all->list.next, struct hws__endpoint, bundle.link));
    }
}

void hws__bundle_drop(struct hws__endpoint *ep)
{
    leave(ep);
    free(ep->bundle.memory);
    ep->bundle.memory = NULL;
}

/* ---- Programs that make no progress ---------------------------------------------------------- */

/* The watch is over. A worker that is closing waits for that, and may sleep; `waking` keeps it until it has heard. */
static void leave_watch(struct hws__worker *w)
{
    atomic_fetch_add(&w->waking, 1);
    atomic_fetch_sub(&w->jobs, 1);
    if (atomic_load(&w->closing)) {
        hws__wake(w);
    }
    atomic_fetch_sub(&w->waking, 1);
}

/* Whether the watch is over. If a bundle begins just then, either side sees the other's mark. */
static bool ends(struct hws__worker *w)
{
    if (atomic_load(&w->bundles.waiting)) {
        return false;
    }
    atomic_store(&w->watched, false);
    return !atomic_load(&w->bundles.waiting) || atomic_exchange(&w->watched, true);
}

/* On the background thread: nobody has sent it since the last look. */
static void send_for(struct hws__worker *w)
{
    hws__ucx_begin();
    atomic_store(&w->visited, true);
    if (hws__own_try(w)) {
        hws__bundles_send(&w->bundles);
        hws__own_release(w);
    }
    atomic_store(&w->visited, false);
    hws__ucx_end();
}

bool hws__own_after_watch(struct hws__worker *w)
{
    if (!atomic_load(&w->watched)) {
        return false;
    }
    while (atomic_load(&w->visited)) {
        sched_yield();
    }
    return hws__own_try(w);
}

static void run_watch(struct hws__job *job)
{
    struct hws__worker *w = hws__container(job, struct hws__worker, bundles.watch);
    struct hws__bundles *all = &w->bundles;
    uint32_t begun = atomic_load(&all->begun);

    if (ends(w)) {
        leave_watch(w);
        return;
    }
    /* Taking the worker costs its owner more than a look does. */
    if (begun == all->looked) {
        send_for(w);
    }
    all->looked = begun;
    if (!hws__background_later(&w->context->background, job, HWS__BUNDLE_NS)) {
        atomic_store(&w->watched, false);
        leave_watch(w);
    }
}

/* Where a thread of the library makes progress it is woken instead. */
static bool order_watch(struct hws__worker *w)
{
    struct hws__job *job = &w->bundles.watch;

    if (w->mode > HWS_PROGRESS_BLOCKING || atomic_exchange(&w->watched, true)) {
        return true;
    }
    job->run = run_watch;
    if (!hws__job_order(w, &w->context->background, job, HWS__BUNDLE_NS)) {
        atomic_store(&w->watched, false);
        return false;
    }
    return true;
}

/* The time of now, in the burst. */
static void take_time(struct hws__bundles *all)
{
    all->timed_at = hws__now();
    all->timed_burst = all->burst;
}

/* Whether one message has followed the other since the time was taken. Else the burst is over; another may begin. */
static bool is_burst(const struct hws__endpoint *ep)
{
    struct hws__bundles *all = &ep->worker->bundles;
    uint64_t gap = ep->uworker->shm ? HWS__BUNDLE_GAP_NS : HWS__BUNDLE_GAP_TCP_NS;
    uint64_t before = all->timed_at;
    uint64_t count = all->burst - all->timed_burst;
    /* Not where the message that should have taken it was a raw endpoint's, which counts but has no bundles. */
    bool timed = all->timed_burst < all->burst;

    take_time(all);
    if (!timed || all->timed_at - before > count * gap) {
        hws__bundles_send(all); /* before what goes on its own */
        all->burst = 1;         /* this one, which may be the first of the next */
        return false;
    }
    return true;
}

/*
 * The background thread sends what waits when no bundle has begun for a while: it does not see that one waits long
 * while those of other endpoints come and go.
 */
static void send_old(struct hws__bundles *all)
{
    if (all->timed_at - all->since > HWS__BUNDLE_NS) {
        hws__bundles_send(all);
        all->since = all->timed_at;
    }
}

/* The first message of a bundle. False: it must go at once. */
static bool begin(struct hws__endpoint *ep)
{
    struct hws__worker *w = ep->worker;
    struct hws__bundles *all = &w->bundles;

    if (!is_burst(ep)) {
        return false;
    }
    send_old(all);
    if (ep->uworker->bundles_held >= HWS__BUNDLES_HELD || w->closing) {
        return false;
    }
    if (ep->bundle.memory == NULL &&
        (ep->bundle.memory = malloc(sizeof *ep->bundle.memory)) == NULL) {
        return false;
    }
    hws__list_append(&all->list, &ep->bundle.link);
    atomic_store_explicit(&all->begun, atomic_load_explicit(&all->begun, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store(&all->waiting, true);
    if (!order_watch(w)) {
        leave(ep);
        return false;
    }
    w->todo = true;
    if (hws__asleep(w)) {
        hws__wake(w);
    }
    return true;
}

bool hws__bundle_add(struct hws__endpoint *ep, uint32_t kind, uint64_t tag, const void *data,
                     uint64_t length)
{
    struct hws__bundle *b = &ep->bundle;
    struct hws__record *r;

    if (ep->worker->bundles.burst <= HWS__BUNDLE_AFTER) {
        if (ep->worker->bundles.burst == HWS__BUNDLE_TIMED) {
            take_time(&ep->worker->bundles);
        }
        return false;
    }
    if (b->used != 0 &&
        (length > HWS__BUNDLE_MESSAGE || b->used + hws__record_bytes(length) > HWS__BUNDLE_BYTES)) {
        bundle_send(ep);
    }
    if (length > HWS__BUNDLE_MESSAGE || (b->used == 0 && !begin(ep))) {
        return false;
    }
    r = (struct hws__record *)(void *)(b->memory->data + b->used);
    *r = (struct hws__record){.tag = tag, .length = (uint32_t)length, .kind = kind};
    if (length != 0) {
        memcpy(r + 1, data, length);
    }
    b->used += hws__record_bytes(length);
    return true;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Callbacks that take long: those of the other messages come after the sweep, where they take turns with all else. */
static void look_at_calls(struct hws__worker *w)
{
    if (hws__calls_due(w)) {
        hws__calls_look(w);
        w->todo |= w->calls_slow;
    }
}

ucs_status_t hws__bundle_cb(void *arg, const void *header, size_t header_length, void *data,
                            size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    struct hws__endpoint *ep = hws__am_sender(u, param);
    char *at = data;
    struct hws__record r;
    size_t n;

    (void)header;
    if (ep == NULL || !ep->hello_done || header_length != 0 ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        HWS__COUNT(u->worker, am_dropped, 1);
        return UCS_OK;
    }
    for (; ep->hello_done && (n = hws__record_at(&r, at, length)) != 0; at += n, length -= n) {
        if (r.kind == HWS_EVENT_TAG_SEND) {
            n = hws__tag_bundled(ep, u, &r, at, length);
        } else if (r.kind == HWS_EVENT_AM_SEND && r.tag <= HWS_AM_ID_MAX) {
            hws__am_arrived(u, ep, (uint32_t)r.tag, NULL, 0, at + sizeof r, r.length, 0);
            look_at_calls(u->worker);
        } else {
            break;
        }
    }
    if (length != 0) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "messages that are none");
    }
    return UCS_OK;
}
