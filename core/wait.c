#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "progress.h"
#include "time.h"
#include "turn.h"
#include <stdio.h>
#include <stdlib.h>

/** What a wait looks at. */
struct wait {
    struct hws__worker *worker;
    bool (*over)(struct wait *);
    uint64_t end; /* the deadline */
    struct hws__op *op;
    struct hws__op **ops;
    hws_id id;         /* of the operation, or of the worker */
    const hws_id *ids; /* of the operations */
    uint32_t count, mode;
    uint64_t done;  /* hws_worker_wait(): how much was done */
    uint32_t pokes; /* hws_worker_wait(): of the worker when it began */
};

/* Also when somebody else has taken the result: hws__op_claim() tells. */
static bool op_ended(const struct hws__op *op, hws_id id)
{
    return atomic_load_explicit(&op->done, memory_order_acquire) == HWS__ENDED ||
           atomic_load_explicit(&op->id, memory_order_relaxed) != id;
}

/* How much work is done between looks at the clock: there may always be some. */
#define BUSY_LOOK 256u

/* Let another waiter have this core, and the worker. Whether the worker is still to be had. */
static bool give_way(struct hws__worker *w)
{
    hws__hand_over(w);
    hws__own_release(w);
    sched_yield();
    return hws__own_try(w);
}

/* Progress as the owner until it is over, late, or somebody needs the worker or has got it. False: late. */
static bool wait_as_owner(struct wait *t)
{
    struct hws__worker *w = t->worker;
    uint64_t start = 0;
    uint32_t empty = 0, busy = 0;

    while (!t->over(t)) {
        int done = hws__progress(w);

        t->done += (uint64_t)done;
        if (atomic_load_explicit(&w->obj.want, memory_order_relaxed) != 0) {
            return true;
        }
        if (done != 0) {
            start = 0;
            empty = 0;
            busy += (uint32_t)done;
            if (busy >= BUSY_LOOK || w->calls_slow) {
                busy = 0;
                if (t->end != UINT64_MAX && hws__now() >= t->end) {
                    return false;
                }
            }
            continue;
        }
        if (++empty % 32 != 0) {
            continue;
        }
        if (!hws__turn_over(w)) {
            hws__spin_yield(w);
        } else if (!give_way(w)) {
            return t->end == UINT64_MAX || hws__now() < t->end;
        }
        if (empty % 256 == 0) {
            uint64_t now = hws__now();

            start = start == 0 ? now : start;
            if (now >= t->end) {
                return false;
            }
            if (now - start >= w->spin_ns) {
                t->done += (uint64_t)hws__sleep(w, t->end - now, -1);
                start = 0;
            }
        }
    }
    return true;
}

/* Somebody else makes progress: wait for the result, or for the owner to leave. */
static void wait_beside_owner(struct wait *t)
{
    struct hws__worker *w = t->worker;
    uint32_t baton, pending = HWS__PENDING;
    uint64_t left;

    for (int i = 0; i < 64; i++) {
        if (t->over(t) || atomic_load_explicit(&w->obj.owner, memory_order_relaxed) == 0) {
            return;
        }
        if (i % 8 == 7 || hws__turn_over(w)) {
            sched_yield();
        } else {
            hws__pause();
        }
    }
    atomic_fetch_add(&w->baton_sleepers, 1);
    baton = atomic_load(&w->baton);
    if (t->op != NULL) {
        atomic_compare_exchange_strong(&t->op->done, &pending, HWS__SLEPT_ON);
    }
    for (uint32_t i = 0; i < t->count; i++) {
        pending = HWS__PENDING;
        if (t->ops[i] != NULL) {
            atomic_compare_exchange_strong(&t->ops[i]->done, &pending, HWS__SLEPT_ON);
        }
    }
    left = hws__left(t->end);
    if (!t->over(t) && atomic_load(&w->obj.owner) != 0) {
        hws__futex_wait(&w->baton, baton, left < HWS__LOOK_NS ? left : HWS__LOOK_NS);
    }
    atomic_fetch_sub(&w->baton_sleepers, 1);
}

/* Who counts itself as a sleeper only now still sees, by the baton, that it must look again. */
static void wake_sleepers(struct hws__worker *w, int32_t count)
{
    atomic_fetch_add(&w->baton, 1);
    if (atomic_load(&w->baton_sleepers) != 0) {
        hws__turn_woken(w);
        hws__futex_wake(&w->baton, count);
    }
}

/* Leave: another waiter, or the progress thread where it parked for long, takes over. */
void hws__wait_leave(struct hws__worker *w)
{
    if (atomic_fetch_sub(&w->waiters, 1) > 1) {
        wake_sleepers(w, 1);
    } else if (atomic_load_explicit(&w->thread_parked, memory_order_relaxed) == 2) {
        atomic_store(&w->thread_parked, 0);
        hws__futex_wake(&w->thread_parked, 1);
    }
}

void hws__wake_waiters(struct hws__worker *w)
{
    wake_sleepers(w, INT32_MAX);
}

