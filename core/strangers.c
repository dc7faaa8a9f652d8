#include "strangers.h"
#include "address.h"
#include "cm_socket.h"
#include "endpoint.h"
#include "job.h"
#include "log.h"
#include "progress.h"
#include "sockets.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CONNECTIONS 1024u

/** A look at one listener; travels between the background thread and the owner. */
struct look {
    struct hws__job job;
    struct hws__worker *worker;
    hws_id listener;
    uint16_t port;
    uint64_t interval;
    uint32_t before, now;
    struct hws__accepted *seen;    /* in the look before */
    struct hws__accepted *current; /* in this one */
};

static void look_free(struct look *k)
{
    atomic_fetch_sub(&k->worker->jobs, 1);
    free(k->seen);
    free(k->current);
    free(k);
}

static bool is_endpoint(struct hws__worker *w, const struct sockaddr_storage *peer)
{
    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, link);

        if (ep->server && hws__address_same(&ep->request_peer, peer)) {
            return true;
        }
    }
    return false;
}

static bool seen_before(const struct look *k, const struct hws__accepted *a)
{
    for (uint32_t i = 0; i < k->before; i++) {
        if (k->seen[i].inode == a->inode) {
            return true;
        }
    }
    return false;
}

/* Owner: end those that were there a whole interval ago and are nobody's. Then look again later. */
static void judge(struct hws__worker *w, void *arg)
{
    struct look *k = arg;
    struct hws__listener *l = hws__obj_find(&hws__objects, k->listener);
    struct hws__accepted *swap = k->seen;

    if (l == NULL || l->worker != w) {
        look_free(k);
        return;
    }
    for (uint32_t i = 0; i < k->now; i++) {
        struct hws__accepted *a = &k->current[i];

        if (seen_before(k, a) && !is_endpoint(w, &a->peer)) {
            hws__log(HWS_LOG_INFO, "listener %s:%u: a silent connection is ended", l->address,
                     (unsigned)l->port);
            l->strangers++;
            hws__sockets_shutdown(a);
            a->inode = 0;
        }
    }
    k->seen = k->current;
    k->before = k->now;
    k->current = swap;
    if (!hws__background_later(&w->context->background, &k->job, k->interval)) {
        look_free(k);
    }
}

/* Background: take the list. */
static void run_look(struct hws__job *job)
{
    struct look *k = hws__container(job, struct look, job);

    k->now = hws__sockets_accepted(k->port, k->current, CONNECTIONS);
    hws__job_return(k->worker, judge, k);
}

void hws__strangers_watch(struct hws__listener *l)
{
    struct look *k = calloc(1, sizeof *k);

    if (k == NULL) {
        return;
    }
    k->job.run = run_look;
    k->worker = l->worker;
    k->listener = l->obj.id;
    k->port = l->port;
    k->interval = l->hello_timeout;
    k->seen = calloc(CONNECTIONS, sizeof *k->seen);
    k->current = calloc(CONNECTIONS, sizeof *k->current);
    atomic_fetch_add(&l->worker->jobs, 1);
    if (k->seen == NULL || k->current == NULL ||
        !hws__background_later(&l->worker->context->background, &k->job, k->interval)) {
        look_free(k);
    }
}

static bool end_stranger(int fd, void *arg)
{
    const struct hws__listener *l = arg;
    struct sockaddr_storage local, peer;
    socklen_t length = sizeof peer;
    char host[sizeof l->address];

    if (!hws__sockets_is_on(fd, l->port, &local) ||
        getpeername(fd, (struct sockaddr *)&peer, &length) != 0) {
        return false;
    }
    hws__address_host(&local, host, sizeof host);
    if ((strcmp(l->address, "0.0.0.0") == 0 || strcmp(host, l->address) == 0) &&
        !is_endpoint(l->worker, &peer)) {
        hws__cm_drop(fd);
    }
    return false;
}

void hws__strangers_end(struct hws__listener *l)
{
    hws__sockets_each(end_stranger, l);
    hws__ucx.ucp_worker_progress(l->worker->main->ucx);
}
