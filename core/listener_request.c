/*
 * Connection requests: noted inside UCX, and after the sweep each placed on the UCX worker that fits.
 */
#include "listener.h"
#include "acceptor.h"
#include "cm_socket.h"
#include "endpoint.h"
#include "hello.h"
#include "isolated.h"
#include "late_device.h"
#include "log.h"
#include "progress.h"
#include "ucx_loader.h"
#include <stdlib.h>

static bool more_pending(struct hws__listener *l)
{
    uint32_t room = l->pending_room != 0 ? 2 * l->pending_room : 64;
    ucp_conn_request_h *more = realloc(l->pending, room * sizeof *more);

    if (more == NULL) {
        return false;
    }
    l->pending = more;
    l->pending_room = room;
    return true;
}

/* Inside UCX: only note it. A client takes a second rejection for another version, so however many come
 * at once, none is rejected here but for want of memory. */
void hws__listener_request_cb(ucp_conn_request_h request, void *arg)
{
    struct hws__listener *l = arg;

    l->requests++;
    if (l->pending_count == l->pending_room && !more_pending(l)) {
        hws__ucx.ucp_listener_reject(l->ucx, request);
        return;
    }
    l->pending[l->pending_count++] = request;
    l->worker->tick = HWS__TICK;
}

static void reject(struct hws__listener *l, ucp_conn_request_h request, const char *why)
{
    hws__log(HWS_LOG_INFO, "listener %s:%u: a connection is refused: %s", l->address,
             (unsigned)l->port, why);
    hws__cm_reject(l->worker->main, l->ucx, request);
}

/* Of the main UCX worker, towards the client. */
static enum hws__device main_device(const struct hws__endpoint *ep)
{
    const struct hws__worker *w = ep->worker;

    return hws__context_device_towards(
        w->context, w->main->tcp != NULL ? &w->main->tcp->devices : &w->context->devices,
        &ep->request_peer);
}

/* By TCP: on the main UCX worker, unless that cannot be connected to (it ran out of descriptors once, or has not the
 * client's device: outdated), or looks at all devices and would not agree on one with a client that looks at one. The
 * other TCP worker looks at one: who looks at all is turned away from it, and dials again from one. UCX 1.13 would leave
 * it without an answer. */
static void place_tcp(struct hws__endpoint *ep, bool outdated)
{
    struct hws__uworker *u = ep->worker->main;
    bool lost = outdated || hws__acceptors_lost(u), all_devices = u->tcp == NULL;

    if (!lost && !(all_devices && ep->one_device)) {
        hws__endpoint_uworker(ep, u);
    } else if (all_devices && !ep->one_device) {
        hws__endpoint_uworker(ep, NULL);
    } else {
        hws__uworker_request(ep);
    }
}

/* By TCP on a UCX worker whose context has the client's device. On UCX 1.13 the client tried shared memory first, which
 * begins with a context that has not. */
static void place_new(struct hws__endpoint *ep)
{
    struct hws__worker *w = ep->worker;

    if (w->tcp != NULL && hws__context_device_towards(w->context, &w->tcp->tcp->devices,
                                                      &ep->request_peer) == HWS__DEVICE_NEW) {
        hws__uworker_replace(w->tcp);
    }
    ep->tcp = true;
    if (w->main->tcp == NULL && ep->reason == HWS_REASON_CAP) {
        ep->reason = HWS_REASON_SHM_FAILED;
    }
    place_tcp(ep, true);
}

/* Accept on the UCX worker that fits; or, if the client came by a device that is younger than the UCX context, by TCP
 * on one whose context has it. UCX 1.13 would leave the client without an answer. */
static void place(struct hws__endpoint *ep)
{
    struct hws__worker *w = ep->worker;
    bool shm = (w->context->flags & HWS_CONTEXT_NO_SHARED_MEMORY) == 0;

    ep->tcp = ep->raw ? !shm : ep->reason != HWS_REASON_LOCAL;
    if (!hws__gate_admits()) {
        hws__endpoint_uworker(ep, NULL);
        return;
    }
    switch (ep->raw ? HWS__DEVICE_KNOWN : main_device(ep)) {
    case HWS__DEVICE_NEW:
        place_new(ep);
        return;
    case HWS__DEVICE_STARTING:
        if (hws__late_device_wait(ep, place)) {
            return;
        }
        break;
    default:
        break;
    }
    if (ep->tcp) {
        place_tcp(ep, false);
    } else {
        hws__uworker_request(ep);
    }
}

