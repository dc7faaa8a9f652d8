/*
 * Active messages that need memory once the sweep is over: the handler's own for any, and for the data of a
 * rendezvous, which the library fetches, or the program by hws_am_recv().
 */
#include "am.h"
#include "error.h"
#include "guard.h"
#include "post.h"
#include "progress.h"
#include "room.h"
#include "tag.h"
#include "ucx_loader.h"

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
    if (m->ep != NULL && m->ep->obj.id == m->ep_id) {
        code = hws__endpoint_cause(m->ep, code);
    }
    m->rndv = false;
    m->data = m->memory;
    hws__am_tell(m, h, code);
}

static void message_fetched(void *request, ucs_status_t status, size_t length, void *user_data)
{
    struct hws__message *m = user_data;

    (void)length;
    hws__ucx.ucp_request_free(request);
    if (hws__uworker_destroying) {
        return; /* the owner ends it, see hws__am_orphans() */
    }
    m->fetch_from->pending--;
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
            hws__am_tell(m, h, h->alloc != NULL ? HWS_E_ALLOCATOR : HWS_E_NO_MEMORY);
        } else if (m->rndv) {
            fetch(m, h);
        } else {
            int32_t code = hws__room_fill(
                w->context, (struct hws__room){m->memory, m->length, 0, h->memory_kind}, from,
                m->length);

            hws__pool_give(&w->pool, ours, m->stored);
            m->data = m->memory;
            hws__message_orphan(m);
            hws__am_tell(m, h, code);
        }
    }
    return done;
}

static int32_t am_recv_run(struct hws__post *p)
{
    struct hws__message *m = hws__obj_find(&hws__objects, p->tag);
    int32_t r;

    if (m == NULL) {
        return hws__id_error(&hws__objects, p->tag, HWS_KIND_BUFFER);
    }
    if (!m->rndv && m->data == NULL && m->length != 0) {
        return hws__fail(HWS_E_CONNECTION_RESET, p->tag, "the data was at a peer that is gone");
    }
    if (!m->rndv || m->desc == NULL) {
        return hws__fail(HWS_E_IN_USE, p->tag, "the data was fetched");
    }
    p->source = m->ep_id;
    if (m->length > hws__bytes(p->buffer, p->length, p->opts->flags)) {
        return hws__fail(HWS_E_TRUNCATED, p->tag, "the data has %llu bytes",
                         (unsigned long long)m->length);
    }
    p->done_tag = m->tag;
    r = hws__fetch(p, m->uworker, m->desc, m->length, m->ep_id);
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
