#include "raw.h"
#include "am.h"
#include "error.h"
#include "post.h"
#include "progress.h"
#include "tag.h"
#include "ucx_loader.h"
#include "waddress.h"
#include <stdlib.h>
#include <string.h>

int32_t hws__raw_send(struct hws__post *p, struct hws__op *op, ucp_request_param_t *param)
{
    ucs_status_ptr_t r;

    if (p->mask != 0) {
        r = hws__ucx.ucp_tag_send_sync_nbx(p->ep->ucx, hws__op_buffer(p, op), p->length, p->tag,
                                           param);
    } else {
        r = hws__ucx.ucp_tag_send_nbx(p->ep->ucx, hws__op_buffer(p, op), p->length, p->tag, param);
    }
    return hws__op_posted(p, op, p->ep->uworker, r);
}

static void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                     void *user_data)
{
    struct hws__op *op = user_data;

    op->done_length = info->length;
    op->done_tag = info->sender_tag;
    hws__op_ucx_done(request, status, op);
}

/* Post a receive to UCX, or fetch a message that a probe took. */
static int32_t post_recv(struct hws__post *p, struct hws__uworker *u, ucp_tag_message_h message)
{
    ucp_request_param_t param;
    ucp_tag_recv_info_t info = {0};
    struct hws__op *op = hws__op_next(p);
    ucs_status_ptr_t s;
    int32_t r;

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    hws__op_param(p, op, &param);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_RECV_INFO;
    param.cb.recv = received;
    param.recv_info.tag_info = &info;
    if (message != NULL) {
        s = hws__ucx.ucp_tag_msg_recv_nbx(u->ucx, hws__op_buffer(p, op), p->length, message,
                                          &param);
    } else {
        s = hws__ucx.ucp_tag_recv_nbx(u->ucx, hws__op_buffer(p, op), p->length, p->tag, p->mask,
                                      &param);
    }
    r = hws__op_posted(p, op, u, s);
    p->done_length = info.length;
    p->done_tag = info.sender_tag;
    /* Of a message that was there: it is gone, and the operation has ended. */
    if (r == HWS_E_TRUNCATED) {
        p->done_status = r;
        r = HWS_DONE;
    }
    return r;
}

/* The endpoint whose messages arrive on it; null: those of peers that were reached by address have no source. */
static struct hws__endpoint *source_of(struct hws__uworker *u)
{
    return u->role < HWS__ADDRESS ? u->only : NULL;
}

static struct hws__scope *scope_of(struct hws__uworker *u)
{
    struct hws__endpoint *ep = source_of(u);

    return ep != NULL ? &ep->scope : &u->worker->address_scope;
}

struct hws__scope *hws__raw_quiet(struct hws__endpoint *ep)
{
    struct hws__worker *w = ep->worker;

    if (!ep->open || ep->reason != HWS_REASON_ADDRESS) {
        return NULL;
    }
    for (int kind = HWS__ADDRESSED_PLAIN; kind <= HWS__ADDRESSED_SHM; kind++) {
        if (w->addressed[kind] != NULL && w->addressed[kind]->unread) {
            return NULL;
        }
    }
    if (!ep->uworker->hot) {
        hws__uworker_heat(ep->uworker);
    }
    return &w->address_scope;
}

/* The message of a receive of contiguous bytes, in what UCX needs to know of those. */
static ucs_status_ptr_t fetch_plain(struct hws__op *op, struct hws__uworker *u,
                                    ucp_tag_message_h message)
{
    ucp_request_param_t param;

    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.cb.recv = received;
    param.user_data = op;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    return hws__ucx.ucp_tag_msg_recv_nbx(u->ucx, op->buffer, op->length, message, &param);
}

static void met(struct hws__op *op, const ucp_tag_recv_info_t *info, int32_t status)
{
    op->done_length = info->length; /* UCX 1.13.1 does not say it of a message that was there */
    op->done_tag = info->sender_tag;
    hws__op_finish(op, status);
}