/* What the client says of itself before anything is accepted. False: UCX cannot tell where it is. */
static bool ask_client(ucp_conn_request_h request, struct hws__client *c,
                       struct sockaddr_storage *from)
{
    ucp_conn_request_attr_t a = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR |
                                               UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID};
    ucs_status_t s = hws__ucx.ucp_conn_request_query(request, &a);

    if (s == UCS_OK) {
        *c = hws__client_parse(a.client_id);
    } else {
        a.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
        s = hws__ucx.ucp_conn_request_query(request, &a);
    }
    *from = a.client_address;
    return s == UCS_OK;
}

/* Why the connection takes the way it does, see hws_endpoint_info. */
static uint32_t reason_of(const struct hws__listener *l, const struct hws__client *c)
{
    return !c->known                                                         ? HWS_REASON_RAW
           : !c->same_host                                                   ? HWS_REASON_REMOTE
           : c->tcp_only                                                     ? HWS_REASON_CAP
           : (l->worker->context->flags & HWS_CONTEXT_NO_SHARED_MEMORY) != 0 ? HWS_REASON_TCP_ONLY
                                                                             : HWS_REASON_LOCAL;
}

/* The server's end of the connection, which begins to wait for a UCX worker. Null: no memory. */
static struct hws__endpoint *server_new(struct hws__listener *l, ucp_conn_request_h request,
                                        const struct hws__client *c,
                                        const struct sockaddr_storage *from)
{
    struct hws__endpoint *ep = hws__endpoint_new(l->worker);

    if (ep == NULL) {
        return NULL;
    }
    ep->server = true;
    ep->raw = !c->known;
    ep->one_device = c->tcp_only;
    ep->listener = l->obj.id;
    ep->request = request;
    ep->peer = ep->request_peer = *from;
    ep->sink = l->endpoint_sink;
    ep->close_timeout = l->close_timeout;
    ep->reason = reason_of(l, c);
    hws__obj_publish(&hws__objects, &ep->obj);
    hws__list_append(&l->worker->endpoints, &ep->link);
    HWS__COUNT(l->worker, endpoints, 1);
    ep->phase = HWS__PHASE_WAITING;
    hws__endpoint_deadline(ep, l->hello_timeout);
    return ep;
}

static void handle(struct hws__listener *l, ucp_conn_request_h request)
{
    struct sockaddr_storage from;
    struct hws__client c = {0};
    struct hws__endpoint *ep;

    if (!ask_client(request, &c, &from) || (!c.known && (l->flags & HWS_LISTENER_RAW) == 0)) {
        l->strangers++;
        reject(l, request, "not a peer of this protocol");
        return;
    }
    if (c.known && (!c.same_protocol || !c.same_ucx)) {
        l->strangers++;
        reject(l, request, "PEER_VERSION: another version of UCX or of the protocol");
        return;
    }
    if ((ep = server_new(l, request, &c, &from)) == NULL) {
        reject(l, request, "out of memory");
        return;
    }
    if (c.known && c.tcp_only && c.same_host && l->worker->context->upgrades) {
        hws__spares_fill(l->worker, 0); /* its hello may ask for one */
    }
    place(ep);
}

int hws__listener_step(struct hws__listener *l)
{
    ucp_conn_request_h *pending = l->pending;
    uint32_t n = l->pending_count;

    if (n == 0) {
        return 0;
    }
    /* Handling makes progress now and then, and more may come. */
    l->pending = NULL;
    l->pending_count = l->pending_room = 0;
    for (uint32_t i = 0; i < n; i++) {
        handle(l, pending[i]);
    }
    free(pending);
    return (int)n;
}
