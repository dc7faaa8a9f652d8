/*
 * Connecting: what the caller asks for, and the operation that ends when the endpoint is open.
 */
#include "endpoint.h"
#include "address.h"
#include "dial.h"
#include "error.h"
#include "guard.h"
#include "heap.h"
#include "options.h"
#include "post.h"
#include "waddress.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a connect may take that names no deadline. */
#define CONNECT_TIMEOUT_NS UINT64_C(30000000000)

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
    ep->reason = ep->raw        ? HWS_REASON_RAW
                 : ep->tcp_only ? hws__dial_tcp_reason(ep)
                                : HWS_REASON_LOCAL;
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
    return hws__connect_post(ep, hws__dial_resolve, opts, out, op);
}
