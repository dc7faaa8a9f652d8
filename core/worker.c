/*
 * A worker opens: its lists, descriptors, options and main UCX worker.
 */
#include "worker.h"
#include "acceptor.h"
#include "error.h"
#include "guard.h"
#include "multi.h"
#include "options.h"
#include "own.h"
#include "progress.h"
#include "quiet_thread.h"
#include "stats_page.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

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
    w->main = c->upgrades && !c->ucx_rma ? hws__uworker_create_tcp(c, HWS__MAIN, false)
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

    hws__worker_free_parts(w);
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
