/*
 * Receives that are undone: what a receive brought is given back, because whoever asked for it is gone, and
 * is the next that a receive finds. A receive that is posted already gets it at once.
 */
#include "guard.h"
#include "error.h"
#include "multi.h"
#include "post.h"
#include "progress.h"
#include "stream.h"
#include "tag.h"
#include "undo.h"

/* Give the worker back; who sleeps may have something to tell now. */
static void leave(struct hws__worker *w, bool nested)
{
    bool wake = !nested && hws__asleep(w) && hws__wants_wake(w);

    hws__disown(w, nested);
    if (wake) {
        hws__wake(w);
    }
}

/* Own the worker of a source that is still what it was. */
static int32_t enter(const struct hws__post *p, bool *nested)
{
    int32_t r = hws__own_call(p->worker, p->source, nested);

    if (r < 0) {
        return r;
    }
    if (atomic_load(p->ep != NULL ? &p->ep->obj.id : &p->worker->obj.id) != p->source) {
        hws__disown(p->worker, *nested);
        return hws__id_error(&hws__objects, p->source, 0);
    }
    if (p->ep != NULL ? p->ep->closing : p->worker->closing) {
        hws__disown(p->worker, *nested);
        return hws__fail(HWS_E_CLOSING, p->source, "nobody can receive it again");
    }
    return HWS_OK;
}

/* The message of an id, to be taken from its user, under ownership of its worker. */
static int32_t enter_message(hws_id id, uint32_t kind, struct hws__message **out, bool *nested)
{
    int32_t r = HWS_OK;
    struct hws__message *m = hws__obj_get(id, kind, &r);
    struct hws__worker *w;

    if (m == NULL) {
        return r;
    }
    w = m->worker; /* once: the message's memory may become another's until it is owned */
    if ((r = hws__own_call(w, id, nested)) < 0) {
        return r;
    }
    if (hws__obj_find(&hws__objects, id) != m) {
        hws__disown(w, *nested);
        return hws__id_error(&hws__objects, id, kind);
    }
    *out = m;
    return HWS_OK;
}

static void take_from_user(struct hws__message *m)
{
    hws__list_remove(&m->kept);
    hws__obj_hide(&m->obj);
    m->returned = true;
}

/* A closed endpoint's messages are dropped with it. */
static bool is_over(const struct hws__message *m)
{
    return m->ep != NULL && (m->ep->obj.id != m->ep_id || m->ep->closing);
}

static struct hws__scope *scope_of(const struct hws__message *m)
{
    return m->ep == NULL      ? &m->worker->address_scope
           : m->multi == NULL ? &m->ep->scope
                              : &m->ep->multi_scope;
}

void hws__message_offer(struct hws__message *m)
{
    struct hws__worker *w = m->worker;
    struct hws__scope *worker = m->multi == NULL ? &w->scope : &w->multi_scope;
    struct hws__op *op;

    if (is_over(m)) {
        hws__message_release(m);
    } else if ((op = hws__match_arrived(scope_of(m), worker, m->tag)) == NULL) {
        hws__match_wait(scope_of(m), worker, m);
    } else if (m->coming != NULL) {
        hws__undo_wait(op, m);
    } else if (m->multi == NULL) {
        hws__message_meet(op, m);
    } else {
        hws__multi_meet(op, m->multi);
    }
}

int32_t hws_message_return(hws_id message)
{
    struct hws__message *m = NULL;
    struct hws__worker *w;
    bool nested = false;
    int32_t r;

    HWS__ENTER();
    if ((r = enter_message(message, HWS_KIND_MESSAGE, &m, &nested)) < 0) {
        return r;
    }
    w = m->worker;
    take_from_user(m);
    hws__message_offer(m);
    leave(w, nested);
    return HWS_OK;
}

/* What was received from a worker, or from a plain worker address, has no source. */
static bool has_source(const struct hws__endpoint *ep)
{
    return ep != NULL && !(ep->raw && ep->reason == HWS_REASON_ADDRESS);
}

