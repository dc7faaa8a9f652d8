#include "match.h"
#include "credit.h"
#include "message.h"
#include "op.h"

void hws__scope_init(struct hws__scope *s)
{
    s->receives = s->masked = 0;
    atomic_init(&s->messages, 0);
    atomic_init(&s->bytes, 0);
    hws__list_init(&s->masked_receives);
    hws__list_init(&s->arrived);
    hws__list_init(&s->rests);
    for (unsigned i = 0; i < HWS__BUCKETS; i++) {
        hws__list_init(&s->exact[i]);
        hws__list_init(&s->by_tag[i]);
    }
}

void hws__match_post(struct hws__scope *s, struct hws__op *op)
{
    s->receives++;
    op->scope = s;
    op->credit_asked = 0;
    if (op->mask == UINT64_MAX) {
        hws__list_append(&s->exact[hws__bucket(op->tag)], &op->match);
    } else {
        s->masked++;
        hws__list_append(&s->masked_receives, &op->match);
    }
    op->stage = HWS__STAGE_MATCHING;
}

/* The older one of `best` and the first receive of the scope that takes the tag. */
static struct hws__op *first_receive(struct hws__scope *s, uint64_t tag, struct hws__op *best)
{
    struct hws__list *head = &s->exact[hws__bucket(tag)];

    for (struct hws__list *n = head->next; n != head; n = n->next) {
        struct hws__op *op = hws__container(n, struct hws__op, match);

        if (op->tag == tag) {
            best = best == NULL || op->sequence < best->sequence ? op : best;
            break;
        }
    }
    if (s->masked == 0) {
        return best;
    }
    head = &s->masked_receives;
    for (struct hws__list *n = head->next; n != head; n = n->next) {
        struct hws__op *op = hws__container(n, struct hws__op, match);

        if (((op->tag ^ tag) & op->mask) == 0) {
            return best == NULL || op->sequence < best->sequence ? op : best;
        }
    }
    return best;
}

struct hws__op *hws__match_first(struct hws__scope *ep, struct hws__scope *worker, uint64_t tag)
{
    struct hws__op *op = ep->receives != 0 ? first_receive(ep, tag, NULL) : NULL;

    return worker->receives != 0 ? first_receive(worker, tag, op) : op;
}

/* Before which node of a list it waits; `at`: of the node in a message. */
static struct hws__list *place_of(const struct hws__message *m, struct hws__list *head, size_t at)
{
    struct hws__list *n = head;

    if (m->returned) {
        for (n = head->next; n != head; n = n->next) {
            if (!((const struct hws__message *)(const void *)((const char *)n - at))->returned) {
                break;
            }
        }
    }
    return n;
}
#define WAIT_IN(m, list, node) \
    hws__list_append(place_of(m, list, offsetof(struct hws__message, node)), &(m)->node)

void hws__match_wait(struct hws__scope *ep, struct hws__scope *worker, struct hws__message *m)
{
    uint32_t b = hws__bucket(m->tag);

    if (!m->returned) {
        hws__rests_unpack(worker, true);
    }
    m->scope_ep = ep;
    m->scope_worker = worker;
    hws__scope_count(ep, 1, 0);
    hws__scope_count(worker, 1, m->length);
    WAIT_IN(m, &ep->arrived, order_ep);
    WAIT_IN(m, &ep->by_tag[b], tag_ep);
    WAIT_IN(m, &worker->arrived, order_worker);
    WAIT_IN(m, &worker->by_tag[b], tag_worker);
}

void hws__match_unwait(struct hws__message *m)
{
    if (m->scope_ep == NULL) {
        return;
    }
    hws__scope_count(m->scope_ep, -1, 0);
    hws__scope_count(m->scope_worker, -1, 0 - m->length);
    hws__credit_taken(m);
    m->scope_ep = NULL;
    hws__list_remove(&m->order_ep);
    hws__list_remove(&m->tag_ep);
    hws__list_remove(&m->order_worker);
    hws__list_remove(&m->tag_worker);
}

struct hws__message *hws__match_find(struct hws__scope *s, bool of_worker, uint64_t tag,
                                     uint64_t mask)
{
    struct hws__message *m = hws__match_listed(s, of_worker, tag, mask);

    if (m == NULL && !hws__list_empty(&s->rests)) {
        hws__rests_unpack(s, of_worker);
        m = hws__match_listed(s, of_worker, tag, mask);
    }
    return m;
}

struct hws__message *hws__match_listed(struct hws__scope *s, bool of_worker, uint64_t tag,
                                       uint64_t mask)
{
    bool exact = mask == UINT64_MAX;
    struct hws__list *head = exact ? &s->by_tag[hws__bucket(tag)] : &s->arrived;

    if (atomic_load_explicit(&s->messages, memory_order_relaxed) == 0) {
        return NULL;
    }
    for (struct hws__list *n = head->next; n != head; n = n->next) {
        struct hws__message *m =
            exact ? (of_worker ? hws__container(n, struct hws__message, tag_worker)
                               : hws__container(n, struct hws__message, tag_ep))
                  : (of_worker ? hws__container(n, struct hws__message, order_worker)
                               : hws__container(n, struct hws__message, order_ep));

        if (((m->tag ^ tag) & mask) == 0) {
            return m;
        }
    }
    return NULL;
}

/* Those of one tag, from a node of its bucket on. */
static void release_from(struct hws__list *head, struct hws__list *n)
{
    uint64_t tag = hws__container(n, struct hws__message, tag_ep)->tag;

    for (struct hws__list *next; n != head; n = next) {
        struct hws__message *m = hws__container(n, struct hws__message, tag_ep);

        next = n->next;
        if (m->tag == tag) {
            hws__message_release(m);
        }
    }
}

void hws__match_lose(struct hws__scope *ep, bool (*lost)(const struct hws__message *))
{
    hws__rests_unpack(ep, false);
    for (unsigned i = 0; i < HWS__BUCKETS; i++) {
        struct hws__list *head = &ep->by_tag[i], *before = head;

        while (before->next != head) {
            if (lost(hws__container(before->next, struct hws__message, tag_ep))) {
                release_from(head, before->next);
            } else {
                before = before->next;
            }
        }
    }
}
