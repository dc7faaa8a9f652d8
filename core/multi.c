/*
 * Multi-buffer messages: arriving, waiting, and what becomes of them (see multi.h).
 */
#include "multi.h"
#include "error.h"
#include "hello.h"
#include "progress.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

/* No process holds more; beyond it the sum of segments that are each rounded up could wrap around. */
#define TOTAL_MAX (UINT64_C(1) << 62)

/* Nothing is known of it yet. Member by member: a string instruction takes longer to start. */
static void clear(struct hws__multi *x)
{
    hws__list_init(&x->link);
    hws__list_init(&x->parts);
    x->gathered = x->inline_at = 0;
    x->part_count = x->part_arrived = 0;
    x->status = HWS_OK;
    x->op = NULL;
    x->left = 0;
    x->ours = x->hooked = false;
    x->block = NULL;
    x->block_length = 0;
    x->seen_gathered = false;
    x->memory = NULL;
    x->detail = (hws_multi_detail){.segments = NULL};
}

/* A record with room for `count` segments. */
static struct hws__multi *record_new(struct hws__worker *w, uint64_t count)
{
    uint64_t each = sizeof(hws_segment) + sizeof(ucp_dt_iov_t);
    uint64_t words = (count + 63) / 64;
    struct hws__list *n = hws__list_pop(&w->free_multis);
    struct hws__multi *x =
        n != NULL ? hws__container(n, struct hws__multi, link) : malloc(sizeof *x);

    if (x == NULL) {
        return NULL;
    }
    clear(x);
    if (count <= HWS__MULTI_INLINE) {
        x->segments = x->few_segments;
        x->own = &x->few_own;
        x->seen = &x->few_seen;
        x->iov = x->few_iov;
        x->few_own = x->few_seen = 0;
        return x;
    }
    if ((x->memory = malloc(count * each + 2 * words * sizeof(uint64_t))) == NULL) {
        hws__list_append(&w->free_multis, &x->link);
        return NULL;
    }
    x->segments = x->memory;
    x->iov = (ucp_dt_iov_t *)(void *)(x->segments + count);
    x->own = (uint64_t *)(void *)(x->iov + count);
    x->seen = x->own + words;
    memset(x->own, 0, 2 * words * sizeof(uint64_t));
    return x;
}

static void drop_parts(struct hws__multi *x)
{
    struct hws__list *n;

    while ((n = hws__list_pop(&x->parts)) != NULL) {
        hws__message_release(hws__container(n, struct hws__message, order_ep));
    }
}

static void free_memory(struct hws__multi *x)
{
    hws__pool_give(&x->message->worker->pool, x->block, x->block_length);
    x->block = NULL;
    if (!x->hooked) {
        return;
    }
    x->hooked = false;
    hws__callback_depth++;
    for (uint64_t i = 0; i < x->detail.count && x->want.free != NULL; i++) {
        if (x->segments[i].base != NULL) {
            x->want.free(x->want.alloc_arg, x->segments[i].base, x->segments[i].length);
        }
    }
    hws__callback_depth--;
}

void hws__multi_release(struct hws__message *m)
{
    struct hws__multi *x = m->multi;

    m->multi = NULL;
    hws__list_remove(&x->link);
    drop_parts(x);
    if (x->block != NULL || x->hooked) {
        free_memory(x);
    }
    free(x->memory);
    hws__list_append(&m->worker->free_multis, &x->link);
}

void hws__multi_unclaimed(hws_id buffer)
{
    struct hws__message *m = hws__obj_find(&hws__objects, buffer);

    if (m != NULL) {
        hws__list_remove(&m->order_worker);
        hws__list_append(&m->worker->multi_pending, &m->order_worker);
        m->worker->todo = true;
    }
}

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

