#include "worker.h"
#include "acceptor.h"
#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "listener.h"
#include "multi.h"
#include "options.h"
#include "progress.h"
#include "quiet_thread.h"
#include "standby.h"
#include "stats_page.h"
#include "time.h"
#include "ucx_loader.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* How often the slow checks are made for a caller that makes progress without a pause. */
#define SLOW_NS 20000u

struct hws__worker *hws__worker_find(hws_id id, int32_t *error)
{
    return hws__obj_get(id, HWS_KIND_WORKER, error);
}

static void init_lists(struct hws__worker *w)
{
    struct hws__list *lists[] = {&w->hot,
                                 &w->ready_ops,
                                 &w->ready,
                                 &w->free_notices,
                                 &w->ops,
                                 &w->free_messages[0],
                                 &w->free_messages[1],
                                 &w->am_pending,
                                 &w->copying,
                                 &w->dropped,
                                 &w->multi_pending,
                                 &w->free_multis,
                                 &w->kept,
                                 &w->flushing,
                                 &w->uworkers,
                                 &w->spares,
                                 &w->endpoints,
                                 &w->listeners,
                                 &w->looks,
                                 &w->waiting,
                                 &w->dials,
                                 &w->attention,
                                 &w->bundles.list};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        hws__list_init(lists[i]);
    }
    hws__scope_init(&w->scope);
    hws__scope_init(&w->multi_scope);
    hws__scope_init(&w->address_scope);
    w->epfd = w->wakefd = w->timerfd = w->page_fd = -1;
    w->next_deadline = w->lost_due = UINT64_MAX;
}

static int32_t init_fds(struct hws__worker *w)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};

    w->epfd = epoll_create1(EPOLL_CLOEXEC);
    w->wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (w->epfd < 0 || w->wakefd < 0 || w->timerfd < 0 ||
        epoll_ctl(w->epfd, EPOLL_CTL_ADD, w->wakefd, &e) != 0 ||
        epoll_ctl(w->epfd, EPOLL_CTL_ADD, w->timerfd, &e) != 0) {
        return hws__fail_errno(errno, 0, "epoll: %s", strerror(errno));
    }
    atomic_store(&w->wakeable, true);
    return HWS_OK;
}

static int32_t copy_options(struct hws__worker *w, const hws_worker_opts *o)
{
    bool no_spares =
        o->spares == UINT32_MAX || (w->context->flags & HWS_CONTEXT_NO_SHARED_MEMORY) != 0;

    if (o->mode > HWS_PROGRESS_THREAD_POLLING ||
        (o->flags & ~(uint64_t)(HWS_WORKER_LATENCY | HWS_WORKER_STANDBY)) != 0) {
        return hws__fail(HWS_E_INVALID, 0, "mode %u, flags %#llx", o->mode,
                         (unsigned long long)o->flags);
    }
    w->mode = o->mode;
    w->spin_ns = o->spin_ns != 0 ? o->spin_ns : HWS__SPIN_NS;
    w->spares_wanted = no_spares ? 0 : o->spares != 0 ? o->spares : 1;
    w->multi_bytes_max = o->multi_bytes_max != 0 ? o->multi_bytes_max : UINT64_MAX;
    w->multi_count_max = o->multi_count_max != 0 ? o->multi_count_max : HWS__MULTI_COUNT;
    if (o->credit_bytes > HWS__CREDIT_BYTES_MAX) {
        return hws__fail(HWS_E_INVALID, 0, "credit_bytes is above 2^42 - 1024");
    }
    w->credit_bytes =
        o->credit_bytes != 0 ? (o->credit_bytes + 1023) & ~UINT64_C(1023) : HWS__CREDIT_BYTES;
    w->credit_messages = o->credit_messages == UINT32_MAX ? 0
                         : o->credit_messages != 0        ? o->credit_messages
                                                          : HWS__CREDIT_MESSAGES;
    hws__pool_init(&w->pool, o->pool_bytes == UINT64_MAX ? 0
                             : o->pool_bytes != 0        ? o->pool_bytes
                                                         : HWS__POOL_BYTES);
    w->thread_start = o->thread_start;
    w->thread_start_arg = o->thread_start_arg;
    snprintf(w->name, sizeof w->name, "%s", o->name != NULL ? o->name : "hawser");
    if (!hws__stats_page_open(w, o->flags & HWS_WORKER_LATENCY)) {
        return hws__fail(HWS_E_NO_MEMORY, 0, "histograms");
    }
    atomic_store_explicit(&w->timed, w->latency != NULL ? UINT32_MAX : 0, memory_order_relaxed);
    if (o->cpu_mask == NULL && o->cpu_words != 0) {
        return hws__fail(HWS_E_INVALID, 0, "cpu_mask is null, but cpu_words is %u", o->cpu_words);
    }
    if (o->cpu_mask != NULL && o->cpu_words != 0) {
        if ((w->cpu_mask = malloc(o->cpu_words * sizeof *w->cpu_mask)) == NULL) {
            return hws__fail(HWS_E_NO_MEMORY, 0, "CPU mask");
        }
        memcpy(w->cpu_mask, o->cpu_mask, o->cpu_words * sizeof *w->cpu_mask);
        w->cpu_words = o->cpu_words;
    }
    return hws__sink_set(&w->sink, &o->sink);
}

