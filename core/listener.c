#include "listener.h"
#include "acceptor.h"
#include "address.h"
#include "cm_socket.h"
#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "late_device.h"
#include "log.h"
#include "options.h"
#include "progress.h"
#include "sockets.h"
#include "strangers.h"
#include "ucx_loader.h"
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hws__listener *hws__listener_find(hws_id id, int32_t *error)
{
    return hws__obj_get(id, HWS_KIND_LISTENER, error);
}

struct hws__listener *hws__listener_of(const struct hws__endpoint *ep)
{
    return ep->listener != 0 ? hws__obj_find(&hws__objects, ep->listener) : NULL;
}

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
static void request_cb(ucp_conn_request_h request, void *arg)
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

/* By TCP: on the main UCX worker, unless that ran out of descriptors once and cannot be connected to any more, or
 * looks at all devices and would not agree on one with a client that looks at one. The other TCP worker looks at one:
 * who looks at all is turned away from it, and dials again from one. */
static void place_tcp(struct hws__endpoint *ep)
{
    struct hws__uworker *u = ep->worker->main;
    bool lost = hws__acceptors_lost(u), all_devices = u->tcp == NULL;

    if (!lost && !(all_devices && ep->one_device)) {
        hws__endpoint_uworker(ep, u);
    } else if (all_devices && !ep->one_device) {
        hws__endpoint_uworker(ep, NULL);
    } else {
        hws__uworker_request(ep);
    }
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
        if (w->tcp != NULL && hws__context_device_towards(w->context, &w->tcp->tcp->devices,
                                                          &ep->request_peer) == HWS__DEVICE_NEW) {
            hws__uworker_replace(w->tcp);
        }
        ep->tcp = true;
        hws__uworker_request(ep);
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
        place_tcp(ep);
    } else {
        hws__uworker_request(ep);
    }
}

/* Where a request goes, by what the client says before anything is accepted. */
static void handle(struct hws__listener *l, ucp_conn_request_h request)
{
    ucp_conn_request_attr_t a = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR |
                                               UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID};
    bool shm = (l->worker->context->flags & HWS_CONTEXT_NO_SHARED_MEMORY) == 0;
    struct hws__client c = {0};
    struct hws__endpoint *ep;
    ucs_status_t s = hws__ucx.ucp_conn_request_query(request, &a);

    if (s == UCS_OK) {
        c = hws__client_parse(a.client_id);
    } else {
        a.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
        s = hws__ucx.ucp_conn_request_query(request, &a);
    }
    if (s != UCS_OK || (!c.known && (l->flags & HWS_LISTENER_RAW) == 0)) {
        l->strangers++;
        reject(l, request, "not a peer of this protocol");
        return;
    }
    if (c.known && (!c.same_protocol || !c.same_ucx)) {
        l->strangers++;
        reject(l, request, "PEER_VERSION: another version of UCX or of the protocol");
        return;
    }
    if ((ep = hws__endpoint_new(l->worker)) == NULL) {
        reject(l, request, "out of memory");
        return;
    }
    ep->server = true;
    ep->raw = !c.known;
    ep->one_device = c.tcp_only;
    ep->listener = l->obj.id;
    ep->request = request;
    ep->peer = ep->request_peer = a.client_address;
    ep->sink = l->endpoint_sink;
    ep->close_timeout = l->close_timeout;
    ep->reason = ep->raw        ? HWS_REASON_RAW
                 : !c.same_host ? HWS_REASON_REMOTE
                 : c.tcp_only   ? HWS_REASON_CAP
                 : !shm         ? HWS_REASON_TCP_ONLY
                                : HWS_REASON_LOCAL;
    hws__obj_publish(&hws__objects, &ep->obj);
    hws__list_append(&l->worker->endpoints, &ep->link);
    HWS__COUNT(l->worker, endpoints, 1);
    ep->phase = HWS__PHASE_WAITING;
    hws__endpoint_deadline(ep, l->hello_timeout);
    if (c.tcp_only && c.same_host && shm && !ep->raw && l->worker->context->upgrades) {
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
        hws__cm_pause(ep->worker->main, &ep->request_peer, l->port);
    } else if (l != NULL) {
        hws__cm_accepted(l->port, &ep->request_peer);
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

static int32_t create(struct hws__listener *l, const struct sockaddr_storage *a,
                      ucp_listener_h *out)
{
    struct sockaddr_storage at = hws__address_for_ucx(a);
    ucp_listener_params_t p = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                             UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                               .sockaddr = {(const struct sockaddr *)&at, hws__address_length(a)},
                               .conn_handler = {request_cb, l}};
    ucp_listener_attr_t q = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucs_status_t s = hws__ucx.ucp_listener_create(l->worker->main->ucx, &p, out);

    if (s == UCS_ERR_BUSY) {
        return hws__fail(HWS_E_ADDRESS_IN_USE, 0, "port %u is in use", hws__address_port(a));
    }
    if (s == UCS_ERR_IO_ERROR || s == UCS_ERR_NO_DEVICE || s == UCS_ERR_UNREACHABLE) {
        return hws__fail(HWS_E_UNREACHABLE, 0, "no device of this machine has the address");
    }
    if (s != UCS_OK) {
        return hws__fail_ucx(s, 0, "ucp_listener_create: %s", hws__ucx.ucs_status_string(s));
    }
    if ((s = hws__ucx.ucp_listener_query(*out, &q)) != UCS_OK) {
        hws__ucx.ucp_listener_destroy(*out);
        *out = NULL;
        return hws__fail_ucx(s, 0, "ucp_listener_query: %s", hws__ucx.ucs_status_string(s));
    }
    hws__address_host(a, l->address, sizeof l->address);
    l->port = hws__address_port(&q.sockaddr);
    return HWS_OK;
}

