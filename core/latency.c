#include "latency.h"
#include "error.h"
#include "guard.h"
#include "options.h"
#include "progress.h"
#include "time.h"
#include "worker.h"

void hws__latency_start(struct hws__op *op)
{
    op->started_at = hws__now();
    op->worker->watching++;
}

void hws__latency_forget(struct hws__op *op)
{
    if (op->started_at != 0) {
        op->started_at = 0;
        op->worker->watching--;
    }
}

void hws__latency_end(struct hws__op *op)
{
    struct hws__worker *w = op->worker;
    uint64_t now = hws__now();

    if (op->timing != NULL) {
        *op->timing = (hws_timing){op->posted_at, op->started_at, now};
    }
    if (w->latency != NULL && op->kind < HWS__LATENCY_KINDS) {
        hws__latency_count(&w->latency->kind[op->kind], now - op->posted_at);
    }
    hws__latency_forget(op);
}

uint32_t hws__latency_bucket(uint64_t ns)
{
    uint32_t power, i;

    if (ns < 4) {
        return (uint32_t)ns;
    }
    power = 63 - (uint32_t)__builtin_clzll(ns);
    i = 4 * (power - 1) + (uint32_t)(ns >> (power - 2) & 3);
    return i < HWS_LATENCY_BUCKETS ? i : HWS_LATENCY_BUCKETS - 1;
}

uint64_t hws__latency_bound(uint32_t bucket)
{
    return bucket < 4 ? bucket + 1 : (uint64_t)(bucket % 4 + 5) << (bucket / 4 - 1);
}

/* ORDER: relaxed; there is one writer, and a reader gets each number as it was at some time. */
static uint64_t get(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static void set(_Atomic uint64_t *to, uint64_t n)
{
    atomic_store_explicit(to, n, memory_order_relaxed);
}

void hws__latency_count(struct hws__histogram *h, uint64_t ns)
{
    _Atomic uint64_t *bucket = &h->bucket[hws__latency_bucket(ns)];

    if (get(&h->count) == 0 || ns < get(&h->min)) {
        set(&h->min, ns);
    }
    if (ns > get(&h->max)) {
        set(&h->max, ns);
    }
    set(&h->sum, get(&h->sum) + ns);
    set(bucket, get(bucket) + 1);
    set(&h->count, get(&h->count) + 1);
}

/* The bound below which so many thousandths of the operations stayed. */
static uint64_t quantile(const hws_latency *l, uint64_t total, uint64_t thousandths)
{
    uint64_t rank = total / 1000 * thousandths + (total % 1000 * thousandths + 999) / 1000;
    uint64_t seen = 0;

    for (uint32_t i = 0; i < HWS_LATENCY_BUCKETS; i++) {
        seen += l->buckets[i];
        if (seen >= rank && seen != 0) {
            uint64_t bound = hws__latency_bound(i);

            return bound < l->max_ns && i < HWS_LATENCY_BUCKETS - 1 ? bound : l->max_ns;
        }
    }
    return 0;
}

void hws__latency_fill(struct hws__histogram *h, uint32_t kind, hws_latency *out)
{
    uint64_t total = 0;

    *out = (hws_latency){.struct_size = sizeof *out,
                         .kind = kind,
                         .count = get(&h->count),
                         .sum_ns = get(&h->sum),
                         .min_ns = get(&h->min),
                         .max_ns = get(&h->max)};
    for (uint32_t i = 0; i < HWS_LATENCY_BUCKETS; i++) {
        total += out->buckets[i] = get(&h->bucket[i]);
    }
    out->p50_ns = quantile(out, total, 500);
    out->p90_ns = quantile(out, total, 900);
    out->p99_ns = quantile(out, total, 990);
    out->p999_ns = quantile(out, total, 999);
}

int32_t hws_latency_get(hws_id id, uint32_t kind, hws_latency *out)
{
    struct hws__worker *w;
    hws_latency l;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((w = hws__worker_find(id, &r)) == NULL) {
        return r;
    }
    if (kind >= HWS__LATENCY_KINDS) {
        return hws__fail(HWS_E_INVALID, id, "%u is no kind of an operation", kind);
    }
    if ((r = hws__fillable(out, "latency")) < 0) {
        return r;
    }
    if ((r = hws__own_call(w, id, &nested)) < 0) { /* the histograms go with the worker */
        return r;
    }
    if (atomic_load(&w->obj.id) != id) {
        r = hws__id_error(&hws__objects, id, HWS_KIND_WORKER);
    } else if (w->latency == NULL) {
        r = hws__fail(HWS_E_UNSUPPORTED, id, "the worker was opened without HWS_WORKER_LATENCY");
    } else {
        hws__latency_fill(&w->latency->kind[kind], kind, &l);
    }
    hws__disown(w, nested);
    return r < 0 ? r : hws__fill(out, &l, sizeof l, "latency");
}
