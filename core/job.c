#include "job.h"
#include "cuda.h"
#include "progress.h"

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

/* By this thread: what a command needs may be free no sooner than the worker has ended, which waits for this. */
static void run_here(struct hws__worker *w, void (*fn)(struct hws__worker *, void *), void *arg)
{
    bool nested = hws__own(w);
    bool pushed = hws__cuda_enter(w->context);

    fn(w, arg);
    hws__cuda_pop(pushed);
    hws__disown(w, nested);
    hws__wake(w);
}

void hws__job_return(struct hws__worker *w, void (*fn)(struct hws__worker *, void *), void *arg)
{
    if (!hws__command(w, fn, arg)) {
        run_here(w, fn, arg);
    }
}
