#include "credit.h"
#include "cuda.h"
#include "endpoint.h"
#include "error.h"
#include "hello.h"
#include "post.h"
#include "progress.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

/* Far from every real count, both ways. */
#define MUCH (INT64_C(1) << 61)
/* How often a send that finds no credit looks whether some has come. */
#define LOOKS 16

enum type { LIMIT = 1, ASK, LISTEN, WANT, NONE, RECALL, CLEAR };

/** A message about credits: little endian, 24 bytes. */
struct wire {
    uint8_t type, sort, zero[6];
    uint64_t a, b;
};

_Static_assert(sizeof(struct wire) == 24, "the wire format");

void hws__credit_init(struct hws__credit *c)
{
    for (uint32_t i = 0; i < HWS__CREDIT_SORTS; i++) {
        c->out[i].messages = c->out[i].bytes = MUCH;
        c->in[i].messages_next = c->in[i].bytes_next = UINT64_MAX;
        hws__list_init(&c->out[i].waiting);
    }
}

void hws__credit_window(const struct hws__worker *w, uint32_t *messages, uint32_t *kib)
{
    *messages = w->credit_messages;
    *kib = (uint32_t)(w->credit_bytes >> 10);
}

/* What is taken before the peer is told, of a window. */
static uint64_t step(uint64_t window)
{
    return window < 4 ? 1 : window / 4;
}

static bool limited(const struct hws__worker *w)
{
    return w->credit_messages != 0;
}

static void set_next(const struct hws__worker *w, struct hws__credit_in *in)
{
    if (!limited(w)) {
        return;
    }
    in->messages_next = in->blocked ? 0 : in->messages_told + step(w->credit_messages);
    in->bytes_next = in->bytes_told + step(w->credit_bytes);
}

void hws__credit_open(struct hws__endpoint *ep, uint32_t messages, uint32_t kib)
{
    for (uint32_t i = 0; i < HWS__CREDIT_SORTS; i++) {
        struct hws__credit_out *out = &ep->credit.out[i];

        out->messages = out->bytes = MUCH;
        if (messages != 0) {
            out->limit_messages = messages;
            out->limit_bytes = out->window_bytes = (uint64_t)kib << 10;
            out->messages = i != HWS__CREDIT_STREAM ? (int64_t)messages : MUCH;
            out->bytes = (int64_t)out->window_bytes;
        }
        set_next(ep->worker, &ep->credit.in[i]);
    }
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void sent(void *request, ucs_status_t status, void *user_data)
{
    (void)status; /* an error of the endpoint is reported by its handler */
    free(user_data);
    hws__ucx.ucp_request_free(request);
}

static void tell(struct hws__endpoint *ep, enum type type, uint32_t sort, uint64_t a, uint64_t b)
{
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                             UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
                             .flags = UCP_AM_SEND_FLAG_EAGER | ep->send_flags,
                             .cb.send = sent};
    struct wire *m;

    if (ep->ucx == NULL || ep->failed) {
        return;
    }
    if (type == ASK || type == NONE || type == CLEAR) {
        hws__bundles_send(&ep->worker->bundles); /* what waits is behind it */
    }
    if ((m = malloc(sizeof *m)) == NULL) {
        /* The peer would wait for ever. */
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for a message about credits");
        return;
    }
    *m = (struct wire){.type = (uint8_t)type, .sort = (uint8_t)sort, .a = a, .b = b};
    p.user_data = m;
    if (!UCS_PTR_IS_PTR(
            hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_CREDIT, m, sizeof *m, NULL, 0, &p))) {
        free(m);
    }
    hws__uworker_heat(ep->uworker);
}

/* ---- The sender's side ----------------------------------------------------------------------- */

static uint32_t sort_of(const struct hws__op *op)
{
    return op->kind == HWS_EVENT_AM_SEND       ? HWS__CREDIT_AM
           : op->kind == HWS_EVENT_MULTI_SEND  ? HWS__CREDIT_MULTI
           : op->kind == HWS_EVENT_STREAM_SEND ? HWS__CREDIT_STREAM
                                               : HWS__CREDIT_TAG;
}