/* Segments whose data came with the list are in place. */
static void place(struct hws__multi *x)
{
    uint64_t at = x->inline_at;

    for (uint64_t i = 0; i < x->detail.count && at != 0; i++) {
        if (!hws__multi_own(x, i)) {
            x->segments[i].base = (char *)(uintptr_t)x->message->data + at;
            at += x->segments[i].length;
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

    if (list > length || wire->sequence != ep->multi_received + 1 ||
        (wire->flags & ~(HWS__MULTI_DATA | HWS__MULTI_SHORT)) != 0 ||
        wire->flags == HWS__MULTI_SHORT) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged multi-buffer message");
        return NULL;
    }
    ep->multi_received++;
    if ((x = record_new(w, big ? 0 : wire->count)) == NULL) {
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
        free(x->memory);
        hws__list_append(&w->free_multis, &x->link);
        return NULL;
    }
    if (within) {
        x->inline_at = x->gathered != 0 ? list : 0;
    } else {
        x->part_count += x->gathered != 0;
    }
    return x;
}

/* Note a part; false if it is none of the message's, or comes twice. */
static bool note_part(struct hws__multi *x, const struct hws__message *part)
{
    uint64_t i = part->tag, bit = UINT64_C(1) << (i % 64);

    if (i == HWS__MULTI_GATHER) {
        if (x->inline_at != 0 || x->gathered == 0 || x->seen_gathered ||
            part->length != x->gathered) {
            return false;
        }
        x->seen_gathered = true;
    } else {
        if (i >= x->detail.count || !hws__multi_own(x, i) || (x->seen[i / 64] & bit) != 0 ||
            part->length != x->segments[i].length) {
            return false;
        }
        x->seen[i / 64] |= bit;
    }
    x->part_arrived++;
    return true;
}

/* Give a part to its message; false if nobody wants it. */
static bool add_part(struct hws__endpoint *ep, struct hws__multi *x, struct hws__message *part)
{
    if (x->status < 0) {
        return false;
    }
    if (!note_part(x, part)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged part of a multi-buffer message");
        return false;
    }
    if (x->left != 0) {
        hws__multi_part_fetch(x, part);
    } else {
        hws__list_append(&x->parts, &part->order_ep);
    }
    return true;
}

/* Parts that were faster than their list. */
static void add_early(struct hws__endpoint *ep, struct hws__multi *x)
{
    for (struct hws__list *n = ep->multi_early.next, *next; n != &ep->multi_early; n = next) {
        struct hws__message *part = hws__container(n, struct hws__message, order_ep);

        next = n->next;
        if (part->sequence == x->sequence) {
            hws__list_remove(n);
            ep->multi_early_count--;
            if (!add_part(ep, x, part)) {
                hws__message_release(part);
            }
        }
    }
}

void hws__multi_refuse(struct hws__multi *x, int32_t code)
{
    struct hws__endpoint *ep = x->message->ep;

    x->status = code;
    /* The refusal goes ahead of the parts' ends, which the sender waits for. */
    if (ep->obj.id == x->message->ep_id && ep->open && !hws__list_empty(&x->link)) {
        hws__multi_refuse_send(ep, x->sequence, code);
    }
    drop_parts(x);
}

static ucs_status_t list_arrived(struct hws__uworker *u, struct hws__endpoint *ep, void *data,
                                 uint64_t length, uint64_t attr)
{
    struct hws__worker *w = u->worker;
    struct hws__multi_wire wire;
    struct hws__message *m;
    struct hws__multi *x;
    struct hws__op *op;
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
        free(x->memory);
        hws__list_append(&w->free_multis, &x->link);
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
        place(x);
    } else if (m->data != data) {
        hws__multi_moved(x, data, length);
    }
    if (x->part_count != 0 || x->status < 0) {
        hws__list_append(&ep->multis, &x->link);
        add_early(ep, x);
    }
    if (x->status < 0) {
        hws__multi_refuse(x, x->status);
    }
    length += (uint64_t)x->part_count * HWS__CREDIT_PART;
    if ((op = hws__match_arrived(&ep->multi_scope, &w->multi_scope, wire.tag)) != NULL) {
        HWS__CREDIT_TOOK(ep, HWS__CREDIT_MULTI, length);
        hws__multi_meet(op, x);
    } else {
        hws__match_wait(&ep->multi_scope, &w->multi_scope, m);
        hws__credit_hold(m, HWS__CREDIT_MULTI, length);
        if (ep->closing) { /* nobody will take it, and the peer may want to send the rest */
            hws__match_unwait(m);
            hws__message_drop(m);
        }
    }
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

/* The segments' data in memory of the message's own, as if it had come with the list. */
static bool copy_in(struct hws__message *m, const hws_segment *segments, uint64_t count)
{
    struct hws__multi *x = m->multi;
    char *to;

    for (uint64_t i = 0; i < count; i++) {
        x->segments[i] = (hws_segment){.length = segments[i].length};
        x->gathered += segments[i].length;
    }
    m->length = x->detail.total = x->gathered;
    if (x->gathered == 0) {
        return true;
    }
    x->inline_at = HWS__POOL_ALIGN; /* 0 says that there is none */
    m->stored = x->inline_at + x->gathered;
    if ((m->memory = hws__pool_take(&m->worker->pool, m->stored)) == NULL) {
        return false;
    }
    m->data = m->memory;
    to = (char *)m->memory + x->inline_at;
    for (uint64_t i = 0; i < count; i++) {
        if (segments[i].length != 0) {
            memcpy(to, segments[i].base, segments[i].length);
        }
        to += segments[i].length;
    }
    return true;
}

struct hws__message *hws__multi_of(struct hws__endpoint *ep, uint64_t tag,
                                   const hws_segment *segments, uint64_t count)
{
    struct hws__worker *w = ep->worker;
    struct hws__multi *x = record_new(w, count);
    struct hws__message *m = x == NULL ? NULL : hws__message_take(w, HWS_KIND_BUFFER);

    if (m == NULL) {
        if (x != NULL) {
            free(x->memory);
            hws__list_append(&w->free_multis, &x->link);
        }
        return NULL;
    }
    m->ep = ep;
    m->ep_id = x->detail.endpoint = ep->obj.id;
    m->tag = tag;
    m->multi = x;
    x->message = m;
    x->uworker = NULL;
    x->sequence = 0;
    x->detail.count = count;
    x->detail.segments = count != 0 ? x->segments : NULL;
    if (!copy_in(m, segments, count)) {
        hws__message_release(m);
        return NULL;
    }
    place(x);
    return m;
}

/* The message of a number. Its list came just before, as a rule. */
static struct hws__multi *find(struct hws__endpoint *ep, uint64_t sequence)
{
    for (struct hws__list *n = ep->multis.prev; n != &ep->multis; n = n->prev) {
        struct hws__multi *x = hws__container(n, struct hws__multi, link);

        if (x->sequence == sequence) {
            return x;
        }
    }
    return NULL;
}

/* A part whose list is still to come; false if it was received, refused or dropped. */
static bool keep_early(struct hws__endpoint *ep, struct hws__message *part)
{
    if (part->sequence <= ep->multi_received) {
        return false;
    }
    if (ep->multi_early_count == HWS__MULTI_EARLY) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "parts of messages that never came");
        return false;
    }
    ep->multi_early_count++;
    hws__list_append(&ep->multi_early, &part->order_ep);
    return true;
}

