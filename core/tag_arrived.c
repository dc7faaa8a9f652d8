/*
 * Tagged messages that come: to the receive that waits for them, or to where they wait for one.
 */
#include "tag.h"
#include "error.h"
#include "hello.h"
#include "post.h"
#include "progress.h"
#include "rest.h"
#include "room.h"
#include <string.h>

/* A posted receive met a message whose data is at the sender. Returns what UCX must hear. */
static ucs_status_t meet_rndv(struct hws__op *op, struct hws__endpoint *ep, struct hws__uworker *u,
                              void *desc, uint64_t length)
{
    hws_op_opts opts;
    struct hws__post p = hws__post_again(op, &opts);
    int32_t r;

    p.done_tag = op->done_tag;
    if (length > hws__bytes(op->buffer, op->length, op->flags)) {
        hws__op_finish(op, HWS_E_TRUNCATED);
        return UCS_OK; /* UCX drops it; the sender completes */
    }
    /* hws__op_posted() takes the operation again, as if it were posted now: leave its lists first. */
    hws__op_leave(op);
    r = hws__fetch(&p, u, desc, length, ep->obj.id);
    if (r != HWS_OK) {
        hws__op_rejoin(op);
        hws__op_finish(op, r == HWS_DONE ? p.done_status : r);
    }
    return UCS_INPROGRESS;
}

