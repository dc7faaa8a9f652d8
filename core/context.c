/*
 * Contexts: opened, used by workers and others, and ended by the last one that leaves.
 */
#include "context_parts.h"
#include "error.h"
#include "exit.h"
#include "guard.h"
#include "host.h"
#include "memory.h"
#include "options.h"
#include "quiet_thread.h"
#include "stats.h"
#include "ucx_loader.h"
#include "worker.h"
#include <string.h>

struct hws__context *hws__context_find(hws_id id, int32_t *error)
{
    return hws__obj_get(id, HWS_KIND_CONTEXT, error);
}

int32_t hws_context_open(const hws_context_opts *opts, hws_id *out)
{
    struct hws__context *c;
    hws_context_opts o;
    int profile;
    int32_t r;

    HWS__ENTER();
    if (out == NULL) {
        return hws__fail(HWS_E_INVALID, 0, "out is null");
    }
    hws__fd_limit_raise();
    if ((r = hws__options(&o, sizeof o, opts, "context")) < 0 || (r = hws__context_room()) < 0 ||
        (r = hws__thread_room(0)) < 0 || (r = hws__ucx_load(o.ucx)) < 0) {
        return r;
    }
    c = (struct hws__context *)(void *)hws__obj_alloc(&hws__objects, HWS_KIND_CONTEXT, sizeof *c,
                                                      HWS__KEEP(struct hws__context, ucx));
    if (c == NULL) {
        return hws__fail(hws__obj_missing(&hws__objects), 0, "no context is free");
    }
    hws__list_init(&c->memories);
    hws__list_init(&c->tcp[0]);
    hws__list_init(&c->tcp[1]);
    c->host = hws__host_hash();
    c->network = hws__host_network();
    if ((r = hws__context_options_read(c, &o, &profile)) < 0 ||
        (r = hws__context_ucx_open(c, profile)) < 0) {
        hws__context_options_free(c);
        hws__obj_free(&hws__objects, &c->obj);
        return r;
    }
    hws__background_init(&c->background);
    hws__background_init(&c->streams);
    *out = hws__obj_publish(&hws__objects, &c->obj);
    return HWS_OK;
}

/* Nothing uses the context any more. Not on its background thread. */
static void finish(struct hws__context *c)
{
    hws__stats_context_ended(&c->gone);
    hws__background_stop(&c->background);
    hws__background_stop(&c->streams);
    hws__ucx_begin();
    hws__memory_end(c);
    hws__ucx_end();
    atomic_store(&c->cuda, NULL); /* of postings on memory that nobody registered */
    hws__context_ucx_end(c);
    hws__context_options_free(c);
    hws__obj_free(&hws__objects, &c->obj);
}

int32_t hws__context_close(hws_id id)
{
    struct hws__context *c;
    hws_id workers[HWS__WORKERS];
    uint32_t n;
    int32_t r = HWS_OK;
    bool opening;

    if ((c = hws__context_find(id, &r)) == NULL) {
        return r;
    }
    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->obj.id) != id) {
        pthread_mutex_unlock(&c->lock);
        return hws__id_error(&hws__objects, id, HWS_KIND_CONTEXT);
    }
    if (atomic_exchange(&c->closing, 1) != 0) {
        pthread_mutex_unlock(&c->lock);
        return HWS_OK;
    }
    n = c->worker_count;
    opening = c->opening + c->holds != 0;
    memcpy(workers, c->workers, n * sizeof *workers);
    pthread_mutex_unlock(&c->lock);
    if (n == 0 && !opening) {
        finish(c);
        return HWS_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        hws__worker_close(workers[i]);
    }
    return HWS_OK;
}

int32_t hws__context_enter(struct hws__context *c, hws_id id)
{
    int32_t r = HWS_OK;

    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->obj.id) != id) {
        r = hws__id_error(&hws__objects, id, HWS_KIND_CONTEXT);
    } else if (c->closing) {
        r = hws__fail(HWS_E_CLOSING, id, "the context is closing");
    } else if (c->worker_count + c->opening == HWS__WORKERS) {
        r = hws__fail(HWS_E_TOO_MANY, id, "a context has at most %u workers", HWS__WORKERS);
    } else {
        c->opening++;
    }
    pthread_mutex_unlock(&c->lock);
    return r;
}

bool hws__context_worker_add(struct hws__context *c, hws_id worker)
{
    bool ok;

    pthread_mutex_lock(&c->lock);
    ok = !c->closing;
    if (ok) {
        c->opening--;
        c->workers[c->worker_count++] = worker;
    }
    pthread_mutex_unlock(&c->lock);
    return ok;
}

/* Whether a context that was closed has nothing left. With the lock. */
static bool is_over(const struct hws__context *c)
{
    return c->closing && c->worker_count + c->opening + c->holds == 0;
}

bool hws__context_hold(struct hws__context *c)
{
    bool ok;

    pthread_mutex_lock(&c->lock);
    ok = !c->closing;
    c->holds += ok;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

void hws__context_let_go(struct hws__context *c)
{
    bool last;

    pthread_mutex_lock(&c->lock);
    c->holds--;
    last = is_over(c);
    pthread_mutex_unlock(&c->lock);
    if (last) {
        finish(c);
    }
}

void hws__context_worker_gone(struct hws__context *c, hws_id worker)
{
    bool last;

    pthread_mutex_lock(&c->lock);
    c->opening -= worker == 0;
    for (uint32_t i = 0; worker != 0 && i < c->worker_count; i++) {
        if (c->workers[i] == worker) {
            c->workers[i] = c->workers[--c->worker_count];
            break;
        }
    }
    last = is_over(c);
    pthread_mutex_unlock(&c->lock);
    if (last) {
        finish(c);
    }
}