static bool waits(const struct hws__credit_out *out)
{
    return !hws__list_empty(&out->waiting);
}

/* Larger than the window goes when nothing else is on its way. */
static bool may_go(const struct hws__credit_out *out, uint64_t bytes)
{
    int64_t shift = waits(out) ? MUCH : 0;

    return out->messages + shift > 0 && ((int64_t)bytes <= out->bytes + shift ||
                                         out->bytes + shift >= (int64_t)out->window_bytes);
}

/*
 * Whether it may go after all: the peer's word may be here already, since a program that does nothing but send
 * makes no progress. Nothing that arrives with it is told of before the program does, so this is not for workers
 * at which others sleep.
 */
static bool look_for_credit(const struct hws__post *p, const struct hws__credit_out *out,
                            uint64_t bytes)
{
    struct hws__worker *w = p->worker;
    struct hws__uworker *u = p->ep->uworker;

    if (hws__in_callback() || w->sweeping || p->op != NULL || hws__asleep(w)) {
        return false;
    }
    for (int i = 0; i < LOOKS && p->ep->open && !may_go(out, bytes); i++) {
        if (hws__ucx.ucp_worker_progress(u->ucx) == 0) {
            break;
        }
        u->idle = 0;
    }
    return p->ep->open && may_go(out, bytes);
}

int32_t hws__credit_wait(struct hws__post *p, uint32_t sort, uint64_t bytes)
{
    struct hws__credit_out *out = &p->ep->credit.out[sort];
    bool first = !waits(out), ask = first || out->listened;
    int32_t r;

    if (p->ep->credit.resumed == p ||
        (first && (may_go(out, bytes) || look_for_credit(p, out, bytes)))) {
        return HWS_DONE;
    }
    if (!p->ep->open) {
        return hws__endpoint_refuse(p->ep, p->source); /* that is what it found */
    }
    if ((r = hws__credit_park(p, sort, bytes)) == HWS_OK && ask) {
        tell(p->ep, ASK, sort, p->tag, 0);
    }
    return r;
}

int32_t hws__credit_park(struct hws__post *p, uint32_t sort, uint64_t bytes)
{
    struct hws__credit *c = &p->ep->credit;
    struct hws__credit_out *out = &c->out[sort];
    struct hws__op *op;
    int32_t r;

    if ((r = hws__post_park(p)) < 0) {
        return r;
    }
    op = p->op;
    op->stage = HWS__STAGE_CREDIT;
    op->credit_bytes = bytes;
    if (!waits(out)) {
        out->messages -= MUCH;
        out->bytes -= MUCH;
    }
    hws__list_append(&out->waiting, &op->match);
    c->waiting++;
    HWS__COUNT(p->worker, credit_waits, 1);
    p->worker->todo = true; /* a sleeper must see the answer */
    return HWS_OK;
}

void hws__credit_unwait(struct hws__op *op)
{
    struct hws__endpoint *ep = op->ep;
    uint32_t sort = sort_of(op);
    struct hws__credit_out *out = &ep->credit.out[sort];

    hws__list_remove(&op->match);
    ep->credit.waiting--;
    if (!waits(out)) {
        out->messages += MUCH;
        out->bytes += MUCH;
        out->listened = false;
        if (sort != HWS__CREDIT_STREAM) {
            tell(ep, CLEAR, sort, 0, 0);
        }
    } else {
        hws__endpoint_attend(ep); /* one that fits may be the first now */
    }
}

static struct hws__op *first_waiting(struct hws__credit_out *out, uint64_t tag, uint64_t mask)
{
    for (struct hws__list *n = out->waiting.next; n != &out->waiting; n = n->next) {
        struct hws__op *op = hws__container(n, struct hws__op, match);

        if (((op->tag ^ tag) & mask) == 0) {
            return op;
        }
    }
    return NULL;
}

