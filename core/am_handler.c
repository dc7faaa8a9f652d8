/*
 * The handlers of active messages: set, replaced and unset.
 */
#include "cuda.h"
#include "error.h"
#include "guard.h"
#include "options.h"
#include "own.h"
#include "raw.h"
#include <stdlib.h>

static int32_t read_options(const struct hws__worker *w, hws_id worker, const hws_am_opts *opts,
                            hws_am_opts *o)
{
    int32_t r = hws__options(o, sizeof *o, opts, "active message");

    if (r < 0) {
        return r;
    }
    if (o->flags & ~(uint32_t)(HWS_AM_DEFER | HWS_AM_BUFFER | HWS_AM_HOLD)) {
        return hws__fail(HWS_E_INVALID, worker, "unknown flags %#x", o->flags);
    }
    if (o->reserved != 0) {
        return hws__fail(HWS_E_NEWER, worker, "active message options: `reserved` is set");
    }
    if ((r = hws__cuda_usable(w->context, worker, o->memory_kind)) == HWS_OK &&
        hws__cuda_is(o->memory_kind) && o->alloc == NULL && (o->flags & HWS_AM_DEFER) == 0) {
        return hws__fail(HWS_E_INVALID, worker,
                         "memory of a GPU comes from `alloc`: there is none");
    }
    return r;
}

/* What the options say; `*out` is null if they unset the handler. */
static int32_t handler_new(hws_id worker, const hws_am_opts *o, struct hws__am_handler **out)
{
    struct hws__am_handler h = {.flags = o->flags,
                                .memory_kind = o->memory_kind,
                                .alloc = o->alloc,
                                .free = o->free,
                                .alloc_arg = o->alloc_arg};
    int32_t r = hws__sink_set(&h.sink, &o->sink);

    *out = NULL;
    if (r < 0 || hws__sink_none(&h.sink)) {
        return r;
    }
    h.plain =
        o->sink.callback != NULL && (o->flags & ~(uint32_t)HWS_AM_DEFER) == 0 && o->alloc == NULL;
    if ((*out = malloc(sizeof **out)) == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, worker, "handler");
    }
    **out = h;
    hws__sink_feed(&h.sink, worker);
    return HWS_OK;
}

/* Owner only. False: no memory. */
static bool reserve_handler(struct hws__worker *w, uint32_t am_id)
{
    bool ok = true;

    for (struct hws__list *n = w->uworkers.next; n != &w->uworkers && ok; n = n->next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        ok = !u->raw || hws__raw_reserve(u, am_id);
    }
    return ok;
}

/* Owner only. */
static void replace_handler(struct hws__worker *w, uint32_t am_id, struct hws__am_handler *h)
{
    free(w->handlers[am_id]);
    w->handlers[am_id] = h;
    for (struct hws__list *n = w->uworkers.next; n != &w->uworkers; n = n->next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        if (u->raw) {
            hws__raw_handler(u, am_id, h != NULL);
        }
    }
}

int32_t hws_am_handler(hws_id worker, uint32_t am_id, const hws_am_opts *opts)
{
    struct hws__am_handler *h;
    struct hws__worker *w;
    hws_am_opts o;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((w = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    if (am_id > HWS_AM_ID_MAX) {
        return hws__fail(HWS_E_INVALID, worker, "am_id %u, at most %u", am_id, HWS_AM_ID_MAX);
    }
    if ((r = read_options(w, worker, opts, &o)) < 0 || (r = handler_new(worker, &o, &h)) < 0) {
        return r;
    }
    if ((r = hws__own_call(w, worker, &nested)) < 0) {
        free(h);
        return r;
    }
    if (atomic_load(&w->obj.id) != worker) {
        free(h);
        r = hws__id_error(&hws__objects, worker, HWS_KIND_WORKER);
    } else if (h != NULL && !reserve_handler(w, am_id)) {
        free(h);
        r = hws__fail(HWS_E_NO_MEMORY, worker, "handler");
    } else {
        if (hws__cuda_is(o.memory_kind)) {
            hws__cuda_adopt(w->context, hws__cuda_current(), false);
        }
        replace_handler(w, am_id, h);
    }
    hws__disown(w, nested);
    return r;
}
