#include "stats.h"
#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "options.h"
#include "progress.h"
#include "stats_page.h"
#include "time.h"
#include "worker.h"
#include <string.h>

_Static_assert(sizeof(hws_stats) % sizeof(uint64_t) == 0, "hws_stats is copied by words");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* LOCK: leaf */
static hws_stats ended;                                  /* of contexts that are no more */

void hws__stats_write(struct hws__stats_words *to, const hws_stats *s, uint64_t now)
{
    uint64_t turn = atomic_load_explicit(&to->turn, memory_order_relaxed);
    uint64_t words[HWS__STATS_WORDS];

    memcpy(words, s, sizeof words);
    /* ORDER: the words are written between the two turns, and a reader takes them between two looks at
     * it: release stores and acquire loads throughout need no fence, which ThreadSanitizer does not know. */
    atomic_exchange_explicit(&to->turn, turn | 1, memory_order_acq_rel);
    for (size_t i = 0; i < HWS__STATS_WORDS; i++) {
        atomic_store_explicit(&to->word[i], words[i], memory_order_release);
    }
    atomic_store_explicit(&to->at, now, memory_order_release);
    atomic_store_explicit(&to->turn, (turn | 1) + 1, memory_order_release);
}

bool hws__stats_read(struct hws__stats_words *from, hws_stats *s, uint64_t *at)
{
    uint64_t words[HWS__STATS_WORDS];

    for (int tries = 0; tries < 100000; tries++) {
        uint64_t turn = atomic_load_explicit(&from->turn, memory_order_acquire);

        if ((turn & 1) != 0) {
            hws__pause();
            continue;
        }
        for (size_t i = 0; i < HWS__STATS_WORDS; i++) {
            words[i] = atomic_load_explicit(&from->word[i], memory_order_acquire);
        }
        *at = atomic_load_explicit(&from->at, memory_order_acquire);
        if (atomic_load_explicit(&from->turn, memory_order_acquire) == turn) {
            memcpy(s, words, sizeof words);
            return true;
        }
    }
    return false;
}

/* Sums; struct_size stays as it is. */
static void add(hws_stats *sum, const hws_stats *s)
{
    uint64_t a[HWS__STATS_WORDS], b[HWS__STATS_WORDS];

    memcpy(a, sum, sizeof a);
    memcpy(b, s, sizeof b);
    for (size_t i = 1; i < HWS__STATS_WORDS; i++) {
        a[i] += b[i];
    }
    memcpy(sum, a, sizeof a);
}

static void add_traffic(hws_stats *s, const struct hws__traffic *t, uint32_t via)
{
    for (int k = 0; k < HWS__TRAFFIC_KINDS; k++) {
        s->sent[k] += t->out[k].count;
        s->bytes_sent[k] += t->out[k].bytes;
        s->received[k] += t->in[k].count;
        s->bytes_received[k] += t->in[k].bytes;
        s->via_sent[via] += t->out[k].count;
        s->via_bytes_sent[via] += t->out[k].bytes;
        s->via_received[via] += t->in[k].count;
        s->via_bytes_received[via] += t->in[k].bytes;
    }
}

uint32_t hws__endpoint_via(const struct hws__endpoint *ep)
{
    return ep->transports & HWS_TRANSPORT_SHM    ? HWS_VIA_SHM
           : ep->transports & HWS_TRANSPORT_RDMA ? HWS_VIA_RDMA
           : ep->transports & HWS_TRANSPORT_TCP  ? HWS_VIA_TCP
           : ep->transports & HWS_TRANSPORT_SELF ? HWS_VIA_SELF
                                                 : HWS_VIA_OTHER;
}

#define COUNTER(name) s->name = atomic_load_explicit(&w->count.name, memory_order_relaxed)
#define SCOPE(name) atomic_load_explicit(&w->name, memory_order_relaxed)