uint64_t hws__credit_stream_left(const struct hws__credit *c)
{
    const struct hws__credit_out *out = &c->out[HWS__CREDIT_STREAM];
    int64_t left = out->bytes + (waits(out) ? MUCH : 0);

    return left > 0 ? (uint64_t)left : 0;
}

uint64_t hws__credit_stream_step(const struct hws__credit *c)
{
    return step(c->out[HWS__CREDIT_STREAM].window_bytes);
}

void hws__credit_push(struct hws__endpoint *ep)
{
    hws__stream_push(ep);
    for (uint32_t i = 0; i < HWS__CREDIT_STREAM; i++) {
        struct hws__credit_out *out = &ep->credit.out[i];

        while (waits(out) && ep->ucx != NULL && !ep->failed) {
            struct hws__op *op = hws__container(out->waiting.next, struct hws__op, match);

            if (!may_go(out, op->credit_bytes)) {
                break;
            }
            hws__post_resume(op);
        }
    }
}

/* ---- The receiver's side --------------------------------------------------------------------- */

/* What threads popped from queues. */
static void fold(struct hws__credit_in *in)
{
    uint64_t messages;

    if (atomic_load_explicit(&in->popped_messages, memory_order_relaxed) != 0) {
        messages = atomic_exchange(&in->popped_messages, 0);
        in->messages += messages;
        in->held -= (uint32_t)messages;
        in->bytes += atomic_exchange(&in->popped_bytes, 0);
    }
}

/* Tell the peer, if `due` or enough was taken. */
static void give_back(struct hws__endpoint *ep, uint32_t sort, bool due)
{
    struct hws__credit_in *in = &ep->credit.in[sort];
    const struct hws__worker *w = ep->worker;
    uint64_t messages, bytes;

    fold(in);
    messages = in->messages - in->messages_told;
    bytes = in->bytes - in->bytes_told;
    if ((messages | bytes) == 0 || !limited(w) ||
        !(due || messages >= step(w->credit_messages) || bytes >= step(w->credit_bytes))) {
        return;
    }
    in->messages_told = in->messages;
    in->bytes_told = in->bytes;
    set_next(w, in);
    tell(ep, LIMIT, sort, in->messages + w->credit_messages, in->bytes + w->credit_bytes);
}

void hws__credit_return(struct hws__endpoint *ep, uint32_t sort)
{
    struct hws__credit_in *in = &ep->credit.in[sort];

    fold(in);
    /* Who waits for more than the step must not be left waiting once all is taken. */
    give_back(ep, sort, atomic_load_explicit(&in->blocked, memory_order_relaxed) && in->held == 0);
}

void hws__credit_took_bytes(struct hws__endpoint *ep, uint64_t bytes)
{
    struct hws__credit_in *in = &ep->credit.in[HWS__CREDIT_STREAM];

    in->bytes += bytes;
    if (in->bytes >= in->bytes_next) {
        hws__credit_return(ep, HWS__CREDIT_STREAM);
    }
}

void hws__credit_hold(struct hws__message *m, uint32_t sort, uint64_t bytes)
{
    struct hws__endpoint *ep = m->ep;

    if (ep == NULL || ep->raw || !limited(m->worker)) {
        return;
    }
    if (ep->closing) {
        HWS__CREDIT_TOOK(ep, sort, bytes);
        return;
    }
    m->credit_bytes = bytes;
    atomic_store_explicit(&m->credit, (uint8_t)(sort + 1), memory_order_relaxed);
    ep->credit.in[sort].held++;
}

