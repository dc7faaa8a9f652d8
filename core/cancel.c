/*
 * The early end of operations: cancel and deadlines. What UCX holds cannot be taken back (only
 * unmatched receives of raw endpoints can), so there the wish is noted and the buffer stays with
 * the library until UCX gives it back or the endpoint is aborted.
 */
#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "heap.h"
#include "progress.h"
#include "ucx_loader.h"
#include "undo.h"

static void end_early(struct hws__op *op, int32_t code)
{
    switch (op->stage) {
    case HWS__STAGE_MATCHING:
    case HWS__STAGE_CREDIT:
    case HWS__STAGE_STREAM:
    case HWS__STAGE_COMING:
        hws__op_finish(op, code);
        break;
    case HWS__STAGE_READING:
        hws__stream_end_early(op, code);
        break;
    case HWS__STAGE_OWN:
        if (op->kind == HWS_EVENT_CONNECT) {
            hws__endpoint_fail(op->ep, code, "%s", hws_error_text(code));
        } else {
            hws__op_finish(op, code);
        }
        break;
    case HWS__STAGE_UCX:
        op->wanted = code;
        if (code == HWS_E_CANCELED) {
            hws__undo(op);
        }
        if (op->ep != NULL && op->ep->closing) {
            hws__endpoint_attend(op->ep); /* which waits for it no longer */
        }
        /* Without a UCX worker the endpoint has failed: the end of that worker ends the receive. */
        if (op->ep != NULL && op->ep->raw && op->ep->uworker != NULL &&
            op->kind == HWS_EVENT_TAG_RECV && op->ucx != NULL) {
            hws__ucx.ucp_request_cancel(op->ep->uworker->ucx, op->ucx);
        }
        if (op->ep != NULL && (op->flags & HWS_OP_DEADLINE_ABORT) && code == HWS_E_TIMED_OUT) {
            hws__endpoint_fail(op->ep, HWS_E_TIMED_OUT, "an operation was late: aborted");
        }
        break;
    case HWS__STAGE_SUBMITTED:
        op->wanted = code;
        break;
    default:
        break;
    }
}

uint64_t hws__op_expire(struct hws__worker *w, uint64_t now)
{
    while (w->heap_size != 0 && w->heap[0]->deadline <= now) {
        struct hws__op *op = w->heap[0];

        hws__heap_remove(w, op);
        if (op->kind == HWS_EVENT_TASK) {
            hws__task_due(op, now);
        } else {
            end_early(op, HWS_E_TIMED_OUT);
        }
    }
    return w->heap_size != 0 ? w->heap[0]->deadline : UINT64_MAX;
}

static void cancel_command(struct hws__worker *w, void *arg)
{
    struct hws__op *op = hws__op_find_open(w, (hws_id)(uintptr_t)arg);

    if (op != NULL) {
        end_early(op, HWS_E_CANCELED);
    }
}

int32_t hws_cancel(hws_id id)
{
    struct hws__op *op;

    HWS__ENTER();
    if ((op = hws__op_find(id)) == NULL) {
        return hws__op_id_error(id);
    }
    return hws__on_worker(op->worker, cancel_command, id);
}
