/*
 * Multi-buffer messages: their lists as they arrive (see multi.h).
 */
#include "multi_recv.h"
#include "hello.h"
#include <stdlib.h>
#include <string.h>

/* No process holds more; beyond it the sum of segments that are each rounded up could wrap around. */
#define TOTAL_MAX (UINT64_C(1) << 62)

/* Read lengths of 16 bits, of segments that follow each other from `at` on; false if they do not add up. */
static bool read_short(struct hws__multi *x, const struct hws__multi_wire *wire,
                       const char *entries, uintptr_t at)
{
    const uintptr_t start = at;
    uint16_t length;

    for (uint64_t i = 0; i < wire->count; i++) {
        memcpy(&length, entries + i * sizeof length, sizeof length);
        x->segments[i] = (hws_segment){.base = (void *)at, .length = length};
        at += length;
    }
    x->gathered = at - start;
    return x->gathered == wire->total && x->gathered != 0;
}

/* Read the entries; false if they do not add up. */
static bool read_long(struct hws__multi *x, const struct hws__multi_wire *wire, const char *entries)
{
    uint64_t sum = 0, entry;

    for (uint64_t i = 0; i < wire->count; i++) {
        uint64_t length, own;

        memcpy(&entry, entries + i * sizeof entry, sizeof entry);
        length = hws__entry_length(entry);
        own = (entry & HWS__ENTRY_OWN) != 0;
        sum += length;
        if (sum < length || (own && length == 0)) {
            return false;
        }
        x->segments[i] = (hws_segment){.length = length};
        if (own ||
            length == 0) { /* what is gathered comes into host memory, whatever the sender says */
            x->segments[i].memory_kind = hws__entry_kind(entry);
        }
        x->own[i / 64] |= own << (i % 64);
        if (own) {
            x->part_count++;
        } else {
            x->gathered += length;
        }
    }
    return sum == wire->total;
}

void hws__multi_moved(struct hws__multi *x, const void *from, uint64_t length)
{
    for (uint64_t i = 0; i < x->detail.count; i++) {
        uint64_t at = (uintptr_t)x->segments[i].base - (uintptr_t)from;

        if (x->segments[i].base != NULL && at <= length) {
            x->segments[i].base = (char *)(uintptr_t)x->message->data + at;
        }
    }
}

/* A message of a list that is too big or makes no sense: null; the endpoint may have failed. */
static struct hws__multi *parse(struct hws__endpoint *ep, const struct hws__multi_wire *wire,
                                const char *data, uint64_t length)
{
    struct hws__worker *w = ep->worker;
    uint64_t list = sizeof *wire + hws__multi_entries(wire->count, wire->flags);
    bool within = (wire->flags & HWS__MULTI_DATA) != 0;
    bool big = wire->count > w->multi_count_max || wire->total > w->multi_bytes_max ||
               wire->total > TOTAL_MAX;
    struct hws__multi *x;

    if (wire->sequence > ep->multi_received + 1 && hws__gap_ends(ep)) {
        return NULL;
    }
    if (list > length || wire->sequence != ep->multi_received + 1 ||
        (wire->flags & ~(HWS__MULTI_DATA | HWS__MULTI_SHORT)) != 0 ||
        wire->flags == HWS__MULTI_SHORT) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged multi-buffer message");
        return NULL;
    }
    ep->multi_received++;
    if ((x = hws__multi_new(w, big ? 0 : wire->count)) == NULL) {
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for a multi-buffer message");
        return NULL;
    }
    x->sequence = wire->sequence;
    x->detail.total = wire->total;
    if (big) {
        x->status = HWS_E_TOO_BIG;
        return x;
    }
    x->detail.count = wire->count;
    x->detail.segments = wire->count != 0 ? x->segments : NULL;
    if (!(wire->flags & HWS__MULTI_SHORT
              ? read_short(x, wire, data + sizeof *wire, (uintptr_t)data + list)
              : read_long(x, wire, data + sizeof *wire)) ||
        length - list != (within ? x->gathered : 0)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged multi-buffer message");
        hws__multi_free(w, x);
        return NULL;
    }
    if (within) {
        x->inline_at = x->gathered != 0 ? list : 0;
    } else {
        x->part_count += x->gathered != 0;
    }
    return x;
}