/* A posted receive met its message. */
static void meet(struct hws__op *op, struct hws__uworker *u, ucp_tag_message_h message,
                 const ucp_tag_recv_info_t *info)
{
    bool plain = (op->flags & HWS_OP_IOV) == 0 && op->memory_kind == HWS_MEMORY_HOST;
    ucs_status_ptr_t ptr = plain ? fetch_plain(op, u, message) : NULL;
    hws_op_opts opts;
    struct hws__post p;
    int32_t r;

    if (plain && ptr == NULL) {
        met(op, info, HWS_OK);
        return;
    }
    p = hws__post_again(op, &opts);
    hws__op_leave(op);
    r = plain ? hws__op_pending(&p, op, u, ptr) : post_recv(&p, u, message);
    if (r == HWS_OK) {
        return;
    }
    hws__op_rejoin(op);
    met(op, info, r == HWS_DONE ? p.done_status : r);
}

/* Nobody wants it yet, or who does wants the message itself. */
static void keep(struct hws__message *m, struct hws__uworker *u, ucp_tag_message_h message,
                 const ucp_tag_recv_info_t *info)
{
    m->desc = message;
    m->raw = true;
    m->uworker = u;
    m->tag = info->sender_tag;
    m->length = info->length;
    m->ep = source_of(u);
    m->ep_id = m->ep != NULL ? m->ep->obj.id : 0;
    hws__list_append(&u->held, &m->held);
}

void hws__raw_arrived(struct hws__uworker *u)
{
    struct hws__worker *w = u->worker;
    struct hws__scope *scope = scope_of(u);
    ucp_tag_message_h message;
    ucp_tag_recv_info_t info;
    struct hws__message *m;
    struct hws__op *op;

    /* First: what was taken out of UCX's matching cannot be put back. */
    while (hws__message_ready(w, HWS_KIND_MESSAGE)) {
        if ((message = hws__ucx.ucp_tag_probe_nb(u->ucx, 0, 0, 1, &info)) == NULL) {
            u->unread = false;
            return;
        }
        op = hws__match_arrived(scope, &w->scope, info.sender_tag);
        if (op != NULL && (op->flags & HWS_OP_TAKE) == 0) {
            meet(op, u, message, &info);
            continue;
        }
        m = hws__message_take(w, HWS_KIND_MESSAGE);
        keep(m, u, message, &info);
        if (op != NULL) {
            hws__message_meet(op, m);
        } else {
            hws__match_wait(scope, &w->scope, m);
        }
    }
}

/* A receive by address waits in Hawser, not in UCX, so that it ends with its endpoint. */
static int32_t wait_addressed(struct hws__post *p)
{
    struct hws__op *op = hws__op_take(p);

    if (op == NULL) {
        return HWS_E_TOO_MANY;
    }
    op->buffer = hws__op_buffer(p, op);
    op->memory_kind = p->opts->memory_kind;
    hws__match_post(&p->worker->address_scope, op);
    return HWS_OK;
}

int32_t hws__raw_recv(struct hws__post *p)
{
    struct hws__message *m = hws__raw_probe(p->ep, p->tag, p->mask);

    if (m != NULL) {
        return hws__message_to(p, m);
    }
    if (!p->ep->open) {
        return hws__endpoint_refuse(p->ep, p->source);
    }
    hws__uworker_heat(p->ep->uworker);
    return p->ep->reason == HWS_REASON_ADDRESS ? wait_addressed(p)
                                               : post_recv(p, p->ep->uworker, NULL);
}

int32_t hws__raw_message_to(struct hws__post *p, struct hws__message *m)
{
    struct hws__uworker *u = m->uworker;
    ucp_tag_message_h message = m->desc;
    int32_t r;

    if (u == NULL) {
        return hws__fail(HWS_E_CONNECTION_RESET, p->source, "the peer is gone");
    }
    if ((r = post_recv(p, u, message)) == HWS_E_TOO_MANY) {
        return r;
    }
    if (r == HWS_DONE && p->done_status == HWS_OK) {
        p->done_length = m->length; /* UCX does not fill it for a message that was there */
        p->done_tag = m->tag;
    }
    m->desc = NULL;
    m->uworker = NULL;
    hws__list_remove(&m->held);
    hws__message_release(m);
    return r;
}

/* What arrived while there was no receive that could take it. */
static void read_on(struct hws__uworker *u)
{
    if (u != NULL && u->unread) {
        hws__raw_arrived(u);
    }
}