/* Whoever sleeps in the worker leaves before its descriptors go: closing them wakes nobody. */
static void release_sleepers(struct hws__worker *w)
{
    uint64_t one = 1;

    if (w->wakefd < 0) {
        return;
    }
    while (atomic_load(&w->sleepers) != w->dozing) {
        if (write(w->wakefd, &one, sizeof one) < 0 && errno != EAGAIN) {
            return;
        }
        sched_yield();
    }
}

/* What init and copying made, when opening fails or closing ends. */
static void free_parts(struct hws__worker *w)
{
    struct hws__list *n;

    while ((n = hws__list_pop(&w->free_notices)) != NULL) {
        free(hws__container(n, struct hws__notice, link));
    }
    for (int k = 0; k < 2; k++) {
        while ((n = hws__list_pop(&w->free_messages[k])) != NULL) {
            hws__obj_free(&hws__objects, &hws__container(n, struct hws__message, held)->obj);
        }
    }
    while ((n = hws__list_pop(&w->free_multis)) != NULL) {
        free(hws__container(n, struct hws__multi, link));
    }
    hws__pool_drain(&w->pool);
    free(w->multi_scratch);
    w->multi_scratch = NULL;
    w->multi_scratch_room = 0;
    for (uint32_t i = 0; i <= HWS_AM_ID_MAX; i++) {
        free(w->handlers[i]);
        w->handlers[i] = NULL;
    }
    hws__op_drain(w);
    hws__stats_page_close(w);
    free(w->heap);
    free(w->cpu_mask);
    w->heap = NULL;
    w->cpu_mask = NULL;
    release_sleepers(w);
    /* ORDER: seq_cst, see hws__wake(): nobody may write to a number that is somebody else's by then. */
    atomic_store(&w->wakeable, false);
    while (atomic_load(&w->waking) != 0) {
        sched_yield();
    }
    if (w->epfd >= 0) {
        close(w->epfd);
    }
    if (w->wakefd >= 0) {
        close(w->wakefd);
    }
    if (w->timerfd >= 0) {
        close(w->timerfd);
    }
    w->epfd = w->wakefd = w->timerfd = -1;
}

static int32_t open_main(struct hws__worker *w)
{
    struct hws__context *c = w->context;
    int32_t r;

    if ((r = hws__thread_room(c->obj.id)) < 0) {
        return r;
    }
    /* Where connections begin by TCP it has the device of each dial only, as who dials. It must look at all devices
     * where those come to it that do: UCX 1.13's peers, RDMA, and plain UCX peers of a context without shared
     * memory. */
    w->main = c->upgrades && !c->ucx_rma ? hws__uworker_create_tcp(c, HWS__MAIN)
                                         : hws__uworker_create(c, HWS__MAIN, c->ucx);
    if (w->main == NULL) {
        hws_error e = {.struct_size = sizeof e};
        hws_last_error(&e);
        return e.code;
    }
    w->max_header = w->main->max_header;
    if ((r = hws__uworker_adopt(w, w->main)) < 0) {
        hws__uworker_destroy(w->main);
        return r;
    }
    hws__acceptors_note(w->main);
    return HWS_OK;
}

