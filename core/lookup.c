#include "lookup.h"
#include "address.h"
#include "job.h"
#include "quiet_thread.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* Names asked at once, in the whole process; a server that does not answer takes one of them for each of its names. */
#define THREADS 8u

/* LOCK: leaf. The states of all lookups, and what is below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hws__list queued = {&queued, &queued};
static uint32_t threads;

static void ask(struct hws__lookup *l)
{
    bool wanted;

    l->count = hws__address_resolve(l->host, l->port, false, false, &l->addresses);
    l->no_memory = l->count == 0 && errno == ENOMEM;

    pthread_mutex_lock(&lock);
    wanted = l->state == HWS__LOOKUP_ASKED;
    l->state = HWS__LOOKUP_ANSWERED;
    pthread_mutex_unlock(&lock);
    if (wanted) {
        hws__job_return(l->worker, l->told,
                        l); /* it counts in the worker's jobs, which keeps the worker */
    } else {
        hws__lookup_free(l);
    }
}

/* A thread lasts as long as there are names. Whatever it needs is its own: it may outlive every context. */
static void *loop(void *arg)
{
    (void)arg;
    pthread_setname_np(pthread_self(), "hawser-names");
    pthread_mutex_lock(&lock);
    while (!hws__list_empty(&queued)) {
        struct hws__lookup *l = hws__container(queued.next, struct hws__lookup, link);

        hws__list_remove(&l->link);
        l->state = HWS__LOOKUP_ASKED;
        pthread_mutex_unlock(&lock);
        ask(l);
        pthread_mutex_lock(&lock);
    }
    threads--;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* With the lock. */
static bool start_thread(void)
{
    pthread_attr_t detached;
    pthread_t thread;
    bool ok;

    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    ok = hws__quiet_thread(&thread, &detached, loop, NULL) == 0;
    pthread_attr_destroy(&detached);
    threads += ok;
    return ok;
}

bool hws__lookup_begin(struct hws__lookup *l)
{
    bool ok;

    l->state = HWS__LOOKUP_QUEUED;
    pthread_mutex_lock(&lock);
    hws__list_append(&queued, &l->link);
    ok = (threads < THREADS && start_thread()) || threads > 0;
    if (ok) {
        atomic_fetch_add(&l->worker->jobs, 1); /* nobody takes it before the lock is free */
    } else {
        hws__list_remove(&l->link);
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

void hws__lookup_abandon(struct hws__lookup *l)
{
    enum hws__lookup_state was;

    l->endpoint = 0;
    pthread_mutex_lock(&lock);
    was = l->state;
    if (was == HWS__LOOKUP_ANSWERED) {
        pthread_mutex_unlock(&lock);
        return;
    }
    l->state = HWS__LOOKUP_ABANDONED;
    atomic_fetch_sub(&l->worker->jobs, 1);
    if (was == HWS__LOOKUP_QUEUED) {
        hws__list_remove(&l->link);
        hws__lookup_free(l);
    }
    pthread_mutex_unlock(&lock);
}

void hws__lookup_free(struct hws__lookup *l)
{
    free(l->addresses);
    free(l);
}