void hws__credit_taken(struct hws__message *m)
{
    struct hws__endpoint *ep = m->ep;
    uint8_t sort = atomic_load_explicit(&m->credit, memory_order_relaxed);

    if (sort == 0) {
        return;
    }
    /* Only an active message may be popped from a queue, by anybody, at the same time. */
    if (sort == HWS__CREDIT_AM + 1) {
        sort = atomic_exchange_explicit(&m->credit, 0, memory_order_relaxed);
    } else {
        atomic_store_explicit(&m->credit, 0, memory_order_relaxed);
    }
    if (sort == 0 || atomic_load_explicit(&ep->obj.id, memory_order_relaxed) != m->ep_id) {
        return;
    }
    sort--;
    ep->credit.in[sort].held--;
    HWS__CREDIT_TOOK(ep, sort, m->credit_bytes);
}

void hws__credit_buffer_taken(struct hws__message *m)
{
    struct hws__credit_in *in;
    struct hws__endpoint *ep;
    uint8_t am = HWS__CREDIT_AM + 1;

    /* ORDER: acquire; whoever held it last wrote `ep`. The message's memory is never given back. */
    if (!atomic_compare_exchange_strong_explicit(&m->credit, &am, 0, memory_order_acquire,
                                                 memory_order_relaxed)) {
        return;
    }
    ep = m->ep;
    if (atomic_load_explicit(&ep->obj.id, memory_order_relaxed) != m->ep_id) {
        return; /* its memory may be another connection's by now */
    }
    in = &ep->credit.in[HWS__CREDIT_AM];
    atomic_fetch_add_explicit(&in->popped_bytes, m->credit_bytes, memory_order_relaxed);
    /* ORDER: seq_cst; the owner says `blocked` and then looks at what was popped. */
    if (atomic_fetch_add(&in->popped_messages, 1) + 1 >= step(m->worker->credit_messages) ||
        atomic_load(&in->blocked) ||
        atomic_load_explicit(&in->popped_bytes, memory_order_relaxed) >=
            step(m->worker->credit_bytes)) {
        hws__ask(m->worker, &ep->obj, m->ep_id, HWS__ASKED_CREDIT);
    }
}

void hws__credit_popped(const hws_event *events, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (events[i].kind == HWS_EVENT_AM && (events[i].flags & HWS_EVENT_FLAG_BUFFER)) {
            hws__credit_buffer_taken(hws__container(events[i].detail, struct hws__message, detail));
        }
    }
}

void hws__credit_asked(struct hws__endpoint *ep)
{
    hws__credit_return(ep, HWS__CREDIT_AM);
}

static struct hws__scope *scope_of_worker(struct hws__worker *w, uint32_t sort)
{
    return sort == HWS__CREDIT_TAG ? &w->scope : &w->multi_scope;
}

static struct hws__scope *scope_of(struct hws__endpoint *ep, uint32_t sort)
{
    return sort == HWS__CREDIT_TAG ? &ep->scope : &ep->multi_scope;
}

void hws__credit_recall(struct hws__worker *w, struct hws__endpoint *ep, uint32_t sort,
                        const struct hws__op *op)
{
    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        struct hws__endpoint *each = hws__container(n, struct hws__endpoint, link);

        if ((ep == NULL || each == ep) &&
            atomic_load_explicit(&each->credit.in[sort].blocked, memory_order_relaxed)) {
            tell(each, RECALL, sort, op->tag, op->mask);
        }
    }
}

/* The older one of `best` and the list's first receive of this tag that has asked nobody yet. */
static struct hws__op *not_asked(struct hws__list *head, uint64_t tag, struct hws__op *best)
{
    for (struct hws__list *n = head->next; n != head; n = n->next) {
        struct hws__op *op = hws__container(n, struct hws__op, match);

        if (((op->tag ^ tag) & op->mask) == 0 && op->credit_asked == 0) {
            return best == NULL || op->sequence < best->sequence ? op : best;
        }
    }
    return best;
}

/* The receive that would take a message of this tag. */
static struct hws__op *receive_of(struct hws__endpoint *ep, uint32_t sort, uint64_t tag)
{
    struct hws__scope *scopes[2] = {scope_of(ep, sort), scope_of_worker(ep->worker, sort)};
    struct hws__op *op = NULL;

