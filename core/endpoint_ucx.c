/*
 * An endpoint's endpoint of UCX: taken, asked, flushed and let go.
 */
#include "endpoint.h"
#include "cm_socket.h"
#include "error.h"
#include "isolated.h"
#include "lanes.h"
#include "late_cut.h"
#include "lookup.h"
#include "progress.h"
#include "rkey.h"
#include "ucx_loader.h"
#include <stdlib.h>

void hws__endpoint_error_cb(void *arg, ucp_ep_h ucx, ucs_status_t status)
{
    struct hws__endpoint *ep = arg;

    /* A late report of an endpoint that was replaced by a redial, or is gone, means nothing. */
    if ((ep->ucx != ucx && ep->upgrade.line != ucx) || ep->phase == HWS__PHASE_GONE) {
        return;
    }
    ep->ucx_error = true;
    ep->ucx_status = status;
    hws__endpoint_attend(ep);
}

void hws__endpoint_gone(struct hws__endpoint *ep)
{
    int32_t status = hws__from_ucx(ep->ucx_status);

    hws__endpoint_fail(ep, status == HWS_E_REJECTED ? HWS_E_CONNECTION_RESET : status,
                       "the peer is gone: %s", hws__ucx.ucs_status_string(ep->ucx_status));
}

bool hws__endpoint_attach(struct hws__endpoint *ep, struct hws__uworker *u, ucp_ep_h ucx)
{
    ep->uworker = u;
    ep->ucx = ucx;
    ep->ucx_status = UCS_OK; /* of an earlier dial */
    u->raw = u->raw || ep->raw;
    ep->worker->raw_count += ep->raw; /* first: detaching counts it back in any case */
    if (!hws__uworker_ep_add(u, ep)) {
        return false;
    }
    /* Until the hello says where the peer is. */
    hws__uworker_set_deaf(u, u->role == HWS__ISOLATED && !ep->raw);
    hws__uworker_heat(u);
    return true;
}

static void buried(void *request, ucs_status_t status, void *user_data)
{
    struct hws__uworker *u = user_data;

    (void)status;
    hws__ucx.ucp_request_free(request);
    if (hws__uworker_destroying) {
        return; /* the owner counts it when the UCX worker is gone */
    }
    u->burying--;
    u->worker->pending_ucx--;
    hws__uworker_unused(u);
}

void hws__uworker_cut(struct hws__uworker *u, ucp_ep_h ucx, int cm_socket)
{
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                             UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
                             .flags = UCP_EP_CLOSE_FLAG_FORCE,
                             .cb.send = buried,
                             .user_data = u};

    hws__uworker_heat(u);
    if (ucx != NULL) {
        hws__cm_unwatch(u, ucx, cm_socket);
        if (UCS_PTR_IS_PTR(hws__ucx.ucp_ep_close_nbx(ucx, &p))) {
            u->burying++; /* UCX says when that is done, if ever */
            u->worker->pending_ucx++;
        }
    }
    hws__uworker_unused(u);
}

static void cut_line(struct hws__endpoint *ep)
{
    struct hws__uworker *u = ep->upgrade.line_worker;
    ucp_ep_h line = ep->upgrade.line;

    ep->upgrade.line = NULL;
    ep->upgrade.line_worker = NULL;
    u->lines--;
    hws__uworker_cut(u, line, ep->cm_socket);
}

void hws__endpoint_detach(struct hws__endpoint *ep)
{
    struct hws__uworker *u = ep->uworker;
    ucp_ep_h ucx = ep->ucx;

    if (ep->lookup != NULL) {
        hws__lookup_abandon(ep->lookup);
        ep->lookup = NULL;
    }
    hws__uworker_unrequest(ep);
    hws__upgrade_end(ep);
    hws__rkeys_detach(ep);
    hws__bundle_drop(ep);
    ep->open = false;
    if (u == NULL) {
        return;
    }
    if (ep->raw && ucx != NULL) {
        ep->worker->raw_count--;
    }
    if (ucx != NULL) {
        hws__uworker_ep_remove(u, ep);
    }
    hws__stream_detach(ep);
    ep->ucx = NULL;
    ep->uworker = NULL;
    hws__uworker_set_deaf(u, false);
    if (u->role == HWS__ISOLATED) {
        HWS__COUNT(ep->worker, isolated, -1);
    }
    hws__late_cut(ep, u, ucx);
    if (ep->upgrade.line != NULL) {
        cut_line(ep);
    }
}