/* A message of bytes that were received before. */
static int32_t return_bytes(struct hws__post *p)
{
    struct hws__message *m = hws__message_take(p->worker, HWS_KIND_MESSAGE);

    if (m == NULL || hws__message_fill(m, NULL, p->buffer, p->length, 0) == UCS_ERR_NO_MEMORY) {
        if (m != NULL) {
            hws__message_release(m);
        }
        return hws__fail(HWS_E_NO_MEMORY, p->source, "no memory for a message that is given back");
    }
    if (has_source(p->ep)) {
        m->ep = p->ep;
        m->ep_id = p->source;
    }
    m->tag = p->tag;
    m->returned = true;
    hws__message_offer(m);
    return HWS_OK;
}

int32_t hws_tag_return(hws_id source, const void *buffer, uint64_t length, uint64_t tag)
{
    struct hws__post p;
    bool nested = false;
    int32_t r;

    HWS__ENTER();
    hws__post_init(&p, NULL, HWS_EVENT_TAG_RECV, source, buffer, length);
    p.tag = tag;
    if ((r = hws__post_source(&p)) < 0) {
        return r;
    }
    if (buffer == NULL && length != 0) {
        return hws__fail(HWS_E_INVALID, source, "the buffer is null");
    }
    if ((r = enter(&p, &nested)) < 0) {
        return r;
    }
    r = return_bytes(&p);
    leave(p.worker, nested);
    return r;
}

int32_t hws_multi_return(hws_id buffer)
{
    struct hws__message *m = NULL;
    struct hws__worker *w;
    bool nested = false;
    int32_t r;

    HWS__ENTER();
    if ((r = enter_message(buffer, HWS_KIND_BUFFER, &m, &nested)) < 0) {
        return r;
    }
    w = m->worker;
    if (m->multi == NULL || m->multi->ours) {
        r = m->multi == NULL
                ? hws__fail(HWS_E_INVALID, buffer, "the buffer is not of a multi-buffer message")
                : hws__fail(HWS_E_IN_USE, buffer, "the data was fetched");
    } else {
        take_from_user(m);
        hws__message_offer(m);
    }
    leave(w, nested);
    return r;
}

static int32_t check_segments(hws_id source, const hws_segment *segments, uint64_t count)
{
    if (segments == NULL && count != 0) {
        return hws__fail(HWS_E_INVALID, source, "segments is null");
    }
    for (uint64_t i = 0; i < count; i++) {
        if (segments[i].base == NULL && segments[i].length != 0) {
            return hws__fail(HWS_E_INVALID, source, "segment %llu is null", (unsigned long long)i);
        }
        if (segments[i].memory_kind != HWS_MEMORY_HOST) {
            return hws__fail(HWS_E_BUFFER_KIND, source, "segment %llu is not in host memory",
                             (unsigned long long)i);
        }
    }
    return HWS_OK;
}

int32_t hws_segments_return(hws_id endpoint, uint64_t tag, const hws_segment *segments,
                            uint64_t count)
{
    struct hws__message *m;
    struct hws__post p;
    bool nested = false;
    int32_t r;

    HWS__ENTER();
    hws__post_init(&p, NULL, HWS_EVENT_MULTI_RECV, endpoint, NULL, 0);
    if ((r = hws__post_endpoint(&p)) < 0 || (r = check_segments(endpoint, segments, count)) < 0 ||
        (r = enter(&p, &nested)) < 0) {
        return r;
    }
    if ((m = hws__multi_of(p.ep, tag, segments, count)) == NULL) {
        r = hws__fail(HWS_E_NO_MEMORY, endpoint, "no memory for a message that is given back");
    } else {
        hws__multi_fill(m, segments);
        m->returned = true;
        hws__message_offer(m);
    }
    leave(p.worker, nested);
    return r;
}

int32_t hws_stream_return(hws_id endpoint, const void *buffer, uint64_t length)
{
    struct hws__post p;
    bool nested = false;
    int32_t r;

    HWS__ENTER();
    hws__post_init(&p, NULL, HWS_EVENT_STREAM_RECV, endpoint, buffer, length);
    if ((r = hws__post_endpoint(&p)) < 0) {
        return r;
    }
    if (buffer == NULL && length != 0) {
        return hws__fail(HWS_E_INVALID, endpoint, "the buffer is null");
    }
    if ((r = enter(&p, &nested)) < 0) {
        return r;
    }
    if (!hws__stream_readable(p.ep)) {
        r = hws__endpoint_refuse(p.ep, endpoint);
    } else if (length != 0) {
        r = hws__stream_return(p.ep, buffer, length);
    }
    leave(p.worker, nested);
    return r;
}
