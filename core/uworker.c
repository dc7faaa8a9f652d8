#include "uworker.h"
#include "am.h"
#include "bundle.h"
#include "endpoint.h"
#include "error.h"
#include "exit.h"
#include "gate.h"
#include "hello.h"
#include "host.h"
#include "isolated.h"
#include "job.h"
#include "log.h"
#include "lost.h"
#include "multi.h"
#include "progress.h"
#include "raw.h"
#include "rma.h"
#include "ucx_loader.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* UCX ends the process ("failed to set active message handler") when it runs out of descriptors at a
 * certain point of making a worker. It takes 13 with one network device, and some for a moment. */
#define DESCRIPTORS 40

static struct hws__uworker *create(struct hws__context *c, int role, ucp_context_h context)
{
    ucp_worker_params_t p = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                           UCP_WORKER_PARAM_FIELD_CLIENT_ID,
                             .thread_mode = UCS_THREAD_MODE_SERIALIZED,
                             .client_id = hws__client_id(role == HWS__TCP)};
    ucp_worker_attr_t a = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER |
                                         UCP_WORKER_ATTR_FIELD_THREAD_MODE};
    struct hws__words words;
    struct hws__uworker *u;
    ucs_status_t s;

    if (!hws__fd_room(DESCRIPTORS)) {
        hws__fail(HWS_E_NO_RESOURCE, 0, "fewer than %d descriptors are left for a UCX worker",
                  DESCRIPTORS);
        return NULL;
    }
    if (context == NULL || (u = calloc(1, sizeof *u)) == NULL) {
        hws__fail(HWS_E_NO_MEMORY, 0, "UCX worker");
        return NULL;
    }
    hws__acceptors_sweep();
    hws__words_begin(&words);
    s = hws__ucx.ucp_worker_create(context, &p, &u->ucx);
    hws__words_end();
    if (s != UCS_OK) {
        hws__fail_ucx(s, 0, "ucp_worker_create: %s%s%s", hws__ucx.ucs_status_string(s),
                      HWS__WORDS(words));
        free(u);
        return NULL;
    }
    u->context = c;
    u->role = role;
    hws__half_made_init(u);
    hws__list_init(&u->link);
    hws__list_init(&u->hot_link);
    hws__list_init(&u->held);
    hws__list_init(&u->fetching);
    hws__list_init(&u->readers);
    hws__list_init(&u->rkeys);
    hws__list_init(&u->answers);
    hws__list_init(&u->flushes);
    hws__list_init(&u->cuts);
    hws__list_init(&u->acceptors.link);
    u->unread = true;
    if ((s = hws__ucx.ucp_worker_query(u->ucx, &a)) != UCS_OK ||
        a.thread_mode < UCS_THREAD_MODE_SERIALIZED ||
        (s = hws__ucx.ucp_worker_get_efd(u->ucx, &u->efd)) != UCS_OK) {
        hws__fail_ucx(s != UCS_OK ? s : UCS_ERR_UNSUPPORTED, 0, "UCX worker: no event descriptor");
        hws__uworker_destroy(u);
        return NULL;
    }
    u->max_header = a.max_am_header;
    return u;
}

struct hws__uworker *hws__uworker_create(struct hws__context *c, int role, ucp_context_h context)
{
    struct hws__uworker *u;
    bool held;

    hws__ucx_begin();
    held = hws__gate_hold_if_short();
    u = create(c, role, context);
    if (held) {
        hws__gate_let_go();
    }
    hws__ucx_end();
    return u;
}

struct hws__uworker *hws__uworker_create_tcp(struct hws__context *c, int role, bool own)
{
    struct hws__tcp_context *t = hws__tcp_context_take(c, own);
    struct hws__uworker *u = hws__uworker_create(c, role, t != NULL ? t->ucx : NULL);

    if (u != NULL) {
        u->tcp = t;
    } else if (t != NULL) {
        hws__tcp_context_leave(c, t);
    }
    return u;
}

_Thread_local bool hws__uworker_destroying __attribute__((tls_model("initial-exec")));
_Thread_local struct hws__uworker *hws__progressing __attribute__((tls_model("initial-exec")));