static void read_addressed(struct hws__worker *w)
{
    for (int kind = HWS__ADDRESSED_PLAIN; kind <= HWS__ADDRESSED_SHM; kind++) {
        read_on(w->addressed[kind]);
    }
}

struct hws__message *hws__raw_probe(struct hws__endpoint *ep, uint64_t tag, uint64_t mask)
{
    bool addressed = ep->reason == HWS_REASON_ADDRESS;
    struct hws__scope *scope = addressed ? &ep->worker->address_scope : &ep->scope;
    struct hws__message *m = hws__match_find(scope, false, tag, mask);

    if (m != NULL) {
        return m;
    }
    if (addressed) {
        read_addressed(ep->worker);
    } else {
        read_on(ep->uworker);
    }
    return hws__match_find(scope, false, tag, mask);
}

struct hws__message *hws__raw_probe_all(struct hws__worker *w, uint64_t tag, uint64_t mask)
{
    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        struct hws__endpoint *ep = hws__container(n, struct hws__endpoint, link);

        if (ep->raw && ep->reason != HWS_REASON_ADDRESS) {
            read_on(ep->uworker);
        }
    }
    read_addressed(w);
    return hws__match_find(&w->scope, true, tag, mask);
}

static void dropped(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                    void *user_data)
{
    (void)status;
    (void)info;
    (void)user_data;
    hws__ucx.ucp_request_free(request);
}

/* A message that was taken out of matching must be received. Without room for it, UCX fetches nothing: the sender is
 * told that it may go on, and nothing is under way that the end of the UCX worker would meet. */
void hws__raw_drop(struct hws__message *m)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .cb.recv = dropped,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};

    (void)hws__ucx.ucp_tag_msg_recv_nbx(m->uworker->ucx, NULL, 0, m->desc, &param);
}

/* UCX gives a handler one argument: the number of the id rides in it. */
struct raw_id {
    struct hws__uworker *u;
    uint32_t am_id;
    struct raw_id *next;
};

static ucs_status_t raw_am_cb(void *arg, const void *header, size_t header_length, void *data,
                              size_t length, const ucp_am_recv_param_t *param)
{
    struct raw_id *id = arg;

    /* Of one that was reached by address UCX tells the endpoint, if this side has made one, too. */
    return hws__am_arrived(id->u, hws__am_sender(id->u, param), id->am_id, header, header_length,
                           data, length, param->recv_attr);
}

static struct raw_id *find_id(const struct hws__uworker *u, uint32_t am_id)
{
    struct raw_id *id = u->raw_ids;

    while (id != NULL && id->am_id != am_id) {
        id = id->next;
    }
    return id;
}

bool hws__raw_reserve(struct hws__uworker *u, uint32_t am_id)
{
    struct raw_id *id = find_id(u, am_id);

    if (id == NULL && (id = malloc(sizeof *id)) != NULL) {
        *id = (struct raw_id){u, am_id, u->raw_ids};
        u->raw_ids = id;
    }
    return id != NULL;
}

bool hws__raw_reserve_all(struct hws__uworker *u)
{
    bool ok = true;

    for (uint32_t i = 0; i <= HWS_AM_ID_MAX && ok; i++) {
        ok = u->worker->handlers[i] == NULL || hws__raw_reserve(u, i);
    }
    return ok;
}

void hws__raw_handler(struct hws__uworker *u, uint32_t am_id, bool set)
{
    ucp_am_handler_param_t p = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                              UCP_AM_HANDLER_PARAM_FIELD_CB |
                                              UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                .id = am_id};

    if (set) {
        p.cb = raw_am_cb;
        p.arg = find_id(u, am_id);
    }
    hws__ucx.ucp_worker_set_am_recv_handler(u->ucx, &p);
}

void hws__raw_handlers(struct hws__uworker *u)
{
    for (uint32_t i = 0; i <= HWS_AM_ID_MAX; i++) {
        if (u->worker->handlers[i] != NULL) {
            hws__raw_handler(u, i, true);
        }
    }
}

void hws__raw_free(struct hws__uworker *u)
{
    struct raw_id *id;

    while ((id = u->raw_ids) != NULL) {
        u->raw_ids = id->next;
        free(id);
    }
}
