/*
 * The UCX worker that an endpoint has waited for is there, or there is none: accept or dial on it, else otherwise.
 */
#include "acceptor.h"
#include "cm_socket.h"
#include "dial.h"
#include "endpoint.h"
#include "error.h"
#include "isolated.h"
#include "listener.h"
#include "ucx_loader.h"

/* The server's side of hws__endpoint_uworker(): accept on this UCX worker. */
static void accept_on(struct hws__endpoint *ep, struct hws__uworker *u)
{
    ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST |
                                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
                         .conn_request = ep->request,
                         .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                         .err_handler = {hws__endpoint_error_cb, ep}};
    const struct hws__listener *l = hws__listener_of(ep);
    ucp_ep_h ucx;
    ucs_status_t s;

    if (u != ep->worker->main && l != NULL) {
        ep->cm_socket = hws__cm_pause(ep->worker->main, &ep->request_peer, l->port);
    } else if (l != NULL) {
        ep->cm_socket = hws__cm_accepted(l->port, &ep->request_peer);
    }
    hws__acceptors_sweep();
    s = hws__ucx.ucp_ep_create(u->ucx, &p, &ucx);
    ep->request = NULL; /* used up, also by a failure */
    if (s == UCS_OK && !hws__endpoint_attach(ep, u, ucx)) {
        s = UCS_ERR_NO_MEMORY;
    }
    if (s != UCS_OK) {
        ep->uworker = u;
        hws__endpoint_fail(ep, hws__from_ucx(s), "accept: %s", hws__ucx.ucs_status_string(s));
        return;
    }
    ep->phase = HWS__PHASE_HELLO;
    if (u->role != HWS__ISOLATED && !hws__endpoint_lanes(ep)) {
        return; /* the client lied: nothing of it was let in */
    }
    if (ep->raw) {
        hws__raw_start(ep);
    }
}

/* There is no UCX worker to accept on. The client tries by TCP next; if it did it learns no reason. */
static void turn_away(struct hws__endpoint *ep)
{
    struct hws__worker *w = ep->worker;
    struct hws__listener *l = hws__listener_of(ep);

    if (l != NULL) {
        l->redirected += !ep->tcp;
        hws__cm_reject(w->main, l->ucx, ep->request);
    }
    HWS__COUNT(w, fallbacks, !ep->tcp);
    ep->request = NULL;
    hws__endpoint_fail(ep, ep->tcp ? HWS_E_NO_RESOURCE : HWS_E_ISOLATED_CAP, "no UCX worker left");
}

/* The client's. */
static void dial_otherwise(struct hws__endpoint *ep)
{
    if (!hws__upgrade_by_tcp(ep) && !ep->raw) {
        ep->tcp = true;
        ep->reason = HWS_REASON_CAP;
        HWS__COUNT(ep->worker, fallbacks, 1);
        hws__uworker_request(ep);
    } else {
        hws__endpoint_fail(
            ep, ep->raw ? HWS_E_ISOLATED_CAP : HWS_E_NO_RESOURCE,
            "no UCX worker can be made: too few descriptors or threads, or too little memory");
    }
}

/* The isolated worker that the endpoint was given, if it can be used. */
static bool adopt_isolated(struct hws__endpoint *ep, struct hws__uworker *u)
{
    struct hws__worker *w = ep->worker;

    u->raw = ep->raw;
    if (hws__uworker_adopt(w, u) == HWS_OK) {
        return true;
    }
    HWS__COUNT(w, isolated, -1);
    hws__isolated_unreserve(w->context);
    hws__uworker_destroy(u);
    return false;
}

void hws__endpoint_uworker(struct hws__endpoint *ep, struct hws__uworker *u)
{
    if (ep->upgrade.waits) {
        hws__upgrade_uworker(ep, u);
        return;
    }
    if (u != NULL && u->role == HWS__ISOLATED && !adopt_isolated(ep, u)) {
        u = NULL;
    }
    if (ep->server && u != NULL) {
        accept_on(ep, u);
    } else if (ep->server) {
        turn_away(ep);
    } else if (u != NULL) {
        hws__dial_on(ep, u);
    } else {
        dial_otherwise(ep);
    }
}
