#include "plan.h"
#include "error.h"
#include "guard.h"
#include "memory.h"
#include "progress.h"
#include "rma.h"
#include <stdlib.h>
#include <string.h>

struct plan {
    struct hws__obj obj;
    struct hws__worker *worker;
    struct hws__endpoint *ep;
    struct hws__list link; /* hws__rma.plans */
    hws_transfer *transfers;
    struct hws__memory **memories; /* held, as many as transfers; entries may be null */
    uint64_t count, bytes;
    uint32_t runs; /* postings under way */
    bool closing;
};

/** A posting under way: the transfers that have not ended, and the flush behind them. */
struct run {
    struct plan *plan;
    hws_id op;
    uint64_t pending;
    int32_t status;
};

static void free_plan(struct plan *plan)
{
    for (uint64_t i = 0; plan->memories != NULL && i < plan->count; i++) {
        if (plan->memories[i] != NULL) {
            hws__memory_unuse(plan->memories[i]);
        }
    }
    free(plan->memories);
    free(plan->transfers);
    hws__list_remove(&plan->link);
    hws__obj_free(&hws__objects, &plan->obj);
}

void hws__plan_close(struct hws__obj *o)
{
    struct plan *plan = (struct plan *)(void *)o;

    hws__obj_hide(&plan->obj);
    plan->closing = true;
    if (plan->runs == 0) {
        free_plan(plan);
    }
}

struct hws__worker *hws__plan_worker(const struct hws__obj *o)
{
    return ((const struct plan *)(const void *)o)->worker;
}

void hws__plans_forget(struct hws__endpoint *ep)
{
    while (!hws__list_empty(&ep->rma.plans)) {
        free_plan(hws__container(ep->rma.plans.next, struct plan, link));
    }
}

static struct plan *find(hws_id id, int32_t *error)
{
    struct plan *plan = hws__id_kind(id) == HWS_KIND_PLAN ? hws__obj_find(&hws__objects, id) : NULL;

    if (plan == NULL) {
        *error = hws__id_error(&hws__objects, id, HWS_KIND_PLAN);
    }
    return plan;
}

/* One transfer of a new plan: its key on this endpoint, in bounds; its memory held. */
static int32_t check(struct plan *plan, uint64_t i)
{
    const hws_transfer *t = &plan->transfers[i];
    struct hws__rkey *k;
    int32_t r = HWS_OK;

    if (t->kind != HWS_EVENT_PUT && t->kind != HWS_EVENT_GET) {
        return hws__fail(HWS_E_INVALID, t->rkey, "transfer %llu is neither put nor get",
                         (unsigned long long)i);
    }
    if ((k = hws__rkey_ready(t->rkey, &r)) == NULL) {
        return r;
    }
    if (k->ep != plan->ep || (t->buffer == NULL && t->length != 0)) {
        return hws__fail(HWS_E_INVALID, t->rkey, "transfer %llu: another endpoint, or no buffer",
                         (unsigned long long)i);
    }
    if ((r = hws__rkey_bounds(k, t->address, t->length)) < 0) {
        return r;
    }
    plan->bytes += t->length;
    if (t->memory != 0 && (plan->memories[i] = hws__memory_use(t->memory, &r)) == NULL) {
        return r;
    }
    if (t->memory != 0 && plan->memories[i]->context != plan->worker->context) {
        return hws__fail(HWS_E_INVALID, t->memory, "transfer %llu: memory of another context",
                         (unsigned long long)i);
    }
    return HWS_OK;
}

static int32_t fill(struct plan *plan, const hws_transfer *transfers, uint64_t count)
{
    plan->transfers = malloc(count * sizeof *transfers);
    plan->memories = calloc(count, sizeof(struct hws__memory *));
    if (plan->transfers == NULL || plan->memories == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, 0, "plan of %llu transfers", (unsigned long long)count);
    }
    memcpy(plan->transfers, transfers, count * sizeof *transfers);
    plan->count = count;
    for (uint64_t i = 0; i < count; i++) {
        int32_t r = check(plan, i);

        if (r < 0) {
            return r;
        }
    }
    return HWS_OK;
}

/* Under ownership. */
static int32_t open_plan(struct hws__endpoint *ep, const hws_transfer *transfers, uint64_t count,
                         hws_id *out)
{
    struct plan *plan = (struct plan *)(void *)hws__obj_alloc(
        &hws__objects, HWS_KIND_PLAN, sizeof *plan, HWS__KEEP(struct plan, link));
    int32_t r;

    if (plan == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, ep->obj.id, "plan");
    }
    plan->worker = ep->worker;
    plan->ep = ep;
    hws__list_init(&plan->link);
    if ((r = fill(plan, transfers, count)) < 0) {
        free_plan(plan);
        return r;
    }
    hws__list_append(&ep->rma.plans, &plan->link);
    *out = hws__obj_publish(&hws__objects, &plan->obj);
    return HWS_OK;
}