/* Wait until it is over or late. */
static void wait_run(struct wait *t, uint64_t timeout_ns)
{
    struct hws__worker *w = t->worker;
    int state;

    if (timeout_ns == 0) {
        if (hws__own_try(w)) {
            t->done += (uint64_t)hws__progress(w);
            hws__own_release(w);
        }
        return;
    }
    t->end = hws__deadline(timeout_ns == HWS_FOREVER ? 0 : hws__now(), timeout_ns);
    state = hws__uncancellable();
    hws__wait_enter(w);
    while (!t->over(t)) {
        bool go_on = true;

        if (hws__own_try(w)) {
            go_on = wait_as_owner(t);
            if (hws__owned(w)) {
                hws__hand_over(w);
                hws__own_release(w);
            }
            if (atomic_load_explicit(&w->obj.want, memory_order_relaxed) != 0) {
                hws__let_in(w);
                go_on = go_on && (t->end == UINT64_MAX || hws__now() < t->end);
            }
        } else {
            wait_beside_owner(t);
            go_on = !hws__library_ending() && (t->end == UINT64_MAX || hws__now() < t->end);
        }
        if (!go_on) {
            break;
        }
    }
    hws__wait_leave(w);
    pthread_setcancelstate(state, NULL);
}

static _Thread_local char detail_text[96];

/* The final event of a claimed operation; its text is copied, so that it outlives it. */
static void result(const struct hws__op *op, hws_id id, hws_event *event)
{
    if (op->detail != NULL) {
        snprintf(detail_text, sizeof detail_text, "%s", op->detail);
    }
    if (event != NULL) {
        hws__op_event(op, event);
        event->op = id;
        if (op->detail != NULL) {
            event->detail = detail_text;
        }
    }
}

/* Take the result of an ended operation: its status. False: somebody else was faster. */
static bool take(struct hws__op *op, hws_id id, hws_event *event, int32_t *status)
{
    struct hws__worker *w;

    if (!hws__op_claim(op, id)) {
        return false;
    }
    w = op->worker;
    *status = op->status;
    result(op, id, event);
    if (event == NULL && hws__op_carries(op)) {
        bool nested = hws__own(w);

        hws__op_unclaimed(op);
        hws__disown(w, nested);
    }
    if (hws__own_try(w)) {
        hws__op_release(op);
        hws__own_release(w);
    } else {
        hws__op_release_any(op);
    }
    return true;
}

/* The operation of an id, if it can be waited for. */
static struct hws__op *waitable(hws_id id, int32_t *error)
{
    struct hws__op *op = hws__op_find(id);

    if (op == NULL) {
        *error = hws__op_id_error(id);
    } else if (op->callback != NULL || op->queue != NULL || (op->flags & HWS_OP_DETACHED)) {
        *error = hws__fail(HWS_E_INVALID, id, "the result goes to a callback, a queue or nowhere");
        op = NULL;
    } else if (hws__in_callback()) {
        *error = hws__fail(HWS_E_DEADLOCK, id, "a wait inside a callback");
        op = NULL;
    }
    return op;
}

static bool one_over(struct wait *t)
{
    return op_ended(t->op, t->id);
}

/* Sweeps of the first, quick part of a wait: a few microseconds without a look at the clock. */
#define QUICK 256

/*
 * Progress as the owner for a short time; true if the operation ended: its result is taken. The end is
 * not made known to others then, which spares both sides an exchange: the owner sees it by the stage.
 */
static bool wait_quick(struct hws__op *op, hws_id id, hws_event *event, int32_t *status)
{
    struct hws__worker *w = op->worker;
    bool ended = false;

    if (op_ended(op, id) || !hws__own_try(w)) {
        return false;
    }
    w->taking = id;
    for (int i = 0; i < QUICK && !ended && !w->calls_slow; i++) {
        hws__progress(w);
        ended = op_ended(op, id) || op->stage == HWS__STAGE_ENDED;
    }
    w->taking = 0;
    /* Otherwise it ended before, or somebody made it forgotten. */
    ended = ended && !op_ended(op, id);
    if (ended) {
        *status = op->status;
        if (event != NULL || op->status < 0) {
            result(op, id, event);
        } else if (hws__op_carries(op)) {
            hws__op_unclaimed(op);
        }
        hws__op_release(op);
        if (atomic_load_explicit(&w->waiters, memory_order_relaxed) != 0) {
            hws__wake_waiters(w);
        }
    }
    hws__hand_over(w);
    hws__own_release(w);
    hws__let_in(w);
    return ended;
}

static int32_t outcome(hws_id id, int32_t status, hws_event *event)
{
    return event != NULL || status >= 0 ? HWS_OK : hws__fail(status, id, "%s", detail_text);
}