/* UCX's listener on :: takes no IPv4 connections and keeps others off the port: so every address
 * means 0.0.0.0 and each IPv6 address that the machine has now. */
static void add_ipv6(struct hws__listener *l)
{
    char address[sizeof l->address];
    struct ifaddrs *list = NULL;
    uint16_t port = l->port;

    memcpy(address, l->address, sizeof address);
    if (getifaddrs(&list) != 0) {
        return;
    }
    for (struct ifaddrs *i = list; i != NULL && l->ucx6_count < HWS__LISTEN6; i = i->ifa_next) {
        struct sockaddr_storage a = {0};

        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET6) {
            continue;
        }
        memcpy(&a, i->ifa_addr, sizeof(struct sockaddr_in6));
        if (IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)&a)->sin6_addr)) {
            continue;
        }
        ((struct sockaddr_in6 *)&a)->sin6_port = htons(port);
        l->ucx6_count += create(l, &a, &l->ucx6[l->ucx6_count]) == HWS_OK;
    }
    freeifaddrs(list);
    memcpy(l->address, address, sizeof address);
    l->port = port;
}

static int32_t bind_to(struct hws__listener *l, const char *host, uint16_t port)
{
    struct sockaddr_storage *list = NULL;
    uint32_t n = hws__address_resolve(host == NULL ? "0.0.0.0" : host, port, true, true, &list);
    int32_t r;

    if (n == 0 && errno == ENOMEM) {
        return hws__fail(HWS_E_NO_MEMORY, 0, "no memory for an address");
    }
    if (n == 0) {
        return hws__fail(HWS_E_INVALID, 0, "\"%.64s\" is not an address", host);
    }
    if (list[0].ss_family == AF_INET6 && !hws__context_family(l->worker->context, AF_INET6)) {
        r = hws__fail(HWS_E_UNSUPPORTED, 0,
                      "IPv6 needs UCX 1.14 and TCP_AF_PRIO=inet6,inet in the context's config");
    } else {
        r = create(l, &list[0], &l->ucx);
    }
    free(list);
    if (r == HWS_OK && host == NULL && hws__context_family(l->worker->context, AF_INET6)) {
        add_ipv6(l);
    }
    return r;
}

static int32_t copy_options(struct hws__listener *l, const hws_listener_opts *o)
{
    int32_t r;

    if (o->flags & ~(uint32_t)(HWS_LISTENER_EXPLICIT | HWS_LISTENER_RAW)) {
        return hws__fail(HWS_E_INVALID, 0, "unknown flags %#x", o->flags);
    }
    l->flags = o->flags;
    l->hello_timeout = o->hello_timeout_ns != 0 ? o->hello_timeout_ns : HWS__HELLO_NS;
    l->close_timeout = o->close_timeout_ns != 0 ? o->close_timeout_ns : HWS__CLOSE_NS;
    if ((r = hws__sink_set(&l->sink, &o->sink)) < 0 ||
        (r = hws__sink_set(&l->endpoint_sink, &o->endpoint_sink)) < 0) {
        return r;
    }
    if (hws__sink_none(&l->sink)) {
        l->sink = l->worker->sink;
    }
    if (hws__sink_none(&l->endpoint_sink)) {
        l->endpoint_sink = l->worker->sink;
    }
    hws__sink_feed(&l->sink, l->worker->obj.id);
    hws__sink_feed(&l->endpoint_sink, l->worker->obj.id);
    return HWS_OK;
}

