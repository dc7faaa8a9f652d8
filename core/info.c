#include "address.h"
#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "options.h"
#include "progress.h"
#include "ucx_loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t state_of(const struct hws__endpoint *ep)
{
    return ep->closing                       ? HWS_STATE_CLOSING
           : ep->failed                      ? HWS_STATE_FAILED
           : ep->peer_closed                 ? HWS_STATE_PEER_CLOSED
           : ep->phase == HWS__PHASE_OPEN    ? HWS_STATE_OPEN
           : ep->phase == HWS__PHASE_REQUEST ? HWS_STATE_REQUEST
                                             : HWS_STATE_CONNECTING;
}

static const char *reason_text(uint32_t reason)
{
    static const char *const texts[] = {
        "isolated: the peer is on this machine and may use shared memory",
        "the peer is on another machine or in another IPC namespace",
        "no isolated worker was left, here or at the peer: TCP",
        "TCP only, by an option or UCX_TLS, here or at the peer",
        "isolated: the peer is a plain UCX program",
        "shared memory was tried and could not be set up: TCP",
        "by a worker's address: shares one UCX worker with other such peers"};

    return reason < sizeof texts / sizeof *texts ? texts[reason] : "";
}

static void fill_traffic(hws_endpoint_info *i, const struct hws__traffic *t)
{
    for (int k = 0; k < HWS__TRAFFIC_KINDS; k++) {
        bool get = k == HWS_TRAFFIC_GET; /* what it brings comes in, what it serves goes out */

        i->received += t->in[k].count;
        *(get ? &i->bytes_received : &i->bytes_sent) += t->out[k].bytes;
        *(get ? &i->bytes_sent : &i->bytes_received) += t->in[k].bytes;
    }
}

int32_t hws_endpoint_query(hws_id endpoint, hws_endpoint_info *out)
{
    hws_endpoint_info i = {0};
    struct hws__endpoint *ep;
    struct hws__worker *w;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((ep = hws__endpoint_find(endpoint, &r)) == NULL) {
        return r;
    }
    w = ep->worker; /* once: the endpoint's memory may become another's until it is owned */
    if ((r = hws__own_call(w, endpoint, &nested)) < 0) {
        return r;
    }
    if (atomic_load(&ep->obj.id) != endpoint) {
        hws__disown(w, nested);
        return hws__id_error(&hws__objects, endpoint, HWS_KIND_ENDPOINT);
    }
    if (ep->raw && ep->open && ep->ucx != NULL) {
        hws__endpoint_lanes(ep); /* UCX goes on connecting after it told of a plain peer */
    }
    i.state = state_of(ep);
    i.isolated = ep->uworker != NULL && ep->uworker->role == HWS__ISOLATED;
    i.reason = ep->reason;
    i.transports = ep->transports;
    i.status = ep->failed ? ep->status : ep->peer_closed ? HWS_E_PEER_CLOSED : HWS_OK;
    i.peer_pid = ep->peer_pid;
    i.peer_host = ep->peer_host;
    i.sent = hws__endpoint_sent(ep);
    fill_traffic(&i, &ep->traffic);
    hws__address_text(&ep->local, i.local_address, sizeof i.local_address);
    hws__address_text(&ep->peer, i.peer_address, sizeof i.peer_address);
    memcpy(i.lanes, ep->lanes, sizeof i.lanes);
    snprintf(i.reason_text, sizeof i.reason_text, "%s", reason_text(ep->reason));
    hws__disown(w, nested);
    return hws__fill(out, &i, sizeof i, "endpoint info");
}

/* UCX 1.13 reads past its tables for one that is still connecting, or failed. */
static void print_endpoint(const struct hws__endpoint *ep, FILE *f)
{
    if (ep->ucx != NULL && ep->hello_done && !ep->failed && !ep->ucx_error) {
        hws__ucx.ucp_ep_print_info(ep->ucx, f);
    } else {
        fputs("# The endpoint is not connected\n", f);
    }
}

/* UCX's text of a context. It does not end while its lock is held. */
static int32_t print_context(struct hws__context *c, hws_id id, FILE *f)
{
    int32_t r = HWS_OK;

    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->obj.id) != id) {
        r = hws__id_error(&hws__objects, id, HWS_KIND_CONTEXT);
    } else if (c->closing) {
        r = hws__fail(HWS_E_CLOSING, id, "the context is closing");
    } else {
        hws__ucx.ucp_context_print_info(c->ucx, f);
    }
    pthread_mutex_unlock(&c->lock);
    return r;
}

/* The same of a worker or an endpoint. */
static int32_t print(struct hws__worker *w, hws_id id, struct hws__obj *o, FILE *f)
{
    bool nested;
    int32_t r = hws__own_call(w, id, &nested);

    if (r < 0) {
        return r;
    }
    if (atomic_load(&o->id) != id) {
        r = hws__id_error(&hws__objects, id, 0);
    } else if (hws__id_kind(id) == HWS_KIND_ENDPOINT) {
        print_endpoint((struct hws__endpoint *)(void *)o, f);
    } else if (w->main != NULL) {
        hws__ucx.ucp_worker_print_info(w->main->ucx, f);
    }
    hws__disown(w, nested);
    return r;
}

static struct hws__worker *worker_of(hws_id id, struct hws__obj *o)
{
    return hws__id_kind(id) == HWS_KIND_WORKER     ? (struct hws__worker *)(void *)o
           : hws__id_kind(id) == HWS_KIND_ENDPOINT ? ((struct hws__endpoint *)(void *)o)->worker
                                                   : NULL;
}

int32_t hws_describe(hws_id id, char *text, uint64_t size, uint64_t *needed)
{
    struct hws__worker *w;
    struct hws__obj *o;
    char *all = NULL;
    size_t length = 0;
    int32_t r;
    FILE *f;

    HWS__ENTER();
    if ((o = hws__obj_find(&hws__objects, id)) == NULL) {
        return hws__id_error(&hws__objects, id, 0);
    }
    w = worker_of(id, o);
    if (hws__id_kind(id) != HWS_KIND_CONTEXT && w == NULL) {
        return hws__fail(HWS_E_KIND, id, "a context, worker or endpoint is described");
    }
    if (text == NULL && size != 0) {
        return hws__fail(HWS_E_INVALID, id, "text is null");
    }
    if ((f = open_memstream(&all, &length)) == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, id, "text");
    }
    r = w != NULL ? print(w, id, o, f) : print_context((struct hws__context *)(void *)o, id, f);
    fclose(f);
    if (r < 0) {
        free(all);
        return r;
    }
    if (needed != NULL) {
        *needed = length + 1;
    }
    if (size != 0) {
        snprintf(text, size, "%s", all);
    }
    free(all);
    return size != 0 && size < length + 1 ? hws__fail(HWS_E_TOO_BIG, id, "the text was cut")
                                          : HWS_OK;
}
