#include "late_device.h"
#include "endpoint.h"
#include "job.h"
#include "progress.h"
#include "time.h"
#include <stdlib.h>

#define PAUSE_NS UINT64_C(50000000)
/* Linux gathers what happens to devices for up to a second before it acts on it. */
#define PATIENCE_NS UINT64_C(2000000000)

struct wait_job {
    struct hws__job job;
    struct hws__worker *worker;
    hws_id endpoint;
    void (*then)(struct hws__endpoint *ep);
};

static void waited(struct hws__worker *w, void *arg)
{
    struct wait_job *j = arg;
    struct hws__endpoint *ep = hws__obj_find(&hws__objects, j->endpoint);

    atomic_fetch_sub(&w->jobs, 1);
    if (ep != NULL && ep->phase == HWS__PHASE_WAITING && !ep->failed && !ep->closing) {
        j->then(ep);
    }
    free(j);
}

static void run_wait(struct hws__job *job)
{
    struct wait_job *j = hws__container(job, struct wait_job, job);

    hws__job_return(j->worker, waited, j);
}

bool hws__late_device_wait(struct hws__endpoint *ep, void (*then)(struct hws__endpoint *ep))
{
    struct hws__worker *w = ep->worker;
    struct wait_job *j;
    uint64_t now = hws__now();

    if (ep->device_until == 0) {
        ep->device_until = now + PATIENCE_NS;
    }
    if (now > ep->device_until || (j = malloc(sizeof *j)) == NULL) {
        return false;
    }
    *j = (struct wait_job){.job.run = run_wait, .worker = w, .endpoint = ep->obj.id, .then = then};
    if (!hws__job_order(w, &w->context->background, &j->job, PAUSE_NS)) {
        free(j);
        return false;
    }
    ep->phase = HWS__PHASE_WAITING;
    return true;
}
