#include "late_cut.h"
#include "cm_socket.h"
#include "op.h"
#include "time.h"
#include "worker.h"

/* A UCX worker that others keep busy may not be without work for long. */
#define WAIT_NS 100000000u

/* Whether a flush of UCX's is under way: Hawser's own, or the user's on a raw endpoint. */
static bool flushes(const struct hws__endpoint *ep)
{
    if (ep->ucx_flushes != 0) {
        return true;
    }
    for (const struct hws__list *n = ep->ops.next; n != &ep->ops; n = n->next) {
        const struct hws__op *op = hws__container(n, const struct hws__op, link);

        if (op->kind == HWS_EVENT_FLUSH && op->stage == HWS__STAGE_UCX) {
            return true;
        }
    }
    return false;
}

static void cut_now(struct hws__endpoint *ep)
{
    struct hws__uworker *u = ep->cut.uworker;
    ucp_ep_h ucx = ep->cut.ucx;

    hws__list_remove(&ep->cut.link);
    ep->cut.ucx = NULL;
    u->burying--;
    ep->worker->pending_ucx--;
    ep->worker->late_cuts--;
    hws__uworker_cut(u, ucx, ep->cut.socket);
    hws__endpoint_attend(ep);
}

void hws__late_cut(struct hws__endpoint *ep, struct hws__uworker *u, ucp_ep_h ucx)
{
    if (ucx == NULL || !flushes(ep)) {
        hws__uworker_cut(u, ucx, ep->cm_socket);
        return;
    }
    if (ep->cut.ucx != NULL) {
        cut_now(ep); /* of an earlier dial */
    }
    hws__cm_unwatch(u, ucx,
                    ep->cm_socket); /* makes progress, which must not come right before the close */
    ep->cut.ucx = ucx;
    ep->cut.uworker = u;
    ep->cut.socket = ep->cm_socket;
    ep->cut.until = hws__deadline(hws__now(), WAIT_NS);
    hws__list_append(&u->cuts, &ep->cut.link);
    u->burying++;
    ep->worker->pending_ucx++;
    ep->worker->late_cuts++;
    ep->worker->todo = true;
    hws__uworker_heat(u);
}

int hws__late_cuts(struct hws__worker *w)
{
    uint64_t now = hws__now();
    int done = 0;

    for (struct hws__list *i = w->uworkers.next; i != &w->uworkers; i = i->next) {
        struct hws__uworker *u = hws__container(i, struct hws__uworker, link);
        bool quiet = u->idle != 0; /* its last progress found nothing */

        for (struct hws__list *n = u->cuts.next, *next; n != &u->cuts; n = next) {
            struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, cut.link);

            next = n->next;
            if (quiet || !flushes(ep) || now >= ep->cut.until) {
                cut_now(ep);
                done++;
            }
        }
    }
    return done;
}
