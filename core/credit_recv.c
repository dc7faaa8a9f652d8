/*
 * Credits, the receiver's side: what the program took is told the peer, and what the peer says that waits is asked for.
 */
#include "credit_wire.h"
#include "progress.h"

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

void hws__credit_set_next(const struct hws__worker *w, struct hws__credit_in *in)
{
    if (!hws__credit_limited(w)) {
        return;
    }
    in->messages_next = in->blocked ? 0 : in->messages_told + hws__credit_step(w->credit_messages);
    in->bytes_next = in->bytes_told + hws__credit_step(w->credit_bytes);
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
    if ((messages | bytes) == 0 || !hws__credit_limited(w) ||
        !(due || messages >= hws__credit_step(w->credit_messages) ||
          bytes >= hws__credit_step(w->credit_bytes))) {
        return;
    }
    in->messages_told = in->messages;
    in->bytes_told = in->bytes;
    hws__credit_set_next(w, in);
    hws__credit_tell(ep, HWS__SAY_LIMIT, sort, in->messages + w->credit_messages,
                     in->bytes + w->credit_bytes);
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

    if (ep == NULL || ep->raw || !hws__credit_limited(m->worker)) {
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
    if (atomic_fetch_add(&in->popped_messages, 1) + 1 >=
            hws__credit_step(m->worker->credit_messages) ||
        atomic_load(&in->blocked) ||
        atomic_load_explicit(&in->popped_bytes, memory_order_relaxed) >=
            hws__credit_step(m->worker->credit_bytes)) {
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
            hws__credit_tell(each, HWS__SAY_RECALL, sort, op->tag, op->mask);
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

void hws__credit_on_ask(struct hws__endpoint *ep, uint32_t sort, uint64_t tag)
{
    struct hws__credit_in *in = &ep->credit.in[sort];
    struct hws__op *op;

    if (!atomic_load_explicit(&in->blocked, memory_order_relaxed)) {
        atomic_store(&in->blocked, true);
        ep->worker->credit_blocked++;
        hws__credit_set_next(ep->worker, in);
        if (sort != HWS__CREDIT_AM &&
            scope_of(ep, sort)->receives + scope_of_worker(ep->worker, sort)->receives != 0) {
            hws__credit_tell(ep, HWS__SAY_LISTEN, sort, 0, 0);
        }
    }
    give_back(ep, sort, true);
    if (sort != HWS__CREDIT_AM && (op = receive_of(ep, sort, tag)) != NULL) {
        op->credit_asked = ep->obj.id;
        hws__credit_tell(ep, HWS__SAY_WANT, sort, tag, op->id);
    }
}

void hws__credit_on_none(struct hws__endpoint *ep, uint32_t sort, hws_id receive)
{
    /* It may have ended while the peer's answer was on its way: whoever waited for it gives it back just now. */
    struct hws__op *op = hws__op_find_open(ep->worker, receive);

    if (op != NULL && op->stage == HWS__STAGE_MATCHING && op->credit_asked == ep->obj.id) {
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
    hws__credit_set_next(ep->worker, in);
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

void hws__credit_on_clear(struct hws__endpoint *ep, uint32_t sort, bool gone)
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

    hws__credit_took_bytes(ep, HWS__CREDIT_MUCH / 2);
    hws__rests_unpack(&ep->scope, false);
    take_all(&ep->scope);
    take_all(&ep->multi_scope);
    for (struct hws__list *n = kept->next; n != kept; n = n->next) {
        struct hws__message *m = hws__container(n, struct hws__message, kept);

        if (m->ep == ep && m->ep_id == ep->obj.id) {
            hws__credit_taken(m);
        }
    }
}
