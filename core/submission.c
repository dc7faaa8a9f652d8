/*
 * What other threads hand to the owner of a worker: postings, commands, and requests to close, which need no memory.
 */
#include "cuda.h"
#include "endpoint.h"
#include "error.h"
#include "post.h"
#include "progress.h"

void hws__submit(struct hws__worker *w, struct hws__op *op)
{
    op->next = atomic_load_explicit(&w->submissions, memory_order_relaxed);
    /* ORDER: seq_cst, pairs with the sleeper that announces itself and then looks here. */
    while (!atomic_compare_exchange_weak(&w->submissions, &op->next, op)) {}
    hws__wake(w);
}

/* One submission: a command, or a posting that now runs as if posted by the owner. */
static void run_submission(struct hws__worker *w, struct hws__op *op)
{
    struct hws__submission *s = hws__submission(op);
    int32_t r;

    if (op->command != NULL) {
        void (*fn)(struct hws__worker *, void *) = op->command;
        void *arg = op->buffer;

        atomic_store_explicit(&op->worker, w, memory_order_relaxed);
        hws__op_release(op);
        fn(w, arg);
        return;
    }
    HWS__COUNT(w, ops_submitted, 1);
    if (op->wanted != 0) {
        r = op->wanted;
    } else {
        r = hws__post_run(&s->post, NULL);
    }
    if (r < 0) {
        if (op->kind == HWS_EVENT_CONNECT) {
            hws__connect_refused(&s->post);
        }
        op->ep = NULL;
        op->stage = HWS__STAGE_OWN;
        HWS__COUNT(w, ops_posted, 1);
        hws__op_finish(op, r);
    }
}

int hws__submissions_run(struct hws__worker *w)
{
    struct hws__op *op = atomic_exchange_explicit(&w->submissions, NULL, memory_order_acq_rel);
    struct hws__op *first = NULL;
    bool pushed = false;
    int n = 0;

    /* The sweep may have begun before the context had memory of a GPU. */
    if (__builtin_expect(atomic_load_explicit(&hws__cuda_used, memory_order_relaxed), 0)) {
        pushed = hws__cuda_enter(w->context);
    }

    w->submitting = true;
    while (op != NULL) {
        struct hws__op *next = op->next;

        op->next = first;
        first = op;
        op = next;
    }
    for (; first != NULL; first = op, n++) {
        op = first->next;
        run_submission(w, first);
    }
    w->submitting = false;
    hws__cuda_pop(pushed);
    return n;
}

void hws__submissions_catch_up(struct hws__worker *w)
{
    if (atomic_load_explicit(&w->submissions, memory_order_relaxed) != NULL && !w->submitting &&
        !w->sweeping) {
        hws__submissions_run(w);
    }
}

void hws__ask(struct hws__worker *w, struct hws__obj *o, hws_id id, uint32_t what)
{
    if (hws__obj_ask(o, id, what)) {
        atomic_store(&w->asked, true);
        hws__wake(w);
    }
}

bool hws__command(struct hws__worker *w, void (*fn)(struct hws__worker *, void *), void *arg)
{
    struct hws__op *op = hws__op_pool_take();

    if (op == NULL) {
        return false;
    }
    op->buffer = arg;
    op->ep = NULL;
    op->command = fn;
    atomic_store_explicit(&op->id, 0, memory_order_relaxed);
    hws__submit(w, op);
    return true;
}

static int32_t command(struct hws__worker *w, void (*fn)(struct hws__worker *, void *), hws_id id)
{
    return hws__command(w, fn, (void *)(uintptr_t)id)
               ? HWS_OK
               : hws__fail(HWS_E_TOO_MANY, id, "no operation is free");
}

int32_t hws__on_worker_outside(struct hws__worker *w, void (*fn)(struct hws__worker *, void *),
                               hws_id id)
{
    return hws__owned(w) && w->sweeping ? command(w, fn, id) : hws__on_worker(w, fn, id);
}

int32_t hws__on_worker(struct hws__worker *w, void (*fn)(struct hws__worker *, void *), hws_id id)
{
    bool nested = false;

    if (!hws__own_try(w) && !(nested = hws__owned(w))) {
        return command(w, fn, id);
    }
    fn(w, (void *)(uintptr_t)id);
    hws__disown(w, nested);
    if (!nested) {
        hws__wake(w);
    }
    return HWS_OK;
}
