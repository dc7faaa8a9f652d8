#include "exit.h"
#include "bundle.h"
#include "guard.h"
#include "own.h"
#include "progress.h"
#include "time.h"
#include <pthread.h>
#include <stdlib.h>

/* How long the end of the process may wait for other threads: for a callback of the program's that does not return. */
#define LIMIT_NS UINT64_C(2000000000)

/* The same for a fork, which only does better if they are through. */
#define FORK_NS UINT64_C(100000000)

/* LOCK: leaf. What is below, but for the thread's own depth. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left, opened = PTHREAD_COND_INITIALIZER;
static uint32_t inside;
static bool shut;    /* for good */
static bool forking; /* for a moment */
static _Thread_local uint32_t depth __attribute__((tls_model("initial-exec")));

void hws__ucx_begin(void)
{
    if (depth++ != 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    while (shut || forking) {
        pthread_cond_wait(&opened, &lock);
    }
    inside++;
    pthread_mutex_unlock(&lock);
}

void hws__ucx_end(void)
{
    if (--depth != 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    inside--;
    pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
}

/* Those who have begun are through, but for this thread itself. With the lock. */
static void wait_until_left(uint64_t end)
{
    struct timespec t = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
    int late = 0;

    while (inside > (depth != 0) && late == 0) {
        late = pthread_cond_timedwait(&left, &lock, &t);
    }
}

/* Nobody begins any more. */
static void shut_gate(uint64_t end)
{
    pthread_mutex_lock(&lock);
    shut = true;
    wait_until_left(end);
    pthread_mutex_unlock(&lock);
}

void hws__fork_begin(void)
{
    pthread_mutex_lock(&lock);
    forking = true;
    wait_until_left(hws__now() + FORK_NS);
}

void hws__fork_end(void)
{
    forking = false;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
}

/* Workers are not given back: whoever wants one finds it owned by another, and stays out of UCX. */
static void take_workers(uint64_t end)
{
    uint32_t used = atomic_load(&hws__objects.used);

    for (uint32_t slot = 0; slot < used; slot++) {
        hws_id id = hws__obj_at(&hws__objects, slot);
        struct hws__worker *w =
            hws__id_kind(id) == HWS_KIND_WORKER ? hws__obj_find(&hws__objects, id) : NULL;

        if (w != NULL) {
            if (hws__own_until(w, end)) {
                hws__bundles_send(&w->bundles);
            }
        }
    }
}

/* A forked child has no other threads, and what its parent's threads held is held for ever. */
static void at_exit(void)
{
    int ready = HWS__READY;
    uint64_t end = hws__now() + LIMIT_NS;

    if (!atomic_compare_exchange_strong(&hws__library_state, &ready, HWS__ENDING)) {
        return;
    }
    /* In this order: who owns a worker may have to pass the gate before it gives it back. */
    take_workers(end);
    shut_gate(end);
}

void hws__exit_before_libraries(void)
{
    atexit(at_exit);
}

/*
 * As late as can be, since the program's own handlers may close what they opened. A library's handler that is
 * registered as the program starts runs with the library's destructors: these come before those of libraries that
 * were opened later, as UCX is. One that is registered later, or in the program itself, runs before all destructors
 * of libraries, and after the handlers that the program registers then.
 */
__attribute__((constructor(101))) static void register_exit(void)
{
    pthread_condattr_t clock;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&left, &clock);
    pthread_condattr_destroy(&clock);
    atexit(at_exit);
}