int32_t hws_listen(hws_id worker, const char *host, uint16_t port, const hws_listener_opts *opts,
                   hws_id *out)
{
    struct hws__listener *l;
    struct hws__worker *w;
    hws_listener_opts o;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((w = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    if (out == NULL) {
        return hws__fail(HWS_E_INVALID, worker, "out is null");
    }
    if ((r = hws__options(&o, sizeof o, opts, "listener")) < 0) {
        return r;
    }
    l = (struct hws__listener *)(void *)hws__obj_alloc(&hws__objects, HWS_KIND_LISTENER, sizeof *l,
                                                       HWS__KEEP(struct hws__listener, ucx));
    if (l == NULL) {
        return hws__fail(hws__obj_missing(&hws__objects), worker, "no listener is free");
    }
    l->worker = w;
    hws__list_init(&l->link);
    if ((r = hws__own_call(w, worker, &nested)) < 0) {
        hws__obj_free(&hws__objects, &l->obj);
        return r;
    }
    if (atomic_load(&w->obj.id) != worker || w->closing) {
        r = hws__fail(HWS_E_CLOSING, worker, "the worker is closing");
    } else if ((r = copy_options(l, &o)) == HWS_OK && (r = bind_to(l, host, port)) == HWS_OK) {
        *out = hws__obj_publish(&hws__objects, &l->obj);
        hws__list_append(&w->listeners, &l->link);
        hws__uworker_heat(w->main);
        hws__spares_fill(w, 0);
        hws__sockets_screen(l->port);
        hws__strangers_watch(l);
        hws__gate_join(l);
    }
    hws__disown(w, nested);
    if (r < 0) {
        hws__obj_free(&hws__objects, &l->obj);
    } else if (!nested) {
        hws__wake(w);
    }
    return r;
}

/* Also those that come meanwhile. */
static void reject_pending(struct hws__listener *l)
{
    while (l->pending_count != 0) {
        hws__cm_reject(l->worker->main, l->ucx, l->pending[--l->pending_count]);
    }
}

void hws__listener_close(struct hws__listener *l)
{
    hws_event e = {.kind = HWS_EVENT_CLOSED, .source = l->obj.id};
    struct hws__worker *w = l->worker;

    hws__gate_leave(l);
    reject_pending(l);
    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, link);

        if (ep->listener == l->obj.id && ep->request != NULL) {
            hws__cm_reject(l->worker->main, l->ucx, ep->request);
            ep->request = NULL;
            hws__endpoint_fail(ep, HWS_E_CLOSING, "the listener is closed");
        } else if (ep->listener == l->obj.id && ep->ucx != NULL && !ep->failed && !ep->refused &&
                   (ep->phase == HWS__PHASE_HELLO || ep->phase == HWS__PHASE_REQUEST)) {
            hws__hello_refuse(ep, HWS_E_REJECTED);
        }
    }
    hws__strangers_end(l);
    reject_pending(l); /* which were on their way inside UCX */
    hws__ucx.ucp_listener_destroy(l->ucx);
    for (uint32_t i = 0; i < l->ucx6_count; i++) {
        hws__ucx.ucp_listener_destroy(l->ucx6[i]);
    }
    hws__list_remove(&l->link);
    hws__worker_unused(w);
    free(l->pending);
    l->pending = NULL;
    hws__emit(w, &l->sink, &e, NULL);
    hws__obj_free(&hws__objects, &l->obj);
}

int32_t hws_listener_query(hws_id listener, hws_listener_info *out)
{
    hws_listener_info info = {0};
    struct hws__listener *l;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((l = hws__listener_find(listener, &r)) == NULL) {
        return r;
    }
    info.port = l->port;
    memcpy(info.address, l->address, sizeof info.address);
    info.requests = l->requests;
    info.accepted = l->accepted;
    info.rejected = l->rejected;
    info.redirected = l->redirected;
    info.strangers = l->strangers;
    info.bad_auth = l->bad_auth;
    if (!hws__obj_is_still(&l->obj, listener)) {
        return hws__id_error(&hws__objects, listener, HWS_KIND_LISTENER);
    }
    return hws__fill(out, &info, sizeof info, "listener info");
}

/* The answer to a REQUEST, under ownership. */
static int32_t answer(hws_id id, bool yes)
{
    struct hws__endpoint *ep;
    struct hws__listener *l;
    struct hws__worker *w;
    bool nested;
    int32_t r = HWS_OK;

    if ((ep = hws__endpoint_find(id, &r)) == NULL) {
        return r;
    }
    w = ep->worker; /* once: the endpoint's memory may become another's until it is owned */
    if ((r = hws__own_call(w, id, &nested)) < 0) {
        return r;
    }
    if (atomic_load(&ep->obj.id) != id || ep->worker != w || ep->failed) {
        r = hws__fail(HWS_E_STALE, id, "the peer has given up");
    } else if (ep->phase != HWS__PHASE_REQUEST || ep->accepted || ep->refused) {
        r = hws__fail(HWS_E_IN_USE, id, "it was answered already");
    } else if (yes) {
        ep->accepted = true;
        hws__hello_welcome(ep);
    } else {
        if ((l = hws__listener_of(ep)) != NULL) {
            l->rejected++;
        }
        hws__hello_refuse(ep, HWS_E_REJECTED);
    }
    hws__disown(w, nested);
    if (!nested) {
        hws__wake(w);
    }
    return r;
}

int32_t hws_accept(hws_id endpoint)
{
    HWS__ENTER();
    return answer(endpoint, true);
}

int32_t hws_reject(hws_id endpoint)
{
    HWS__ENTER();
    return answer(endpoint, false);
}
