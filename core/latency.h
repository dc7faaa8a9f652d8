/*
 * Times of operations: for one (HWS_OP_TIMED), and histograms by kind (HWS_WORKER_LATENCY).
 *
 * An operation whose time is taken goes the way of a submission (submission.c), so that the others pay
 * nothing for it: `started_at` marks it, and hws__worker.watching has its end looked at.
 */
#ifndef HWS_CORE_LATENCY_H
#define HWS_CORE_LATENCY_H

#include <hawser.h>
#include <stdatomic.h>

#define HWS__LATENCY_KINDS 32

struct hws__op;
struct hws__post;

/** Of one kind. Written by the worker's owner only, read by anybody. */
struct hws__histogram {
    _Atomic uint64_t count, sum, min, max;
    _Atomic uint64_t bucket[HWS_LATENCY_BUCKETS];
};

struct hws__latency {
    struct hws__histogram kind[HWS__LATENCY_KINDS];
};

/** The turn of an operation. Owner only. */
void hws__latency_start(struct hws__op *op);
/** It did not start after all. */
void hws__latency_forget(struct hws__op *op);
/** It has ended. */
void hws__latency_end(struct hws__op *op);

/** The bucket of a time, and the time that it stays below. */
uint32_t hws__latency_bucket(uint64_t ns);
uint64_t hws__latency_bound(uint32_t bucket);
void hws__latency_count(struct hws__histogram *h, uint64_t ns);
void hws__latency_fill(struct hws__histogram *h, uint32_t kind, hws_latency *out);

#endif