/*
 * Whether it must be left as it is. UCX 1.13 ends the process when its worker is destroyed while it fetches a message of
 * a plain UCX program: the endpoint that it has made for such a peer still has the request, which only the peer can end.
 */
static bool stays(const struct hws__uworker *u)
{
    return u->raw && !hws__list_empty(&u->fetching) && !hws__ucx_at_least(1, 22);
}

/* Everything but the record itself. */
static void close_ucx(struct hws__uworker *u)
{
    bool left = stays(u);

    hws__ucx_begin();
    hws__acceptors_forget(u);
    if (left) {
        hws__log(HWS_LOG_WARN, "a UCX worker stays: a peer has sent only a part of a message");
        atomic_store(&u->context->left, true);
    } else {
        hws__uworker_destroying = true;
        hws__ucx.ucp_worker_destroy(u->ucx);
        hws__uworker_destroying = false;
    }
    hws__ucx_end();
    if (u->tcp != NULL && !left) {
        hws__tcp_context_leave(u->context, u->tcp);
    }
    hws__raw_free(u);
    hws__pairings_free(&u->pairings);
    free(u->eps);
    hws__data_sockets_free(&u->sockets);
}

void hws__uworker_destroy(struct hws__uworker *u)
{
    close_ucx(u);
    free(u);
}

static ucs_status_t set_handler(struct hws__uworker *u, unsigned id, ucp_am_recv_callback_t cb,
                                void *arg)
{
    ucp_am_handler_param_t p = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                              UCP_AM_HANDLER_PARAM_FIELD_CB |
                                              UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                .id = id,
                                .cb = cb,
                                .arg = arg};

    return hws__ucx.ucp_worker_set_am_recv_handler(u->ucx, &p);
}

static void set_handlers(struct hws__uworker *u)
{
    /* The highest first: UCX makes its table as long as each needs. */
    for (uint32_t i = HWS__AM_DIRECTS; i-- > 0;) {
        u->direct[i] = (struct hws__am_direct){u, i};
        set_handler(u, HWS__AM_DIRECT + i, hws__am_direct_cb, &u->direct[i]);
    }
    set_handler(u, HWS__AM_CONTROL, hws__control_cb, u);
    set_handler(u, HWS__AM_TAG, hws__tag_cb, u);
    set_handler(u, HWS__AM_USER, hws__am_cb, u);
    set_handler(u, HWS__AM_MULTI, hws__multi_cb, u);
    set_handler(u, HWS__AM_MULTI_PART, hws__multi_part_cb, u);
    set_handler(u, HWS__AM_RMA, hws__rma_cb, u);
    set_handler(u, HWS__AM_CREDIT, hws__credit_cb, u);
    set_handler(u, HWS__AM_BUNDLE, hws__bundle_cb, u);
}

/*
 * UCX 1.13 looks into its table of handlers before it compares a message's id with the length of the table, and what
 * nobody has set there is whatever the memory held: an id without a handler ends the process. So where any UCX
 * program may come to, each id that there is gets no handler explicitly, 1.5 MB; an isolated worker, whose peer dialled
 * as Hawser does, has those up to its highest. UCX 1.22 compares first.
 */
static void clear_table(struct hws__uworker *u)
{
    uint32_t ids =
        u->raw || u->role != HWS__ISOLATED ? UINT16_MAX + 1 : HWS__AM_DIRECT + HWS__AM_DIRECTS;

    if (hws__ucx_at_least(1, 22)) {
        return;
    }
    while (ids-- > 0) {
        set_handler(u, ids, NULL, NULL);
    }
}

int32_t hws__uworker_adopt(struct hws__worker *w, struct hws__uworker *u)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = u};

    u->worker = w;
    if (u->raw && !hws__raw_reserve_all(u)) {
        return hws__fail(HWS_E_NO_MEMORY, 0, "handlers of active messages");
    }
    if (epoll_ctl(w->epfd, EPOLL_CTL_ADD, u->efd, &e) != 0) {
        return hws__fail_errno(errno, 0, "epoll_ctl: %s", strerror(errno));
    }
    hws__list_append(&w->uworkers, &u->link);
    clear_table(u);
    if (!u->raw) {
        set_handlers(u);
    } else {
        hws__raw_handlers(u);
    }
    hws__uworker_heat(u);
    return HWS_OK;
}

