#include "lost.h"
#include "endpoint.h"
#include "progress.h"
#include "worker.h"

static void look_by(struct hws__worker *w, uint64_t at)
{
    if (w->lost_due > at) {
        w->lost_due = at;
        hws__due_at(w, at);
    }
}

static void keep_alive(struct hws__uworker *u, uint64_t now)
{
    u->keep_alive = false;
    u->kept_alive = now;
    hws__data_sockets_watch(&u->sockets, u->efd, &u->worker->context->silence);
}

void hws__lost_keep_alive(struct hws__uworker *u)
{
    uint64_t now = u->worker->slow_at, again = u->kept_alive + HWS__LOST_NS;

    if (now >= again) {
        keep_alive(u, now);
    } else {
        u->keep_alive = true;
        look_by(u->worker, again);
    }
}

void hws__lost_watch(struct hws__uworker *u)
{
    hws__lost_keep_alive(u);
    u->by_tcp = true;
    hws__lost_expect(u);
}

void hws__lost_expect(struct hws__uworker *u)
{
    if (u->by_tcp) {
        look_by(u->worker, u->worker->slow_at + HWS__LOST_NS);
    }
}

/* Nobody waits for a silent peer's answer to a goodbye, though a longer silence may be allowed: everything is sent, and
 * what the peer has not acknowledged the kernel goes on sending after the socket is closed. */
static void part_from_silent(struct hws__worker *w)
{
    const struct hws__uworker *looked_at = NULL;
    struct hws__hosts silent;

    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, link);

        if (ep->phase != HWS__PHASE_GOODBYE || ep->uworker == NULL || !ep->uworker->by_tcp) {
            continue;
        }
        if (ep->uworker != looked_at) {
            looked_at = ep->uworker;
            hws__data_sockets_silent(&looked_at->sockets, &silent);
        }
        if (hws__data_sockets_has_host(&silent, &ep->peer)) {
            hws__endpoint_deadline(ep, 1);
            hws__endpoint_attend(ep);
        }
    }
}

static enum hws__next_look look(const struct hws__uworker *u)
{
    const struct hws__silence *s = &u->worker->context->silence;
    /* A rendezvous that waits for its receiver has nothing on its way. */
    const bool expects = u->pending != 0;
    enum hws__next_look next = hws__data_sockets_end_lost(&u->sockets, s, expects);

    return u->hot || expects ? HWS__LOOK_SOON : next;
}

void hws__lost_check(struct hws__worker *w, uint64_t now)
{
    enum hws__next_look found, next = HWS__LOOK_NEVER;

    if (now < w->lost_due) {
        return;
    }
    for (struct hws__list *n = w->uworkers.next; n != &w->uworkers; n = n->next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        if (u->keep_alive || (u->by_tcp && now - u->kept_alive >= HWS__LOST_LIST_NS)) {
            keep_alive(u, now);
        }
        if (u->by_tcp) {
            found = look(u);
            next = found > next ? found : next;
        }
    }
    part_from_silent(w);
    w->lost_due = UINT64_MAX;
    if (next != HWS__LOOK_NEVER) {
        w->lost_due = now + (next == HWS__LOOK_SOON ? HWS__LOST_NS : HWS__LOST_IDLE_NS);
    }
}
