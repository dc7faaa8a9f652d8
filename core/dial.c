/*
 * The client's way to its peer: resolve, find a UCX worker, dial, fall back.
 */
#include "dial.h"
#include "acceptor.h"
#include "address.h"
#include "cm_socket.h"
#include "error.h"
#include "gate.h"
#include "hello.h"
#include "host.h"
#include "isolated.h"
#include "late_device.h"
#include "log.h"
#include "lookup.h"
#include "time.h"
#include "ucx_loader.h"
#include "waddress.h"
#include <stdlib.h>
#include <string.h>

static void resolved(struct hws__worker *w, void *arg)
{
    struct hws__lookup *l = arg;
    struct hws__endpoint *ep = l->endpoint != 0 ? hws__obj_find(&hws__objects, l->endpoint) : NULL;

    atomic_fetch_sub(&w->jobs, 1);
    if (ep != NULL) {
        ep->lookup = NULL;
        if (l->count == 0 && l->no_memory) {
            hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory to hws__dial_resolve a name");
        } else if (l->count == 0) {
            hws__endpoint_fail(ep, HWS_E_RESOLVE, "\"%.64s\" does not hws__dial_resolve", l->host);
        } else {
            ep->addresses = l->addresses;
            ep->address_count = l->count;
            l->addresses = NULL;
            hws__dial(ep);
        }
    }
    hws__lookup_free(l);
}

void hws__dial_resolve(struct hws__endpoint *ep)
{
    struct hws__lookup *l;

    ep->address_count = hws__address_resolve(ep->host, ep->port, true, false, &ep->addresses);
    if (ep->address_count != 0) {
        hws__dial(ep);
        return;
    }
    if ((l = calloc(1, sizeof *l)) == NULL) {
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory to hws__dial_resolve a name");
        return;
    }
    l->worker = ep->worker;
    l->endpoint = ep->obj.id;
    l->told = resolved;
    l->port = ep->port;
    memcpy(l->host, ep->host, sizeof l->host);
    if (!hws__lookup_begin(l)) {
        hws__lookup_free(l);
        hws__endpoint_fail(ep, HWS_E_NO_RESOURCE, "no thread to hws__dial_resolve a name");
        return;
    }
    ep->lookup = l;
}

void hws__dial(struct hws__endpoint *ep)
{
    ep->phase = HWS__PHASE_WAITING;
    hws__uworker_request(ep);
}

/* UCX connects to the next address. */
void hws__dial_on(struct hws__endpoint *ep, struct hws__uworker *u)
{
    const struct sockaddr_storage *to = &ep->addresses[ep->address_next];
    struct sockaddr_storage peer = hws__address_for_ucx(to),
                            local = hws__address_for_ucx(&ep->local);
    ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
                         .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER |
                                  (ep->raw ? 0 : UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID),
                         .sockaddr = {(struct sockaddr *)&peer, hws__address_length(to)},
                         .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                         .err_handler = {hws__endpoint_error_cb, ep}};
    ucp_ep_h ucx;
    ucs_status_t s;

    if (ep->local_length != 0) {
        p.field_mask |= UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR;
        p.local_sockaddr.addr = (struct sockaddr *)&local;
        p.local_sockaddr.addrlen = ep->local_length;
    }
    hws__acceptors_sweep();
    s = !hws__context_family(u->context, to->ss_family) ? UCS_ERR_UNSUPPORTED
        : !hws__gate_admits()                           ? UCS_ERR_NO_RESOURCE
                                                        : hws__ucx.ucp_ep_create(u->ucx, &p, &ucx);
    if (s != UCS_OK) {
        ep->uworker = u; /* for hws__endpoint_detach() */
        hws__dial_failed(ep, hws__from_ucx(s));
        return;
    }
    ep->peer = *to;
    if (!hws__endpoint_attach(ep, u, ucx)) {
        hws__dial_failed(ep, HWS_E_NO_MEMORY);
        return;
    }
    ep->phase = HWS__PHASE_HELLO;
    ep->dial_port = hws__cm_port(ucx);
    ep->cm_socket = hws__cm_dialled(ep->dial_port, to);
    if (ep->address_count - ep->address_next > 1 && ep->connect != NULL) {
        /* An address that swallows everything must leave time for the others. */
        hws__endpoint_deadline(ep, hws__left(ep->connect->deadline) /
                                       (ep->address_count - ep->address_next));
    }
    if (ep->raw) {
        hws__raw_start(ep);
    } else if (hws__upgrade_wanted(ep)) {
        hws__upgrade_start(ep);
    } else {
        hws__hello_start(ep);
    }
}

ucs_status_t hws__address_ep(struct hws__endpoint *ep, struct hws__uworker *u, const void *address,
                             ucp_ep_h *out)
{
    ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
                         .address = address,
                         .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                         .err_handler = {hws__endpoint_error_cb, ep}};

    return hws__ucx.ucp_ep_create(u->ucx, &p, out);
}

void hws__dial_address(struct hws__endpoint *ep, struct hws__uworker *u, const void *address)
{
    uint64_t *made = hws__pairing(u, address);
    ucp_ep_h ucx;
    ucs_status_t s;

    if (made == NULL) {
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "worker address");
        return;
    }
    if ((s = hws__address_ep(ep, u, address, &ucx)) != UCS_OK) {
        hws__endpoint_fail(ep, hws__from_ucx(s), "worker address: %s",
                           hws__ucx.ucs_status_string(s));
        return;
    }
    ep->number = (*made)++;
    if (!hws__endpoint_attach(ep, u, ucx)) {
        hws__dial_failed(ep, HWS_E_NO_MEMORY);
        return;
    }
    ep->phase = HWS__PHASE_HELLO;
    ep->send_flags = UCP_AM_SEND_FLAG_REPLY;
    if (ep->lazy) {
        hws__endpoint_opened(ep);
    } else if (ep->raw) {
        hws__raw_start(ep);
    } else if (!ep->server) {
        hws__hello_start(ep);
    }
}

