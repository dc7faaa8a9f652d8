#include "endpoint.h"
#include "cm_socket.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "lanes.h"
#include "late_cut.h"
#include "host.h"
#include "listener.h"
#include "lookup.h"
#include "lost.h"
#include "log.h"
#include "multi.h"
#include "plan.h"
#include "progress.h"
#include "rkey.h"
#include "rma.h"
#include "sockets.h"
#include "time.h"
#include "ucx_loader.h"
#include "waddress.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hws__endpoint *hws__endpoint_new(struct hws__worker *w)
{
    struct hws__endpoint *ep = (struct hws__endpoint *)(void *)hws__obj_alloc(
        &hws__objects, HWS_KIND_ENDPOINT, sizeof *ep, HWS__KEEP(struct hws__endpoint, uworker));

    if (ep != NULL) {
        hws__list_init(&ep->notices);
        if (!hws__notices_reserve(&ep->notices, 2)) {
            hws__obj_free(&hws__objects, &ep->obj);
            return NULL;
        }
        ep->worker = w;
        hws__list_init(&ep->ops);
        hws__list_init(&ep->rkeys);
        hws__list_init(&ep->rma.jobs);
        hws__list_init(&ep->rma.answers);
        hws__list_init(&ep->rma.plans);
        hws__list_init(&ep->link);
        hws__list_init(&ep->wait_link);
        hws__list_init(&ep->attention);
        hws__list_init(&ep->bundle.link);
        hws__list_init(&ep->cut.link);
        hws__credit_init(&ep->credit);
        hws__stream_init(&ep->stream);
        hws__scope_init(&ep->scope);
        hws__scope_init(&ep->multi_scope);
        hws__list_init(&ep->multis);
        hws__list_init(&ep->multi_early);
        ep->close_timeout = HWS__CLOSE_NS;
    }
    return ep;
}

struct hws__endpoint *hws__endpoint_find(hws_id id, int32_t *error)
{
    return hws__obj_get(id, HWS_KIND_ENDPOINT, error);
}

int32_t hws__endpoint_refuse(const struct hws__endpoint *ep, hws_id source)
{
    int32_t r = hws__endpoint_check(ep);

    r = r == HWS_OK ? HWS_E_NOT_CONNECTED : r;
    return hws__fail(r, source, "%s", ep->text[0] ? ep->text : hws_error_text(r));
}

void hws__endpoint_forget(struct hws__endpoint *ep)
{
    if (!hws__list_empty(&ep->link)) {
        hws__list_remove(&ep->link);
        HWS__COUNT(ep->worker, endpoints, -1);
        hws__traffic_add(&ep->worker->gone[hws__endpoint_via(ep)], &ep->traffic);
        hws__worker_unused(ep->worker);
    }
    hws__list_remove(&ep->attention);
    hws__list_remove(&ep->wait_link);
    hws__plans_forget(ep);
    hws__rkeys_forget(ep);
    hws__notices_free(&ep->notices);
    free(ep->addresses);
    free(ep->worker_address);
    free(ep->first_hello);
    ep->first_hello = NULL;
    ep->addresses = NULL;
    ep->worker_address = NULL;
    ep->phase = HWS__PHASE_GONE;
    hws__obj_free(&hws__objects, &ep->obj);
}

void hws__endpoint_attend(struct hws__endpoint *ep)
{
    if (!ep->in_attention && ep->phase != HWS__PHASE_GONE) {
        ep->in_attention = true;
        hws__list_append(&ep->worker->attention, &ep->attention);
        ep->worker->todo = true;
    }
}

void hws__endpoint_deadline(struct hws__endpoint *ep, uint64_t timeout_ns)
{
    ep->deadline = timeout_ns == 0 ? 0 : hws__deadline(hws__now(), timeout_ns);
    if (ep->deadline != 0 && ep->deadline < ep->worker->next_deadline) {
        ep->worker->next_deadline = ep->deadline;
        hws__due_at(ep->worker, ep->deadline);
    }
}

