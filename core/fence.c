#include "error.h"
#include "guard.h"
#include "progress.h"
#include "rma.h"
#include "ucx_loader.h"

/* UCX's fence is for what UCX does itself. */
static int32_t fence_endpoint(struct hws__endpoint *ep, hws_id source)
{
    ucs_status_t s = UCS_OK;

    hws__rma_fence(ep);
    if (ep->rma.ucx != 0 && ep->uworker != NULL) {
        s = hws__ucx.ucp_worker_fence(ep->uworker->ucx);
    }

    return s == UCS_OK ? HWS_OK
                       : hws__fail_ucx(s, source, "fence: %s", hws__ucx.ucs_status_string(s));
}

static int32_t fence_all(struct hws__worker *w, hws_id source)
{
    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        int32_t r = fence_endpoint(hws__container(n, struct hws__endpoint, link), source);

        if (r < 0) {
            return r;
        }
    }
    return HWS_OK;
}

/* Under ownership. */
static int32_t fence(struct hws__worker *w, struct hws__endpoint *ep, hws_id source)
{
    hws__submissions_catch_up(w);
    hws__bundles_send(&w->bundles);
    if (ep == NULL) {
        return atomic_load(&w->obj.id) == source
                   ? fence_all(w, source)
                   : hws__id_error(&hws__objects, source, HWS_KIND_WORKER);
    }
    if (atomic_load(&ep->obj.id) != source) {
        return hws__id_error(&hws__objects, source, HWS_KIND_ENDPOINT);
    }
    if (hws__endpoint_check(ep) < 0) {
        return hws__endpoint_refuse(ep, source);
    }
    return fence_endpoint(ep, source);
}

int32_t hws_fence(hws_id source)
{
    struct hws__endpoint *ep = NULL;
    struct hws__worker *w;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if (hws__id_kind(source) == HWS_KIND_WORKER) {
        w = hws__worker_find(source, &r);
    } else {
        ep = hws__endpoint_find(source, &r);
        w = ep != NULL ? ep->worker : NULL;
    }
    if (w == NULL) {
        return r;
    }
    if ((r = hws__own_call(w, source, &nested)) < 0) {
        return r;
    }
    r = fence(w, ep, source);
    hws__disown(w, nested);
    return r;
}