/* Memory of a worker, owned, all zero but for what late comers still count in. */
static struct hws__worker *own_memory(void)
{
    struct hws__worker *w = (struct hws__worker *)(void *)hws__obj_alloc(
        &hws__objects, HWS_KIND_WORKER, sizeof *w, sizeof *w - sizeof w->obj);

    if (w == NULL) {
        return NULL;
    }
    while (!hws__own_try(w)) {
        sched_yield(); /* the last owner of this memory is on its way out */
    }
    if (atomic_load(&w->submissions) != NULL) {
        hws__submissions_run(w); /* of the last worker: they end as stale */
        hws__deliver_all(w);
    }
    hws__op_drain(w);
    atomic_store(&w->armed, false);
    memset((char *)(&w->obj + 1) + HWS__KEEP(struct hws__worker, signalled), 0,
           sizeof *w - offsetof(struct hws__worker, signalled));
    return w;
}

/* A worker that does not come to be. */
static void give_up(struct hws__worker *w)
{
    struct hws__context *c = w->context;

    free_parts(w);
    hws__obj_free(&hws__objects, &w->obj);
    hws__own_release(w);
    hws__context_worker_gone(c, 0);
}

int32_t hws_worker_open(hws_id context, const hws_worker_opts *opts, hws_id *out)
{
    struct hws__context *c;
    struct hws__worker *w;
    hws_worker_opts o;
    bool has_thread;
    hws_id id;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if (out == NULL) {
        return hws__fail(HWS_E_INVALID, context, "out is null");
    }
    if ((c = hws__context_find(context, &r)) == NULL ||
        (r = hws__options(&o, sizeof o, opts, "worker")) < 0 ||
        (r = hws__context_enter(c, context)) < 0) {
        return r;
    }
    if ((w = own_memory()) == NULL) {
        hws__context_worker_gone(c, 0);
        return hws__fail(hws__obj_missing(&hws__objects), context, "no worker is free");
    }
    w->context = c;
    init_lists(w);
    if ((r = init_fds(w)) < 0 || (r = copy_options(w, &o)) < 0 || (r = open_main(w)) < 0) {
        give_up(w);
        return r;
    }
    id = hws__obj_publish(&hws__objects, &w->obj);
    if (!hws__context_worker_add(c, id)) {
        hws__uworker_drop(w->main);
        give_up(w);
        return hws__fail(HWS_E_CLOSING, context, "the context is closing");
    }
    *out = id;
    hws__sink_feed(&w->sink, id);
    has_thread = w->mode >= HWS_PROGRESS_THREAD || (o.flags & HWS_WORKER_STANDBY);
    w->thread_running = has_thread;
    w->thread_of = id;
    hws__stats_page_announce(w, id);
    hws__own_release(w);
    return has_thread ? hws__thread_start(w, id) : HWS_OK;
}

static void close_command(struct hws__worker *w, void *arg)
{
    (void)arg;
    if (w->closing) {
        return;
    }
    w->closing = true;
    w->tick = HWS__TICK;
    w->dead_count++; /* what kept some is of no account from now on */
    w->todo = true;
    for (struct hws__list *n = w->listeners.next, *next; n != &w->listeners; n = next) {
        next = n->next;
        hws__listener_close(hws__container(n, struct hws__listener, link));
    }
    for (struct hws__list *n = w->endpoints.next, *next; n != &w->endpoints; n = next) {
        next = n->next;
        hws__endpoint_close(hws__container(n, struct hws__endpoint, link));
    }
}

