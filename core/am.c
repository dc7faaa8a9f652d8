#include "am.h"
#include "cuda.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "options.h"
#include "post.h"
#include "progress.h"
#include "queue.h"
#include "quick.h"
#include "raw.h"
#include "tag.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

/* Where the data begins behind a header. */
static size_t aligned(size_t header_length)
{
    return (header_length + 15) & ~(size_t)15;
}

/* Keep the header; data that fits goes behind it, aligned. */
static bool keep_header(struct hws__message *m, const void *header, size_t length)
{
    void *to = m->inlined;

    m->detail.header_length = length;
    m->header_length = aligned(length);
    if (m->header_length > HWS__MESSAGE_INLINE && (to = malloc(m->header_length)) == NULL) {
        m->header_length = 0;
        return false;
    }
    m->detail.header = length != 0 ? to : NULL;
    if (length != 0) {
        memcpy(to, header, length);
    }
    return true;
}

/* Whether a message counts against its sender's window after the handler was told. */
static inline bool holds(const struct hws__am_handler *h)
{
    return h->sink.callback == NULL || (h->flags & HWS_AM_HOLD) != 0;
}

/* Tell the handler. The message is the receiver's from here on. */
static void tell(struct hws__message *m, const struct hws__am_handler *h, int32_t status)
{
    bool keep = h->sink.callback == NULL || (h->flags & (HWS_AM_BUFFER | HWS_AM_HOLD)) || m->rndv;
    hws_event e = {.kind = HWS_EVENT_AM,
                   .source = m->ep_id,
                   .status = status,
                   .length = m->length,
                   .tag = m->tag,
                   .detail = &m->detail};

    m->detail.data = m->data;
    m->detail.data_length = m->length;
    m->detail.endpoint = m->ep_id;
    m->detail.buffer = 0;
    if (status < 0) {
        e.detail = hws_error_text(status);
        hws__emit(m->worker, &h->sink, &e, NULL);
        hws__message_release(m);
        return;
    }
    if (m->rndv) {
        e.flags |= HWS_EVENT_FLAG_RNDV;
    }
    if (keep) {
        e.flags |= HWS_EVENT_FLAG_BUFFER;
        m->detail.buffer = hws__message_publish(m);
    }
    if (!hws__emit(m->worker, &h->sink, &e, keep ? NULL : m) && m->ep != NULL &&
        m->ep->obj.id == m->ep_id) {
        hws__endpoint_lost(m->ep, "the event of an active message");
    }
}