void hws__endpoint_fail(struct hws__endpoint *ep, int32_t status, const char *fmt, ...)
{
    va_list ap;

    if (ep->failed) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(ep->text, sizeof ep->text, fmt, ap);
    va_end(ap);
    ep->detail = hws__text_keep(ep->text, hws_error_text(status));
    ep->failed = true;
    ep->status = status;
    ep->open = false;
    HWS__COUNT(ep->worker, failures, 1);
    HWS__COUNT(ep->worker, endpoint_failures[-status & (HWS__CODES - 1)], 1);
    /* A UCX worker that comes before its end has been told is for somebody else. */
    hws__uworker_unrequest(ep);
    hws__endpoint_attend(ep);
}

void hws__endpoint_lost(struct hws__endpoint *ep, const char *what)
{
    ep->hello_done = false;
    hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for %s", what);
}

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

bool hws__endpoint_attach(struct hws__endpoint *ep, struct hws__uworker *u, ucp_ep_h ucx)
{
    ep->uworker = u;
    ep->ucx = ucx;
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
    if (atomic_load(&u->destroying)) {
        return; /* on the background thread; the owner counts it when the UCX worker is gone */
    }
    u->burying--;
    u->worker->pending_ucx--;
    hws__uworker_unused(u);
}

void hws__uworker_cut(struct hws__uworker *u, ucp_ep_h ucx)
{
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                             UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
                             .flags = UCP_EP_CLOSE_FLAG_FORCE,
                             .cb.send = buried,
                             .user_data = u};

    hws__uworker_heat(u);
    if (ucx != NULL) {
        hws__cm_unwatch(u, ucx);
        if (UCS_PTR_IS_PTR(hws__ucx.ucp_ep_close_nbx(ucx, &p))) {
            u->burying++;
            u->worker->pending_ucx++;
            return; /* UCX says when that is done */
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
    hws__uworker_cut(u, line);
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
    if (ep->uworker->role != HWS__ISOLATED && ep->uworker->role != HWS__ADDRESS_SHM &&
        (flags & HWS__LANE_SHM)) {
        HWS__COUNT(ep->worker, lane_violations, 1);
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "the peer's shared memory reached a shared worker");
        return false;
    }
    return true;
}

/* False: nobody is there to be told. */
static bool tell_accepted(struct hws__endpoint *ep)
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

static void end_connect(struct hws__endpoint *ep, int32_t status)
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
        hws__sockets_watch_peer(ep->upgrade.line_worker->efd, &ep->worker->context->silence);
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
    ep->deadline = 0;
    if (ep->server) {
        if (!tell_accepted(ep)) {
            hws__endpoint_close(ep);
        }
    } else if (ep->connect != NULL && ep->starting) {
        hws__endpoint_attend(ep);
    } else if (ep->connect != NULL) {
        end_connect(ep, HWS_OK);
    }
}

void hws__endpoint_end_matching(struct hws__endpoint *ep, int32_t status)
{
    hws__stream_end_all(ep, status);
    for (struct hws__list *n = ep->ops.next, *next; n != &ep->ops; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);

        next = n->next;
        if (op->stage == HWS__STAGE_MATCHING) {
            hws__op_finish(op, status);
        } else if (op->stage == HWS__STAGE_UCX && op->wanted == 0 &&
                   op->kind == HWS_EVENT_TAG_RECV) {
            op->wanted = status; /* when UCX gives the buffer back */
        }
    }
}

/* Rendezvous messages whose data died with the peer. */
static void drop_unfetched(struct hws__endpoint *ep)
{
    for (struct hws__list *n = ep->scope.arrived.next, *next; n != &ep->scope.arrived; n = next) {
        struct hws__message *m = hws__container(n, struct hws__message, order_ep);

        next = n->next;
        if (m->rndv || m->raw) {
            hws__message_release(m);
        }
    }
    hws__multi_lost(ep);
}

