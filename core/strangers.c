#include "strangers.h"
#include "address.h"
#include "cm_socket.h"
#include "endpoint.h"
#include "gate.h"
#include "job.h"
#include "log.h"
#include "progress.h"
#include "served.h"
#include "sockets.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* While descriptors are short, who says nothing for so long is ended. */
#define SHORT_NS UINT64_C(1000000000)

/** A look at those listeners of a worker that have one timeout; travels between the background thread and the owner. */
struct look {
    struct hws__job job;
    struct hws__list link; /* hws__worker.looks; owner */
    struct hws__worker *worker;
    uint64_t timeout; /* and the time between two looks, while descriptors are not short */
    struct hws__connections seen; /* in the look before */
    struct hws__connections current;
};

/* Owner. */
static void look_free(struct look *k)
{
    hws__list_remove(&k->link);
    free(k->seen.at);
    free(k->current.at);
    free(k);
}

/* End those of a listener that were there in the look before and are nobody's. */
static void end_silent(const struct look *k, const struct hws__served *served,
                       struct hws__listener *l)
{
    for (size_t i = 0; i < k->current.n; i++) {
        struct hws__connected *c = &k->current.at[i];

        if (c->port == l->port && hws__sockets_among(&k->seen, c) &&
            !hws__served_has(served, &c->peer)) {
            hws__log(HWS_LOG_INFO, "listener %s:%u: a silent connection is ended", l->address,
                     (unsigned)l->port);
            l->strangers++;
            hws__sockets_shutdown(c);
        }
    }
}

static void run_look(struct hws__job *job);

/* Owner: look again after the timeout, or sooner. */
static void order(struct look *k)
{
    uint64_t pause = k->timeout > SHORT_NS && hws__gate_is_short() ? SHORT_NS : k->timeout;

    k->job.run = run_look;
    if (!hws__job_order(k->worker, &k->worker->context->background, &k->job, pause)) {
        look_free(k);
    }
}

/* Owner. */
static void judge(struct hws__worker *w, void *arg)
{
    struct look *k = arg;
    struct hws__connections swap = k->seen;
    struct hws__served served;
    bool listed = hws__served_list(&served, w), needed = false;

    atomic_fetch_sub(&w->jobs, 1);
    for (struct hws__list *n = w->listeners.next; n != &w->listeners; n = n->next) {
        struct hws__listener *l = hws__container(n, struct hws__listener, link);

        if (l->hello_timeout == k->timeout) {
            needed = true;
            if (listed) {
                end_silent(k, &served, l);
            }
        }
    }
    hws__served_free(&served);
    if (!needed) {
        look_free(k);
        return;
    }
    k->seen = k->current;
    k->current = swap;
    order(k);
}

static void run_look(struct hws__job *job)
{
    struct look *k = hws__container(job, struct look, job);

    hws__sockets_connected(&k->current);
    hws__job_return(k->worker, judge, k);
}

void hws__strangers_watch(struct hws__listener *l)
{
    struct hws__worker *w = l->worker;
    struct look *k;

    for (struct hws__list *n = w->looks.next; n != &w->looks; n = n->next) {
        if (hws__container(n, struct look, link)->timeout == l->hello_timeout) {
            return;
        }
    }
    if ((k = calloc(1, sizeof *k)) == NULL) {
        return;
    }
    k->worker = w;
    k->timeout = l->hello_timeout;
    hws__list_append(&w->looks, &k->link);
    order(k);
}

/** Whose connections are none of a listener's. */
struct ending {
    const struct hws__listener *listener;
    struct hws__served served;
};

static bool end_stranger(int fd, void *arg)
{
    const struct ending *e = arg;
    const struct hws__listener *l = e->listener;
    struct sockaddr_storage local, peer;
    socklen_t length = sizeof peer;
    char host[sizeof l->address];

    if (!hws__sockets_is_on(fd, l->port, &local) ||
        getpeername(fd, (struct sockaddr *)&peer, &length) != 0) {
        return false;
    }
    hws__address_host(&local, host, sizeof host);
    if ((strcmp(l->address, "0.0.0.0") == 0 || strcmp(host, l->address) == 0) &&
        !hws__served_has(&e->served, &peer)) {
        hws__cm_drop(fd);
    }
    return false;
}

void hws__strangers_end(struct hws__listener *l)
{
    struct ending e = {.listener = l};

    if (hws__served_list(&e.served, l->worker)) {
        hws__sockets_each(end_stranger, &e);
    }
    hws__served_free(&e.served);
    hws__uworker_progress(l->worker->main);
}