static void gather_counters(hws_stats *s, const struct hws__worker *w)
{
    uint64_t ended_ops = atomic_load_explicit(&w->count.ops_ended, memory_order_relaxed);

    COUNTER(endpoints);
    COUNTER(isolated);
    COUNTER(isolated_total);
    COUNTER(fallbacks);
    COUNTER(redials);
    COUNTER(lane_violations);
    COUNTER(ops_inline);
    COUNTER(ops_posted);
    COUNTER(ops_submitted);
    COUNTER(events);
    COUNTER(wakeups);
    COUNTER(safety_wakeups);
    COUNTER(signals);
    COUNTER(am_dropped);
    COUNTER(failures);
    COUNTER(credit_waits);
    COUNTER(queue_overflows);
    s->ops_pending = s->ops_posted > ended_ops ? s->ops_posted - ended_ops : 0;
    s->unexpected = SCOPE(scope.messages) + SCOPE(multi_scope.messages);
    s->unexpected_bytes = SCOPE(scope.bytes) + SCOPE(multi_scope.bytes);
    for (uint32_t i = 0; i < HWS__CODES; i++) {
        COUNTER(op_failures[i]);
        COUNTER(endpoint_failures[i]);
    }
}

static void gather_pool(hws_stats *s, const struct hws__worker *w)
{
    s->pool_bytes = w->pool.bytes;
    s->pool_reused = w->pool.reused;
    s->pool_fresh = w->pool.fresh;
}

/* Everything that a worker counts. Owner only. */
static void gather(hws_stats *s, const struct hws__worker *w)
{
    *s = (hws_stats){.struct_size = sizeof *s};
    gather_counters(s, w);
    for (uint32_t via = 0; via < HWS__VIAS; via++) {
        add_traffic(s, &w->gone[via], via);
    }
    for (const struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        const struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, link);

        add_traffic(s, &ep->traffic, hws__endpoint_via(ep));
    }
    gather_pool(s, w);
}

static void write_out(struct hws__worker *w, hws_stats *s, uint64_t now)
{
    hws__stats_write(&w->published, s, now);
    if (w->page != NULL) {
        s->isolated_cap = atomic_load(&w->context->isolated_cap);
        s->spares = atomic_load(&w->context->isolated) - s->isolated;
        hws__stats_write(&w->page->stats, s, now);
    }
}

static uint64_t posts(const struct hws__worker *w)
{
    return SCOPE(count.ops_inline) + SCOPE(count.ops_posted);
}

void hws__stats_publish(struct hws__worker *w, uint64_t now)
{
    hws_stats s;

    w->worked = 0;
    w->published_posts = posts(w);
    gather(&s, w);
    write_out(w, &s, now);
}

/* Nothing passed through an endpoint since: what they counted, which is the work, is still as it was published. */
static void publish_again(struct hws__worker *w, uint64_t now)
{
    hws_stats s;
    uint64_t at;

    if (hws__stats_read(&w->published, &s, &at)) {
        gather_counters(&s, w);
        gather_pool(&s, w);
        write_out(w, &s, now);
    }
}

void hws__stats_tick(struct hws__worker *w, uint64_t now)
{
    if (now - atomic_load_explicit(&w->published.at, memory_order_relaxed) < HWS__STATS_NS) {
        return;
    }
    if (w->worked != 0 || w->published_posts != posts(w)) {
        hws__stats_publish(w, now);
    } else {
        publish_again(w, now);
    }
}

void hws__stats_retire(struct hws__worker *w)
{
    hws_stats s;

    gather(&s, w);
    s.ops_pending = s.unexpected = s.unexpected_bytes = 0; /* levels of what is no more */
    s.endpoints = s.isolated = s.pool_bytes = 0;
    pthread_mutex_lock(&w->context->lock);
    add(&w->context->gone, &s);
    pthread_mutex_unlock(&w->context->lock);
}

void hws__stats_context_ended(const hws_stats *gone)
{
    pthread_mutex_lock(&lock);
    add(&ended, gone);
    pthread_mutex_unlock(&lock);
}

/* Of a worker: fresh if nobody else owns it now, else as it was published last. False: it has ended, and what was read
 * may be of the one that has its memory now. */
