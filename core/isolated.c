/*
 * Which UCX worker a connection gets: its own if the peer may use shared memory, the TCP-only one
 * if it must not, the main one if it cannot.
 */
#include "isolated.h"
#include "acceptor.h"
#include "error.h"
#include "job.h"
#include "log.h"
#include "progress.h"
#include "upgrade.h"
#include <stdlib.h>

/* A spare is made some time after the last one was taken: to make one takes a core for milliseconds,
 * and the connection that took it is being set up now. */
#define SPARE_DELAY_NS 20000000u

/* What an endpoint waits for. */
enum want {
    WANT_TCP,
    WANT_SPARE, /* an isolated one, of hws__context_shm() */
    WANT_FULL   /* one of hws__context_own(), for raw endpoints and where spares know no TCP */
};

struct create_job {
    struct hws__job job;
    struct hws__worker *worker;
    struct hws__uworker *made;
    enum want want;
};

static enum want want_of(const struct hws__endpoint *ep)
{
    if (!ep->upgrade.waits && hws__upgrade_by_tcp(ep)) {
        return WANT_TCP;
    }
    return ep->upgrade.waits || !(ep->worker->context->upgrades || ep->raw) ? WANT_SPARE
                                                                            : WANT_FULL;
}

/* Take the first endpoint that waits for it off the list; null if none does. */
static struct hws__endpoint *pop_waiting(struct hws__worker *w, enum want want)
{
    for (struct hws__list *n = w->waiting.next; n != &w->waiting; n = n->next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, wait_link);

        if (want_of(ep) == want) {
            hws__list_remove(&ep->wait_link);
            return ep;
        }
    }
    return NULL;
}

static uint32_t count_waiting(const struct hws__worker *w, enum want want)
{
    uint32_t n = 0;

    for (struct hws__list *l = w->waiting.next; l != &w->waiting; l = l->next) {
        n += want_of(hws__container(l, struct hws__endpoint, wait_link)) == want;
    }
    return n;
}

static void hand_over(struct hws__endpoint *ep, struct hws__uworker *u)
{
    HWS__COUNT(ep->worker, isolated, 1);
    HWS__COUNT(ep->worker, isolated_total, 1);
    hws__endpoint_uworker(ep, u);
}

static uint32_t *coming(struct hws__worker *w, enum want want)
{
    return want == WANT_SPARE ? &w->spares_coming : &w->full_coming;
}

/* Nobody needs it. */
static void retire(struct hws__worker *w, struct hws__uworker *u)
{
    u->worker = w;
    hws__uworker_retire(u);
}

static void deliver_isolated(struct hws__worker *w, enum want want, struct hws__uworker *u)
{
    struct hws__endpoint *ep = pop_waiting(w, want);

    if (ep != NULL) {
        hand_over(ep, u);
    } else if (want == WANT_SPARE) {
        hws__list_append(&w->spares, &u->link);
    } else {
        retire(w, u);
    }
}

static void deliver_tcp(struct hws__worker *w, struct hws__uworker *u)
{
    struct hws__endpoint *ep;

    w->tcp_coming = false;
    if (u != NULL && hws__uworker_adopt(w, u) < 0) {
        hws__uworker_destroy(u);
        u = NULL;
    }
    if (u != NULL) {
        hws__acceptors_note(u);
    }
    w->tcp = u;
    while ((ep = pop_waiting(w, WANT_TCP)) != NULL) {
        hws__endpoint_uworker(ep, u);
    }
}

static void settle_full(struct hws__worker *w);

/* The background thread has made one (or failed). */
static void created(struct hws__worker *w, void *arg)
{
    struct create_job *j = arg;
    struct hws__uworker *u = j->made;
    struct hws__endpoint *ep;
    enum want want = j->want;

    free(j);
    atomic_fetch_sub(&w->jobs, 1);
    if (want == WANT_TCP) {
        deliver_tcp(w, u);
        return;
    }
    *coming(w, want) -= 1;
    if (u != NULL) {
        deliver_isolated(w, want, u);
    }
    /* There is none to be had: whoever waits learns it now. */
    while (u == NULL && want == WANT_SPARE && (ep = pop_waiting(w, want)) != NULL) {
        hws__endpoint_uworker(ep, NULL);
    }
    settle_full(w);
}

static void run_create(struct hws__job *job)
{
    struct create_job *j = hws__container(job, struct create_job, job);
    struct hws__context *c = j->worker->context;
    struct hws__worker *w = j->worker;

    j->made = j->want == WANT_TCP
                  ? hws__uworker_create_tcp(c, HWS__TCP, false)
                  : hws__uworker_create(c, HWS__ISOLATED,
                                        j->want == WANT_SPARE ? hws__context_shm(c)
                                                              : hws__context_own(c));
    if (j->made == NULL) {
        hws__log(HWS_LOG_WARN, "no UCX worker: out of resources");
        if (j->want != WANT_TCP) {
            hws__isolated_unreserve(c);
        }
    }
    hws__job_return(w, created, j);
}

