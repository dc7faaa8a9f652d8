#include "upgrade.h"
#include "dial.h"
#include "endpoint.h"
#include "error.h"
#include "hello.h"
#include "isolated.h"
#include "lanes.h"
#include "listener.h"
#include "log.h"
#include "progress.h"
#include "ucx_loader.h"
#include "waddress.h"
#include <stdlib.h>
#include <string.h>

bool hws__upgrade_wanted(const struct hws__endpoint *ep)
{
    return ep->worker->context->upgrades && !ep->server && !ep->raw && !ep->tcp;
}

bool hws__upgrade_by_tcp(const struct hws__endpoint *ep)
{
    return ep->tcp || (hws__upgrade_wanted(ep) && ep->upgrade.line == NULL && !ep->upgrade.failed);
}

void hws__upgrade_start(struct hws__endpoint *ep)
{
    ep->upgrade.waits = true;
    hws__uworker_request(ep);
}

/* Keep the peer's address for hws__upgrade_step(). */
static bool keep(struct hws__endpoint *ep, const void *address, uint64_t length)
{
    free(ep->worker_address);
    ep->worker_address = hws__address_peer(address, length);
    return ep->worker_address != NULL;
}

void hws__upgrade_offered(struct hws__endpoint *ep, bool same_host, const void *address,
                          uint64_t length)
{
    if (!same_host) {
        ep->reason = HWS_REASON_REMOTE;
    } else if (ep->worker->context->flags & HWS_CONTEXT_NO_SHARED_MEMORY) {
        ep->reason = HWS_REASON_TCP_ONLY;
    } else if (keep(ep, address, length)) {
        ep->reason = HWS_REASON_LOCAL;
    } else {
        ep->reason = HWS_REASON_SHM_FAILED;
    }
}

static void attend(struct hws__endpoint *ep)
{
    ep->upgrade.due = true;
    hws__endpoint_attend(ep);
}

bool hws__upgrade_decide(struct hws__endpoint *ep)
{
    const struct hws__listener *l = hws__listener_of(ep);

    if (!ep->server || ep->worker_address == NULL || ep->by_address) {
        return false;
    }
    ep->phase = HWS__PHASE_HELLO;
    ep->upgrade.waits = true;
    hws__endpoint_deadline(ep, l != NULL ? l->hello_timeout : HWS__HELLO_NS);
    attend(ep);
    return true;
}

bool hws__upgrade_welcome(struct hws__endpoint *ep, const void *address, uint64_t length)
{
    if (length == 0 || ep->upgrade.offer == NULL) {
        hws__upgrade_end(ep);
        return false;
    }
    if (!keep(ep, address, length)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged address in the welcome");
    }
    attend(ep);
    return true;
}

/* UCX's endpoint on an isolated worker takes the place of the TCP one, which becomes the line. */
static void change(struct hws__endpoint *ep, struct hws__uworker *u, ucp_ep_h ucx)
{
    hws__uworker_ep_remove(ep->uworker, ep);
    ep->upgrade.line = ep->ucx;
    ep->upgrade.line_worker = ep->uworker;
    ep->uworker->lines++;
    hws__endpoint_attach(ep, u, ucx); /* an isolated one has no table that must grow */
}

/* Whether what UCX chose is shared memory, and not TCP again. */
static bool is_shared(ucp_ep_h ucx)
{
    unsigned flags = 0;
    char lanes[128];

    hws__ucx_ep_lanes(ucx, lanes, sizeof lanes, &flags);
    return (flags & HWS__LANE_DATA_SHM) != 0;
}

/* Connect and change; false: shared memory cannot be used with this peer, and u is gone. */
static bool move(struct hws__endpoint *ep, struct hws__uworker *u)
{
    ucp_ep_h ucx = NULL;
    ucs_status_t s;

    if (hws__uworker_adopt(ep->worker, u) < 0) {
        hws__spares_return(ep->worker, u);
        return false;
    }
    s = hws__address_ep(ep, u, ep->worker_address, &ucx);
    if (s != UCS_OK || !is_shared(ucx)) {
        hws__log(HWS_LOG_INFO, "no shared memory with process %llu: %s",
                 (unsigned long long)ep->peer_pid,
                 s == UCS_OK ? "UCX chose TCP" : hws__ucx.ucs_status_string(s));
        HWS__COUNT(ep->worker, isolated, -1);
        hws__uworker_cut(u, s == UCS_OK ? ucx : NULL, -1);
        return false;
    }
    if (ep->server) {
        hws__hello_welcome_upgrade(ep, u);
    }
    change(ep, u, ucx);
    if (!ep->server) {
        hws__hello_join(ep);
    }
    return true;
}

/* The listener's answer to the offer. */
static void answer(struct hws__endpoint *ep, struct hws__uworker *u)
{
    struct hws__listener *l = hws__listener_of(ep);

    if (u != NULL && move(ep, u)) {
        return;
    }
    if (u == NULL && l != NULL) {
        l->redirected++;
    }
    ep->reason = u == NULL ? HWS_REASON_CAP : HWS_REASON_SHM_FAILED;
    free(ep->worker_address);
    ep->worker_address = NULL;
    hws__hello_welcome(ep);
}

void hws__upgrade_uworker(struct hws__endpoint *ep, struct hws__uworker *u)
{
    ep->upgrade.waits = false;
    if (ep->refused || ep->failed || ep->closing || ep->ucx == NULL) {
        if (u != NULL) {
            hws__spares_return(ep->worker, u);
        }
        return;
    }
    HWS__COUNT(ep->worker, fallbacks, u == NULL);
    if (ep->server) {
        answer(ep, u);
        return;
    }
    ep->upgrade.offer = u;
    ep->reason = u == NULL ? HWS_REASON_CAP : ep->reason;
    hws__hello_start(ep);
}

void hws__upgrade_step(struct hws__endpoint *ep)
{
    struct hws__uworker *u = ep->upgrade.offer;

    ep->upgrade.due = false;
    if (ep->phase != HWS__PHASE_HELLO || ep->ucx == NULL) {
        return;
    }
    if (ep->server) {
        hws__uworker_request(ep);
        return;
    }
    ep->upgrade.offer = NULL;
    if (u != NULL && !move(ep, u)) {
        ep->upgrade.failed = true;
        hws__dial_failed(ep, HWS_E_UNREACHABLE);
    }
}

void hws__upgrade_end(struct hws__endpoint *ep)
{
    struct hws__uworker *u = ep->upgrade.offer;

    ep->upgrade.offer = NULL;
    ep->upgrade.due = ep->upgrade.waits = ep->upgrade.failed = false;
    if (u != NULL) {
        hws__spares_return(ep->worker, u);
    }
}