static void tell_disconnected(struct hws__endpoint *ep, int32_t status)
{
    hws_event e = {.kind = HWS_EVENT_DISCONNECTED,
                   .source = ep->obj.id,
                   .status = status,
                   .detail = ep->detail != NULL ? ep->detail : hws_error_text(status)};

    if (ep->told) {
        return;
    }
    ep->told = true;
    hws__notice_provide(ep->worker, &ep->notices);
    hws__emit(ep->worker, &ep->sink, &e, NULL);
}

/* Nothing is left: the id is gone, and the last event follows what other threads posted while it was there. */
static void finish(struct hws__endpoint *ep)
{
    hws_event e = {.kind = HWS_EVENT_CLOSED, .source = ep->obj.id};
    struct hws__worker *w = ep->worker;
    struct hws__sink sink = ep->sink;
    struct hws__list notices;
    bool silent = ep->silent;

    while (!hws__list_empty(&ep->scope.arrived)) {
        hws__message_release(hws__container(ep->scope.arrived.next, struct hws__message, order_ep));
    }
    while (!hws__list_empty(&ep->multi_scope.arrived)) {
        hws__message_release(
            hws__container(ep->multi_scope.arrived.next, struct hws__message, order_ep));
    }
    hws__list_init(&notices);
    hws__list_splice(&notices, &ep->notices);
    hws__endpoint_forget(ep);
    hws__submissions_catch_up(w);
    if (!silent) {
        hws__notice_provide(w, &notices);
        hws__emit(w, &sink, &e, NULL);
    }
    hws__notices_free(&notices);
}