/* Have one made, not before `delay_ns` from now. The reservation of an isolated one is the caller's. */
static bool order(struct hws__worker *w, enum want want, uint64_t delay_ns)
{
    struct create_job *j = malloc(sizeof *j);

    if (j == NULL) {
        return false;
    }
    *j = (struct create_job){.job.run = run_create, .worker = w, .want = want};
    if (!hws__job_order(w, &w->context->background, &j->job, delay_ns)) {
        free(j);
        return false;
    }
    if (want != WANT_TCP) {
        *coming(w, want) += 1;
    }
    return true;
}

static bool order_isolated(struct hws__worker *w, enum want want, uint64_t delay_ns)
{
    if (!hws__isolated_reserve(w->context)) {
        return false;
    }
    if (!order(w, want, delay_ns)) {
        hws__isolated_unreserve(w->context);
        return false;
    }
    return true;
}

/* UCX workers on their way that no endpoint waits for. */
static uint32_t unclaimed(const struct hws__worker *w)
{
    uint32_t claims = count_waiting(w, WANT_SPARE);

    return w->spares_coming > claims ? w->spares_coming - claims : 0;
}

/* At the cap, a spare gives its place to an endpoint that cannot use the spare itself. */
static bool trade_spare(struct hws__worker *w)
{
    struct hws__uworker *u = hws__container(hws__list_pop(&w->spares), struct hws__uworker, link);
    bool ordered = order(w, WANT_FULL, 0);

    u->place_given = ordered;
    retire(w, u);
    return ordered;
}

/* Endpoints for which nothing is on its way get a spare's place; they hear of it if there will be none. */
static void settle_full(struct hws__worker *w)
{
    while (count_waiting(w, WANT_FULL) > w->full_coming) {
        if (hws__list_empty(&w->spares) && unclaimed(w) != 0) {
            return;
        }
        if (hws__list_empty(&w->spares) || !trade_spare(w)) {
            hws__endpoint_uworker(pop_waiting(w, WANT_FULL), NULL);
        }
    }
}

void hws__spares_fill(struct hws__worker *w, uint64_t delay_ns)
{
    uint32_t have = unclaimed(w);

    for (struct hws__list *n = w->spares.next; n != &w->spares; n = n->next) {
        have++;
    }
    while (!w->closing && have < w->spares_wanted && order_isolated(w, WANT_SPARE, delay_ns)) {
        have++;
    }
}

void hws__spares_return(struct hws__worker *w, struct hws__uworker *u)
{
    uint32_t have = 0;

    HWS__COUNT(w, isolated, -1);
    HWS__COUNT(w, isolated_total, -1);
    if (hws__context_shm(w->context) == w->context->ucx) {
        /* It knows TCP: the peer may have dialled it, which a spare would never take in. */
        retire(w, u);
        return;
    }
    deliver_isolated(w, WANT_SPARE, u);
    for (struct hws__list *n = w->spares.next; n != &w->spares; n = n->next) {
        have++;
    }
    if (have > w->spares_wanted && !w->closing) {
        retire(w, hws__container(hws__list_pop(&w->spares), struct hws__uworker, link));
    }
}

static void request_spare(struct hws__worker *w, struct hws__endpoint *ep)
{
    struct hws__list *n = hws__list_pop(&w->spares);

    if (n != NULL) {
        hand_over(ep, hws__container(n, struct hws__uworker, link));
    } else if (unclaimed(w) != 0) {
        hws__list_append(&w->waiting, &ep->wait_link);
        hws__background_hurry(&w->context->background, w, run_create);
    } else if (order_isolated(w, WANT_SPARE, 0)) {
        hws__list_append(&w->waiting, &ep->wait_link);
    } else {
        hws__endpoint_uworker(ep, NULL);
        return;
    }
    hws__spares_fill(w, SPARE_DELAY_NS);
    settle_full(w);
}

static void request_full(struct hws__worker *w, struct hws__endpoint *ep)
{
    hws__list_append(&w->waiting, &ep->wait_link);
    if (!order_isolated(w, WANT_FULL, 0)) {
        hws__background_hurry(&w->context->background, w, run_create);
        settle_full(w);
    }
}

static void request_tcp(struct hws__worker *w, struct hws__endpoint *ep)
{
    if (w->tcp != NULL && hws__acceptors_lost(w->tcp)) {
        hws__uworker_replace(w->tcp);
    }
    if (w->tcp != NULL) {
        hws__endpoint_uworker(ep, w->tcp);
    } else if (w->tcp_coming || (w->tcp_coming = order(w, WANT_TCP, 0))) {
        hws__list_append(&w->waiting, &ep->wait_link);
    } else {
        hws__endpoint_uworker(ep, NULL);
    }
}

void hws__uworker_request(struct hws__endpoint *ep)
{
    struct hws__worker *w = ep->worker;
    enum want want = want_of(ep);

    if (want == WANT_TCP) {
        request_tcp(w, ep);
    } else if (want == WANT_SPARE) {
        request_spare(w, ep);
    } else {
        request_full(w, ep);
    }
}

void hws__uworker_unrequest(struct hws__endpoint *ep)
{
    hws__list_remove(&ep->wait_link);
}