/* Whether header and data fit behind each other into the memory of a notice, for a callback that keeps nothing. */
static inline bool small(const struct hws__am_handler *h, size_t header_length, size_t length,
                         uint64_t attr)
{
    return h->plain && (attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 &&
           header_length <= HWS__NOTICE_INLINE &&
           length <= HWS__NOTICE_INLINE - aligned(header_length);
}

/* Put header and data of a small message there, and describe it. */
static inline void describe(hws_am_detail *detail, unsigned char *to, hws_id ep, const void *header,
                            size_t header_length, const void *data, size_t length)
{
    detail->header = header_length != 0 ? to : NULL;
    detail->header_length = header_length;
    detail->data = to + aligned(header_length);
    detail->data_length = length;
    detail->buffer = 0;
    detail->endpoint = ep;
    hws__scatter(to, 1, 0, header, header_length);
    hws__scatter(to + aligned(header_length), 1, 0, data, length);
}

static inline void small_event(hws_event *event, const struct hws__am_handler *h,
                               const hws_am_detail *detail, uint32_t am_id)
{
    event->size = sizeof *event;
    event->kind = HWS_EVENT_AM;
    event->op = 0;
    event->source = detail->endpoint;
    event->status = HWS_OK;
    event->flags = 0;
    event->length = detail->data_length;
    event->tag = am_id;
    event->user = h->sink.user;
    event->detail = detail;
}

/* What becomes of most messages: called inside the sweep, with a copy, since what UCX gives has no alignment. False:
 * this one is not small, or it has to wait, or its peer is not known. */
static inline __attribute__((always_inline)) bool tell_now(struct hws__endpoint *ep,
                                                           const struct hws__am_handler *h,
                                                           uint32_t am_id, const void *header,
                                                           size_t header_length, const void *data,
                                                           size_t length, uint64_t attr)
{
    _Alignas(16) unsigned char inlined[HWS__NOTICE_INLINE];
    hws_am_detail detail;
    hws_event event;

    if (__builtin_expect(h == NULL || ep == NULL || !ep->hello_done || hws__endpoint_left(ep) ||
                             !small(h, header_length, length, attr) || !hws__call_now(ep->worker),
                         0)) {
        return false;
    }
    hws__flow_add(&ep->traffic.in[HWS_TRAFFIC_AM], length);
    HWS__CREDIT_TOOK(ep, HWS__CREDIT_AM, length + header_length);
    describe(&detail, inlined, ep->obj.id, header, header_length, data, length);
    small_event(&event, h, &detail, am_id);
    HWS__COUNT(ep->worker, events, 1);
    hws__call(h->sink.callback, h->sink.callback_arg, &event);
    return true;
}

/* Copied into a notice, to be told of after the sweep. False: no memory. */
static bool tell_later(struct hws__worker *w, const struct hws__am_handler *h,
                       struct hws__endpoint *ep, uint32_t am_id, const void *header,
                       size_t header_length, const void *data, size_t length)
{
    struct hws__notice *t = hws__notice_take(w, &h->sink);

    if (t == NULL) {
        return false;
    }
    if (ep != NULL) {
        t->counted = true;
        ep->credit.in[HWS__CREDIT_AM].held++;
    }
    describe(&t->detail, t->inlined, ep != NULL ? ep->obj.id : 0, header, header_length, data,
             length);
    small_event(&t->event, h, &t->detail, am_id);
    return true;
}

/* It is told of, or dropped: it no longer counts, nor does its message, unless the handler holds that. */
static void taken(const struct hws__notice *t, struct hws__message *m, struct hws__endpoint *ep,
                  const struct hws__am_handler *h)
{
    if (t->counted && ep != NULL) {
        ep->credit.in[HWS__CREDIT_AM].held--;
        HWS__CREDIT_TOOK(ep, HWS__CREDIT_AM, t->detail.data_length + t->detail.header_length);
    }
    if (m != NULL && (h == NULL || !holds(h))) {
        hws__credit_taken(m);
    }
}

bool hws__am_due(struct hws__worker *w, struct hws__notice *t)
{
    const struct hws__am_handler *h = w->handlers[t->event.tag];
    struct hws__message *m = hws__event_message(&t->event, t->message);
    struct hws__endpoint *ep =
        t->event.source != 0 ? hws__obj_find(&hws__objects, t->event.source) : NULL;

    taken(t, m, ep, h);
    if (h == NULL || h->sink.callback == NULL || w->closing ||
        (t->event.source != 0 && (ep == NULL || hws__endpoint_left(ep)))) {
        HWS__COUNT(w, am_dropped, 1);
        if (m != NULL && m != t->message) { /* else it is released with the notice */
            hws__message_drop(m);
        }
        return false;
    }
    /* Another one since it came. */
    t->callback = h->sink.callback;
    t->callback_arg = h->sink.callback_arg;
    t->event.user = h->sink.user;
    return true;
}

ucs_status_t hws__am_arrived(struct hws__uworker *u, struct hws__endpoint *ep, uint32_t am_id,
                             const void *header, size_t header_length, void *data, size_t length,
                             uint64_t attr)
{
    struct hws__worker *w = u->worker;
    struct hws__am_handler *h = am_id <= HWS_AM_ID_MAX ? w->handlers[am_id] : NULL;
    struct hws__message *m;
    int s;

    if (__builtin_expect(ep != NULL && !ep->hello_done && ep->raw, 0)) {
        hws__raw_heard(ep);
    }
    if (tell_now(ep, h, am_id, header, header_length, data, length, attr)) {
        return UCS_OK;
    }
    /* Plain peers that know our address have no endpoint. */
    if (h == NULL || w->closing ||
        (ep != NULL ? !ep->hello_done || hws__endpoint_left(ep)
                    : u->role < HWS__ADDRESS || !u->raw)) {
        HWS__COUNT(w, am_dropped, 1);
        if (ep != NULL && ep->hello_done) {
            HWS__CREDIT_TOOK(ep, HWS__CREDIT_AM, length + header_length);
        }
        return UCS_OK;
    }
    if (ep != NULL) {
        hws__flow_add(&ep->traffic.in[HWS_TRAFFIC_AM], length);
    }
    if (small(h, header_length, length, attr) &&
        tell_later(w, h, ep, am_id, header, header_length, data, length)) {
        return UCS_OK;
    }
    if ((m = hws__message_take(w, HWS_KIND_BUFFER)) == NULL ||
        !keep_header(m, header, header_length) ||
        (s = hws__message_fill(m, u, data, length, attr)) == UCS_ERR_NO_MEMORY) {
        if (m != NULL) {
            hws__message_release(m);
        }
        if (ep != NULL) {
            hws__endpoint_lost(ep, "an active message");
        }
        return UCS_OK;
    }
    m->ep = ep;
    m->ep_id = ep != NULL ? ep->obj.id : 0;
    m->tag = am_id;
    /* The user's allocator must not run inside UCX; nor can a fetch be waited for here. */
    if ((m->rndv && !(h->flags & HWS_AM_DEFER)) || (h->alloc != NULL && !m->rndv)) {
        hws__credit_hold(m, HWS__CREDIT_AM, length + header_length);
        hws__list_append(&w->am_pending, &m->order_worker);
        w->todo = true;
        return (ucs_status_t)s;
    }
    hws__credit_hold(m, HWS__CREDIT_AM, length + header_length);
    tell(m, h, HWS_OK);
    return (ucs_status_t)s;
}

ucs_status_t hws__am_cb(void *arg, const void *header, size_t header_length, void *data,
                        size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    uint16_t am_id;

    if (header_length < HWS__AM_PREFIX) {
        HWS__COUNT(u->worker, am_dropped, 1);
        return UCS_OK;
    }
    memcpy(&am_id, header, sizeof am_id);
    return hws__am_arrived(u, hws__am_sender(u, param), am_id,
                           (const char *)header + HWS__AM_PREFIX, header_length - HWS__AM_PREFIX,
                           data, length, param->recv_attr);
}

ucs_status_t hws__am_direct_cb(void *arg, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param)
{
    const struct hws__am_direct *d = arg;
    struct hws__worker *w = d->u->worker;

    (void)header;
    if (header_length != 0) {
        HWS__COUNT(w, am_dropped, 1);
        return UCS_OK;
    }
    if (tell_now(d->u->only, w->handlers[d->am_id], d->am_id, NULL, 0, data, length,
                 param->recv_attr)) {
        return UCS_OK;
    }
    return hws__am_arrived(d->u, hws__am_sender(d->u, param), d->am_id, NULL, 0, data, length,
                           param->recv_attr);
}

/* Memory for the data: the user's hook, or ours. */
static bool allocate(struct hws__message *m, const struct hws__am_handler *h)
{
    if (h->alloc != NULL) {
        m->hooked = true;
        m->free_fn = h->free;
        m->alloc_arg = h->alloc_arg;
        hws__callback_depth++;
        m->memory = h->alloc(h->alloc_arg, m->length, h->memory_kind);
        hws__callback_depth--;
    } else {
        m->memory = hws__pool_take(&m->worker->pool, m->stored);
    }
    return m->memory != NULL;
}

static void fetch_ended(struct hws__message *m, ucs_status_t status)
{
    struct hws__am_handler *h = m->worker->handlers[m->tag];
    int32_t code = hws__from_ucx(status);

    m->fetching = false;
    if (h == NULL) {
        HWS__COUNT(m->worker, am_dropped, 1);
        hws__message_release(m);
        return;
    }
    if (code < 0 && m->ep != NULL && m->ep->obj.id == m->ep_id && m->ep->failed) {
        code = m->ep->status;
    }
    m->rndv = false;
    m->data = m->memory;
    tell(m, h, code);
}

static void message_fetched(void *request, ucs_status_t status, size_t length, void *user_data)
{
    struct hws__message *m = user_data;
    struct hws__uworker *u = m->fetch_from;

    (void)length;
    hws__ucx.ucp_request_free(request);
    if (atomic_load(&u->destroying)) {
        return; /* on the background thread; the owner ends it, see hws__am_orphans() */
    }
    u->pending--;
    hws__list_remove(&m->held);
    fetch_ended(m, status);
}

void hws__am_orphans(struct hws__uworker *u)
{
    struct hws__list *n;

    while ((n = hws__list_pop(&u->fetching)) != NULL) {
        fetch_ended(hws__container(n, struct hws__message, held), UCS_ERR_CANCELED);
    }
}

/* Fetch a rendezvous message into memory of the handler's. */
static void fetch(struct hws__message *m, struct hws__am_handler *h)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                     UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_RECV_INFO,
                                 .cb.recv_am = message_fetched,
                                 .user_data = m,
                                 .memory_type = (ucs_memory_type_t)h->memory_kind};
    struct hws__uworker *u = m->uworker;
    void *desc = m->desc;
    ucs_status_ptr_t r;
    size_t got;

    param.recv_info.length = &got;
    if (h->memory_kind == HWS_MEMORY_UNKNOWN) {
        param.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    }
    m->desc = NULL;
    m->uworker = NULL;
    m->fetching = true;
    hws__list_remove(&m->held);
    /* Counted before the call: UCX may call back inside it when the peer is gone. */
    m->fetch_from = u;
    u->pending++;
    hws__list_append(&u->fetching, &m->held);
    r = hws__ucx.ucp_am_recv_data_nbx(u->ucx, desc, m->memory, m->length, &param);
    if (!UCS_PTR_IS_PTR(r)) {
        u->pending--;
        hws__list_remove(&m->held);
        fetch_ended(m, r == NULL ? UCS_OK : UCS_PTR_STATUS(r));
    }
}

