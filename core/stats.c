#include "error.h"
#include "guard.h"
#include "options.h"
#include "worker.h"

#define ADD(name) s->name += atomic_load_explicit(&w->count.name, memory_order_relaxed)

static void add(hws_stats *s, struct hws__worker *w)
{
    uint64_t posted = 0, ended;

    ADD(endpoints);
    ADD(isolated);
    ADD(isolated_total);
    ADD(fallbacks);
    ADD(redials);
    ADD(lane_violations);
    ADD(ops_inline);
    ADD(ops_posted);
    ADD(ops_submitted);
    ADD(events);
    ADD(wakeups);
    ADD(safety_wakeups);
    ADD(signals);
    ADD(am_dropped);
    ADD(failures);
    ADD(credit_waits);
    posted = atomic_load_explicit(&w->count.ops_posted, memory_order_relaxed);
    ended = atomic_load_explicit(&w->count.ops_ended, memory_order_relaxed);
    s->ops_pending += posted > ended ? posted - ended : 0;
    s->unexpected += atomic_load_explicit(&w->scope.messages, memory_order_relaxed);
    s->unexpected_bytes += atomic_load_explicit(&w->scope.bytes, memory_order_relaxed);
    s->unexpected += atomic_load_explicit(&w->multi_scope.messages, memory_order_relaxed);
    s->unexpected_bytes += atomic_load_explicit(&w->multi_scope.bytes, memory_order_relaxed);
    ADD(queue_overflows);
}

int32_t hws_stats_get(hws_id id, hws_stats *out)
{
    struct hws__context *c = NULL;
    struct hws__worker *w;
    hws_stats s = {0};
    int32_t r = HWS_OK;

    HWS__ENTER();
    if (hws__id_kind(id) == HWS_KIND_WORKER) {
        if ((w = hws__worker_find(id, &r)) == NULL) {
            return r;
        }
        c = w->context;
        add(&s, w);
    } else {
        if ((c = hws__context_find(id, &r)) == NULL) {
            return r;
        }
        pthread_mutex_lock(&c->lock);
        for (uint32_t i = 0; i < c->worker_count; i++) {
            if ((w = hws__obj_find(&hws__objects, c->workers[i])) != NULL) {
                add(&s, w);
            }
        }
        pthread_mutex_unlock(&c->lock);
    }
    s.isolated_cap = atomic_load(&c->isolated_cap);
    s.spares = atomic_load(&c->isolated) - s.isolated;
    return hws__fill(out, &s, sizeof s, "statistics");
}