/* Closing has come to UCX's part: cut, and wait for the operations to come back. */
static void force(struct hws__endpoint *ep)
{
    /* Between two workers by their addresses UCX may keep its line, for the other direction, and tells nobody. */
    if (ep->reason == HWS_REASON_ADDRESS && !ep->raw && ep->hello_done && ep->ucx != NULL &&
        !ep->failed && !ep->acked && !ep->peer_closed) {
        hws__hello_aborted(ep);
    }
    hws__endpoint_end_matching(ep, HWS_E_CANCELED);
    hws__rma_end(ep, ep->failed ? ep->status : HWS_E_CANCELED);
    hws__credit_end(ep, ep->failed ? ep->status : HWS_E_CANCELED);
    if (ep->connect != NULL) {
        end_connect(ep, ep->failed ? ep->status : HWS_E_CANCELED);
    }
    drop_unfetched(ep);
    hws__endpoint_detach(ep);
    ep->phase = HWS__PHASE_FORCING;
    ep->deadline = 0;
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
    if (atomic_load(&f->uworker->destroying)) {
        return; /* on the background thread; the owner ends it, see below */
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

static void flushed(struct hws__endpoint *ep, ucs_status_t status)
{
    (void)status;
    hws__endpoint_attend(ep);
}

static void start_flush(struct hws__endpoint *ep)
{
    ep->phase = HWS__PHASE_FLUSHING;
    hws__endpoint_deadline(ep, ep->close_timeout);
    if (!ep->raw) {
        hws__endpoint_attend(ep);
        return;
    }
    if (hws__endpoint_ucx_flush(ep, flushed) != HWS_OK) {
        hws__endpoint_attend(ep);
    }
}

void hws__endpoint_close(struct hws__endpoint *ep)
{
    if (ep->closing || ep->phase == HWS__PHASE_GONE) {
        return;
    }
    ep->closing = true;
    ep->told = true;
    ep->open = false;
    if (ep->phase == HWS__PHASE_OPEN && !ep->failed && !ep->peer_closed && !ep->ucx_error &&
        ep->ucx != NULL) {
        hws__endpoint_end_matching(ep, HWS_E_CANCELED);
        hws__credit_closing(ep);
        start_flush(ep);
    } else {
        force(ep);
        hws__endpoint_attend(ep);
    }
}

/* Looks at what a dead peer has left, each takes up to 16 messages. */
#define LEFT_MAX 10000

/* The connection is lost, which TCP tells. What the peer had written to shared memory before is still there. */
static void read_what_is_left(struct hws__endpoint *ep)
{
    if (ep->uworker == NULL || (ep->upgrade.line == NULL && !ep->uworker->shm)) {
        return;
    }
    for (int i = 0; i < LEFT_MAX && hws__ucx.ucp_worker_progress(ep->uworker->ucx) != 0; i++) {}
}

/* UCX reported an error. */
static void ucx_failed(struct hws__endpoint *ep)
{
    int32_t status = hws__from_ucx(ep->ucx_status);

    ep->ucx_error = false;
    read_what_is_left(ep);
    if (ep->phase == HWS__PHASE_HELLO && !ep->server && !ep->failed) {
        hws__dial_failed(ep, status);
        return;
    }
    if (ep->closing || ep->refused) {
        force(ep);
        return;
    }
    if (ep->peer_closed) {
        hws__endpoint_end_matching(ep, HWS_E_PEER_CLOSED);
        hws__rma_end(ep, HWS_E_PEER_CLOSED);
        hws__credit_end(ep, HWS_E_PEER_CLOSED);
        drop_unfetched(ep);
        hws__endpoint_detach(ep);
        return;
    }
    if (ep->server && ep->phase == HWS__PHASE_HELLO && !ep->hello_seen) {
        struct hws__listener *l = hws__listener_of(ep);

        if (l != NULL) {
            l->strangers++;
        }
    }
    hws__endpoint_fail(ep, status == HWS_E_REJECTED ? HWS_E_CONNECTION_RESET : status,
                       "the peer is gone: %s", hws__ucx.ucs_status_string(ep->ucx_status));
}

/* A failure was noted: tell everybody, once. */
static void handle_failure(struct hws__endpoint *ep)
{
    bool was_open = ep->phase == HWS__PHASE_OPEN;

    if (ep->failure_handled) {
        return;
    }
    ep->failure_handled = true;
    if (ep->accepted && ep->phase == HWS__PHASE_HELLO && !ep->closing) {
        was_open =
            tell_accepted(ep); /* the application said yes, and the peer left in the upgrade */
    }
    hws__endpoint_end_matching(ep, ep->status);
    hws__rma_end(ep, ep->status);
    hws__credit_end(ep, ep->status);
    drop_unfetched(ep);
    hws__endpoint_detach(ep);
    ep->deadline = 0;
    if (ep->connect != NULL) {
        end_connect(ep, ep->status);
        return;
    }
    if (ep->server && !was_open && !ep->closing) {
        /* Nobody but the listener has heard of it. */
        ep->silent = ep->phase != HWS__PHASE_REQUEST && !ep->accepted;
        ep->told = true;
        ep->closing = true;
        ep->phase = HWS__PHASE_FORCING;
        return;
    }
    tell_disconnected(ep, ep->status);
}

static void late(struct hws__endpoint *ep)
{
    struct hws__listener *l;

    ep->deadline = 0;
    switch (ep->phase) {
    case HWS__PHASE_HELLO:
    case HWS__PHASE_WAITING:
        if (ep->server) {
            if ((l = hws__listener_of(ep)) != NULL && !ep->hello_seen) {
                l->strangers++;
            }
            hws__endpoint_fail(ep, HWS_E_TIMED_OUT, "no hello in time");
        } else {
            hws__dial_failed(ep, HWS_E_TIMED_OUT);
        }
        break;
    case HWS__PHASE_FLUSHING:
    case HWS__PHASE_GOODBYE:
        force(ep);
        break;
    default:
        break;
    }
}

void hws__endpoint_step(struct hws__endpoint *ep)
{
    if (ep->phase == HWS__PHASE_GONE) {
        return;
    }
    if (ep->deadline != 0 && hws__now() >= ep->deadline) {
        late(ep);
    }
    if (ep->open && ep->connect != NULL) {
        end_connect(ep, HWS_OK); /* it was open before its posting was over */
    }
    if (ep->ucx_error) {
        ucx_failed(ep);
    }
    if ((ep->first_hello != NULL || ep->awaits_turn) && !ep->failed && !ep->closing) {
        hws__address_step(ep);
    }
    if (ep->upgrade.due && !ep->failed && !ep->closing) {
        hws__upgrade_step(ep);
    }
    if (ep->failed) {
        handle_failure(ep);
        if (ep->closing && ep->phase != HWS__PHASE_FORCING) {
            force(ep);
        }
    }
    if (hws__rma_waits(ep)) {
        hws__rma_push(ep);
    }
    if (ep->credit.waiting != 0) {
        hws__credit_push(ep);
    }
    if (ep->peer_closed && !ep->told) {
        hws__endpoint_end_matching(ep, HWS_E_PEER_CLOSED);
        hws__rma_end(ep, HWS_E_PEER_CLOSED);
        hws__credit_end(ep, HWS_E_PEER_CLOSED);
        tell_disconnected(ep, HWS_E_PEER_CLOSED);
    }
    if (ep->phase == HWS__PHASE_FLUSHING && ep->ucx_flushes == 0 &&
        (ep->raw || ep->peer_closed ||
         (!hws__flush_sends(ep, UINT64_MAX) && hws__rma_flushed(ep)))) {
        if (ep->raw || ep->peer_closed) {
            force(ep);
        } else {
            ep->phase = HWS__PHASE_GOODBYE;
            hws__goodbye(ep);
        }
    }
    if (ep->phase == HWS__PHASE_GOODBYE && ep->acked) {
        force(ep);
    }
    if (ep->phase == HWS__PHASE_FORCING && ep->op_count == 0 && ep->ucx_flushes == 0 &&
        ep->cut.ucx == NULL) {
        finish(ep);
    }
}

static void abort_command(struct hws__worker *w, void *arg)
{
    struct hws__endpoint *ep = hws__obj_find(&hws__objects, (hws_id)(uintptr_t)arg);

    if (ep == NULL || ep->worker != w) {
        return;
    }
    if (!ep->closing || ep->phase != HWS__PHASE_FORCING) {
        ep->closing = ep->told = true;
        force(ep);
    }
    hws__endpoint_attend(ep);
}

static void close_command(struct hws__worker *w, void *arg)
{
    struct hws__endpoint *ep = hws__obj_find(&hws__objects, (hws_id)(uintptr_t)arg);

    if (ep != NULL && ep->worker == w) {
        hws__endpoint_close(ep);
    }
}

/* Run a command on the endpoint's worker, now or by its owner. */
static int32_t command(hws_id id, void (*fn)(struct hws__worker *, void *), uint32_t asked)
{
    struct hws__endpoint *ep;
    struct hws__worker *w;
    bool nested = false;
    int32_t r = HWS_OK;

    if ((ep = hws__endpoint_find(id, &r)) == NULL) {
        return r;
    }
    w = ep->worker;
    if (!hws__own_try(w) && !(nested = hws__owned_outside(w))) {
        hws__ask(w, &ep->obj, id, asked);
        return HWS_OK;
    }
    if (!nested && atomic_load(&w->submissions) != NULL) {
        hws__submissions_run(w); /* the connect may be one of them */
    }
    fn(w, (void *)(uintptr_t)id);
    hws__disown(w, nested);
    if (!nested) {
        hws__wake(w);
    }
    return HWS_OK;
}

void hws__endpoints_asked(struct hws__worker *w)
{
    for (struct hws__list *n = w->endpoints.next, *next; n != &w->endpoints; n = next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, link);
        uint32_t asked = hws__obj_asked(&ep->obj);

        next = n->next;
        if (asked & HWS__ASKED_ABORT) {
            abort_command(w, (void *)(uintptr_t)ep->obj.id);
        } else if (asked & HWS__ASKED_CLOSE) {
            hws__endpoint_close(ep);
        }
        if (asked & HWS__ASKED_CREDIT) {
            hws__credit_asked(ep);
        }
    }
}

int32_t hws_abort(hws_id endpoint)
{
    HWS__ENTER();
    return command(endpoint, abort_command, HWS__ASKED_ABORT);
}

int32_t hws__endpoint_close_id(hws_id id)
{
    return command(id, close_command, HWS__ASKED_CLOSE);
}