/* The connection manager's view of both ends. */
void hws__endpoint_addresses(struct hws__endpoint *ep)
{
    ucp_ep_attr_t a = {.field_mask =
                           UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR};

    ucp_ep_h ucx = ep->upgrade.line != NULL ? ep->upgrade.line : ep->ucx;

    if (ucx != NULL && hws__ucx.ucp_ep_query(ucx, &a) == UCS_OK) {
        ep->local = a.local_sockaddr;
        if (ep->server) { /* a client's stays as it was dialled */
            ep->peer = a.remote_sockaddr;
        }
    }
}

bool hws__endpoint_lanes(struct hws__endpoint *ep)
{
    unsigned flags = 0;

    hws__ucx_ep_lanes(ep->ucx, ep->lanes, sizeof ep->lanes, &flags);
    ep->transports = flags & 31u;
    ep->uworker->shm = ep->uworker->role == HWS__ISOLATED && (flags & HWS__LANE_DATA_SHM) != 0;
    ep->gap.tells = ep->uworker->shm && !ep->raw && !hws__ucx_at_least(1, 14);
    if (ep->uworker->role != HWS__ISOLATED && ep->uworker->role != HWS__ADDRESS_SHM &&
        (flags & HWS__LANE_SHM)) {
        HWS__COUNT(ep->worker, lane_violations, 1);
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "the peer's shared memory reached a shared worker");
        return false;
    }
    return true;
}

/** A flush that UCX works on. */
struct ucx_flush {
    struct hws__list link; /* hws__uworker.flushes */
    struct hws__endpoint *ep;
    struct hws__uworker *uworker;
    ucp_ep_h ucx;
    void (*then)(struct hws__endpoint *, ucs_status_t);
};

static void end_flush(struct ucx_flush *f, ucs_status_t status)
{
    hws__list_remove(&f->link);
    f->ep->ucx_flushes--;
    f->ep->worker->pending_ucx--;
    /* Of a dial that was given up it says nothing: UCX's endpoint is cut later than Hawser's. */
    f->then(f->ep, f->ucx == f->ep->ucx ? status : UCS_ERR_CANCELED);
    free(f);
}

static void ucx_flushed(void *request, ucs_status_t status, void *user_data)
{
    struct ucx_flush *f = user_data;

    hws__ucx.ucp_request_free(request);
    if (hws__uworker_destroying) {
        return; /* the owner ends it, see below */
    }
    end_flush(f, status);
}

void hws__endpoint_flush_orphans(struct hws__uworker *u)
{
    while (!hws__list_empty(&u->flushes)) {
        end_flush(hws__container(u->flushes.next, struct ucx_flush, link), UCS_ERR_CANCELED);
    }
}

int32_t hws__endpoint_ucx_flush(struct hws__endpoint *ep,
                                void (*then)(struct hws__endpoint *, ucs_status_t))
{
    struct ucx_flush *f = malloc(sizeof *f);
    ucp_request_param_t p = {.op_attr_mask =
                                 UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                             .cb.send = ucx_flushed,
                             .user_data = f};
    ucs_status_ptr_t r;

    if (f == NULL) {
        return HWS_E_NO_MEMORY;
    }
    *f = (struct ucx_flush){.ep = ep, .uworker = ep->uworker, .ucx = ep->ucx, .then = then};
    r = hws__ucx.ucp_ep_flush_nbx(ep->ucx, &p);
    if (!UCS_PTR_IS_PTR(r)) {
        free(f);
        return r == NULL ? HWS_DONE : hws__from_ucx(UCS_PTR_STATUS(r));
    }
    hws__list_append(&ep->uworker->flushes, &f->link);
    ep->ucx_flushes++;
    ep->worker->pending_ucx++;
    hws__uworker_heat(ep->uworker);
    return HWS_OK;
}