int32_t hws_plan_open(hws_id endpoint, const hws_transfer *transfers, uint64_t count, hws_id *out)
{
    struct hws__endpoint *ep;
    struct hws__worker *w;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((ep = hws__endpoint_find(endpoint, &r)) == NULL) {
        return r;
    }
    if (out == NULL || transfers == NULL || count == 0 || count > UINT32_MAX) {
        return hws__fail(HWS_E_INVALID, endpoint, "plan of %llu transfers",
                         (unsigned long long)count);
    }
    w = ep->worker;
    if ((r = hws__own_call(w, endpoint, &nested)) < 0) {
        return r;
    }
    r = atomic_load(&ep->obj.id) == endpoint
            ? open_plan(ep, transfers, count, out)
            : hws__id_error(&hws__objects, endpoint, HWS_KIND_ENDPOINT);
    hws__disown(w, nested);
    return r;
}

/* A part has ended; the last one ends the plan's operation. */
static void part_ended(void *arg, const hws_event *event)
{
    struct run *run = arg;
    struct plan *plan = run->plan;
    struct hws__op *op;

    if (event->status < 0 && run->status == HWS_OK) {
        run->status = event->status;
    }
    if (--run->pending != 0) {
        return;
    }
    if (run->op != 0 && (op = hws__op_find(run->op)) != NULL) {
        hws__op_finish(op, op->wanted != 0 ? op->wanted : run->status);
    }
    free(run);
    if (--plan->runs == 0 && plan->closing) {
        free_plan(plan);
    }
}

/* Post the transfers; a failure ends the list. */
static int32_t post_all(struct plan *plan, struct run *run)
{
    hws_op_opts opts = {.struct_size = sizeof opts,
                        .flags = HWS_OP_INLINE,
                        .callback = part_ended,
                        .callback_arg = run};
    hws_id none;
    int32_t r = HWS_DONE;

    for (uint64_t i = 0; i < plan->count && r >= 0; i++) {
        const hws_transfer *t = &plan->transfers[i];

        opts.memory_kind = t->memory_kind;
        r = t->kind == HWS_EVENT_PUT
                ? hws_put(t->rkey, t->address, t->buffer, t->length, &opts, &none)
                : hws_get(t->rkey, t->address, t->buffer, t->length, &opts, &none);
        run->pending += r == HWS_OK;
    }
    if (r >= 0 && (plan->ep->rma.messages != plan->ep->rma.messages_flushed ||
                   plan->ep->rma.ucx != plan->ep->rma.ucx_flushed)) {
        opts.memory_kind = HWS_MEMORY_HOST;
        r = hws_flush(atomic_load(&plan->ep->obj.id), &opts, &none);
        run->pending += r == HWS_OK;
    }
    return r < 0 ? r : HWS_OK;
}

static int32_t plan_run(struct hws__post *p)
{
    struct plan *plan;
    struct hws__op *op;
    struct run *run;
    int32_t r = HWS_OK;

    if ((plan = find(p->rkey, &r)) == NULL) {
        return r;
    }
    if ((run = calloc(1, sizeof *run)) == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, p->rkey, "plan");
    }
    /* The parts take operations, too, and must not outlive a refusal. */
    if (!hws__op_reserve(p, &op)) {
        free(run);
        return HWS_E_TOO_MANY;
    }
    run->plan = plan;
    run->status = post_all(plan, run);
    hws__op_unreserve(p, op);
    p->done_length = plan->bytes;
    if (run->pending == 0) {
        r = run->status < 0 ? run->status : HWS_DONE;
        free(run);
        return r;
    }
    plan->runs++;
    op = hws__op_take(p);
    op->stage =
        HWS__STAGE_SUBMITTED; /* cancel and deadline only note their wish: the parts end it */
    op->done_length = plan->bytes;
    run->op = atomic_load_explicit(&op->id, memory_order_relaxed);
    return HWS_OK;
}

int32_t hws_plan_post(hws_id plan_id, const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p = {.run = plan_run, .rkey = plan_id, .kind = HWS_EVENT_PLAN};
    struct plan *plan;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((plan = find(plan_id, &r)) == NULL) {
        return r;
    }
    p.ep = plan->ep;
    p.worker = plan->worker;
    p.source = atomic_load_explicit(&plan->ep->obj.id, memory_order_relaxed);
    return hws__post(&p, opts, op);
}