/* A posted receive met its message. Returns what UCX must hear. */
static inline __attribute__((always_inline)) ucs_status_t meet(struct hws__op *op,
                                                               struct hws__endpoint *ep,
                                                               struct hws__uworker *u, uint64_t tag,
                                                               void *data, uint64_t length,
                                                               uint64_t attr)
{
    uint32_t flags = atomic_load_explicit(&op->flags, memory_order_relaxed);
    uint64_t room;
    int32_t r;

    op->done_tag = tag;
    op->done_length = length;
    if (__builtin_expect((attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0, 0)) {
        return meet_rndv(op, ep, u, data, length);
    }
    room = hws__bytes(op->buffer, op->length, flags);
    r = hws__room_fill(u->worker->context,
                       (struct hws__room){op->buffer, op->length, flags, op->memory_kind}, data,
                       length < room ? length : room);
    hws__op_finish_now(op, r == HWS_OK && length > room ? HWS_E_TRUNCATED : r);
    return UCS_OK;
}

/* What has come becomes a message of its own. Null: no memory, and the endpoint has failed. */
static struct hws__message *keep(struct hws__endpoint *ep, struct hws__uworker *u, uint64_t tag,
                                 const void *data, uint64_t length, uint64_t attr,
                                 ucs_status_t *told)
{
    struct hws__message *m = hws__message_take(ep->worker, HWS_KIND_MESSAGE);

    if (m != NULL) {
        m->ep = ep;
        m->ep_id = ep->obj.id;
        m->tag = tag;
        *told = (ucs_status_t)hws__message_fill(m, u, data, length, attr);
        if (*told != UCS_ERR_NO_MEMORY) {
            return m;
        }
        hws__message_release(m);
    }
    *told = UCS_OK;
    hws__endpoint_lost(ep, "an unexpected message");
    return NULL;
}

static void wait_for_receive(struct hws__endpoint *ep, struct hws__message *m)
{
    hws__match_wait(&ep->scope, &ep->worker->scope, m);
    hws__credit_hold(m, HWS__CREDIT_TAG, m->length);
}

bool hws__tag_wait(struct hws__endpoint *ep, uint64_t tag, const char *data, uint64_t length)
{
    ucs_status_t told;
    struct hws__message *m = keep(ep, NULL, tag, data, length, 0, &told);

    if (m != NULL) {
        wait_for_receive(ep, m);
    }
    return m != NULL;
}

/* One that no receive takes. Returns what UCX must hear. */
static ucs_status_t unwanted(struct hws__endpoint *ep, struct hws__uworker *u, uint64_t tag,
                             const void *data, uint64_t length, uint64_t attr)
{
    bool eager = (attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
    struct hws__message *m;
    ucs_status_t told;

    if (ep->closing && eager) { /* nobody will take it, and the peer may want to send more */
        HWS__CREDIT_TOOK(ep, HWS__CREDIT_TAG, length);
        return UCS_OK;
    }
    if (eager && !hws__list_empty(&ep->scope.rests) && hws__rest_add(ep, tag, data, length)) {
        return UCS_OK;
    }
    hws__rests_unpack(&ep->worker->scope, true);
    if (!ep->hello_done) {
        return UCS_OK; /* no memory for what came before it */
    }
    if ((m = keep(ep, u, tag, data, length, attr, &told)) != NULL) {
        wait_for_receive(ep, m);
    }
    return told;
}

/* A posted receive takes the message itself. Returns what UCX must hear. */
static ucs_status_t give_arrived(struct hws__op *op, struct hws__endpoint *ep,
                                 struct hws__uworker *u, uint64_t tag, const void *data,
                                 uint64_t length, uint64_t attr)
{
    ucs_status_t told;
    struct hws__message *m = keep(ep, u, tag, data, length, attr, &told);

    if (m == NULL) {
        hws__op_finish(op, HWS_E_NO_MEMORY);
        return told;
    }
    op->source = hws__message_publish(m);
    op->done_tag = tag;
    op->done_length = length;
    op->event_flags = m->rndv ? HWS_EVENT_FLAG_RNDV : 0;
    hws__op_finish(op, HWS_OK);
    return told;
}

/* One that this receive takes, or none if it is null. Returns what UCX must hear. */
static inline ucs_status_t arrived(struct hws__op *op, struct hws__endpoint *ep,
                                   struct hws__uworker *u, uint64_t tag, void *data,
                                   uint64_t length, uint64_t attr)
{
    hws__flow_add(&ep->traffic.in[HWS_TRAFFIC_TAG], length);
    if (__builtin_expect(op == NULL, 0)) {
        return unwanted(ep, u, tag, data, length, attr);
    }
    HWS__CREDIT_TOOK(ep, HWS__CREDIT_TAG, length);
    return __builtin_expect(op->flags & HWS_OP_TAKE, 0)
               ? give_arrived(op, ep, u, tag, data, length, attr)
               : meet(op, ep, u, tag, data, length, attr);
}

ucs_status_t hws__tag_arrived(struct hws__endpoint *ep, struct hws__uworker *u, uint64_t tag,
                              void *data, uint64_t length, uint64_t attr)
{
    return arrived(hws__match_arrived(&ep->scope, &u->worker->scope, tag), ep, u, tag, data, length,
                   attr);
}

size_t hws__tag_bundled(struct hws__endpoint *ep, struct hws__uworker *u,
                        const struct hws__record *r, char *at, size_t left)
{
    struct hws__op *op = hws__match_arrived(&ep->scope, &u->worker->scope, r->tag);
    size_t kept;

    if (op == NULL && (kept = hws__rest_keep(ep, at, left)) != 0) {
        return kept;
    }
    (void)arrived(op, ep, u, r->tag, at + sizeof *r, r->length, 0);
    return hws__record_bytes(r->length);
}

ucs_status_t hws__tag_cb(void *arg, const void *header, size_t header_length, void *data,
                         size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    struct hws__endpoint *ep = hws__am_sender(u, param);
    uint64_t tag;

    if (ep == NULL || !ep->hello_done || header_length != sizeof tag) {
        HWS__COUNT(u->worker, am_dropped, 1);
        return UCS_OK;
    }
    memcpy(&tag, header, sizeof tag);
    hws__gap_received(&ep->gap, length, param->recv_attr);
    return hws__tag_arrived(ep, u, tag, data, length, param->recv_attr);
}
