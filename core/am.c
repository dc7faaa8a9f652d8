/*
 * Active messages of the user as they arrive: the handler is told of one at once, after the sweep by a notice that
 * holds a copy, or by a message that its receiver keeps.
 */
#include "am.h"
#include "progress.h"
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

void hws__am_tell(struct hws__message *m, const struct hws__am_handler *h, int32_t status)
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
    if (ep != NULL) {
        hws__gap_received(&ep->gap, header_length + length, attr);
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
    hws__am_tell(m, h, HWS_OK);
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