int hws__am_step(struct hws__worker *w)
{
    struct hws__list *n;
    int done = 0;

    for (; (n = hws__list_pop(&w->am_pending)) != NULL; done++) {
        struct hws__message *m = hws__container(n, struct hws__message, order_worker);
        struct hws__am_handler *now = w->handlers[m->tag], copy, *h = &copy;
        const void *from = m->data;
        void *ours = m->memory;

        if (now == NULL || (m->rndv && m->desc == NULL)) {
            HWS__COUNT(w, am_dropped, 1);
            hws__message_release(m);
            continue;
        }
        copy = *now; /* its allocator may replace the handler */
        if (!allocate(m, h)) {
            m->memory = ours;
            m->hooked = false;
            tell(m, h, h->alloc != NULL ? HWS_E_ALLOCATOR : HWS_E_NO_MEMORY);
        } else if (m->rndv) {
            fetch(m, h);
        } else {
            if (m->length != 0) {
                memcpy(m->memory, from, m->length);
            }
            hws__pool_give(&w->pool, ours, m->stored);
            m->data = m->memory;
            hws__message_orphan(m);
            tell(m, h, HWS_OK);
        }
    }
    return done;
}

/* Prefix and header, where they stay until UCX is done. */
static int32_t build_header(struct hws__post *p, struct hws__op *op, char **out)
{
    char *to = op->header;

    if (p->header == op->header + HWS__AM_PREFIX) {
        *out = to; /* a submission has copied it here already */
    } else if (op->extra != NULL && p->op == op) {
        *out = to = op->extra;
    } else {
        if (p->mask + HWS__AM_PREFIX > HWS__OP_HEADER &&
            (to = op->extra = malloc(p->mask + HWS__AM_PREFIX)) == NULL) {
            return hws__fail(HWS_E_NO_MEMORY, p->source, "header of %llu bytes",
                             (unsigned long long)p->mask);
        }
        if (p->mask != 0) {
            memcpy(to + HWS__AM_PREFIX, p->header, p->mask);
        }
        *out = to;
    }
    memset(to, 0, HWS__AM_PREFIX);
    memcpy(to, &(uint16_t){(uint16_t)p->am_id}, sizeof(uint16_t));
    return HWS_OK;
}

