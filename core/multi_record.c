/*
 * Multi-buffer messages: the record of one on this side, made, given back, and filled without a peer's list.
 */
#include "multi_recv.h"
#include "progress.h"
#include <stdlib.h>
#include <string.h>

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
    x->undone = NULL;
    x->block = NULL;
    x->block_length = 0;
    x->seen_gathered = false;
    x->memory = NULL;
    x->detail = (hws_multi_detail){.segments = NULL};
}

struct hws__multi *hws__multi_new(struct hws__worker *w, uint64_t count)
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

void hws__multi_free(struct hws__worker *w, struct hws__multi *x)
{
    free(x->memory);
    hws__list_append(&w->free_multis, &x->link);
}

void hws__multi_drop_parts(struct hws__multi *x)
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
    hws__multi_drop_parts(x);
    if (x->block != NULL || x->hooked) {
        free_memory(x);
    }
    hws__multi_free(m->worker, x);
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

void hws__multi_place_inline(struct hws__multi *x)
{
    uint64_t at = x->inline_at;

    for (uint64_t i = 0; i < x->detail.count && at != 0; i++) {
        if (!hws__multi_own(x, i)) {
            x->segments[i].base = (char *)(uintptr_t)x->message->data + at;
            at += x->segments[i].length;
        }
    }
}

/* Memory of the message's own for the segments' data, as if it had come with the list. */
static bool make_room(struct hws__message *m, const hws_segment *segments, uint64_t count)
{
    struct hws__multi *x = m->multi;

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
    m->memory = hws__pool_take(&m->worker->pool, m->stored);
    m->data = m->memory;
    return m->memory != NULL;
}

void hws__multi_fill(struct hws__message *m, const hws_segment *segments)
{
    char *to = m->memory;

    if (to == NULL) {
        return; /* nothing but empty segments */
    }
    to += m->multi->inline_at;
    for (uint64_t i = 0; i < m->multi->detail.count; i++) {
        if (segments[i].length != 0) {
            memcpy(to, segments[i].base, segments[i].length);
        }
        to += segments[i].length;
    }
}

struct hws__message *hws__multi_of(struct hws__endpoint *ep, uint64_t tag,
                                   const hws_segment *segments, uint64_t count)
{
    struct hws__worker *w = ep->worker;
    struct hws__multi *x = hws__multi_new(w, count);
    struct hws__message *m = x == NULL ? NULL : hws__message_take(w, HWS_KIND_BUFFER);

    if (m == NULL) {
        if (x != NULL) {
            hws__multi_free(w, x);
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
    if (!make_room(m, segments, count)) {
        hws__message_release(m);
        return NULL;
    }
    hws__multi_place_inline(x);
    return m;
}
