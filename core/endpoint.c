/*
 * The record of an endpoint: made and given up, what is wrong with it, and when it wants its turn.
 */
#include "endpoint.h"
#include "error.h"
#include "isolated.h"
#include "plan.h"
#include "progress.h"
#include "reserve.h"
#include "rkey.h"
#include "time.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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
        ep->cm_socket = -1;
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
    hws__stream_forget(ep);
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
    if (status == HWS_E_NO_MEMORY) {
        hws__reserve_spend(ep->worker);
    }
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
