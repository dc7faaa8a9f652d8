/*
 * An endpoint opens: everything is exchanged, and whoever waits for it is told.
 */
#include "endpoint_phase.h"
#include "dial.h"
#include "hello.h"
#include "listener.h"
#include "lost.h"
#include "reserve.h"
#include "waddress.h"

bool hws__endpoint_tell_accepted(struct hws__endpoint *ep)
{
    hws_event e = {.kind = HWS_EVENT_ACCEPTED, .source = ep->obj.id, .op = ep->listener};
    struct hws__listener *l = hws__listener_of(ep);

    if (l != NULL) {
        l->accepted++;
        hws__emit(ep->worker, &l->sink, &e, NULL);
    } else if (ep->by_address) {
        hws__emit(ep->worker, &ep->worker->sink, &e, NULL);
    } else {
        return false;
    }
    return true;
}

void hws__endpoint_end_connect(struct hws__endpoint *ep, int32_t status)
{
    struct hws__op *op = ep->connect;

    ep->connect = NULL;
    hws__op_finish(op, status);
    hws__address_turn(ep);
}

bool hws__endpoint_unwanted(const struct hws__endpoint *ep)
{
    return ep->worker->context->no_network && ep->reason != HWS_REASON_ADDRESS &&
           (ep->transports & (HWS_TRANSPORT_SHM | HWS_TRANSPORT_SELF)) == 0;
}

void hws__endpoint_fail_unwanted(struct hws__endpoint *ep)
{
    hws__endpoint_fail(ep, HWS_E_UNREACHABLE,
                       "no shared memory with the peer, and UCX_TLS leaves out every network");
}

static void announce(struct hws__endpoint *ep)
{
    ep->deadline = 0;
    if (!hws__endpoint_tell_accepted(ep)) {
        hws__endpoint_close(ep);
    }
    ep->unannounced = false;
}

void hws__endpoint_welcomed(struct hws__endpoint *ep)
{
    ep->welcomed = true;
    if (ep->unannounced && !ep->failed && !ep->closing) {
        announce(ep);
    }
}

/*
 * Who makes progress only inside calls may make none after it has heard of the peer. An answer that waits in UCX then,
 * because the connection still changes to shared memory, would leave the peer's connect hanging.
 */
static void announce_when_welcomed(struct hws__endpoint *ep)
{
    const struct hws__listener *l = hws__listener_of(ep);

    ep->unannounced = true;
    if (ep->raw || ep->welcomed) {
        announce(ep);
        return;
    }
    hws__endpoint_deadline(ep, l != NULL ? l->hello_timeout : HWS__HELLO_NS);
}

void hws__endpoint_opened(struct hws__endpoint *ep)
{
    if (!hws__endpoint_lanes(ep)) {
        return;
    }
    if (hws__endpoint_unwanted(ep)) {
        hws__endpoint_fail_unwanted(ep);
        return;
    }
    hws__endpoint_addresses(ep);
    if (ep->upgrade.line != NULL) {
        hws__lost_keep_alive(ep->upgrade.line_worker);
    } else if (ep->transports & HWS_TRANSPORT_TCP) {
        hws__lost_watch(ep->uworker);
    }
    if (ep->reason == HWS_REASON_LOCAL && ep->peer_host != 0 &&
        ep->peer_host != ep->worker->context->host) {
        ep->reason = HWS_REASON_REMOTE;
    } else if (ep->reason == HWS_REASON_LOCAL && !(ep->transports & HWS_TRANSPORT_SHM)) {
        ep->reason = HWS_REASON_SHM_FAILED; /* UCX found no way: another PID namespace, say */
    }
    ep->phase = HWS__PHASE_OPEN;
    ep->open = ep->hello_done = true;
    ep->flush_acked = ep->worker->sequence;
    hws__reserve_keep(ep->worker);
    ep->deadline = 0;
    if (ep->server) {
        announce_when_welcomed(ep);
    } else if (ep->connect != NULL && ep->starting) {
        hws__endpoint_attend(ep);
    } else if (ep->connect != NULL) {
        hws__endpoint_end_connect(ep, HWS_OK);
    }
}

/*
 * UCX says that a raw endpoint is connected by completing a flush. Nobody may send on one before, on either side: what
 * waits in UCX while the connection changes from TCP to shared memory goes as a short message of TCP's, which 1.22
 * writes over several slots of the peer's queue and 1.13 fails as invalid.
 */
static void raw_connected(struct hws__endpoint *ep, ucs_status_t status)
{
    if (status == UCS_OK && ep->phase == HWS__PHASE_HELLO && !ep->failed) {
        hws__endpoint_opened(ep);
    } else {
        hws__endpoint_attend(ep);
    }
}

void hws__raw_heard(struct hws__endpoint *ep)
{
    if (ep->phase == HWS__PHASE_HELLO && !ep->failed) {
        hws__endpoint_opened(ep);
    }
}

void hws__raw_start(struct hws__endpoint *ep)
{
    int32_t r = hws__endpoint_ucx_flush(ep, raw_connected);

    if (r == HWS_DONE) {
        hws__endpoint_opened(ep);
    } else if (r < 0 && ep->server) {
        hws__endpoint_fail(ep, r, "accept: %s", hws_error_text(r));
    } else if (r < 0) {
        hws__dial_failed(ep, r);
    }
}
