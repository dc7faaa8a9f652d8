#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "listener.h"
#include "memory.h"
#include "plan.h"
#include "progress.h"
#include "queue.h"
#include "rkey.h"
#include "time.h"
#include <time.h>

/* hws_close_wait(): looks before it sleeps between them, and for how long. */
#define SPINS 1000
#define NAP_NS 100000

static void listener_command(struct hws__worker *w, void *arg)
{
    struct hws__listener *l = hws__obj_find(&hws__objects, (hws_id)(uintptr_t)arg);

    if (l != NULL && l->worker == w) {
        hws__listener_close(l);
    }
}

static void message_command(struct hws__worker *w, void *arg)
{
    struct hws__message *m = hws__obj_find(&hws__objects, (hws_id)(uintptr_t)arg);

    if (m != NULL && m->worker == w) {
        hws__message_release(m);
    }
}

/* Inside a callback, where messages are closed as a rule, it is found once. */
static int32_t close_message(struct hws__message *m, hws_id id)
{
    struct hws__worker *w = m->worker;

    if (!hws__owned(w)) {
        return hws__on_worker(w, message_command, id);
    }
    if (atomic_load_explicit(&m->obj.id, memory_order_relaxed) != id) {
        return hws__id_error(&hws__objects, id, 0);
    }
    hws__message_release(m);
    return HWS_OK;
}

static void op_command(struct hws__worker *w, void *arg)
{
    hws_id id = (hws_id)(uintptr_t)arg;
    struct hws__op *op = hws__op_find_open(w, id);

    if (op != NULL && op->stage != HWS__STAGE_ENDED) {
        atomic_fetch_or(&op->flags, HWS_OP_DETACHED);
        return;
    }
    op = hws__op_find(id);
    if (op != NULL && op->worker == w && hws__op_claim(op, id)) {
        hws__op_unclaimed(op);
        hws__op_release(op);
    }
}

static void rkey_command(struct hws__worker *w, void *arg)
{
    struct hws__rkey *k = hws__obj_find(&hws__objects, (hws_id)(uintptr_t)arg);

    if (k != NULL && k->worker == w) {
        hws__rkey_close(k);
    }
}

static void plan_command(struct hws__worker *w, void *arg)
{
    struct hws__obj *o = hws__obj_find(&hws__objects, (hws_id)(uintptr_t)arg);

    if (o != NULL && hws__plan_worker(o) == w) {
        hws__plan_close(o);
    }
}

static int32_t close_op(hws_id id)
{
    struct hws__op *op = hws__op_find(id);

    if (op == NULL) {
        return hws__op_id_error(id);
    }
    if (op->callback != NULL || op->queue != NULL) {
        return hws__fail(HWS_E_INVALID, id, "the result goes to a callback or a queue");
    }
    return hws__on_worker(op->worker, op_command, id);
}

int32_t hws_close(hws_id id)
{
    struct hws__obj *o;

    HWS__ENTER();
    switch (hws__id_kind(id)) {
    case HWS_KIND_BUFFER:
    case HWS_KIND_MESSAGE:
        return (o = hws__obj_find(&hws__objects, id)) != NULL
                   ? close_message((struct hws__message *)(void *)o, id)
                   : hws__id_error(&hws__objects, id, 0);
    case HWS_KIND_CONTEXT:
        return hws__context_close(id);
    case HWS_KIND_WORKER:
        return hws__worker_close(id);
    case HWS_KIND_ENDPOINT:
        return hws__endpoint_close_id(id);
    case HWS_KIND_QUEUE:
        return hws__queue_close(id);
    case HWS_KIND_OP:
        return close_op(id);
    case HWS_KIND_MEMORY:
        return hws__memory_close(id);
    default:
        break;
    }
    if ((o = hws__obj_find(&hws__objects, id)) == NULL) {
        return hws__id_error(&hws__objects, id, 0);
    }
    if (hws__id_kind(id) == HWS_KIND_LISTENER) {
        return hws__on_worker_outside(((struct hws__listener *)(void *)o)->worker, listener_command,
                                      id);
    }
    if (hws__id_kind(id) == HWS_KIND_PLAN) {
        return hws__on_worker(hws__plan_worker(o), plan_command, id);
    }
    return hws__on_worker(((struct hws__rkey *)(void *)o)->worker, rkey_command, id);
}