struct destroy_job {
    struct hws__job job;
    struct hws__worker *worker;
    struct hws__uworker *u;
};

/* What UCX held comes back now. */
static void end_orphans(struct hws__worker *w, struct hws__uworker *u)
{
    w->pending_ucx -= u->burying;
    u->burying = 0;
    hws__op_orphans(w, u);
    hws__am_orphans(u);
    hws__rma_orphans(u);
    hws__endpoint_flush_orphans(u);
    u->pending = 0;
}

void hws__uworker_strand(struct hws__uworker *u)
{
    struct hws__worker *w = u->worker;

    if (u->stranded) {
        return;
    }
    u->stranded = true;
    epoll_ctl(w->epfd, EPOLL_CTL_DEL, u->efd, NULL);
    hws__list_remove(&u->hot_link);
    u->hot = false;
    end_orphans(w, u);
}

/* The UCX worker is gone. */
static void destroyed(struct hws__worker *w, void *arg)
{
    struct hws__uworker *u = arg;

    atomic_fetch_sub(&w->jobs, 1);
    end_orphans(w, u);
    if (u->role == HWS__ISOLATED && !u->place_given) {
        hws__isolated_unreserve(u->context);
    }
    free(u);
}

static void run_destroy(struct hws__job *job)
{
    struct destroy_job *j = hws__container(job, struct destroy_job, job);

    close_ucx(j->u);
    hws__job_return(j->worker, destroyed, j->u);
    free(j);
}

void hws__uworker_retire(struct hws__uworker *u)
{
    struct hws__worker *w = u->worker;
    struct destroy_job *j;
    struct hws__list *n;

    hws__half_made_end(u);
    hws__gate_leave_acceptors(u);
    while ((n = hws__list_pop(&u->held)) != NULL) {
        hws__message_orphan(hws__container(n, struct hws__message, held));
    }
    hws__rkeys_orphan(u);
    epoll_ctl(w->epfd, EPOLL_CTL_DEL, u->efd, NULL);
    hws__list_remove(&u->link);
    hws__list_remove(&u->hot_link);
    atomic_fetch_add(&w->jobs, 1);
    if ((j = malloc(sizeof *j)) != NULL) {
        *j = (struct destroy_job){.job.run = run_destroy, .worker = w, .u = u};
        if (hws__background_add(&w->context->background, &j->job)) {
            return;
        }
        free(j);
    }
    /* No thread or no memory: pay for it here. */
    close_ucx(u);
    destroyed(w, u);
}

void hws__uworker_unused(struct hws__uworker *u)
{
    if (u->role == HWS__ISOLATED ||
        (u->replaced && u->ep_count == 0 && u->lines == 0 && u->burying == 0)) {
        u->dead = true;
        u->worker->dead_count++;
        u->worker->todo = true;
    }
}

void hws__uworker_replace(struct hws__uworker *u)
{
    u->replaced = true;
    if (u->worker->tcp == u) {
        u->worker->tcp = NULL;
    }
    hws__uworker_unused(u);
}

void hws__uworker_drop(struct hws__uworker *u)
{
    hws__list_remove(&u->link);
    hws__list_remove(&u->hot_link);
    hws__uworker_destroy(u);
}

bool hws__uworker_stale(struct hws__worker *w, const struct hws__uworker *u)
{
    for (struct hws__list *n = w->uworkers.next; n != &w->uworkers; n = n->next) {
        if (n == &u->link) {
            return false;
        }
    }
    return true;
}

void hws__uworker_heat(struct hws__uworker *u)
{
    u->idle = 0;
    hws__uworker_heat_again(u);
}

void hws__uworker_announced(struct hws__uworker *u)
{
    u->unannounced = false;
    hws__uworker_heat(u);
}

void hws__uworker_heat_again(struct hws__uworker *u)
{
    if (!u->hot) {
        u->hot = true;
        hws__list_append(&u->worker->hot, &u->hot_link);
        hws__lost_expect(u);
    }
}

