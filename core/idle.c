/*
 * A worker that has had no endpoint for a while gives back the UCX workers that it keeps for the next connection: the
 * TCP-only one, and if it has no listener either, the spares. Each holds memory, half a dozen descriptors, and a spare
 * a segment of shared memory. The next connection makes what it needs, as the first one did.
 */
#include "endpoint.h"
#include "isolated.h"
#include "job.h"
#include "progress.h"
#include "time.h"
#include "uworker.h"
#include <stdlib.h>

#define IDLE_NS UINT64_C(2000000000)

struct look_job {
    struct hws__job job;
    struct hws__worker *worker;
};

static void drop_kept(struct hws__worker *w)
{
    struct hws__list *n;

    while (hws__list_empty(&w->listeners) && (n = hws__list_pop(&w->spares)) != NULL) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        u->worker = w; /* nobody has adopted it yet */
        hws__uworker_retire(u);
    }
    if (w->tcp != NULL) {
        hws__uworker_replace(w->tcp);
    }
}

static void order(struct hws__worker *w, uint64_t delay_ns);

static void look(struct hws__worker *w, void *arg)
{
    uint64_t idle = hws__now() - w->unused_since;

    (void)arg;
    atomic_fetch_sub(&w->jobs, 1);
    w->idle_look = false;
    if (w->closing || !hws__list_empty(&w->endpoints)) {
        return;
    }
    if (idle < IDLE_NS) {
        order(w, IDLE_NS - idle);
    } else {
        drop_kept(w);
    }
}

static void run_look(struct hws__job *job)
{
    struct look_job *j = hws__container(job, struct look_job, job);

    hws__job_return(j->worker, look, NULL);
    free(j);
}

static void order(struct hws__worker *w, uint64_t delay_ns)
{
    struct look_job *j = malloc(sizeof *j);

    if (j == NULL) {
        return; /* they are kept */
    }
    *j = (struct look_job){.job.run = run_look, .worker = w};
    w->idle_look = hws__job_order(w, &w->context->background, &j->job, delay_ns);
    if (!w->idle_look) {
        free(j);
    }
}

void hws__worker_unused(struct hws__worker *w)
{
    if (w->closing || !hws__list_empty(&w->endpoints)) {
        return;
    }
    w->unused_since = hws__now();
    if (!w->idle_look) {
        order(w, IDLE_NS);
    }
}
