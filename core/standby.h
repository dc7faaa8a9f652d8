/*
 * The thread that stands by (HWS_WORKER_STANDBY): a worker whose program makes the progress itself is
 * served by it while the program does not get to it, as an event loop that computes for long. Until then
 * it only looks twice a second.
 */
#ifndef HWS_CORE_STANDBY_H
#define HWS_CORE_STANDBY_H

#include "worker.h"

/** Between the looks whether the program makes progress. */
#define HWS__STANDBY_NS UINT64_C(500000000)

struct hws__standby {
    uint32_t seen; /* the worker's activity at the last look */
    uint64_t nap;  /* until the next look */
};

/** A nap, then progress if nobody else makes any. The thread's only; not owned. */
void hws__stand_by(struct hws__worker *w, struct hws__standby *s);
/** The worker is over: end the nap. */
void hws__standby_wake(struct hws__worker *w);

#endif
