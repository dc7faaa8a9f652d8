/*
 * A worker closes: its listeners and endpoints first, then what is left, and last its memory.
 */
#include "isolated.h"
#include "worker.h"
#include "endpoint.h"
#include "listener.h"
#include "multi.h"
#include "own.h"
#include "progress.h"
#include "reserve.h"
#include "standby.h"
#include "time.h"
#include "ucx_loader.h"
#include "stats_page.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A UCX worker that still fetches then is left as it is, see uworker.c. */
#define FETCH_PATIENCE UINT64_C(1000000000)

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

static void close_fds(struct hws__worker *w)
{
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

void hws__worker_free_parts(struct hws__worker *w)
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
    hws__reserve_spend(w);
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
    close_fds(w);
}

static void close_command(struct hws__worker *w, void *arg)
{
    (void)arg;
    if (w->closing) {
        return;
    }
    hws__submissions_catch_up(w); /* a close completes what was posted before it */
    w->closing = true;
    w->closing_since = hws__now();
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
    if (atomic_load(&w->obj.id) == id) {
        close_command(w, NULL);
    } else {
        r = hws__id_error(&hws__objects, id, HWS_KIND_WORKER);
    }
    hws__disown(w, nested);
    if (!nested) {
        hws__wake(w);
    }
    return r;
}

/* Whether messages from plain UCX programs are being fetched for handlers, for whose end UCX 1.13 needs the peer. */
static bool fetching(const struct hws__worker *w)
{
    bool any = false;

    if (!hws__ucx_at_least(1, 22)) {
        for (struct hws__list *n = w->uworkers.next; n != &w->uworkers; n = n->next) {
            struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

            any |= u->raw && !hws__list_empty(&u->fetching);
        }
    }
    return any && hws__now() < w->closing_since + FETCH_PATIENCE;
}

/* Operations of the worker itself end with it. */
static void end_ops(struct hws__worker *w)
{
    for (struct hws__list *n = w->ops.next, *next; n != &w->ops; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);

        next = n->next;
        if (op->stage == HWS__STAGE_MATCHING || op->stage == HWS__STAGE_COMING ||
            op->stage == HWS__STAGE_OWN) {
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
        atomic_load(&w->submissions) != NULL || hws__in_callback() || fetching(w)) {
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
    hws__worker_free_parts(w);
    hws__obj_free(&hws__objects, &w->obj);
    hws__context_worker_gone(c, id);
}
