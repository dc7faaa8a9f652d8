#include "tag.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "post.h"
#include "progress.h"
#include "quick.h"
#include "raw.h"
#include "rest.h"
#include "options.h"
#include "ucx_loader.h"
#include "undo.h"
#include <string.h>

/* UCX has fetched the data of a rendezvous message. */
static void fetched(void *request, ucs_status_t status, size_t length, void *user_data)
{
    struct hws__op *op = user_data;

    (void)length; /* known from the announcement */
    hws__op_ucx_done(request, status, op);
}

int32_t hws__fetch(struct hws__post *p, struct hws__uworker *u, void *desc, uint64_t length,
                   hws_id from)
{
    ucp_request_param_t param;
    struct hws__op *op = hws__op_next(p);
    size_t got = 0;
    int32_t r;

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    hws__op_param(p, op, &param);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_RECV_INFO;
    param.recv_info.length = &got;
    param.cb.recv_am = fetched;
    r = hws__op_posted(
        p, op, u,
        hws__ucx.ucp_am_recv_data_nbx(u->ucx, desc, hws__op_buffer(p, op), p->length, &param));
    p->done_length = length;
    if (r == HWS_OK) {
        op->from = from;
        op->source = p->source;
        op->memory_kind = p->opts->memory_kind;
        op->done_length = length;
        op->done_tag = p->done_tag;
    } else if (r == HWS_DONE) {
        p->done_status = hws__endpoint_cause(hws__obj_find(&hws__objects, from), p->done_status);
    }
    return r;
}

/* Eager data into the posting's buffer. */
static int32_t copy_out(struct hws__post *p, const void *data, uint64_t length)
{
    uint64_t room = hws__bytes(p->buffer, p->length, p->opts->flags);

    p->done_length = length;
    p->done_status = length > room ? HWS_E_TRUNCATED : HWS_OK;
    hws__scatter(p->buffer, p->length, p->opts->flags, data, length < room ? length : room);
    return HWS_DONE;
}

/* Give the message itself to a receive with HWS_OP_TAKE. */
static int32_t give(struct hws__post *p, struct hws__message *m)
{
    hws__match_unwait(m);
    p->source = hws__message_publish(m);
    p->done_length = m->length;
    p->done_flags = m->rndv ? HWS_EVENT_FLAG_RNDV : 0;
    return HWS_DONE;
}

int32_t hws__message_to(struct hws__post *p, struct hws__message *m)
{
    int32_t r;

    if (!hws__post_can_tell(p)) {
        return HWS_E_TOO_MANY;
    }
    if (m->coming != NULL) {
        return hws__undo_meet(p, m);
    }
    p->done_tag = m->tag;
    if (p->opts->flags & HWS_OP_TAKE) {
        return give(p, m);
    }
    if (m->raw) {
        return hws__raw_message_to(p, m);
    }
    if (!m->rndv && m->data == NULL && m->length != 0) {
        r = hws__fail(HWS_E_CONNECTION_RESET, p->source, "the data was at a peer that is gone");
    } else if (!m->rndv) {
        r = copy_out(p, m->data, m->length);
    } else if (m->length > hws__bytes(p->buffer, p->length, p->opts->flags)) {
        p->done_length = m->length;
        p->done_status = HWS_E_TRUNCATED;
        r = HWS_DONE;
    } else {
        r = hws__fetch(p, m->uworker, m->desc, m->length, m->ep_id);
        if (r == HWS_E_TOO_MANY) {
            return r;
        }
        /* UCX has taken the descriptor over, also when it failed. */
        m->desc = NULL;
        m->uworker = NULL;
        hws__list_remove(&m->held);
    }
    hws__message_release(m);
    return r;
}