void hws__multi_refuse(struct hws__multi *x, int32_t code)
{
    struct hws__endpoint *ep = x->message->ep;

    x->status = code;
    /* The refusal goes ahead of the parts' ends, which the sender waits for. */
    if (ep->obj.id == x->message->ep_id && ep->open && !hws__list_empty(&x->link)) {
        hws__multi_refuse_send(ep, x->sequence, code);
    }
    hws__multi_drop_parts(x);
}

/* It meets its receive, or waits for one and costs its sender that much meanwhile. */
static void match(struct hws__endpoint *ep, struct hws__multi *x, uint64_t cost)
{
    struct hws__scope *of_worker = &ep->worker->multi_scope;
    struct hws__message *m = x->message;
    struct hws__op *op = hws__match_arrived(&ep->multi_scope, of_worker, m->tag);

    if (op != NULL) {
        HWS__CREDIT_TOOK(ep, HWS__CREDIT_MULTI, cost);
        hws__multi_meet(op, x);
        return;
    }
    hws__match_wait(&ep->multi_scope, of_worker, m);
    hws__credit_hold(m, HWS__CREDIT_MULTI, cost);
    if (ep->closing) { /* nobody will take it, and the peer may want to send the rest */
        hws__match_unwait(m);
        hws__message_drop(m);
    }
}

static ucs_status_t list_arrived(struct hws__uworker *u, struct hws__endpoint *ep, void *data,
                                 uint64_t length, uint64_t attr)
{
    struct hws__worker *w = u->worker;
    struct hws__multi_wire wire;
    struct hws__message *m;
    struct hws__multi *x;
    ucs_status_t s;

    memcpy(&wire, data, sizeof wire);
    if ((x = parse(ep, &wire, data, length)) == NULL) {
        return UCS_OK;
    }
    m = hws__message_take(w, HWS_KIND_BUFFER);
    s = m == NULL           ? UCS_ERR_NO_MEMORY
        : x->inline_at == 0 ? UCS_OK
                            : (ucs_status_t)hws__message_fill(m, u, data, length, attr);
    if (s == UCS_ERR_NO_MEMORY) {
        hws__multi_free(w, x);
        if (m != NULL) {
            hws__message_release(m);
        }
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for a multi-buffer message");
        return UCS_OK;
    }
    hws__flow_add(&ep->traffic.in[HWS_TRAFFIC_MULTI], x->inline_at != 0 ? x->gathered : 0);
    m->ep = ep;
    m->ep_id = ep->obj.id;
    m->tag = wire.tag;
    m->length = wire.total;
    m->multi = x;
    x->message = m;
    x->uworker = u;
    x->detail.endpoint = ep->obj.id;
    if ((wire.flags & HWS__MULTI_SHORT) == 0) {
        hws__multi_place_inline(x);
    } else if (m->data != data) {
        hws__multi_moved(x, data, length);
    }
    if (x->part_count != 0 || x->status < 0) {
        hws__list_append(&ep->multis, &x->link);
        hws__multi_add_early(ep, x);
    }
    if (x->status < 0) {
        hws__multi_refuse(x, x->status);
    }
    match(ep, x, length + (uint64_t)x->part_count * HWS__CREDIT_PART);
    return s;
}

ucs_status_t hws__multi_cb(void *arg, const void *header, size_t header_length, void *data,
                           size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    struct hws__endpoint *ep = hws__am_sender(u, param);

    (void)header;
    if (ep == NULL || !ep->hello_done || ep->failed) {
        HWS__COUNT(u->worker, am_dropped, 1);
        return UCS_OK;
    }
    if (header_length != 0 || length < sizeof(struct hws__multi_wire) ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged multi-buffer message");
        return UCS_OK;
    }
    return list_arrived(u, ep, data, length, param->recv_attr);
}