static int32_t am_send_run(struct hws__post *p)
{
    uint64_t bytes = hws__bytes(p->buffer, p->length, p->opts->flags);
    struct hws__endpoint *ep = p->ep;
    ucp_request_param_t param;
    bool direct = !ep->raw && p->mask == 0 && p->am_id < HWS__AM_DIRECTS;
    struct hws__op *op;
    char *header = NULL;
    int32_t r;

    if (!ep->open && ep->credit.resumed != p) {
        return hws__endpoint_refuse(ep, p->source);
    }
    if (__builtin_expect(!hws__credit_fits(&ep->credit, HWS__CREDIT_AM, bytes + p->mask), 0) &&
        (r = hws__credit_wait(p, HWS__CREDIT_AM, bytes + p->mask)) != HWS_DONE) {
        return r;
    }
    if ((op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    if (p->op == NULL) {
        op->extra = NULL;
    }
    if (!direct && (r = build_header(p, op, &header)) < 0) {
        return r;
    }
    hws__op_param(p, op, &param);
    param.flags = ep->send_flags;
    if (p->opts->flags & HWS_OP_EAGER) {
        param.flags |= UCP_AM_SEND_FLAG_EAGER;
    } else if (p->opts->flags & HWS_OP_RNDV) {
        param.flags |= UCP_AM_SEND_FLAG_RNDV;
    }
    {
        void *extra = op->extra;
        void *buffer = hws__op_buffer(p, op);

        r = hws__op_posted(
            p, op, ep->uworker,
            direct ? hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_DIRECT + p->am_id, NULL, 0, buffer,
                                              p->length, &param)
            : ep->raw
                ? hws__ucx.ucp_am_send_nbx(ep->ucx, p->am_id, header + HWS__AM_PREFIX, p->mask,
                                           buffer, p->length, &param)
                : hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_USER, header, p->mask + HWS__AM_PREFIX,
                                           buffer, p->length, &param));
        if (r == HWS_OK) {
            op->extra = extra;
        } else if (p->op == NULL) {
            free(extra);
            op->extra = NULL;
        }
    }
    p->done_tag = p->am_id;
    return hws__post_sent(p, op, r, HWS_TRAFFIC_AM, HWS__CREDIT_AM, bytes, p->mask);
}