void hws__message_meet(struct hws__op *op, struct hws__message *m)
{
    hws_op_opts opts;
    struct hws__post p = hws__post_again(op, &opts);
    int32_t r;

    op->stage = HWS__STAGE_OWN;
    hws__op_leave(op);
    r = hws__message_to(&p, m);
    if (r != HWS_OK) {
        op->source = p.source;
        op->event_flags = p.done_flags;
        op->done_length = p.done_length;
        op->done_tag = p.done_tag;
        hws__op_rejoin(op);
        hws__op_finish(op, r == HWS_DONE ? p.done_status : r);
    }
}

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
static ucs_status_t meet(struct hws__op *op, struct hws__endpoint *ep, struct hws__uworker *u,
                         uint64_t tag, void *data, uint64_t length, uint64_t attr)
{
    uint32_t flags = atomic_load_explicit(&op->flags, memory_order_relaxed);
    uint64_t room;

    op->done_tag = tag;
    op->done_length = length;
    if (__builtin_expect((attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0, 0)) {
        return meet_rndv(op, ep, u, data, length);
    }
    room = hws__bytes(op->buffer, op->length, flags);
    hws__scatter(op->buffer, op->length, flags, data, length < room ? length : room);
    hws__op_finish_now(op, length > room ? HWS_E_TRUNCATED : HWS_OK);
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

static int32_t send_run(struct hws__post *p)
{
    uint64_t bytes = hws__bytes(p->buffer, p->length, p->opts->flags);
    struct hws__endpoint *ep = p->ep;
    ucp_request_param_t param;
    struct hws__op *op;
    int32_t r;

    if (!ep->open && ep->credit.resumed != p) {
        return hws__endpoint_refuse(ep, p->source);
    }
    if (__builtin_expect(!hws__credit_fits(&ep->credit, HWS__CREDIT_TAG, bytes), 0) &&
        (r = hws__credit_wait(p, HWS__CREDIT_TAG, bytes)) != HWS_DONE) {
        return r;
    }
    if ((op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    if (ep->gap.untold && bytes <= HWS__GAP_SINGLE) {
        hws__gap_tell(ep);
    }
    hws__op_param(p, op, &param);
    if (ep->raw) {
        r = hws__raw_send(p, op, &param);
    } else {
        param.flags = ep->send_flags | (uint32_t)p->mask;
        op->tag = p->tag; /* the header must live until UCX is done */
        r = hws__op_posted(p, op, ep->uworker,
                           hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_TAG, &op->tag, sizeof op->tag,
                                                    hws__op_buffer(p, op), p->length, &param));
    }
    p->done_tag = p->tag;
    if (r >= 0) {
        hws__gap_sent(&ep->gap, bytes, p->mask != 0);
    }
    return hws__post_sent(p, op, r, HWS_TRAFFIC_TAG, HWS__CREDIT_TAG, bytes, 0);
}

/* HWS__GENERAL: not on this way. */
static inline __attribute__((always_inline)) int32_t quick_send(struct hws__quick *q,
                                                                const hws_op_opts *opts,
                                                                hws_id *out)
{
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;

    if (!hws__quick_begin(q, opts, out)) {
        return HWS__GENERAL;
    }
    if (hws__quick_bundled(q)) {
        return hws__quick_end(q, opts, NULL, out);
    }
    hws__quick_param(q, &param);
    if (q->ep->raw) {
        ptr = hws__ucx.ucp_tag_send_nbx(q->ep->ucx, q->buffer, q->length, q->tag, &param);
    } else {
        q->op->tag = q->tag; /* the header must live until UCX is done */
        ptr = hws__ucx.ucp_am_send_nbx(q->ep->ucx, HWS__AM_TAG, &q->op->tag, sizeof q->op->tag,
                                       q->buffer, q->length, &param);
    }
    return hws__quick_end(q, opts, ptr, out);
}

static __attribute__((noinline)) int32_t general_send(hws_id endpoint, const void *buffer,
                                                      uint64_t length, uint64_t tag,
                                                      uint64_t am_flags, const hws_op_opts *opts,
                                                      hws_id *op)
{
    struct hws__post p;
    int32_t r;

    hws__post_init(&p, send_run, HWS_EVENT_TAG_SEND, endpoint, buffer, length);
    p.tag = tag;
    p.mask = am_flags;
    r = hws__post_endpoint(&p);
    return r < 0 ? r : hws__post(&p, opts, op);
}

int32_t hws_tag_send(hws_id endpoint, const void *buffer, uint64_t length, uint64_t tag,
                     const hws_op_opts *opts, hws_id *op)
{
    struct hws__quick q = hws__quick_send(HWS_EVENT_TAG_SEND, endpoint, buffer, length, tag);
    int32_t r;

    HWS__ENTER();
    r = quick_send(&q, opts, op);
    return r != HWS__GENERAL ? r : general_send(endpoint, buffer, length, tag, 0, opts, op);
}

int32_t hws_tag_send_sync(hws_id endpoint, const void *buffer, uint64_t length, uint64_t tag,
                          const hws_op_opts *opts, hws_id *op)
{
    HWS__ENTER();
    /* A rendezvous send completes when the receiver has matched and fetched it. */
    return general_send(endpoint, buffer, length, tag, UCP_AM_SEND_FLAG_RNDV, opts, op);
}

static int32_t recv_run(struct hws__post *p)
{
    struct hws__endpoint *ep = p->ep;
    struct hws__worker *w = p->worker;
    struct hws__scope *scope = ep != NULL ? &ep->scope : &w->scope;
    struct hws__message *m;
    struct hws__op *op;

    if (p->opts->memory_kind != HWS_MEMORY_HOST && p->opts->memory_kind != HWS_MEMORY_UNKNOWN) {
        return hws__fail(HWS_E_BUFFER_KIND, p->source, "receives into host memory only, so far");
    }
    if (ep != NULL && ep->raw) {
        return p->opts->flags & HWS_OP_TAKE
                   ? hws__fail(HWS_E_UNSUPPORTED, p->source, "HWS_OP_TAKE on a raw endpoint")
                   : hws__raw_recv(p);
    }
    if ((m = hws__match_find(scope, ep == NULL, p->tag, p->mask)) != NULL) {
        return hws__message_to(p, m);
    }
    if (ep == NULL && w->raw_count != 0 && (m = hws__raw_probe_all(w, p->tag, p->mask)) != NULL) {
        return hws__message_to(p, m);
    }
    if (ep == NULL && w->closing) {
        return hws__fail(HWS_E_CLOSING, p->source, "the worker is closing");
    }
    if (ep != NULL && !ep->open) {
        return hws__endpoint_refuse(ep, p->source);
    }
    if ((op = hws__op_take(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    op->buffer = hws__op_buffer(p, op);
    op->memory_kind = p->opts->memory_kind;
    hws__match_post(scope, op);
    if (w->credit_blocked != 0) {
        hws__credit_recall(w, ep, HWS__CREDIT_TAG, op);
    }
    return HWS_OK;
}

static void tell_result(struct hws__endpoint *ep, uint64_t tag, uint64_t length,
                        const hws_op_opts *opts)
{
    if (opts->result != NULL) {
        hws__quick_result((struct hws__quick){.endpoint = ep->obj.id,
                                              .kind = HWS_EVENT_TAG_RECV,
                                              .tag = tag,
                                              .length = length,
                                              .ep = ep},
                          opts);
    }
}

/* Under ownership: a message that is there as a whole goes into the buffer. False: there is none. */
static __attribute__((noinline)) bool take_arrived(struct hws__endpoint *ep, void *buffer,
                                                   uint64_t length, uint64_t tag, uint64_t mask,
                                                   const hws_op_opts *opts)
{
    struct hws__message *m = hws__match_listed(&ep->scope, false, tag, mask);
    struct hws__record r;

    if (m == NULL) {
        if (!hws__rest_take(ep, buffer, length, tag, mask, &r)) {
            return false;
        }
        tell_result(ep, r.tag, r.length, opts);
        return true;
    }
    if (m->rndv || m->length > length || (m->data == NULL && m->length != 0)) {
        return false;
    }
    if (m->length != 0) {
        memcpy(buffer, m->data, m->length);
    }
    tell_result(ep, m->tag, m->length, opts);
    hws__message_release(m);
    return true;
}

/* By quick.h: HWS_OK, it is posted; HWS_DONE; HWS__GENERAL, not on this way. */
static inline int32_t quick_recv(hws_id source, void *buffer, uint64_t length, uint64_t tag,
                                 uint64_t mask, const hws_op_opts *opts, hws_id *out)
{
    struct hws__endpoint *arrived = NULL;
    struct hws__scope *scope;
    struct hws__op *op;
    bool nested, done;

    if ((buffer == NULL && length != 0) || (int64_t)length < 0) {
        return HWS__GENERAL;
    }
    op = hws__quick_receive(source, HWS_EVENT_TAG_RECV, HWS_OP_INLINE, opts, out, &scope, &nested,
                            &arrived);
    if (__builtin_expect(arrived != NULL, 0)) {
        done = (opts->flags & HWS_OP_INLINE) != 0 &&
               take_arrived(arrived, buffer, length, tag, mask, opts);
        if (!done) {
            hws__disown(arrived->worker, nested);
            return HWS__GENERAL;
        }
        hws__quick_leave(arrived->worker, nested);
        if (out != NULL) {
            *out = 0;
        }
        return HWS_DONE;
    }
    if (op == NULL) {
        return HWS__GENERAL;
    }
    op->buffer = buffer;
    op->length = length;
    op->tag = tag;
    op->mask = mask;
    op->memory_kind = HWS_MEMORY_HOST;
    hws__quick_posted(op, scope, nested, out);
    return HWS_OK;
}

int32_t hws_tag_recv(hws_id source, void *buffer, uint64_t length, uint64_t tag, uint64_t mask,
                     const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p;
    int32_t r;

    HWS__ENTER();
    if ((r = quick_recv(source, buffer, length, tag, mask, opts, op)) != HWS__GENERAL) {
        return r;
    }
    hws__post_init(&p, recv_run, HWS_EVENT_TAG_RECV, source, buffer, length);
    p.tag = tag;
    p.mask = mask;
    if ((r = hws__post_source(&p)) < 0) {
        return r;
    }
    return hws__post(&p, opts, op);
}

int32_t hws_tag_probe(hws_id source, uint64_t tag, uint64_t mask, hws_message_info *info,
                      hws_id *message)
{
    struct hws__post p = {.source = source};
    struct hws__message *m;
    hws_message_info out = {0};
    bool nested;
    int32_t r;

    HWS__ENTER();
    if ((r = hws__post_source(&p)) < 0) {
        return r;
    }
    /* A wrong size is an error whether a message is there or not. */
    if (info != NULL && (r = hws__fill(info, &out, sizeof out, "message info")) < 0) {
        return r;
    }
    if ((r = hws__own_call(p.worker, source, &nested)) < 0) {
        return r;
    }
    hws__submissions_catch_up(p.worker);
    if (atomic_load(p.ep != NULL ? &p.ep->obj.id : &p.worker->obj.id) != source) {
        hws__disown(p.worker, nested);
        return hws__id_error(&hws__objects, source, 0);
    }
    if (p.ep != NULL && p.ep->raw) {
        m = hws__raw_probe(p.ep, tag, mask);
    } else {
        m = hws__match_find(p.ep != NULL ? &p.ep->scope : &p.worker->scope, p.ep == NULL, tag,
                            mask);
        if (m == NULL && p.ep == NULL && p.worker->raw_count != 0) {
            m = hws__raw_probe_all(p.worker, tag, mask);
        }
    }
    if (m != NULL && m->coming == NULL) {
        out = (hws_message_info){.flags = m->rndv ? HWS_EVENT_FLAG_RNDV : 0,
                                 .endpoint = m->ep_id,
                                 .length = m->length,
                                 .tag = m->tag};
        if (info != NULL) {
            r = hws__fill(info, &out, sizeof out, "message info");
        }
        if (message != NULL && r == HWS_OK) {
            hws__match_unwait(m);
            *message = hws__message_publish(m);
        }
    } else {
        r = hws__fail(HWS_E_NOT_FOUND, source, "no message with this tag is waiting");
    }
    hws__disown(p.worker, nested);
    return r;
}

static int32_t message_recv_run(struct hws__post *p)
{
    struct hws__message *m = hws__obj_find(&hws__objects, p->tag);

    if (m == NULL) {
        return hws__id_error(&hws__objects, p->tag, HWS_KIND_MESSAGE);
    }
    if (p->opts->memory_kind == HWS_MEMORY_CUDA) {
        return hws__fail(HWS_E_BUFFER_KIND, p->tag, "receives into host memory only, so far");
    }
    if (p->opts->flags & HWS_OP_TAKE) {
        return hws__fail(HWS_E_INVALID, p->tag, "the message is taken already");
    }
    p->source = m->ep_id;
    return hws__message_to(p, m);
}

int32_t hws_message_recv(hws_id message, void *buffer, uint64_t length, const hws_op_opts *opts,
                         hws_id *op)
{
    struct hws__message *m;
    int32_t r = HWS_OK;
    struct hws__post p;

    HWS__ENTER();
    if ((m = hws__obj_get(message, HWS_KIND_MESSAGE, &r)) == NULL) {
        return r;
    }
    hws__post_init(&p, message_recv_run, HWS_EVENT_TAG_RECV, 0, buffer, length);
    p.tag = message;
    p.worker = m->worker;
    return hws__post(&p, opts, op);
}
