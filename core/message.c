#include "message.h"
#include "endpoint.h"
#include "multi.h"
#include "progress.h"
#include "ucx_loader.h"
#include "undo.h"
#include <stdlib.h>
#include <string.h>

static unsigned list_of(uint32_t kind)
{
    return kind == HWS_KIND_MESSAGE ? 0 : 1;
}

bool hws__message_ready(struct hws__worker *w, uint32_t kind)
{
    struct hws__list *free = &w->free_messages[list_of(kind)];
    struct hws__message *m;

    if (!hws__list_empty(free)) {
        return true;
    }
    m = (struct hws__message *)(void *)hws__obj_alloc(&hws__objects, kind, sizeof *m,
                                                      HWS__KEEP(struct hws__message, ep));
    if (m == NULL) {
        return false;
    }
    /* A released one is in no list any more. */
    hws__list_init(&m->kept);
    hws__list_init(&m->order_ep);
    hws__list_init(&m->order_worker);
    hws__list_init(&m->tag_ep);
    hws__list_init(&m->tag_worker);
    hws__list_push(free, &m->held);
    return true;
}

struct hws__message *hws__message_take(struct hws__worker *w, uint32_t kind)
{
    struct hws__message *m;

    if (!hws__message_ready(w, kind)) {
        return NULL;
    }
    m = hws__container(hws__list_pop(&w->free_messages[list_of(kind)]), struct hws__message, held);
    m->worker = w;
    m->ep = NULL;
    m->ep_id = 0;
    m->uworker = NULL;
    m->desc = m->memory = NULL;
    m->data = NULL;
    m->scope_ep = m->scope_worker = NULL;
    m->rndv = m->raw = m->fetching = m->returned = m->hooked = false;
    m->multi = NULL;
    m->coming = m->meant = NULL;
    atomic_store_explicit(&m->credit, 0, memory_order_relaxed);
    m->free_fn = NULL;
    m->length = m->stored = m->header_length = 0;
    return m;
}

hws_id hws__message_publish(struct hws__message *m)
{
    hws__list_append(&m->worker->kept, &m->kept);
    return hws__obj_publish(&hws__objects, &m->obj);
}

int hws__message_fill(struct hws__message *m, struct hws__uworker *u, const void *data,
                      uint64_t length, uint64_t recv_attr)
{
    /* A header that does not fit has memory of its own and leaves the room to the data. */
    uint64_t used = m->header_length <= HWS__MESSAGE_INLINE ? m->header_length : 0;

    m->length = m->stored = length;
    /* What fits is copied: UCX's descriptor is a buffer of 8 KiB and more. */
    if ((recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) ||
        ((recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) && length > HWS__MESSAGE_INLINE - used)) {
        m->rndv = (recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
        m->data = m->rndv ? NULL : data;
        m->desc = (void *)(uintptr_t)data;
        m->uworker = u;
        hws__list_append(&u->held, &m->held);
        return UCS_INPROGRESS;
    }
    if (length <= HWS__MESSAGE_INLINE - used) {
        m->data = m->inlined + used;
        if (length != 0) { /* UCX's pointer may be null then */
            memcpy(m->inlined + used, data, length);
        }
        return UCS_OK;
    }
    if ((m->memory = hws__pool_take(&m->worker->pool, length)) == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memcpy(m->memory, data, length);
    m->data = m->memory;
    return UCS_OK;
}

/* Give UCX its descriptor back. */
static void drop_desc(struct hws__message *m)
{
    if (m->desc == NULL) {
        return;
    }
    if (m->raw) {
        hws__raw_drop(m);
    } else {
        hws__ucx.ucp_am_data_release(m->uworker->ucx, m->desc);
    }
    if (m->uworker->dead) {
        m->worker->dead_count++;
        m->worker->todo = true;
    }
    m->desc = NULL;
    m->uworker = NULL;
    hws__list_remove(&m->held);
}

/* Data that lies in UCX's descriptor gets memory of its own; false: there is none. */
static bool copy_from_desc(struct hws__message *m)
{
    const void *from = m->data;

    if (m->rndv || m->raw || m->desc == NULL || m->memory != NULL || m->stored == 0) {
        return true;
    }
    if ((m->memory = hws__pool_take(&m->worker->pool, m->stored)) == NULL) {
        return false;
    }
    memcpy(m->memory, from, m->stored);
    m->data = m->memory;
    m->detail.data = m->memory;
    if (m->multi != NULL) {
        hws__multi_moved(m->multi, from, m->stored);
    }
    return true;
}

bool hws__messages_let_go(struct hws__uworker *u)
{
    for (struct hws__list *n = u->held.next, *next; n != &u->held; n = next) {
        struct hws__message *m = hws__container(n, struct hws__message, held);

        next = n->next;
        /* Of the others somebody has a pointer to the data, but of a list whose parts are being fetched. What is at the
         * sender still has no data. */
        if ((m->rndv || m->scope_ep != NULL || (m->multi != NULL && m->multi->op != NULL)) &&
            !m->raw && copy_from_desc(m)) {
            hws__message_orphan(m);
        }
    }
    return hws__list_empty(&u->held);
}

void hws__message_orphan(struct hws__message *m)
{
    /* What was delivered must stay readable until the user releases it. */
    if (!copy_from_desc(m)) {
        m->data = m->detail.data = NULL;
    }
    drop_desc(m);
    if (m->rndv) {
        m->rndv = false;
        m->data = NULL;
        m->ep_id = 0;
    }
}

static void drop_memory(struct hws__message *m)
{
    if (m->memory == NULL) {
        return;
    }
    if (!m->hooked) {
        hws__pool_give(&m->worker->pool, m->memory, m->stored);
    } else if (m->free_fn != NULL) {
        hws__callback_depth++;
        m->free_fn(m->alloc_arg, m->memory, m->length);
        hws__callback_depth--;
    }
    m->memory = NULL;
}

void hws__message_release(struct hws__message *m)
{
    hws__match_unwait(m);
    hws__credit_taken(m);
    hws__list_remove(&m->order_worker); /* of what is pending or dropped */
    hws__list_remove(&m->kept);
    hws__obj_hide(&m->obj);
    if (m->multi != NULL) {
        hws__multi_release(m);
    }
    if (m->coming != NULL) {
        hws__undo_release(m);
    }
    drop_desc(m);
    drop_memory(m);
    if (m->header_length > HWS__MESSAGE_INLINE) {
        free((void *)(uintptr_t)m->detail.header);
        m->header_length = 0;
    }
    if (hws__obj_spent(&hws__objects, &m->obj)) {
        hws__obj_free(&hws__objects, &m->obj);
    } else {
        hws__list_push(&m->worker->free_messages[list_of(m->obj.kind)], &m->held);
    }
}

void hws__message_drop(struct hws__message *m)
{
    hws__list_append(&m->worker->dropped, &m->order_worker);
    m->worker->todo = true;
}

void hws__messages_drop(struct hws__worker *w)
{
    struct hws__list *n;

    while ((n = hws__list_pop(&w->dropped)) != NULL) {
        hws__message_release(hws__container(n, struct hws__message, order_worker));
    }
}
