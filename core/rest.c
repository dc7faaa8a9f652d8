#include "rest.h"
#include "credit.h"
#include "progress.h"
#include "tag.h"

/* Tagged messages that nobody waits for, from the first record on, of a bundle at most; their bytes, and those of their
 * data. */
static uint32_t count_unwanted(struct hws__endpoint *ep, const char *at, size_t length,
                               size_t *taken, uint64_t *bytes)
{
    struct hws__worker *w = ep->worker;
    bool wanted = (ep->scope.receives | w->scope.receives) != 0;
    struct hws__record r;
    uint32_t messages = 0;
    size_t n;

    for (*taken = *bytes = 0; (n = hws__record_at(&r, at, length)) != 0; at += n, length -= n) {
        if (r.kind != HWS_EVENT_TAG_SEND || *taken + n > HWS__BUNDLE_BYTES ||
            (wanted && hws__match_first(&ep->scope, &w->scope, r.tag) != NULL)) {
            break;
        }
        messages++;
        *taken += n;
        *bytes += r.length;
    }
    return messages;
}

/* So many bytes of records, which the caller fills in, with these messages. Null: no memory. */
static struct hws__rest *rest_make(struct hws__endpoint *ep, size_t length, uint32_t messages,
                                   uint64_t bytes)
{
    struct hws__worker *w = ep->worker;
    struct hws__rest *rest = hws__pool_take(&w->pool, sizeof *rest + length);

    if (rest == NULL) {
        return NULL;
    }
    rest->ep = ep;
    rest->at = 0;
    rest->end = (uint32_t)length;
    hws__list_append(&ep->scope.rests, &rest->in_ep);
    hws__list_append(&w->scope.rests, &rest->in_worker);
    hws__scope_count(&ep->scope, (int32_t)messages, 0);
    hws__scope_count(&w->scope, (int32_t)messages, bytes);
    ep->credit.in[HWS__CREDIT_TAG].held += messages;
    return rest;
}

size_t hws__rest_keep(struct hws__endpoint *ep, const char *records, size_t length)
{
    uint64_t bytes;
    size_t taken;
    uint32_t messages = ep->closing ? 0 : count_unwanted(ep, records, length, &taken, &bytes);
    struct hws__rest *rest;

    if (messages == 0 || (rest = rest_make(ep, taken, messages, bytes)) == NULL) {
        return 0;
    }
    memcpy(rest->records, records, taken);
    ep->traffic.in[HWS_TRAFFIC_TAG].count += messages;
    ep->traffic.in[HWS_TRAFFIC_TAG].bytes += bytes;
    return taken;
}

bool hws__rest_add(struct hws__endpoint *ep, uint64_t tag, const void *data, uint64_t length)
{
    struct hws__record r = {.tag = tag, .length = (uint32_t)length, .kind = HWS_EVENT_TAG_SEND};
    struct hws__rest *rest;

    if (length > HWS__BUNDLE_MESSAGE ||
        (rest = rest_make(ep, hws__record_bytes(length), 1, length)) == NULL) {
        return false;
    }
    memcpy(rest->records, &r, sizeof r);
    if (length != 0) {
        memcpy(rest->records + sizeof r, data, length);
    }
    return true;
}

static void give_up(struct hws__rest *rest)
{
    hws__list_remove(&rest->in_ep);
    hws__list_remove(&rest->in_worker);
    hws__pool_give(&rest->ep->worker->pool, rest, sizeof *rest + rest->end);
}

/* It rests no more, and does not wait yet. */
static void leave(struct hws__rest *rest, const struct hws__record *r)
{
    struct hws__endpoint *ep = rest->ep;

    hws__scope_count(&ep->scope, -1, 0);
    hws__scope_count(&ep->worker->scope, -1, 0 - (uint64_t)r->length);
    ep->credit.in[HWS__CREDIT_TAG].held--;
    rest->at += hws__record_bytes(r->length);
}

void hws__rest_took(struct hws__rest *rest, const struct hws__record *r)
{
    struct hws__endpoint *ep = rest->ep;

    leave(rest, r);
    if (rest->at == rest->end) {
        give_up(rest);
    }
    HWS__CREDIT_TOOK(ep, HWS__CREDIT_TAG, r->length);
}

/*
 * Its messages wait like those that came alone. Without memory for one the endpoint is lost, and all that rests behind
 * that one with it: it would be received in its place.
 */
static void unpack(struct hws__rest *rest)
{
    struct hws__record r;

    while (hws__record_at(&r, rest->records + rest->at, rest->end - rest->at) != 0) {
        const char *data = rest->records + rest->at + sizeof r;

        leave(rest, &r);
        if (!hws__tag_wait(rest->ep, r.tag, data, r.length)) {
            hws__rests_drop(rest->ep);
            return;
        }
    }
    give_up(rest);
}

void hws__rests_unpack_all(struct hws__scope *s, bool of_worker)
{
    struct hws__list *n = s->rests.next;
    struct hws__rest *rest = of_worker ? hws__container(n, struct hws__rest, in_worker)
                                       : hws__container(n, struct hws__rest, in_ep);
    struct hws__list all;

    /* In the order they came in, and none is left to who lets the first of the messages wait. */
    hws__list_init(&all);
    hws__list_splice(&all, &rest->ep->worker->scope.rests);
    while (!hws__list_empty(&all)) {
        unpack(hws__container(all.next, struct hws__rest, in_worker));
    }
}

void hws__rests_drop(struct hws__endpoint *ep)
{
    struct hws__list *rests = &ep->scope.rests;

    while (!hws__list_empty(rests)) {
        struct hws__rest *rest = hws__container(rests->next, struct hws__rest, in_ep);
        struct hws__record r;

        while (hws__record_at(&r, rest->records + rest->at, rest->end - rest->at) != 0) {
            leave(rest, &r);
        }
        give_up(rest);
    }
}
