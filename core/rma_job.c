/*
 * Sending the messages of remote memory access, in order: one job after the other, and of the one that
 * is under way one piece at a time while UCX has no room to take more.
 *
 * A peer that asks keeps memory here until it is answered, so each side asks so much at once and no more. The
 * answers have a list of their own: behind questions that wait for the peer's answers they would wait for ever
 * if the peer does the same.
 */
#include "error.h"
#include "hello.h"
#include "memory.h"
#include "progress.h"
#include "rma.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct hws__rma_job) <= sizeof(((struct hws__op *)0)->rma),
               "hws__op.rma is too small");

struct hws__rma_job *hws__rma_job_of(struct hws__post *p, const struct hws__rkey *k,
                                     enum hws__rma_type type)
{
    struct hws__op *op = hws__op_next(p);
    struct hws__rma_job *job;

    if (op == NULL) {
        return NULL;
    }
    job = (struct hws__rma_job *)(void *)op->rma;
    memset(job, 0, sizeof *job);
    hws__list_init(&job->link);
    hws__list_init(&job->of_uworker);
    job->ep = k->ep;
    job->op = op;
    job->memory_kind = p->opts->memory_kind;
    job->msg = (struct hws__rma_msg){
        .type = (uint8_t)type, .memory = k->memory, .key = k->key, .address = p->mask};
    if (type != HWS__RMA_ATOMIC && (p->opts->flags & HWS_OP_IOV)) {
        p->buffer = hws__op_buffer(p, op); /* the operation's own copy of a short array */
        job->pieces = p->buffer;
    } else {
        job->one = (hws_iov){p->buffer, p->length};
        job->pieces = &job->one;
    }
    return job;
}

struct hws__rma_job *hws__rma_answer(struct hws__endpoint *ep, const struct hws__rma_msg *to,
                                     enum hws__rma_type type)
{
    struct hws__rma_job *job;

    /* One whose last piece is still with UCX may have arrived already, hence more than the peer may ask. */
    if (ep->rma.answering > 2 * HWS__RMA_ASKS) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "the peer asks without waiting for answers");
        return NULL;
    }
    if ((job = calloc(1, sizeof *job)) == NULL) {
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory to answer the peer");
        return NULL;
    }
    hws__list_init(&job->link);
    hws__list_init(&job->of_uworker);
    job->ep = ep;
    job->msg = (struct hws__rma_msg){.type = (uint8_t)type, .op = to->op, .size = to->size};
    return job;
}

void hws__rma_answer_queue(struct hws__rma_job *job)
{
    job->ep->rma.answering++;
    hws__list_append(&job->ep->rma.answers, &job->link);
    hws__endpoint_attend(job->ep);
}

void hws__rma_answer_came(struct hws__endpoint *ep)
{
    if (ep->rma.asked != 0) {
        ep->rma.asked--;
    }
    if (hws__rma_waits(ep)) {
        hws__endpoint_attend(ep);
    }
}

bool hws__rma_waits(const struct hws__endpoint *ep)
{
    return !hws__list_empty(&ep->rma.jobs) || !hws__list_empty(&ep->rma.answers);
}

static bool asks(const struct hws__rma_job *job)
{
    return job->msg.type == HWS__RMA_GET ||
           (job->msg.type == HWS__RMA_ATOMIC && (job->msg.flags & HWS__RMA_FETCH));
}

static void free_answer(struct hws__rma_job *job)
{
    hws__list_remove(&job->link);
    hws__list_remove(&job->of_uworker);
    if (job->ep != NULL) {
        job->ep->rma.answering--;
    }
    if (job->memory != NULL) {
        hws__memory_unuse(job->memory);
    }
    free(job);
}

/* Everything is sent, or it failed. */
static void finished(struct hws__rma_job *job, int32_t status)
{
    struct hws__op *op = job->op;

    if (op == NULL) {
        free_answer(job);
        return;
    }
    hws__rma_forget(op);
    if (status == HWS_OK && op->wanted == 0 && asks(job) && !job->answered) {
        return; /* the answer ends it */
    }
    hws__op_finish(op, op->wanted != 0                ? op->wanted
                       : status < 0 && op->ep->failed ? op->ep->status
                                                      : status);
}

static void advance(struct hws__rma_job *job)
{
    job->sent += job->piece;
    job->offset += job->piece;
    job->piece = 0;
}

