/*
 * What a worker has done on a background thread, and how the result comes back to its owner.
 */
#ifndef HWS_CORE_JOB_H
#define HWS_CORE_JOB_H

#include "worker.h"

/**
 * Order a job of the worker's, not before `delay_ns` from now. It counts in hws__worker.jobs, which keeps the worker,
 * until its result takes itself off. False: there is no thread; the job is the caller's then, and not counted.
 */
bool hws__job_order(struct hws__worker *w, struct hws__background *b, struct hws__job *job,
                    uint64_t delay_ns);
/** On the background thread: run `fn` under the worker's ownership, however long that takes to be handed over. */
void hws__job_return(struct hws__worker *w, void (*fn)(struct hws__worker *, void *), void *arg);

#endif
