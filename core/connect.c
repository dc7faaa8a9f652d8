/*
 * The client's side of a connection: resolve, find a UCX worker, dial, fall back.
 */
#include "acceptor.h"
#include "address.h"
#include "cm_socket.h"
#include "endpoint.h"
#include "error.h"
#include "gate.h"
#include "heap.h"
#include "guard.h"
#include "hello.h"
#include "host.h"
#include "late_device.h"
#include "log.h"
#include "lookup.h"
#include "options.h"
#include "post.h"
#include "progress.h"
#include "time.h"
#include "ucx_loader.h"
#include "waddress.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a connect may take that names no deadline. */
#define CONNECT_TIMEOUT_NS UINT64_C(30000000000)

static void resolved(struct hws__worker *w, void *arg)
{
    struct hws__lookup *l = arg;
    struct hws__endpoint *ep = l->endpoint != 0 ? hws__obj_find(&hws__objects, l->endpoint) : NULL;

    atomic_fetch_sub(&w->jobs, 1);
    if (ep != NULL) {
        ep->lookup = NULL;
        if (l->count == 0 && l->no_memory) {
            hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory to resolve a name");
        } else if (l->count == 0) {
            hws__endpoint_fail(ep, HWS_E_RESOLVE, "\"%.64s\" does not resolve", l->host);
        } else {
            ep->addresses = l->addresses;
            ep->address_count = l->count;
            l->addresses = NULL;
            hws__dial(ep);
        }
    }
    hws__lookup_free(l);
}

static void resolve(struct hws__endpoint *ep)
{
    struct hws__lookup *l;

    ep->address_count = hws__address_resolve(ep->host, ep->port, true, false, &ep->addresses);
    if (ep->address_count != 0) {
        hws__dial(ep);
        return;
    }
    if ((l = calloc(1, sizeof *l)) == NULL) {
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory to resolve a name");
        return;
    }
    l->worker = ep->worker;
    l->endpoint = ep->obj.id;
    l->told = resolved;
    l->port = ep->port;
    memcpy(l->host, ep->host, sizeof l->host);
    if (!hws__lookup_begin(l)) {
        hws__lookup_free(l);
        hws__endpoint_fail(ep, HWS_E_NO_RESOURCE, "no thread to resolve a name");
        return;
    }
    ep->lookup = l;
}

void hws__dial(struct hws__endpoint *ep)
{
    ep->phase = HWS__PHASE_WAITING;
    hws__uworker_request(ep);
}

/*
 * UCX says that a raw endpoint is connected by completing a flush. Nobody may send on one before, on either side: what
 * waits in UCX while the connection changes from TCP to shared memory goes as a short message of TCP's, which 1.22 writes
 * over several slots of the peer's queue and 1.13 fails as invalid.
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
    hws__cm_dialled(ep->dial_port, to);
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

/* Why an endpoint does not try shared memory. */
static uint32_t tcp_reason(const struct hws__endpoint *ep)
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
    ep->answered |= (status == HWS_E_CONNECTION_RESET || status == HWS_E_UNREACHABLE) &&
                    hws__cm_answered(ep->dial_port, &ep->addresses[ep->address_next]);
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
        ep->reason = ep->tcp_only ? tcp_reason(ep) : HWS_REASON_LOCAL;
        hws__dial(ep);
        return;
    }
    status = meaning(ep, status, by_tcp);
    hws__endpoint_fail(ep, status, "%.40s:%u: %s%s", ep->host, (unsigned)ep->port,
                       hws_error_text(status),
                       status == HWS_E_PEER_VERSION ? ", or has no descriptors left" : "");
}

static int32_t connect_run(struct hws__post *p)
{
    struct hws__endpoint *ep = (struct hws__endpoint *)(uintptr_t)p->tag;
    struct hws__worker *w = p->worker;
    struct hws__op *op;

    if (w->closing) {
        return hws__fail(HWS_E_CLOSING, p->source, "the worker is closing");
    }
    if (!hws__heap_reserve(w)) {
        return hws__fail(HWS_E_NO_MEMORY, p->source, "no memory for a deadline");
    }
    p->ep = ep;
    if ((op = hws__op_take(p)) == NULL) {
        return HWS_E_TOO_MANY; /* in no list yet: it is forgotten by who does not own the worker */
    }
    hws__list_append(&w->endpoints, &ep->link);
    if ((atomic_load(&ep->obj.asked) & HWS__ASKED) != 0) { /* by who did not find it in the list */
        atomic_store(&w->asked, true);
        w->todo = true;
    }
    HWS__COUNT(w, endpoints, 1);
    op->stage = HWS__STAGE_OWN;
    op->length = 0;
    op->source = ep->obj.id;
    ep->connect = op;
    hws__op_deadline(op, p->opts->timeout_ns != 0 ? p->opts->timeout_ns : CONNECT_TIMEOUT_NS);
    ep->starting = true;
    ((void (*)(struct hws__endpoint *))(uintptr_t)p->mask)(ep);
    ep->starting = false;
    return HWS_OK;
}