/* However long it takes, whoever makes progress. */
static __attribute__((noinline)) int32_t wait_long(struct hws__op *op, hws_id id,
                                                   uint64_t timeout_ns, hws_event *event)
{
    struct wait t = {.over = one_over, .op = op, .id = id, .worker = op->worker};
    int32_t r = HWS_OK;

    if (!one_over(&t)) {
        wait_run(&t, timeout_ns);
    }
    if (!one_over(&t)) {
        return hws__fail(HWS_E_TIMED_OUT, id, "the operation goes on");
    }
    return take(op, id, event, &r) ? outcome(id, r, event) : hws__op_id_error(id);
}

int32_t hws_wait(hws_id id, uint64_t timeout_ns, hws_event *event)
{
    struct hws__op *op;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((op = waitable(id, &r)) == NULL) {
        return r;
    }
    if (timeout_ns != 0 && atomic_load_explicit(&op->worker->waiters, memory_order_relaxed) == 0 &&
        wait_quick(op, id, event, &r)) {
        return outcome(id, r, event);
    }
    return wait_long(op, id, timeout_ns, event);
}

static bool many_over(struct wait *t)
{
    uint32_t ended = 0, live = 0;

    for (uint32_t i = 0; i < t->count; i++) {
        if (t->ops[i] != NULL) {
            live++;
            ended += op_ended(t->ops[i], t->ids[i]);
        }
    }
    return t->mode == HWS_WAIT_ANY ? ended != 0 || live == 0 : ended == live;
}

/* So many are resolved on the stack: no memory is allocated for a usual wait. */
#define MANY 512u

static int32_t resolve(struct wait *t, const hws_id *ids)
{
    int32_t r = HWS_OK;

    for (uint32_t i = 0; i < t->count; i++) {
        t->ops[i] = NULL;
        if (ids[i] == 0) {
            continue;
        }
        if ((t->ops[i] = waitable(ids[i], &r)) == NULL) {
            return r;
        }
        if (t->worker != NULL && t->worker != t->ops[i]->worker) {
            return hws__fail(HWS_E_INVALID, ids[i], "operations of different workers");
        }
        t->worker = t->ops[i]->worker;
    }
    return HWS_OK;
}

/* Take those that ended; how many, or HWS_E_TIMED_OUT if the mode is not fulfilled. */
static int32_t take_many(struct wait *t, hws_id *ids, hws_event *events)
{
    uint32_t n = 0, live = 0;
    int32_t status;

    for (uint32_t i = 0; i < t->count; i++) {
        hws_event *event = events != NULL ? &events[i] : NULL;

        if (t->ops[i] == NULL) {
            continue;
        }
        if (!op_ended(t->ops[i], ids[i])) {
            live++;
            continue;
        }
        if (!take(t->ops[i], ids[i], event, &status) && event != NULL) {
            *event = (hws_event){.size = sizeof *event,
                                 .op = ids[i],
                                 .status = HWS_E_STALE,
                                 .detail = hws_error_text(HWS_E_STALE)};
        }
        ids[i] = 0;
        n++;
    }
    if (t->mode == HWS_WAIT_ANY ? n == 0 : live != 0) {
        return hws__fail(HWS_E_TIMED_OUT, 0, "%u operations go on", live);
    }
    return (int32_t)n;
}

int32_t hws_wait_many(hws_id *ops, uint32_t count, uint32_t mode, uint64_t timeout_ns,
                      hws_event *events)
{
    struct hws__op *resolved[MANY];
    struct wait t = {.over = many_over, .ops = resolved, .ids = ops, .count = count, .mode = mode};
    int32_t r;

    HWS__ENTER();
    if (ops == NULL || count == 0 || count > INT32_MAX || mode > HWS_WAIT_ALL) {
        return hws__fail(HWS_E_INVALID, 0, "no operations, or a mode that is not ANY or ALL");
    }
    if (count > MANY && (t.ops = malloc(count * sizeof(struct hws__op *))) == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, 0, "%u operations", count);
    }
    r = resolve(&t, ops);
    if (r == HWS_OK && t.worker != NULL) {
        if (!many_over(&t)) {
            wait_run(&t, timeout_ns);
        }
        r = take_many(&t, ops, events);
    }
    if (count > MANY) {
        free(t.ops);
    }
    return r;
}

static bool worked(struct wait *t)
{
    return t->done != 0 || atomic_load(&t->worker->pokes) != t->pokes ||
           atomic_load_explicit(&t->worker->obj.id, memory_order_relaxed) != t->id;
}

int32_t hws_worker_wait(hws_id id, uint64_t timeout_ns)
{
    struct wait t = {.over = worked, .id = id};
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((t.worker = hws__worker_find(id, &r)) == NULL) {
        return r;
    }
    if (hws__in_callback()) {
        return hws__fail(HWS_E_DEADLOCK, id, "hws_worker_wait inside a callback");
    }
    t.pokes = atomic_load(&t.worker->pokes);
    wait_run(&t, timeout_ns);
    if (t.done == 0 && atomic_load(&t.worker->obj.id) != id) {
        return hws__id_error(&hws__objects, id, HWS_KIND_WORKER);
    }
    return t.done > INT32_MAX ? INT32_MAX : (int32_t)t.done;
}