uint32_t hws__dial_tcp_reason(const struct hws__endpoint *ep)
{
    return ep->worker->context->no_shm ? HWS_REASON_SHM_FAILED : HWS_REASON_TCP_ONLY;
}

/* With fewer descriptors left a dial did not fail because of the peer. */
#define DIAL_FDS 8

/* There was no answer from the last address that was tried. */
static int32_t unanswered(const struct hws__endpoint *ep)
{
    return ep->addresses == NULL || ep->address_next == 0 ||
                   hws__address_has_route(&ep->addresses[ep->address_next - 1])
               ? HWS_E_REFUSED
               : HWS_E_UNREACHABLE;
}

/* What a failed dial means to the caller. UCX has one word for want of a descriptor here and for nobody there. */
static int32_t meaning(const struct hws__endpoint *ep, int32_t status, bool by_tcp)
{
    if (status != HWS_E_REJECTED && status != HWS_E_TIMED_OUT && !hws__fd_room(DIAL_FDS)) {
        return HWS_E_NO_RESOURCE;
    }
    switch (status) {
    case HWS_E_REJECTED:
        /* A Hawser listener of the same UCX rejects a dial by TCP at this level only when it is closed,
         * and then not twice, or when it has no descriptors left. */
        return by_tcp && !ep->raw ? HWS_E_PEER_VERSION : HWS_E_REJECTED;
    case HWS_E_UNREACHABLE: /* of the listener, or of the way that the data would go */
        return ep->answered ? HWS_E_UNREACHABLE : unanswered(ep);
    case HWS_E_NOT_CONNECTED:
    case HWS_E_IO:
    case HWS_E_CONNECTION_RESET: /* also UCX's word for a refusal that it meets while it sends */
        return ep->answered ? HWS_E_CONNECTION_RESET : unanswered(ep);
    case HWS_E_TOO_BIG: /* more events than UCX_ASYNC_MAX_EVENTS */
        return HWS_E_NO_RESOURCE;
    default:
        return status;
    }
}

/* A TCP worker that ran out of descriptors can never be connected to again, and an outdated one has no device towards
 * the peer: the next dial gets a new one. True if it is so. */
static bool replaced(struct hws__endpoint *ep, bool outdated)
{
    struct hws__uworker *u = ep->uworker;

    if (u == NULL || u->role != HWS__TCP ||
        (!u->replaced && !outdated && !hws__acceptors_lost(u))) {
        return false;
    }
    hws__uworker_replace(u);
    return true;
}

/* Whether no way led to the peer because the device towards it is younger than the UCX worker. */
static enum hws__device missed_device(const struct hws__endpoint *ep, int32_t status)
{
    const struct hws__uworker *u = ep->uworker;

    return status == HWS_E_UNREACHABLE && u != NULL && u->role == HWS__TCP
               ? hws__context_device_towards(u->context, &u->tcp->devices,
                                             &ep->addresses[ep->address_next])
               : HWS__DEVICE_KNOWN;
}

void hws__dial_failed(struct hws__endpoint *ep, int32_t status)
{
    struct hws__worker *w = ep->worker;
    bool by_tcp = hws__upgrade_by_tcp(ep);
    enum hws__device device = missed_device(ep, status);
    bool waits = device == HWS__DEVICE_STARTING && hws__late_device_wait(ep, hws__dial);
    bool again =
        replaced(ep, device == HWS__DEVICE_NEW) && !ep->redialled && status != HWS_E_TIMED_OUT;
    bool closing = by_tcp && status == HWS_E_REJECTED && !ep->raw && !ep->rejected;

    hws__log(HWS_LOG_DEBUG, "dial %s:%u%s: %s", ep->host, (unsigned)ep->port,
             by_tcp ? " by TCP" : "", hws_error_name(status));
    ep->answered |=
        (status == HWS_E_CONNECTION_RESET || status == HWS_E_UNREACHABLE) &&
        hws__cm_answered(ep->cm_socket, ep->dial_port, &ep->addresses[ep->address_next]);
    hws__endpoint_detach(ep);
    ep->ucx_error = false;
    if (waits) {
        return;
    }
    if (again) {
        ep->redialled = true;
        hws__dial(ep);
        return;
    }
    if (closing) {
        ep->rejected = true;
        HWS__COUNT(w, redials, 1);
        hws__dial(ep);
        return;
    }
    if (!by_tcp && !ep->raw && status != HWS_E_TIMED_OUT) {
        /* No isolated worker left over there, another version, memory that cannot be shared, or
         * nobody at all: TCP tells which. */
        ep->tcp = true;
        ep->reason = status == HWS_E_REJECTED ? HWS_REASON_CAP : HWS_REASON_SHM_FAILED;
        HWS__COUNT(w, redials, 1);
        hws__dial(ep);
        return;
    }
    if (++ep->address_next < ep->address_count) {
        ep->answered = false;
        ep->tcp = ep->tcp_only;
        ep->reason = ep->tcp_only ? hws__dial_tcp_reason(ep) : HWS_REASON_LOCAL;
        hws__dial(ep);
        return;
    }
    status = meaning(ep, status, by_tcp);
    hws__endpoint_fail(
        ep, status, "%.40s:%u: %s%s", ep->host, (unsigned)ep->port, hws_error_text(status),
        status == HWS_E_PEER_VERSION ? ", or has no descriptors or memory left" : "");
}