/* A message without a header. HWS__GENERAL: not on this way. */
static inline __attribute__((always_inline)) int32_t quick_am(struct hws__quick *q,
                                                              const hws_op_opts *opts, hws_id *out)
{
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;

    if (q->tag >= HWS__AM_DIRECTS || !hws__quick_begin(q, opts, out)) {
        return HWS__GENERAL;
    }
    if (hws__quick_bundled(q)) {
        return hws__quick_end(q, opts, NULL, out);
    }
    hws__quick_param(q, &param);
    ptr = hws__ucx.ucp_am_send_nbx(q->ep->ucx, (unsigned)q->tag + (q->ep->raw ? 0 : HWS__AM_DIRECT),
                                   NULL, 0, q->buffer, q->length, &param);
    return hws__quick_end(q, opts, ptr, out);
}

static __attribute__((noinline)) int32_t general_am(hws_id endpoint, uint32_t am_id,
                                                    const void *header, uint64_t header_length,
                                                    const void *buffer, uint64_t length,
                                                    const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p;
    int32_t r;

    hws__post_init(&p, am_send_run, HWS_EVENT_AM_SEND, endpoint, buffer, length);
    p.am_id = am_id;
    p.header = header;
    p.mask = header_length;
    if ((r = hws__post_endpoint(&p)) < 0) {
        return r;
    }
    if (header_length > p.worker->max_header - HWS__AM_PREFIX) {
        return hws__fail(HWS_E_TOO_BIG, endpoint, "header of %llu bytes, at most %llu",
                         (unsigned long long)header_length,
                         (unsigned long long)(p.worker->max_header - HWS__AM_PREFIX));
    }
    if (am_id > HWS_AM_ID_MAX || (header == NULL && header_length != 0)) {
        return hws__fail(HWS_E_INVALID, endpoint, "am_id %u, at most %u, or a null header", am_id,
                         HWS_AM_ID_MAX);
    }
    return hws__post(&p, opts, op);
}