    for (int i = 0; i < 2; i++) {
        if (scopes[i]->receives != 0) {
            op = not_asked(&scopes[i]->exact[hws__bucket(tag)], tag, op);
            op = not_asked(&scopes[i]->masked_receives, tag, op);
        }
    }
    return op;
}

static void on_ask(struct hws__endpoint *ep, uint32_t sort, uint64_t tag)
{
    struct hws__credit_in *in = &ep->credit.in[sort];
    struct hws__op *op;

    if (!atomic_load_explicit(&in->blocked, memory_order_relaxed)) {
        atomic_store(&in->blocked, true);
        ep->worker->credit_blocked++;
        set_next(ep->worker, in);
        if (sort != HWS__CREDIT_AM &&
            scope_of(ep, sort)->receives + scope_of_worker(ep->worker, sort)->receives != 0) {
            tell(ep, LISTEN, sort, 0, 0);
        }
    }
    give_back(ep, sort, true);
    if (sort != HWS__CREDIT_AM && (op = receive_of(ep, sort, tag)) != NULL) {
        op->credit_asked = ep->obj.id;
        tell(ep, WANT, sort, tag, op->id);
    }
}

static void on_none(struct hws__endpoint *ep, uint32_t sort, hws_id id)
{
    struct hws__op *op = hws__op_find(id);

    if (op != NULL && op->worker == ep->worker && op->stage == HWS__STAGE_MATCHING &&
        op->credit_asked == ep->obj.id) {
        op->credit_asked = 0;
        hws__credit_recall(ep->worker, op->ep, sort, op);
    }
}

static bool unblock(struct hws__endpoint *ep, uint32_t sort)
{
    struct hws__credit_in *in = &ep->credit.in[sort];

    if (!atomic_load_explicit(&in->blocked, memory_order_relaxed)) {
        return false;
    }
    atomic_store(&in->blocked, false);
    ep->worker->credit_blocked--;
    set_next(ep->worker, in);
    return true;
}

/* Receives of the worker that wait for an answer of a peer that is gone. */
static void ask_others(struct hws__endpoint *ep, uint32_t sort, struct hws__list *head)
{
    for (struct hws__list *n = head->next; n != head; n = n->next) {
        struct hws__op *op = hws__container(n, struct hws__op, match);

        if (op->credit_asked == ep->obj.id) {
            op->credit_asked = 0;
            hws__credit_recall(ep->worker, NULL, sort, op);
        }
    }
}

static void on_clear(struct hws__endpoint *ep, uint32_t sort, bool gone)
{
    struct hws__scope *s = scope_of_worker(ep->worker, sort);

    if (!unblock(ep, sort) || !gone || sort == HWS__CREDIT_AM) {
        return;
    }
    for (unsigned i = 0; i < HWS__BUCKETS; i++) {
        ask_others(ep, sort, &s->exact[i]);
    }
    ask_others(ep, sort, &s->masked_receives);
}

void hws__credit_end(struct hws__endpoint *ep, int32_t status)
{
    for (uint32_t i = 0; i < HWS__CREDIT_SORTS; i++) {
        struct hws__list *waiting = &ep->credit.out[i].waiting;

        for (struct hws__list *n = waiting->next, *next; n != waiting; n = next) {
            struct hws__op *op = hws__container(n, struct hws__op, match);

            next = n->next;
            if (op->stage == HWS__STAGE_CREDIT) { /* else UCX has a part of it, and ends it */
                hws__op_finish(op, status);
            }
        }
        if (i != HWS__CREDIT_STREAM) {
            on_clear(ep, i, true);
        }
    }
    hws__cuda_wait_end(ep, status);
}

/* Messages of the endpoint in a list of them. */
static void take_all(struct hws__scope *s)
{
    for (struct hws__list *n = s->arrived.next; n != &s->arrived; n = n->next) {
        hws__credit_taken(hws__container(n, struct hws__message, order_ep));
    }
}

