/*
 * Which UCX worker a connection gets: its own if the peer may use shared memory, the TCP-only one
 * if it must not, the main one if it cannot.
 */
#include "endpoint.h"
#include "error.h"
#include "log.h"
#include "progress.h"
#include "upgrade.h"
#include <stdlib.h>

/* A spare is made some time after the last one was taken: to make one takes a core for milliseconds,
 * and the connection that took it is being set up now. */
#define SPARE_DELAY_NS 20000000u

struct create_job {
    struct hws__job job;
    struct hws__worker *worker;
    struct hws__uworker *made;
    int role;
};

/* Or for an isolated one. */
static bool waits_for_tcp(const struct hws__endpoint *ep)
{
    return hws__upgrade_by_tcp(ep) && !ep->upgrade.waits;
}

static void deliver_isolated(struct hws__worker *w, struct hws__uworker *u)
{
    struct hws__list *n = w->waiting.next;

    for (; n != &w->waiting; n = n->next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, wait_link);

        if (!waits_for_tcp(ep)) {
            hws__list_remove(&ep->wait_link);
            HWS__COUNT(w, isolated, 1);
            HWS__COUNT(w, isolated_total, 1);
            hws__endpoint_uworker(ep, u);
            return;
        }
    }
    hws__list_append(&w->spares, &u->link);
}

static void deliver_tcp(struct hws__worker *w, struct hws__uworker *u)
{
    struct hws__list *n, *next;

    w->tcp_coming = false;
    if (u != NULL && hws__uworker_adopt(w, u) < 0) {
        hws__uworker_destroy(u);
        u = NULL;
    }
    if (u != NULL) {
        hws__acceptors_note(u);
    }
    w->tcp = u;
    for (n = w->waiting.next; n != &w->waiting; n = next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, wait_link);

        next = n->next;
        if (waits_for_tcp(ep)) {
            hws__list_remove(&ep->wait_link);
            hws__endpoint_uworker(ep, u);
        }
    }
}

/* The background thread has made one (or failed). */
static void created(struct hws__worker *w, void *arg)
{
    struct create_job *j = arg;
    struct hws__uworker *u = j->made;
    bool tcp = j->role == HWS__TCP;

    free(j);
    atomic_fetch_sub(&w->jobs, 1);
    if (tcp) {
        deliver_tcp(w, u);
        return;
    }
    w->spares_coming--;
    if (u != NULL) {
        deliver_isolated(w, u);
        return;
    }
    /* There is none to be had: whoever waits learns it now. */
    for (struct hws__list *n = w->waiting.next, *next; n != &w->waiting; n = next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, wait_link);

        next = n->next;
        if (!waits_for_tcp(ep)) {
            hws__list_remove(&ep->wait_link);
            hws__endpoint_uworker(ep, NULL);
        }
    }
}

static void run_create(struct hws__job *job)
{
    struct create_job *j = hws__container(job, struct create_job, job);
    struct hws__context *c = j->worker->context;
    struct hws__worker *w = j->worker;

    j->made = hws__uworker_create(c, j->role);
    if (j->made == NULL) {
        hws__log(HWS_LOG_WARN, "no UCX worker: out of resources");
        if (j->role == HWS__ISOLATED) {
            hws__isolated_unreserve(c);
        }
    }
    while (!hws__command(w, created, j)) {
        sched_yield();
    }
}

/* Have one made, not before `delay_ns` from now. The reservation of an isolated one is the caller's. */
static bool order(struct hws__worker *w, int role, uint64_t delay_ns)
{
    struct create_job *j = malloc(sizeof *j);

    if (j == NULL) {
        return false;
    }
    *j = (struct create_job){.job.run = run_create, .worker = w, .role = role};
    atomic_fetch_add(&w->jobs, 1);
    if (!hws__background_later(&w->context->background, &j->job, delay_ns)) {
        atomic_fetch_sub(&w->jobs, 1);
        free(j);
        return false;
    }
    return true;
}

static bool order_isolated(struct hws__worker *w, uint64_t delay_ns)
{
    if (!hws__isolated_reserve(w->context)) {
        return false;
    }
    if (!order(w, HWS__ISOLATED, delay_ns)) {
        hws__isolated_unreserve(w->context);
        return false;
    }
    w->spares_coming++;
    return true;
}

/* UCX workers on their way that no endpoint waits for. */
static uint32_t unclaimed(const struct hws__worker *w)
{
    uint32_t n = w->spares_coming;

    for (struct hws__list *l = w->waiting.next; l != &w->waiting; l = l->next) {
        n -= n > 0 && !waits_for_tcp(hws__container(l, struct hws__endpoint, wait_link));
    }
    return n;
}

void hws__spares_fill(struct hws__worker *w, uint64_t delay_ns)
{
    uint32_t have = unclaimed(w);

    for (struct hws__list *n = w->spares.next; n != &w->spares; n = n->next) {
        have++;
    }
    while (!w->closing && have < w->spares_wanted && order_isolated(w, delay_ns)) {
        have++;
    }
}

void hws__spares_return(struct hws__worker *w, struct hws__uworker *u)
{
    uint32_t have = 0;

    HWS__COUNT(w, isolated, -1);
    HWS__COUNT(w, isolated_total, -1);
    deliver_isolated(w, u);
    for (struct hws__list *n = w->spares.next; n != &w->spares; n = n->next) {
        have++;
    }
    if (have > w->spares_wanted && !w->closing) {
        u = hws__container(hws__list_pop(&w->spares), struct hws__uworker, link);
        u->worker = w;
        hws__uworker_retire(u);
    }
}

static void request_isolated(struct hws__worker *w, struct hws__endpoint *ep)
{
    struct hws__list *n = hws__list_pop(&w->spares);

    if (n != NULL) {
        HWS__COUNT(w, isolated, 1);
        HWS__COUNT(w, isolated_total, 1);
        hws__endpoint_uworker(ep, hws__container(n, struct hws__uworker, link));
        hws__spares_fill(w, SPARE_DELAY_NS);
        return;
    }
    if (unclaimed(w) != 0) {
        hws__background_hurry(&w->context->background, run_create);
    } else if (!order_isolated(w, 0)) {
        hws__endpoint_uworker(ep, NULL);
        return;
    }
    hws__list_append(&w->waiting, &ep->wait_link);
    hws__spares_fill(w, SPARE_DELAY_NS);
}

void hws__uworker_request(struct hws__endpoint *ep)
{
    struct hws__worker *w = ep->worker;

    if (!waits_for_tcp(ep)) {
        request_isolated(w, ep);
        return;
    }
    if (w->tcp != NULL) {
        hws__endpoint_uworker(ep, w->tcp);
        return;
    }
    if (!w->tcp_coming && !(w->tcp_coming = order(w, HWS__TCP, 0))) {
        hws__endpoint_uworker(ep, NULL);
        return;
    }
    hws__list_append(&w->waiting, &ep->wait_link);
}

void hws__uworker_unrequest(struct hws__endpoint *ep)
{
    hws__list_remove(&ep->wait_link);
}
