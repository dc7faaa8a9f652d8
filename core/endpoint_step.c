/*
 * What an endpoint does after a sweep that found something for it: late phases, failures, and the way to its end.
 */
#include "endpoint_phase.h"
#include "dial.h"
#include "error.h"
#include "hello.h"
#include "listener.h"
#include "rma.h"
#include "time.h"
#include "ucx_loader.h"
#include "waddress.h"

/* Looks at what a dead peer has left, each takes up to 16 messages. */
#define LEFT_MAX 10000

/* The connection is lost, which TCP tells. What the peer had written to shared memory before is still there. */
static void read_what_is_left(struct hws__endpoint *ep)
{
    if (ep->uworker == NULL || (ep->upgrade.line == NULL && !ep->uworker->shm)) {
        return;
    }
    for (int i = 0; i < LEFT_MAX && hws__uworker_progress(ep->uworker) != 0; i++) {}
}

/* Nothing goes to the peer or comes from it any more. */
static void cut_off(struct hws__endpoint *ep, int32_t status)
{
    hws__endpoint_end_ops(ep, status);
    hws__endpoint_drop_unfetched(ep);
    hws__endpoint_detach(ep);
}

/* UCX reported an error. */
static void ucx_failed(struct hws__endpoint *ep)
{
    int32_t status = hws__from_ucx(ep->ucx_status);

    ep->ucx_error = false;
    read_what_is_left(ep);
    if (ep->phase == HWS__PHASE_HELLO && !ep->server && !ep->failed) {
        hws__dial_failed(ep, status);
        return;
    }
    if (ep->closing || ep->refused) {
        hws__endpoint_force(ep);
        return;
    }
    if (ep->peer_closed) {
        cut_off(ep, HWS_E_PEER_CLOSED);
        return;
    }
    if (ep->server && ep->phase == HWS__PHASE_HELLO && !ep->hello_seen) {
        struct hws__listener *l = hws__listener_of(ep);

        if (l != NULL) {
            l->strangers++;
        }
    }
    hws__endpoint_gone(ep);
}

/* A failure was noted: tell everybody, once. */
static void handle_failure(struct hws__endpoint *ep)
{
    bool was_open = ep->phase == HWS__PHASE_OPEN && !ep->unannounced;

    if (ep->failure_handled) {
        return;
    }
    ep->failure_handled = true;
    if (ep->accepted && (ep->phase == HWS__PHASE_HELLO || ep->unannounced) && !ep->closing) {
        /* The application said yes, and the peer left before it had its answer. */
        was_open = hws__endpoint_tell_accepted(ep);
    }
    cut_off(ep, ep->status);
    ep->deadline = 0;
    if (ep->connect != NULL) {
        hws__endpoint_end_connect(ep, ep->status);
        return;
    }
    if (ep->server && !was_open && !ep->closing) {
        /* Nobody but the listener has heard of it. */
        ep->silent = hws__endpoint_unheard(ep);
        ep->told = true;
        ep->closing = true;
        ep->phase = HWS__PHASE_FORCING;
        return;
    }
    hws__endpoint_tell_disconnected(ep, ep->status);
}

static void late(struct hws__endpoint *ep)
{
    struct hws__listener *l;

    ep->deadline = 0;
    switch (ep->phase) {
    case HWS__PHASE_HELLO:
    case HWS__PHASE_WAITING:
        if (ep->server) {
            if ((l = hws__listener_of(ep)) != NULL && !ep->hello_seen) {
                l->strangers++;
            }
            hws__endpoint_fail(ep, HWS_E_TIMED_OUT, "no hello in time");
        } else {
            hws__dial_failed(ep, HWS_E_TIMED_OUT);
        }
        break;
    case HWS__PHASE_OPEN:
        if (ep->unannounced) {
            hws__endpoint_fail(ep, HWS_E_TIMED_OUT,
                               "the answer to the hello could not be sent in time");
        }
        break;
    case HWS__PHASE_FLUSHING:
    case HWS__PHASE_GOODBYE:
        hws__endpoint_force(ep);
        break;
    default:
        break;
    }
}

/* Each phase of closing may be over at once. */
static void go_on_closing(struct hws__endpoint *ep)
{
    if (ep->phase == HWS__PHASE_FLUSHING && ep->ucx_flushes == 0) {
        if (ep->raw || ep->peer_closed) {
            hws__endpoint_force(ep);
        } else if (!hws__flush_sends(ep, UINT64_MAX) && hws__rma_flushed(ep)) {
            ep->phase = HWS__PHASE_GOODBYE;
            hws__goodbye(ep);
        }
    }
    if (ep->phase == HWS__PHASE_GOODBYE && ep->acked) {
        hws__endpoint_force(ep);
    }
    if (ep->phase == HWS__PHASE_FORCING && ep->op_count == 0 && ep->ucx_flushes == 0 &&
        ep->cut.ucx == NULL) {
        hws__endpoint_finish(ep);
    }
}

void hws__endpoint_step(struct hws__endpoint *ep)
{
    if (ep->phase == HWS__PHASE_GONE) {
        return;
    }
    if (ep->deadline != 0 && hws__now() >= ep->deadline) {
        late(ep);
    }
    if (ep->open && ep->connect != NULL) {
        hws__endpoint_end_connect(ep, HWS_OK); /* it was open before its posting was over */
    }
    if (ep->ucx_error) {
        ucx_failed(ep);
    }
    if ((ep->first_hello != NULL || ep->awaits_turn) && !ep->failed && !ep->closing) {
        hws__address_step(ep);
    }
    if (ep->upgrade.due && !ep->failed && !ep->closing) {
        hws__upgrade_step(ep);
    }
    if (ep->failed) {
        handle_failure(ep);
        if (ep->closing && ep->phase != HWS__PHASE_FORCING) {
            hws__endpoint_force(ep);
        }
    }
    if (hws__rma_waits(ep)) {
        hws__rma_push(ep);
    }
    if (ep->credit.waiting != 0) {
        hws__credit_push(ep);
    }
    if (ep->peer_closed && !ep->told) {
        hws__endpoint_end_ops(ep, HWS_E_PEER_CLOSED);
        hws__endpoint_tell_disconnected(ep, HWS_E_PEER_CLOSED);
    }
    go_on_closing(ep);
}