static void piece_sent(void *request, ucs_status_t status, void *user_data)
{
    struct hws__rma_job *job = user_data;
    struct hws__endpoint *ep;

    hws__ucx.ucp_request_free(request);
    if (hws__uworker_destroying) {
        return; /* the owner ends it, see hws__op_orphans(), hws__rma_orphans() */
    }
    ep = job->ep;
    if (job->in_call) {
        job->early = true;
        job->early_status = status;
        return;
    }
    job->uworker->pending--;
    job->uworker->worker->pending_ucx--;
    if (ep == NULL) {
        free_answer(job); /* nobody waits for it any more */
        return;
    }
    hws__list_remove(&job->of_uworker);
    ep->rma.busy = false;
    if (job->op != NULL) {
        job->op->stage = HWS__STAGE_OWN;
        job->op->ucx = NULL;
    }
    advance(job);
    if (status != UCS_OK || job->sent == job->length || (job->op != NULL && job->op->wanted != 0)) {
        finished(job, hws__from_ucx(status));
    }
    if (hws__rma_waits(ep)) {
        hws__endpoint_attend(ep);
    }
}

/* The next piece; its length in job->piece. */
static const void *next_piece(struct hws__rma_job *job)
{
    const hws_iov *v;
    uint64_t n;

    if (job->length == 0) {
        return NULL;
    }
    while (job->offset == job->pieces[job->index].length) {
        job->index++;
        job->offset = 0;
    }
    v = &job->pieces[job->index];
    n = v->length - job->offset;
    job->piece = n < HWS__RMA_PIECE ? n : HWS__RMA_PIECE;
    return (const char *)v->base + job->offset;
}

static ucs_status_ptr_t send_piece(struct hws__rma_job *job)
{
    struct hws__endpoint *ep = job->ep;
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                     UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .flags = ep->send_flags | UCP_AM_SEND_FLAG_EAGER,
                                 .cb.send = piece_sent,
                                 .user_data = job,
                                 .memory_type = (ucs_memory_type_t)job->memory_kind};
    const void *data = next_piece(job);
    ucs_status_ptr_t r;

    if (job->memory_kind == HWS_MEMORY_UNKNOWN) {
        param.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    }
    job->wire = job->msg;
    job->wire.address += job->sent;
    if (job->msg.type == HWS__RMA_DATA) {
        job->wire.value = job->length - job->sent - job->piece;
    }
    if (job->sent + job->piece < job->length) {
        job->wire.flags &= (uint8_t) ~(HWS__RMA_NOTIFY | HWS__RMA_LAST);
    }
    job->in_call = true;
    job->early = false;
    r = hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_RMA, &job->wire, sizeof job->wire, data,
                                 job->piece, &param);
    job->in_call = false;
    if (job->early) {
        return job->early_status == UCS_OK ? NULL : UCS_STATUS_PTR(job->early_status);
    }
    return r;
}

/* UCX keeps a piece. */
static void held(struct hws__rma_job *job)
{
    struct hws__endpoint *ep = job->ep;

    ep->rma.busy = true;
    job->uworker = ep->uworker;
    job->uworker->pending++;
    ep->worker->pending_ucx++;
    if (job->op == NULL) {
        hws__list_append(&job->uworker->answers, &job->of_uworker);
    }
}

/* HWS_DONE: all is sent. 0: UCX keeps a piece. */
static int32_t send_some(struct hws__rma_job *job)
{
    do {
        ucs_status_ptr_t r = send_piece(job);

        if (UCS_PTR_IS_ERR(r)) {
            hws__refused_by_ucx(job->ep->uworker);
            return hws__fail_ucx(UCS_PTR_STATUS(r), job->ep->obj.id, "%s",
                                 hws__ucx.ucs_status_string(UCS_PTR_STATUS(r)));
        }
        if (r != NULL) {
            held(job);
            return HWS_OK;
        }
        advance(job);
    } while (job->sent < job->length);
    return HWS_DONE;
}

static void op_held(struct hws__rma_job *job)
{
    job->op->stage = HWS__STAGE_UCX;
    job->op->uworker = job->uworker;
    job->op->ucx = NULL;
}

static struct hws__rma_job *first(const struct hws__list *jobs)
{
    return hws__list_empty(jobs) ? NULL : hws__container(jobs->next, struct hws__rma_job, link);
}

