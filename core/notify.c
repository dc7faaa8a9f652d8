/*
 * Put with notify: the value travels behind the data, on the way of the messages, which keeps its
 * order. Data that went directly is in place before the message is sent; UCX's must be flushed.
 */
#include "error.h"
#include "guard.h"
#include "rma.h"
#include <string.h>

static int32_t notify_run(struct hws__post *p)
{
    uint64_t bytes = hws__bytes(p->buffer, p->length, p->opts->flags);
    struct hws__rma_job *job;
    struct hws__rkey *k;
    int32_t r;

    if ((k = hws__rma_key(p, HWS_FEATURE_RMA, bytes, &r)) == NULL) {
        return r;
    }
    if (k->way == HWS__WAY_UCX) {
        return hws__fail(HWS_E_UNSUPPORTED, p->rkey,
                         "a notification behind UCX's own put: flush, then send a message");
    }
    if ((job = hws__rma_job_of(p, k, HWS__RMA_PUT)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    job->msg.flags = HWS__RMA_NOTIFY | HWS__RMA_LAST;
    job->msg.value = p->operand;
    job->msg.length = p->done_length = bytes;
    if (hws__rma_direct(k, p->opts->memory_kind)) {
        hws__rma_copy(p, k, bytes);
        atomic_thread_fence(memory_order_release);
    } else {
        job->length = bytes;
    }
    if ((r = hws__rma_job_post(p, job)) >= 0) {
        hws__flow_add(&k->ep->traffic.out[HWS_TRAFFIC_PUT], bytes);
    }
    return r;
}

int32_t hws_put_notify(hws_id rkey, uint64_t address, const void *buffer, uint64_t length,
                       uint64_t value, const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if (!hws__rma_init(&p, notify_run, HWS_EVENT_PUT, rkey, address, buffer, length, &r)) {
        return r;
    }
    p.operand = value;
    return hws__post(&p, opts, op);
}
