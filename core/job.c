#include "job.h"
#include "progress.h"
#include <sched.h>

bool hws__job_order(struct hws__worker *w, struct hws__background *b, struct hws__job *job,
                    uint64_t delay_ns)
{
    bool ok;

    job->owner = w;
    /* Counted first: it may have come back before this call does. */
    atomic_fetch_add(&w->jobs, 1);
    ok = hws__background_later(b, job, delay_ns);
    if (!ok) {
        atomic_fetch_sub(&w->jobs, 1);
    }
    return ok;
}

void hws__job_return(struct hws__worker *w, void (*fn)(struct hws__worker *, void *), void *arg)
{
    while (!hws__command(w, fn, arg)) {
        sched_yield();
    }
}
