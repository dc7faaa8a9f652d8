/*
 * The application's answer to a connection that asks for it.
 */
#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "listener.h"
#include "own.h"
#include "progress.h"

/* The answer to a REQUEST, under ownership. */
static int32_t answer(hws_id id, bool yes)
{
    struct hws__endpoint *ep;
    struct hws__listener *l;
    struct hws__worker *w;
    bool nested;
    int32_t r = HWS_OK;

    if ((ep = hws__endpoint_find(id, &r)) == NULL) {
        return r;
    }
    w = ep->worker; /* once: the endpoint's memory may become another's until it is owned */
    if ((r = hws__own_call(w, id, &nested)) < 0) {
        return r;
    }
    if (atomic_load(&ep->obj.id) != id || ep->worker != w || ep->failed) {
        r = hws__fail(HWS_E_STALE, id, "the peer has given up");
    } else if (ep->phase != HWS__PHASE_REQUEST || ep->accepted || ep->refused) {
        r = hws__fail(HWS_E_IN_USE, id, "it was answered already");
    } else if (yes) {
        ep->accepted = true;
        hws__hello_welcome(ep);
    } else {
        if ((l = hws__listener_of(ep)) != NULL) {
            l->rejected++;
        }
        hws__hello_refuse(ep, HWS_E_REJECTED);
    }
    hws__disown(w, nested);
    if (!nested) {
        hws__wake(w);
    }
    return r;
}

int32_t hws_accept(hws_id endpoint)
{
    HWS__ENTER();
    return answer(endpoint, true);
}

int32_t hws_reject(hws_id endpoint)
{
    HWS__ENTER();
    return answer(endpoint, false);
}