/* The one that is under way, or the first of the list whose turn it is. */
static struct hws__rma_job *next_job(struct hws__endpoint *ep)
{
    struct hws__rma_job *own = first(&ep->rma.jobs), *answer = first(&ep->rma.answers);

    if (own != NULL && asks(own) && ep->rma.asked == HWS__RMA_ASKS) {
        own = NULL;
    }
    if (own == NULL || answer == NULL) {
        return own != NULL ? own : answer;
    }
    if (own->sent != 0 || answer->sent != 0) {
        return own->sent != 0 ? own : answer;
    }
    ep->rma.answers_next = !ep->rma.answers_next;
    return ep->rma.answers_next ? own : answer;
}

/* An operation that is being posted must not end meanwhile: if UCX refuses it, it is tried again later. */
static void push(struct hws__endpoint *ep, bool posting)
{
    struct hws__rma_job *job;

    while (!ep->rma.busy && ep->ucx != NULL && (job = next_job(ep)) != NULL) {
        int32_t r;

        ep->rma.asked += asks(job);
        r = send_some(job);
        if (r == HWS_OK) {
            if (job->op != NULL) {
                op_held(job);
            }
        } else {
            ep->rma.asked -= r != HWS_DONE && asks(job);
            if (r != HWS_DONE && posting) {
                hws__endpoint_attend(ep);
                break;
            }
            finished(job, r == HWS_DONE ? HWS_OK : r);
        }
    }
    if (ep->uworker != NULL) {
        hws__uworker_heat(ep->uworker);
    }
}

void hws__rma_push(struct hws__endpoint *ep)
{
    push(ep, false);
}

/* The job's operation becomes a pending one. */
static void take(struct hws__post *p, struct hws__rma_job *job)
{
    struct hws__op *op = hws__op_take(p);

    op->stage = HWS__STAGE_OWN;
    op->job = job;
    op->mask = HWS__RMA_ASKED;
    op->done_length = p->done_length;
    job->msg.op = atomic_load_explicit(&op->id, memory_order_relaxed);
}

int32_t hws__rma_job_post(struct hws__post *p, struct hws__rma_job *job)
{
    struct hws__endpoint *ep = job->ep;
    bool idle = !hws__rma_waits(ep);
    int32_t r = HWS_OK;

    ep->rma.messages++;
    if (idle && !asks(job)) {
        /* Nothing before it: with luck it needs no operation. */
        hws__uworker_heat(ep->uworker);
        if ((r = send_some(job)) != HWS_OK) {
            return r;
        }
        take(p, job);
        op_held(job);
        hws__list_append(&ep->rma.jobs, &job->link);
        return HWS_OK;
    }
    take(p, job);
    hws__list_append(&ep->rma.jobs, &job->link);
    if (idle) {
        push(ep, true);
    }
    return HWS_OK;
}

void hws__rma_forget(struct hws__op *op)
{
    if (op->job != NULL) {
        hws__list_remove(&op->job->link);
        op->job = NULL;
    }
    if (!hws__list_empty(&op->match)) {
        hws__rma_copy_forget(op);
    }
}

void hws__rma_end(struct hws__endpoint *ep, int32_t status)
{
    for (struct hws__list *n = ep->rma.answers.next, *next; n != &ep->rma.answers; n = next) {
        struct hws__rma_job *job = hws__container(n, struct hws__rma_job, link);

        next = n->next;
        if (!hws__list_empty(&job->of_uworker)) {
            hws__list_remove(&job->link);
            job->ep = NULL; /* UCX still holds it */
        } else {
            free_answer(job);
        }
    }
    for (struct hws__list *n = ep->ops.next, *next; n != &ep->ops; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);

        next = n->next;
        if (op->kind < HWS_EVENT_PUT) {
            continue;
        }
        if (op->stage == HWS__STAGE_OWN) {
            hws__op_finish(op, status);
        } else if (op->stage == HWS__STAGE_UCX && op->wanted == 0) {
            op->wanted = status;
        }
    }
}

void hws__rma_orphans(struct hws__uworker *u)
{
    while (!hws__list_empty(&u->answers)) {
        struct hws__rma_job *job = hws__container(u->answers.next, struct hws__rma_job, of_uworker);

        u->worker->pending_ucx--;
        free_answer(job);
    }
}
