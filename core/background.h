/*
 * A thread for what may take long: creating and destroying UCX workers; waiting for CUDA's streams has its own.
 * Results go back to a worker as commands. Started when first needed.
 */
#ifndef HWS_CORE_BACKGROUND_H
#define HWS_CORE_BACKGROUND_H

#include "list.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/** `run` is called on the background thread and frees the job. */
struct hws__job {
    struct hws__list link;
    void (*run)(struct hws__job *job);
    const void *owner; /* whose job it is, for hws__background_hurry() */
    uint64_t due;      /* not before */
};

struct hws__background {
    pthread_mutex_t lock; /* LOCK: leaf */
    pthread_cond_t wake;
    struct hws__list jobs;
    pthread_t thread;
    bool started, stop;
};

void hws__background_init(struct hws__background *b);
/** False if the thread cannot be started; the job is the caller's then. */
bool hws__background_add(struct hws__background *b, struct hws__job *job);
/** The same, not before `delay_ns` from now. */
bool hws__background_later(struct hws__background *b, struct hws__job *job, uint64_t delay_ns);
/** Have the delayed jobs of an owner run now; only those that run `run`, unless it is null. */
void hws__background_hurry(struct hws__background *b, const void *owner,
                           void (*run)(struct hws__job *job));
/** Run what is left and end the thread. Not on the background thread. */
void hws__background_stop(struct hws__background *b);

#endif
