#include "error.h"
#include "guard.h"
#include "heap.h"
#include "post.h"
#include "progress.h"
#include "time.h"

/* Its turn comes then, or at its deadline, for which it has `length`: in the heap it is but once. */
static void run_at(struct hws__op *op, uint64_t when)
{
    op->deadline = when < op->length ? when : op->length;
    hws__heap_add(op->worker, op);
}

static int32_t task_run(struct hws__post *p)
{
    struct hws__op *op;
    uint64_t now;

    if (p->worker->closing) {
        return hws__fail(HWS_E_CLOSING, p->source, "the worker is closing");
    }
    if (!hws__heap_reserve(p->worker)) {
        return hws__fail(HWS_E_NO_MEMORY, p->source, "no memory for a task's time");
    }
    if ((op = hws__op_take(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    op->stage = HWS__STAGE_OWN;
    op->task_fn = (hws_task_fn)(uintptr_t)p->header;
    op->buffer = (void *)(uintptr_t)p->tag;
    op->period = p->mask;
    now = hws__now();
    op->length = p->opts->timeout_ns == 0 ? UINT64_MAX : hws__deadline(now, p->opts->timeout_ns);
    run_at(op, hws__deadline(now, op->period));
    op->worker->tick = HWS__TICK; /* the slow checks are due: they run it */
    return HWS_OK;
}

void hws__task_due(struct hws__op *op, uint64_t now)
{
    hws_task_fn fn = op->task_fn;
    hws_id id = op->id;

    if (now >= op->length) {
        hws__op_finish(op, HWS_E_TIMED_OUT);
        return;
    }
    if (op->period != 0) {
        run_at(op, hws__deadline(now, op->period));
    }
    hws__callback_depth++;
    fn(op->buffer);
    hws__callback_depth--;
    /* It may have cancelled itself. */
    if (op->period == 0 && op->id == id && op->stage == HWS__STAGE_OWN) {
        hws__op_finish(op, HWS_OK);
    }
}

int32_t hws_task(hws_id worker, hws_task_fn fn, void *arg, uint64_t period_ns,
                 const hws_op_opts *opts, hws_id *op)
{
    /* The function and its argument travel where other postings have header and tag. */
    struct hws__post p = {.run = task_run,
                          .source = worker,
                          .kind = HWS_EVENT_TASK,
                          .header = (const void *)(uintptr_t)fn,
                          .tag = (uint64_t)(uintptr_t)arg,
                          .mask = period_ns};
    int32_t r = HWS_OK;

    HWS__ENTER();
    if (fn == NULL) {
        return hws__fail(HWS_E_INVALID, worker, "the function is null");
    }
    if ((p.worker = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    return hws__post(&p, opts, op);
}