int32_t hws_am_send(hws_id endpoint, uint32_t am_id, const void *header, uint64_t header_length,
                    const void *buffer, uint64_t length, const hws_op_opts *opts, hws_id *op)
{
    struct hws__quick q = hws__quick_send(HWS_EVENT_AM_SEND, endpoint, buffer, length, am_id);
    int32_t r;

    HWS__ENTER();
    r = header_length == 0 ? quick_am(&q, opts, op) : HWS__GENERAL;
    return r != HWS__GENERAL
               ? r
               : general_am(endpoint, am_id, header, header_length, buffer, length, opts, op);
}

static int32_t am_recv_run(struct hws__post *p)
{
    struct hws__message *m = hws__obj_find(&hws__objects, p->tag);
    int32_t r;

    if (m == NULL) {
        return hws__id_error(&hws__objects, p->tag, HWS_KIND_BUFFER);
    }
    if (!m->rndv || m->desc == NULL) {
        return hws__fail(HWS_E_IN_USE, p->tag, "the data was fetched, or the peer is gone");
    }
    p->source = m->ep_id;
    if (m->length > hws__bytes(p->buffer, p->length, p->opts->flags)) {
        return hws__fail(HWS_E_TRUNCATED, p->tag, "the data has %llu bytes",
                         (unsigned long long)m->length);
    }
    p->done_tag = m->tag;
    r = hws__fetch(p, m->uworker, m->desc, m->length);
    if (r != HWS_E_TOO_MANY) {
        m->desc = NULL;
        m->uworker = NULL;
        hws__list_remove(&m->held);
    }
    return r;
}

int32_t hws_am_recv(hws_id buffer_id, void *buffer, uint64_t length, const hws_op_opts *opts,
                    hws_id *op)
{
    struct hws__message *m;
    int32_t r = HWS_OK;
    struct hws__post p;

    HWS__ENTER();
    if ((m = hws__obj_get(buffer_id, HWS_KIND_BUFFER, &r)) == NULL) {
        return r;
    }
    hws__post_init(&p, am_recv_run, HWS_EVENT_AM_RECV, 0, buffer, length);
    p.tag = buffer_id;
    p.worker = m->worker;
    return hws__post(&p, opts, op);
}

