#include "lost.h"
#include "sockets.h"
#include "worker.h"

void hws__lost_watch(struct hws__uworker *u)
{
    hws__sockets_watch_peer(u->efd, &u->worker->context->silence);
    u->by_tcp = true;
    hws__lost_expect(u);
}

void hws__lost_expect(struct hws__uworker *u)
{
    struct hws__worker *w = u->worker;

    if (u->by_tcp && w->lost_due == UINT64_MAX) {
        w->lost_due = w->slow_at + HWS__LOST_NS;
    }
}

void hws__lost_check(struct hws__worker *w, uint64_t now)
{
    bool again = false;

    if (now < w->lost_due) {
        return;
    }
    for (struct hws__list *n = w->uworkers.next; n != &w->uworkers; n = n->next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        if (u->by_tcp) {
            /* A rendezvous that waits for its receiver has nothing on its way. */
            again |= hws__sockets_end_lost(u->efd, &w->context->silence, u->pending != 0) ||
                     u->hot || u->pending != 0;
        }
    }
    w->lost_due = again ? now + HWS__LOST_NS : UINT64_MAX;
}
