#include "background.h"
#include "quiet_thread.h"
#include "time.h"
#include <stddef.h>

void hws__background_init(struct hws__background *b)
{
    pthread_condattr_t clock;

    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&b->wake, &clock);
    pthread_condattr_destroy(&clock);
    hws__list_init(&b->jobs);
    b->started = b->stop = false;
}

/* The first job that is due (all are, at the end); else the time of the next one. With the lock. */
static struct hws__job *next_job(struct hws__background *b, uint64_t *next)
{
    uint64_t now = hws__now();

    *next = UINT64_MAX;
    for (struct hws__list *n = b->jobs.next; n != &b->jobs; n = n->next) {
        struct hws__job *job = hws__container(n, struct hws__job, link);

        if (job->due <= now || b->stop) {
            hws__list_remove(n);
            return job;
        }
        *next = job->due < *next ? job->due : *next;
    }
    return NULL;
}

static void wait_for_job(struct hws__background *b, uint64_t next)
{
    struct timespec t = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};

    if (next == UINT64_MAX) {
        pthread_cond_wait(&b->wake, &b->lock);
    } else {
        pthread_cond_timedwait(&b->wake, &b->lock, &t);
    }
}

static void *loop(void *arg)
{
    struct hws__background *b = arg;
    struct hws__job *job;
    uint64_t next;

    pthread_mutex_lock(&b->lock);
    for (;;) {
        while ((job = next_job(b, &next)) == NULL && !b->stop) {
            wait_for_job(b, next);
        }
        if (job == NULL) {
            break;
        }
        pthread_mutex_unlock(&b->lock);
        job->run(job);
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* With the lock. */
static bool start(struct hws__background *b)
{
    b->started = hws__quiet_thread(&b->thread, NULL, loop, b) == 0;
    if (b->started) {
        pthread_setname_np(b->thread, "hawser-bg");
    }
    return b->started;
}

bool hws__background_add(struct hws__background *b, struct hws__job *job)
{
    return hws__background_later(b, job, 0);
}

void hws__background_hurry(struct hws__background *b, const void *owner,
                           void (*run)(struct hws__job *job))
{
    pthread_mutex_lock(&b->lock);
    for (struct hws__list *n = b->jobs.next; n != &b->jobs; n = n->next) {
        struct hws__job *job = hws__container(n, struct hws__job, link);

        if (job->owner == owner && (run == NULL || job->run == run)) {
            job->due = 0;
        }
    }
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
}

bool hws__background_later(struct hws__background *b, struct hws__job *job, uint64_t delay_ns)
{
    bool ok;

    job->due = delay_ns == 0 ? 0 : hws__deadline(hws__now(), delay_ns);

    pthread_mutex_lock(&b->lock);
    ok = !b->stop && (b->started || start(b));
    if (ok) {
        hws__list_append(&b->jobs, &job->link);
        pthread_cond_signal(&b->wake);
    }
    pthread_mutex_unlock(&b->lock);
    return ok;
}

void hws__background_stop(struct hws__background *b)
{
    bool started;

    pthread_mutex_lock(&b->lock);
    b->stop = true;
    started = b->started;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
    if (started) {
        pthread_join(b->thread, NULL);
    }
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->lock);
}