static int32_t read_options(const struct hws__worker *w, hws_id worker, const hws_am_opts *opts,
                            hws_am_opts *o)
{
    int32_t r = hws__options(o, sizeof *o, opts, "active message");

    if (r < 0) {
        return r;
    }
    if (o->flags & ~(uint32_t)(HWS_AM_DEFER | HWS_AM_BUFFER | HWS_AM_HOLD)) {
        return hws__fail(HWS_E_INVALID, worker, "unknown flags %#x", o->flags);
    }
    if (o->reserved != 0) {
        return hws__fail(HWS_E_NEWER, worker, "active message options: `reserved` is set");
    }
    if (o->memory_kind == HWS_MEMORY_CUDA) {
        return hws__fail(HWS_E_BUFFER_KIND, worker,
                         "messages arrive in host memory: HWS_AM_DEFER, then hws_am_recv()");
    }
    return hws__cuda_usable(w->context, worker, o->memory_kind);
}

/* What the options say; `*out` is null if they unset the handler. */
static int32_t handler_new(hws_id worker, const hws_am_opts *o, struct hws__am_handler **out)
{
    struct hws__am_handler h = {.flags = o->flags,
                                .memory_kind = o->memory_kind,
                                .alloc = o->alloc,
                                .free = o->free,
                                .alloc_arg = o->alloc_arg};
    int32_t r = hws__sink_set(&h.sink, &o->sink);

    *out = NULL;
    if (r < 0 || hws__sink_none(&h.sink)) {
        return r;
    }
    h.plain =
        o->sink.callback != NULL && (o->flags & ~(uint32_t)HWS_AM_DEFER) == 0 && o->alloc == NULL;
    if ((*out = malloc(sizeof **out)) == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, worker, "handler");
    }
    **out = h;
    hws__sink_feed(&h.sink, worker);
    return HWS_OK;
}

/* Owner only. False: no memory. */
static bool reserve_handler(struct hws__worker *w, uint32_t am_id)
{
    bool ok = true;

    for (struct hws__list *n = w->uworkers.next; n != &w->uworkers && ok; n = n->next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        ok = !u->raw || hws__raw_reserve(u, am_id);
    }
    return ok;
}

/* Owner only. */
static void replace_handler(struct hws__worker *w, uint32_t am_id, struct hws__am_handler *h)
{
    free(w->handlers[am_id]);
    w->handlers[am_id] = h;
    for (struct hws__list *n = w->uworkers.next; n != &w->uworkers; n = n->next) {
        struct hws__uworker *u = hws__container(n, struct hws__uworker, link);

        if (u->raw) {
            hws__raw_handler(u, am_id, h != NULL);
        }
    }
}

int32_t hws_am_handler(hws_id worker, uint32_t am_id, const hws_am_opts *opts)
{
    struct hws__am_handler *h;
    struct hws__worker *w;
    hws_am_opts o;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((w = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    if (am_id > HWS_AM_ID_MAX) {
        return hws__fail(HWS_E_INVALID, worker, "am_id %u, at most %u", am_id, HWS_AM_ID_MAX);
    }
    if ((r = read_options(w, worker, opts, &o)) < 0 || (r = handler_new(worker, &o, &h)) < 0) {
        return r;
    }
    if ((r = hws__own_call(w, worker, &nested)) < 0) {
        free(h);
        return r;
    }
    if (atomic_load(&w->obj.id) != worker) {
        free(h);
        r = hws__id_error(&hws__objects, worker, HWS_KIND_WORKER);
    } else if (h != NULL && !reserve_handler(w, am_id)) {
        free(h);
        r = hws__fail(HWS_E_NO_MEMORY, worker, "handler");
    } else {
        replace_handler(w, am_id, h);
    }
    hws__disown(w, nested);
    return r;
}

int32_t hws_am_header_max(hws_id worker, uint64_t *out)
{
    struct hws__worker *w;
    int32_t r = HWS_OK;
    uint64_t max;

    HWS__ENTER();
    if ((w = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    if (out == NULL) {
        return hws__fail(HWS_E_INVALID, worker, "out is null");
    }
    max = w->max_header;
    if (!hws__obj_is_still(&w->obj, worker)) {
        return hws__id_error(&hws__objects, worker, HWS_KIND_WORKER);
    }
    *out = max - HWS__AM_PREFIX;
    return HWS_OK;
}