int32_t hws__uworker_cool(struct hws__uworker *u)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = u};

    if (hws__half_made_rest(u) != 0 || hws__ucx.ucp_worker_arm(u->ucx) != UCS_OK ||
        epoll_ctl(u->worker->epfd, EPOLL_CTL_MOD, u->efd, &e) != 0) {
        return HWS_E_BUSY;
    }
    u->hot = false;
    hws__list_remove(&u->hot_link);
    if (u->unannounced) {
        HWS__COUNT(u->worker, safety_wakeups, 1);
        u->unannounced = false;
    }
    return HWS_OK;
}

void hws__uworker_set_deaf(struct hws__uworker *u, bool deaf)
{
    u->worker->deaf_count += (uint32_t)deaf - (uint32_t)u->deaf;
    u->deaf = deaf;
}

static uint32_t ep_hash(ucp_ep_h ep, uint32_t slots)
{
    return (uint32_t)(((uintptr_t)ep >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (slots - 1);
}

static void ep_insert(struct hws__endpoint **eps, uint32_t slots, struct hws__endpoint *ep)
{
    uint32_t i = ep_hash(ep->ucx, slots);

    while (eps[i] != NULL) {
        i = (i + 1) & (slots - 1);
    }
    eps[i] = ep;
}

bool hws__uworker_ep_add(struct hws__uworker *u, struct hws__endpoint *ep)
{
    if (u->role == HWS__ISOLATED) {
        u->only = ep;
        u->only_cause = HWS_OK;
        return true;
    }
    if (2 * (u->ep_count + 1) > u->ep_slots) {
        uint32_t slots = u->ep_slots == 0 ? 64 : 2 * u->ep_slots;
        struct hws__endpoint **eps = calloc(slots, sizeof(struct hws__endpoint *));

        if (eps == NULL) {
            return false;
        }
        for (uint32_t i = 0; i < u->ep_slots; i++) {
            if (u->eps[i] != NULL) {
                ep_insert(eps, slots, u->eps[i]);
            }
        }
        free(u->eps);
        u->eps = eps;
        u->ep_slots = slots;
    }
    ep_insert(u->eps, u->ep_slots, ep);
    u->ep_count++;
    return true;
}

static void lost(struct hws__endpoint *ep)
{
    if (ep != NULL && !ep->raw) {
        hws__endpoint_lost(ep, "a long message");
    }
}

void hws__uworker_dropped(struct hws__uworker *u)
{
    lost(u->only);
    for (uint32_t i = 0; i < u->ep_slots; i++) {
        lost(u->eps[i]); /* whose it was is not known */
    }
}

void hws__uworker_ep_remove(struct hws__uworker *u, struct hws__endpoint *ep)
{
    uint32_t i;

    if (u->role == HWS__ISOLATED) {
        u->only = NULL;
        u->only_cause = ep->failed ? ep->status : ep->peer_closed ? HWS_E_PEER_CLOSED : HWS_OK;
        return;
    }
    if (u->ep_slots == 0) {
        return;
    }
    for (i = ep_hash(ep->ucx, u->ep_slots); u->eps[i] != ep; i = (i + 1) & (u->ep_slots - 1)) {
        if (u->eps[i] == NULL) {
            return;
        }
    }
    u->eps[i] = NULL;
    u->ep_count--;
    /* Those behind the hole may have been pushed there by this one. */
    for (i = (i + 1) & (u->ep_slots - 1); u->eps[i] != NULL; i = (i + 1) & (u->ep_slots - 1)) {
        struct hws__endpoint *moved = u->eps[i];

        u->eps[i] = NULL;
        ep_insert(u->eps, u->ep_slots, moved);
    }
}

struct hws__endpoint *hws__uworker_ep_lookup(struct hws__uworker *u, ucp_ep_h ucx)
{
    if (u->ep_slots == 0) {
        return NULL;
    }
    for (uint32_t i = ep_hash(ucx, u->ep_slots); u->eps[i] != NULL;
         i = (i + 1) & (u->ep_slots - 1)) {
        if (u->eps[i]->ucx == ucx) {
            return u->eps[i];
        }
    }
    return NULL;
}
