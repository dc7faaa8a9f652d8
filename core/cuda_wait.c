/*
 * Sends that wait for a stream of CUDA.
 *
 * cuStreamSynchronize() blocks for as long as the GPU works. Neither the thread that posts (it may be in a
 * callback, and posting does not block) nor the one that makes progress (all connections of the
 * worker would wait) may call it, so a thread of the context does, for one stream after the other.
 * The operation waits with its endpoint meanwhile: cancel, deadline, flush and close treat it as any
 * send that has not begun. The job knows it by its id only, since it may end earlier.
 */
#include "cuda.h"
#include "endpoint.h"
#include "error.h"
#include "job.h"
#include "post.h"
#include "progress.h"
#include <stdlib.h>

/* CUDA's handle of the calling thread's own default stream: another one on every other thread. */
#define PER_THREAD 2

struct wait {
    struct hws__job job;
    struct hws__worker *worker;
    hws_id op;
    void *cuda;
    void *stream;
    int32_t status;
    const char *text;
};

static bool is_send(uint32_t kind)
{
    return kind == HWS_EVENT_TAG_SEND || kind == HWS_EVENT_STREAM_SEND ||
           kind == HWS_EVENT_AM_SEND || kind == HWS_EVENT_MULTI_SEND || kind == HWS_EVENT_PUT ||
           kind == HWS_EVENT_PLAN;
}

int32_t hws__cuda_wait_check(const struct hws__post *p)
{
    if (!is_send(p->kind)) {
        return hws__fail(HWS_E_INVALID, p->source, "HWS_OP_STREAM: only what sends waits for it");
    }
    if ((uintptr_t)p->opts->stream == PER_THREAD) {
        return hws__fail(HWS_E_INVALID, p->source,
                         "CU_STREAM_PER_THREAD means another stream on another thread");
    }
    return hws__cuda_open(p->source);
}

/* Under ownership: the stream's work is done. */
static void synchronized(struct hws__worker *w, void *arg)
{
    struct wait *t = arg;
    struct hws__op *op = hws__op_find_open(w, t->op);

    atomic_fetch_sub(&w->jobs, 1);
    if (op != NULL && op->stage == HWS__STAGE_STREAM) {
        if (t->status < 0) {
            op->record = t->text;
            hws__op_finish(op, t->status);
        } else {
            hws__post_continue(op);
        }
    }
    free(t);
}

static void synchronize(struct hws__job *job)
{
    struct wait *t = hws__container(job, struct wait, job);

    t->status = hws__cuda_synchronize(t->cuda, t->stream, &t->text);
    hws__job_return(t->worker, synchronized, t);
}

int32_t hws__cuda_wait_run(struct hws__post *p)
{
    struct hws__worker *w = p->worker;
    struct hws__op *op = p->op;
    struct wait *t = malloc(sizeof *t);

    p->run = op->after_stream;
    if (t == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, p->source, "wait for a stream");
    }
    *t = (struct wait){.job.run = synchronize,
                       .worker = w,
                       .op = atomic_load_explicit(&op->id, memory_order_relaxed),
                       .cuda = op->cuda,
                       .stream = op->stream};
    /* Its answer is a command, which this thread's ownership keeps back until the rest is done. */
    if (!hws__job_order(w, &w->context->streams, &t->job, 0)) {
        free(t);
        return hws__fail(HWS_E_SYSTEM, p->source, "no thread to wait for a stream");
    }
    hws__op_take(p);
    op->stage = HWS__STAGE_STREAM;
    return HWS_OK;
}

void hws__cuda_wait_end(struct hws__endpoint *ep, int32_t status)
{
    for (struct hws__list *n = ep->ops.next, *next; n != &ep->ops; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);

        next = n->next;
        if (op->stage == HWS__STAGE_STREAM) {
            hws__op_finish(op, status);
        }
    }
}
