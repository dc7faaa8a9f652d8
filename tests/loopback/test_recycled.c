/*
 * The memory of a worker that is gone becomes another's. A call that has found the one while it was there, and owns
 * that memory only when it is the other's, leaves the other alone. INTERNAL WRAP: hws__own_compete
 */
#include "own.h"
#include "support/cases.h"
#include "support/check.h"

static hws_id context, old, young;

bool __real_hws__own_compete(struct hws__worker *w);
bool __wrap_hws__own_compete(struct hws__worker *w);

/* The first one that is about to own the old worker finds the young one in its place. */
bool __wrap_hws__own_compete(struct hws__worker *w)
{
    hws_id id = old;

    if (id != 0 && atomic_load(&w->obj.id) == id) {
        old = 0;
        CHECK_OK(hws_close_wait(id, 10 * T_SECOND));
        CHECK_OK(hws_worker_open(context, NULL, &young));
        CHECK(atomic_load(&w->obj.id) == young);
    }
    return __real_hws__own_compete(w);
}

static hws_id open_old(void)
{
    hws_id id = 0;

    young = 0;
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, NULL, &id));
    old = id;
    return id;
}

static void check_young(void)
{
    hws_id listener = 0;

    CHECK(young != 0);
    CHECK_OK(hws_listen(young, "127.0.0.1", 0, NULL, &listener));
    CHECK_OK(hws_close_wait(context, 10 * T_SECOND));
}

CASE(closing)
{
    hws_id id = open_old();

    CHECK_CODE(hws_close(id), HWS_E_STALE);
    check_young();
}

CASE(arming)
{
    hws_id id = open_old();

    CHECK_CODE(hws_worker_arm(id), HWS_E_STALE);
    check_young();
}

CASE(statistics)
{
    hws_stats stats = {.struct_size = sizeof stats};
    hws_id id = open_old();

    CHECK_CODE(hws_stats_get(id, &stats), HWS_E_STALE);
    check_young();
}

CASE(progress)
{
    hws_id id = open_old();

    CHECK_CODE(hws_worker_progress(id), HWS_E_STALE);
    check_young();
}

CASES_MAIN