void hws__credit_closing(struct hws__endpoint *ep)
{
    struct hws__list *kept = &ep->worker->kept;

    hws__credit_took_bytes(ep, MUCH / 2);
    take_all(&ep->scope);
    take_all(&ep->multi_scope);
    for (struct hws__list *n = kept->next; n != kept; n = n->next) {
        struct hws__message *m = hws__container(n, struct hws__message, kept);

        if (m->ep == ep && m->ep_id == ep->obj.id) {
            hws__credit_taken(m);
        }
    }
}

/* ---- What the peer says ---------------------------------------------------------------------- */

static void on_limit(struct hws__endpoint *ep, uint32_t sort, const struct wire *m)
{
    struct hws__credit_out *out = &ep->credit.out[sort];
    uint64_t messages = m->a - out->limit_messages, bytes = m->b - out->limit_bytes;
    int64_t room = waits(out) ? 0 : MUCH; /* what was not taken yet is never given back */

    if (messages > (uint64_t)(room - out->messages) || bytes > (uint64_t)(room - out->bytes)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "credits that make no sense");
        return;
    }
    out->limit_messages = m->a;
    out->limit_bytes = m->b;
    out->messages += (int64_t)messages;
    out->bytes += (int64_t)bytes;
    if (waits(out)) {
        hws__endpoint_attend(ep);
    }
}

static void on_want(struct hws__endpoint *ep, uint32_t sort, const struct wire *m)
{
    struct hws__op *op = first_waiting(&ep->credit.out[sort], m->a, UINT64_MAX);

    if (op == NULL) {
        tell(ep, NONE, sort, m->b, 0);
    } else {
        hws__post_resume(op);
    }
}

static void on_listen(struct hws__endpoint *ep, uint32_t sort)
{
    struct hws__credit_out *out = &ep->credit.out[sort];

    if (!waits(out)) {
        return;
    }
    out->listened = true;
    for (struct hws__list *n = out->waiting.next; n != &out->waiting; n = n->next) {
        tell(ep, ASK, sort, hws__container(n, struct hws__op, match)->tag, 0);
    }
}

static void on_recall(struct hws__endpoint *ep, uint32_t sort, const struct wire *m)
{
    struct hws__credit_out *out = &ep->credit.out[sort];
    struct hws__op *op = first_waiting(out, m->a, m->b);

    out->listened = waits(out);
    if (op != NULL) {
        tell(ep, ASK, sort, op->tag, 0);
    }
}

static void dispatch(struct hws__endpoint *ep, const struct wire *m)
{
    switch (m->type) {
    case LIMIT:
        on_limit(ep, m->sort, m);
        break;
    case ASK:
        on_ask(ep, m->sort, m->a);
        break;
    case LISTEN:
        on_listen(ep, m->sort);
        break;
    case WANT:
        on_want(ep, m->sort, m);
        break;
    case NONE:
        on_none(ep, m->sort, m->a);
        break;
    case RECALL:
        on_recall(ep, m->sort, m);
        break;
    case CLEAR:
        on_clear(ep, m->sort, false);
        break;
    default:
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a message about credits of unknown type %u",
                           m->type);
    }
}

ucs_status_t hws__credit_cb(void *arg, const void *header, size_t header_length, void *data,
                            size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    struct hws__endpoint *ep = hws__am_sender(u, param);
    struct wire m;

    (void)data;
    if (ep == NULL || !ep->hello_done || ep->failed) {
        return UCS_OK;
    }
    if (header_length == sizeof m) {
        memcpy(&m, header, sizeof m);
    }
    if (header_length != sizeof m || length != 0 || m.sort >= HWS__CREDIT_SORTS ||
        (m.sort == HWS__CREDIT_STREAM && m.type != LIMIT)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged message about credits");
        return UCS_OK;
    }
    dispatch(ep, &m);
    return UCS_OK;
}
