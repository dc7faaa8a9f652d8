/*
 * Listeners: bound to their addresses, asked about and closed.
 */
#include "listener.h"
#include "address.h"
#include "cm_socket.h"
#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "isolated.h"
#include "options.h"
#include "own.h"
#include "progress.h"
#include "sockets.h"
#include "strangers.h"
#include "ucx_loader.h"
#include <errno.h>
#include <ifaddrs.h>
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

static int32_t create(struct hws__listener *l, const struct sockaddr_storage *a,
                      ucp_listener_h *out)
{
    struct sockaddr_storage at = hws__address_for_ucx(a);
    ucp_listener_params_t p = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                             UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                               .sockaddr = {(const struct sockaddr *)&at, hws__address_length(a)},
                               .conn_handler = {hws__listener_request_cb, l}};
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