static bool worker_stats(struct hws__worker *w, hws_id id, hws_stats *s)
{
    bool nested = hws__owned(w);
    uint64_t at;

    if (nested || hws__own_try(w)) {
        if (atomic_load_explicit(&w->obj.id, memory_order_relaxed) == id) {
            hws__stats_publish(w, hws__now());
        }
        hws__disown(w, nested);
    }
    while (!hws__stats_read(&w->published, s, &at)) {
        sched_yield(); /* its writer does not run just now */
    }
    gather_counters(s, w); /* these anybody may read: they are of now */
    return hws__obj_is_still(&w->obj, id);
}

/* Of a context, with its lock held. */
static void context_stats(struct hws__context *c, hws_stats *sum)
{
    hws_stats s;
    struct hws__worker *w;

    *sum = c->gone;
    for (uint32_t i = 0; i < c->worker_count; i++) {
        if ((w = hws__obj_find(&hws__objects, c->workers[i])) != NULL &&
            worker_stats(w, c->workers[i], &s)) {
            add(sum, &s);
        }
    }
    sum->isolated_cap = atomic_load(&c->isolated_cap);
    sum->spares = atomic_load(&c->isolated) - sum->isolated;
}

static int32_t get_context(hws_id id, hws_stats *sum)
{
    struct hws__context *c;
    int32_t r = HWS_OK;

    if ((c = hws__context_find(id, &r)) == NULL) {
        return r;
    }
    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->obj.id) == id) {
        context_stats(c, sum);
    } else {
        r = hws__id_error(&hws__objects, id, HWS_KIND_CONTEXT);
    }
    pthread_mutex_unlock(&c->lock);
    return r;
}

int32_t hws_stats_total(hws_stats *out)
{
    hws_stats s, sum;

    HWS__ENTER();
    pthread_mutex_lock(&lock);
    sum = ended;
    pthread_mutex_unlock(&lock);
    for (uint32_t slot = 0, used = atomic_load(&hws__objects.used); slot < used; slot++) {
        hws_id id = hws__obj_at(&hws__objects, slot);

        if (hws__id_kind(id) == HWS_KIND_CONTEXT && get_context(id, &s) == HWS_OK) {
            add(&sum, &s);
        }
    }
    return hws__fill(out, &sum, sizeof sum, "statistics");
}

static int32_t get_worker(hws_id id, hws_stats *s)
{
    struct hws__worker *w;
    struct hws__context *c;
    int32_t r = HWS_OK;

    if ((w = hws__worker_find(id, &r)) == NULL) {
        return r;
    }
    c = w->context;
    if (!worker_stats(w, id, s)) {
        return hws__id_error(&hws__objects, id, HWS_KIND_WORKER);
    }
    s->isolated_cap = atomic_load(&c->isolated_cap);
    s->spares = atomic_load(&c->isolated) - s->isolated;
    return HWS_OK;
}

static int32_t get_endpoint(hws_id id, hws_stats *s)
{
    struct hws__endpoint *ep;
    struct hws__worker *w;
    bool nested;
    int32_t r = HWS_OK;

    if ((ep = hws__endpoint_find(id, &r)) == NULL) {
        return r;
    }
    *s = (hws_stats){0};
    w = ep->worker; /* once: the endpoint's memory may become another's until it is owned */
    if ((r = hws__own_call(w, id, &nested)) < 0) {
        return r;
    }
    if (atomic_load(&ep->obj.id) == id) {
        add_traffic(s, &ep->traffic, hws__endpoint_via(ep));
        s->ops_pending = ep->op_count;
    } else {
        r = hws__id_error(&hws__objects, id, HWS_KIND_ENDPOINT);
    }
    hws__disown(w, nested);
    return r;
}

int32_t hws_stats_get(hws_id id, hws_stats *out)
{
    hws_stats s;
    int32_t r;

    HWS__ENTER();
    switch (hws__id_kind(id)) {
    case HWS_KIND_WORKER:
        r = get_worker(id, &s);
        break;
    case HWS_KIND_ENDPOINT:
        r = get_endpoint(id, &s);
        break;
    default:
        r = get_context(id, &s);
    }
    return r < 0 ? r : hws__fill(out, &s, sizeof s, "statistics");
}