ucs_status_t hws__multi_part_cb(void *arg, const void *header, size_t header_length, void *data,
                                size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    struct hws__endpoint *ep = hws__am_sender(u, param);
    struct hws__multi_part h;
    struct hws__message *part;
    struct hws__multi *x;

    if (ep == NULL || !ep->hello_done || ep->failed) {
        HWS__COUNT(u->worker, am_dropped, 1);
        return UCS_OK;
    }
    if (header_length != sizeof h || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged part of a multi-buffer message");
        return UCS_OK;
    }
    memcpy(&h, header, sizeof h);
    if ((part = hws__message_take(u->worker, HWS_KIND_BUFFER)) == NULL) {
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for a multi-buffer message");
        return UCS_OK;
    }
    ep->traffic.in[HWS_TRAFFIC_MULTI].bytes += length;
    hws__message_fill(part, u, data, length, param->recv_attr);
    part->ep = ep;
    part->ep_id = ep->obj.id;
    part->tag = h.index;
    part->sequence = h.sequence;
    x = find(ep, h.sequence);
    if (x != NULL ? add_part(ep, x, part) : keep_early(ep, part)) {
        return UCS_INPROGRESS;
    }
    /* UCX drops it, and the sender completes. Inside its own callback it must not be released. */
    part->desc = NULL;
    part->uworker = NULL;
    hws__list_remove(&part->held);
    hws__message_release(part);
    return UCS_OK;
}

/* Waiting messages that will never be whole, or whose data can no longer be fetched. */
static void drop_waiting(struct hws__endpoint *ep)
{
    struct hws__list *head = &ep->multi_scope.arrived;

    for (struct hws__list *n = head->next, *next; n != head; n = next) {
        struct hws__message *m = hws__container(n, struct hws__message, order_ep);

        next = n->next;
        if (m->multi->part_count != 0) {
            hws__message_release(m);
        }
    }
}

void hws__multi_lost(struct hws__endpoint *ep)
{
    struct hws__list *n;

    drop_waiting(ep);
    while ((n = hws__list_pop(&ep->multi_early)) != NULL) {
        hws__message_release(hws__container(n, struct hws__message, order_ep));
    }
    ep->multi_early_count = 0;
    while ((n = hws__list_pop(&ep->multis)) != NULL) {
        struct hws__multi *x = hws__container(n, struct hws__multi, link);
        uint32_t missing = x->part_count - x->part_arrived;

        drop_parts(x);
        if (x->status == HWS_OK && (x->left == 0 || missing != 0)) {
            x->status = ep->failed        ? ep->status
                        : ep->peer_closed ? HWS_E_PEER_CLOSED
                                          : HWS_E_CANCELED;
        }
        if (x->left != 0 && missing != 0) {
            x->left -= missing - 1;
            hws__multi_part_done(x, x->status);
        }
    }
}
