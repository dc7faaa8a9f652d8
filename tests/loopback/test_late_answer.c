/*
 * What a peer says of a receive that has ended meanwhile, while whoever waited for it gives it back: a matter for the
 * thread sanitizer.
 *
 * INTERNAL
 */
#include "support/cases.h"
#include "support/pair.h"

#include "credit_wire.h"
#include "endpoint.h"
#include "progress.h"

#include <pthread.h>
#include <sched.h>

static _Atomic int looked;

/* The look is not ordered before what follows here: relaxed. */
static void *take(void *arg)
{
    const hws_id *op = arg;
    hws_event event;

    while (!atomic_load_explicit(&looked, memory_order_relaxed)) {
        sched_yield();
    }
    CHECK_OK(hws_wait(*op, 0, &event));
    CHECK_EQ(event.status, HWS_E_CANCELED);
    return NULL;
}

CASE(none_for_one_that_was_cancelled)
{
    struct hws__endpoint *ep;
    pthread_t thread;
    t_pair pair;
    char in[8];
    bool nested;
    hws_id op;

    t_pair_open(&pair, NULL);
    ep = hws__obj_find(&hws__objects, pair.endpoint[1]);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], in, sizeof(in), 1, UINT64_MAX, NULL, &op));
    CHECK_OK(hws_cancel(op));
    nested = hws__own(ep->worker);
    CHECK_EQ(pthread_create(&thread, NULL, take, &op), 0);
    hws__credit_on_none(ep, HWS__CREDIT_TAG, op);
    atomic_store_explicit(&looked, 1, memory_order_relaxed);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    hws__disown(ep->worker, nested);
    t_pair_close(&pair);
}

CASES_MAIN