static uint32_t all_workers(struct hws__context *c, hws_id *out, uint32_t room)
{
    uint32_t n;

    pthread_mutex_lock(&c->lock);
    n = c->worker_count < room ? c->worker_count : room;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = c->workers[i];
    }
    pthread_mutex_unlock(&c->lock);
    return n;
}

/* The workers whose progress brings the end of an object nearer. */
static uint32_t workers_of(hws_id id, hws_id *out, uint32_t room)
{
    struct hws__obj *o = hws__obj_find(&hws__objects, id);

    if (o == NULL) {
        return 0;
    }
    switch (hws__id_kind(id)) {
    case HWS_KIND_CONTEXT:
        return all_workers((struct hws__context *)(void *)o, out, room);
    case HWS_KIND_MEMORY:
        return all_workers(((struct hws__memory *)(void *)o)->context, out, room);
    case HWS_KIND_WORKER:
        out[0] = id;
        return 1;
    case HWS_KIND_ENDPOINT:
        out[0] = atomic_load(&((struct hws__endpoint *)(void *)o)->worker->obj.id);
        return 1;
    case HWS_KIND_LISTENER:
        out[0] = atomic_load(&((struct hws__listener *)(void *)o)->worker->obj.id);
        return 1;
    default:
        return 0;
    }
}

/* Most closing takes microseconds; what waits for a peer must not use up a core. */
static void give_way(uint32_t rounds)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};

    if (rounds < SPINS) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

static int32_t wait_until_closed(hws_id id, uint64_t end)
{
    hws_id workers[64];

    for (uint32_t rounds = 0; hws__obj_find(&hws__objects, id) != NULL; rounds++) {
        uint32_t n = workers_of(id, workers, 64);

        for (uint32_t i = 0; i < n; i++) {
            struct hws__worker *w = hws__obj_find(&hws__objects, workers[i]);

            if (w == NULL) {
                continue;
            }
            if (hws__own_try(w)) {
                /* What is cold, and the steps of closing, must be looked at at once: also when others
                 * keep the sweeps busy. */
                hws__sweep(w);
                hws__slow(w);
                hws__hand_over(w);
                hws__own_release(w);
            }
        }
        if (hws__library_ending()) {
            return hws__fail(HWS_E_CLOSING, id, "the process is ending");
        }
        if (end != UINT64_MAX && hws__now() >= end) {
            return hws__fail(HWS_E_TIMED_OUT, id, "closing goes on");
        }
        give_way(rounds);
    }
    return HWS_OK;
}

int32_t hws_close_wait(hws_id id, uint64_t timeout_ns)
{
    uint64_t end = hws__deadline(timeout_ns == HWS_FOREVER ? 0 : hws__now(), timeout_ns);
    int32_t r;
    int state;

    HWS__ENTER();
    if (hws__in_callback()) {
        return hws__fail(HWS_E_DEADLOCK, id, "hws_close_wait inside a callback");
    }
    if ((r = hws_close(id)) < 0) {
        return r;
    }
    state = hws__uncancellable();
    r = wait_until_closed(id, end);
    pthread_setcancelstate(state, NULL);
    return r;
}

int32_t hws_user_set(hws_id id, uint64_t user)
{
    struct hws__obj *o;

    HWS__ENTER();
    if ((o = hws__obj_find(&hws__objects, id)) == NULL) {
        return hws__id_error(&hws__objects, id, 0);
    }
    atomic_store(&o->user, user);
    return HWS_OK;
}

int32_t hws_user_get(hws_id id, uint64_t *user)
{
    struct hws__obj *o;

    HWS__ENTER();
    if ((o = hws__obj_find(&hws__objects, id)) == NULL) {
        return hws__id_error(&hws__objects, id, 0);
    }
    if (user == NULL) {
        return hws__fail(HWS_E_INVALID, id, "user is null");
    }
    *user = atomic_load(&o->user);
    return HWS_OK;
}

int32_t hws_kind(hws_id id)
{
    HWS__ENTER();
    if (hws__id_kind(id) == HWS_KIND_OP) {
        return hws__op_find(id) != NULL ? HWS_KIND_OP : hws__op_id_error(id);
    }
    return hws__obj_find(&hws__objects, id) != NULL ? (int32_t)hws__id_kind(id)
                                                    : hws__id_error(&hws__objects, id, 0);
}