void hws__connect_refused(struct hws__post *p)
{
    struct hws__endpoint *ep = (struct hws__endpoint *)(uintptr_t)p->tag;

    if (ep->phase != HWS__PHASE_GONE) {
        hws__endpoint_forget(ep);
    }
}

int32_t hws__endpoint_options(struct hws__endpoint *ep, const hws_endpoint_opts *o)
{
    int32_t r;

    ep->close_timeout = o->close_timeout_ns != 0 ? o->close_timeout_ns : HWS__CLOSE_NS;
    if ((r = hws__sink_set(&ep->sink, &o->sink)) < 0) {
        return r;
    }
    if (hws__sink_none(&ep->sink)) {
        ep->sink = ep->worker->sink;
    }
    hws__sink_feed(&ep->sink, ep->worker->obj.id);
    return HWS_OK;
}

/* The address to connect from. */
static int32_t from_address(struct hws__endpoint *ep, const char *text)
{
    struct sockaddr_storage *local = NULL;
    bool here;

    if (hws__address_resolve(text, 0, true, false, &local) == 0) {
        if (errno == ENOMEM) {
            return hws__fail(HWS_E_NO_MEMORY, 0, "no memory for an address");
        }
        return hws__fail(HWS_E_INVALID, 0, "local address \"%.64s\"", text);
    }
    ep->local = local[0];
    ep->local_length = hws__address_length(&local[0]);
    here = hws__address_is_here(&local[0]);
    free(local);
    return here ? HWS_OK
                : hws__fail(HWS_E_INVALID, 0, "the local address %.64s is not of this machine",
                            text);
}

static int32_t fill(struct hws__endpoint *ep, const hws_endpoint_opts *o, const char *host,
                    uint16_t port)
{
    bool no_shm = ep->worker->context->flags & HWS_CONTEXT_NO_SHARED_MEMORY;
    int32_t r;

    if (o->flags & ~(uint32_t)(HWS_ENDPOINT_RAW | HWS_ENDPOINT_TCP_ONLY)) {
        return hws__fail(HWS_E_INVALID, 0, "unknown flags %#x", o->flags);
    }
    if ((o->flags & HWS_ENDPOINT_RAW) && (o->flags & HWS_ENDPOINT_TCP_ONLY)) {
        return hws__fail(HWS_E_INVALID, 0,
                         "a raw endpoint by TCP needs a context without shared memory");
    }
    if (strlen(host) >= sizeof ep->host) {
        return hws__fail(HWS_E_INVALID, 0, "a host name has at most 255 bytes");
    }
    snprintf(ep->host, sizeof ep->host, "%s", host);
    ep->port = port;
    ep->raw = (o->flags & HWS_ENDPOINT_RAW) != 0;
    ep->tcp_only = !ep->raw && ((o->flags & HWS_ENDPOINT_TCP_ONLY) || no_shm);
    ep->tcp = ep->tcp_only;
    ep->reason = ep->raw ? HWS_REASON_RAW : ep->tcp_only ? tcp_reason(ep) : HWS_REASON_LOCAL;
    if ((r = hws__endpoint_options(ep, o)) < 0) {
        return r;
    }
    if (o->local_address != NULL && (r = from_address(ep, o->local_address)) < 0) {
        return r;
    }
    return HWS_OK;
}

int32_t hws__connect_post(struct hws__endpoint *ep, void (*start)(struct hws__endpoint *),
                          const hws_op_opts *opts, hws_id *out, hws_id *op)
{
    struct hws__post p = {.run = connect_run,
                          .worker = ep->worker,
                          .source = ep->worker->obj.id,
                          .tag = (uint64_t)(uintptr_t)ep,
                          .mask = (uint64_t)(uintptr_t)start,
                          .kind = HWS_EVENT_CONNECT};
    int32_t r;

    *out = hws__obj_publish(&hws__objects, &ep->obj);
    if ((r = hws__post(&p, opts, op)) < 0) {
        *out = 0;
        hws__endpoint_forget(ep);
    }
    return r;
}

int32_t hws_connect(hws_id worker, const char *host, uint16_t port,
                    const hws_endpoint_opts *endpoint_opts, const hws_op_opts *opts, hws_id *out,
                    hws_id *op)
{
    struct hws__endpoint *ep;
    struct hws__worker *w;
    hws_endpoint_opts o;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((w = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    if (host == NULL || host[0] == '\0' || out == NULL || port == 0) {
        return hws__fail(HWS_E_INVALID, worker, "host, port and out must be given");
    }
    if ((r = hws__options(&o, sizeof o, endpoint_opts, "endpoint")) < 0) {
        return r;
    }
    if ((ep = hws__endpoint_new(w)) == NULL) {
        return hws__fail(hws__obj_missing(&hws__objects), worker, "no endpoint is free");
    }
    if ((r = fill(ep, &o, host, port)) < 0) {
        hws__endpoint_forget(ep);
        return r;
    }
    return hws__connect_post(ep, resolve, opts, out, op);
}