void hws__worker_asked(struct hws__worker *w)
{
    atomic_store(&w->asked, false);
    if (hws__obj_asked(&w->obj) & HWS__ASKED_CLOSE) {
        close_command(w, NULL);
    }
    hws__endpoints_asked(w);
}

int32_t hws__worker_close(hws_id id)
{
    struct hws__worker *w;
    int32_t r = HWS_OK;
    bool nested = false;

    if ((w = hws__worker_find(id, &r)) == NULL) {
        return r;
    }
    if (!hws__own_try(w) && !(nested = hws__owned_outside(w))) {
        hws__ask(w, &w->obj, id, HWS__ASKED_CLOSE);
        return HWS_OK;
    }
    close_command(w, NULL);
    hws__disown(w, nested);
    if (!nested) {
        hws__wake(w);
    }
    return HWS_OK;
}

/* Operations of the worker itself end with it. */
static void end_ops(struct hws__worker *w)
{
    for (struct hws__list *n = w->ops.next, *next; n != &w->ops; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);

        next = n->next;
        if (op->stage == HWS__STAGE_MATCHING || op->stage == HWS__STAGE_OWN) {
            hws__op_finish(op, HWS_E_CANCELED);
        }
    }
}

/* Messages that nobody received, and buffers that nobody closed: they end with their worker. */
static void drop_messages(struct hws__worker *w)
{
    hws__messages_drop(w);
    while (!hws__list_empty(&w->kept)) {
        hws__message_release(hws__container(w->kept.next, struct hws__message, kept));
    }
    while (!hws__list_empty(&w->scope.arrived)) {
        hws__message_release(
            hws__container(w->scope.arrived.next, struct hws__message, order_worker));
    }
    while (!hws__list_empty(&w->multi_scope.arrived)) {
        hws__message_release(
            hws__container(w->multi_scope.arrived.next, struct hws__message, order_worker));
    }
}

bool hws__worker_step(struct hws__worker *w)
{
    hws_event e = {.kind = HWS_EVENT_CLOSED};
    struct hws__context *c = w->context;
    struct hws__list *n;
    hws_id id = w->obj.id;

    if (id == 0) {
        return true;
    }
    end_ops(w);
    if (atomic_load(&w->jobs) != 0) {
        hws__background_hurry(&c->background, w, NULL);
    }
    if (!hws__list_empty(&w->endpoints) || !hws__list_empty(&w->listeners) ||
        !hws__list_empty(&w->ops) || atomic_load(&w->jobs) != 0 ||
        !hws__list_empty(&w->ready_ops) || !hws__list_empty(&w->ready) ||
        atomic_load(&w->submissions) != NULL || hws__in_callback()) {
        w->tick = HWS__TICK;
        return false;
    }
    drop_messages(w);
    while ((n = hws__list_pop(&w->spares)) != NULL) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        hws__uworker_destroy(u);
        hws__isolated_unreserve(c);
    }
    if (!hws__list_empty(&w->uworkers)) {
        w->main = w->tcp = NULL;
        memset(w->addressed, 0, sizeof w->addressed);
        while (!hws__list_empty(&w->uworkers)) {
            hws__uworker_retire(hws__container(w->uworkers.next, struct hws__uworker, link));
        }
        return false; /* they come back as commands once they are destroyed */
    }
    e.source = id;
    hws__emit(w, &w->sink, &e, NULL);
    hws__deliver_all(w);
    hws__obj_hide(&w->obj);
    if (w->thread_running) {
        hws__standby_wake(w);
        hws__wake(w);
        return true; /* the thread ends, see hws__worker_ended() */
    }
    hws__worker_ended(w, id);
    return true;
}

void hws__worker_ended(struct hws__worker *w, hws_id id)
{
    struct hws__context *c = w->context;

    /* ORDER: the id is gone; a submitter enqueues, then looks at the id: one of both sees it. */
    atomic_thread_fence(memory_order_seq_cst);
    hws__submissions_run(w);
    hws__deliver_all(w);
    hws__stats_retire(w);
    free_parts(w);
    hws__obj_free(&hws__objects, &w->obj);
    hws__context_worker_gone(c, id);
}

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
