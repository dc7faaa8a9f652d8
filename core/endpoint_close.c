/*
 * An endpoint closes: flushed and taken leave of if it is open, then cut, and gone once nothing is left of it.
 * The steps in between are taken by hws__endpoint_step().
 */
#include "endpoint_phase.h"
#include "guard.h"
#include "hello.h"
#include "multi.h"
#include "progress.h"
#include "rest.h"
#include "rma.h"

void hws__endpoint_end_matching(struct hws__endpoint *ep, int32_t status)
{
    hws__stream_end_all(ep, status);
    for (struct hws__list *n = ep->ops.next, *next; n != &ep->ops; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);

        next = n->next;
        if (op->stage == HWS__STAGE_MATCHING || op->stage == HWS__STAGE_COMING) {
            hws__op_finish(op, status);
        } else if (op->stage == HWS__STAGE_UCX && op->wanted == 0 &&
                   op->kind == HWS_EVENT_TAG_RECV) {
            op->wanted = status; /* when UCX gives the buffer back */
        }
    }
}

void hws__endpoint_end_ops(struct hws__endpoint *ep, int32_t status)
{
    hws__endpoint_end_matching(ep, status);
    hws__rma_end(ep, status);
    hws__credit_end(ep, status);
}

/* Its data is at the peer still. */
static bool is_unfetched(const struct hws__message *m)
{
    return m->rndv || m->raw || m->coming != NULL;
}

void hws__endpoint_drop_unfetched(struct hws__endpoint *ep)
{
    hws__match_lose(&ep->scope, is_unfetched);
    hws__multi_lost(ep);
}

void hws__endpoint_tell_disconnected(struct hws__endpoint *ep, int32_t status)
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

void hws__endpoint_finish(struct hws__endpoint *ep)
{
    hws_event e = {.kind = HWS_EVENT_CLOSED, .source = ep->obj.id};
    struct hws__worker *w = ep->worker;
    struct hws__sink sink = ep->sink;
    struct hws__list notices;
    bool silent = ep->silent;

    hws__rests_drop(ep);
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

void hws__endpoint_force(struct hws__endpoint *ep)
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
        hws__endpoint_end_connect(ep, ep->failed ? ep->status : HWS_E_CANCELED);
    }
    hws__endpoint_drop_unfetched(ep);
    hws__endpoint_detach(ep);
    ep->phase = HWS__PHASE_FORCING;
    ep->deadline = 0;
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
    ep->silent |= hws__endpoint_unheard(ep);
    ep->closing = true;
    ep->told = true;
    ep->open = false;
    if (ep->phase == HWS__PHASE_OPEN && !ep->failed && !ep->peer_closed && !ep->ucx_error &&
        ep->ucx != NULL) {
        hws__endpoint_end_matching(ep, HWS_E_CANCELED);
        hws__credit_closing(ep);
        start_flush(ep);
    } else {
        hws__endpoint_force(ep);
        hws__endpoint_attend(ep);
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
        hws__endpoint_force(ep);
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
    uint32_t any = 0;

    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, link);

        ep->asked = hws__obj_asked(&ep->obj);
        any |= ep->asked;
    }
    if (any & (HWS__ASKED_CLOSE | HWS__ASKED_ABORT)) {
        hws__submissions_catch_up(w); /* a close completes what was posted before it */
    }
    for (struct hws__list *n = w->endpoints.next, *next; n != &w->endpoints && any != 0; n = next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, link);
        uint32_t asked = ep->asked;

        next = n->next;
        ep->asked = 0;
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
