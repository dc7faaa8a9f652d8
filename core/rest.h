/*
 * The rest of a bundle: tagged messages that nobody waits for yet stay behind one another as they came, in one block of
 * memory. A burst brings more messages than its receiver has posted receives; to make a hws__message of each, for a
 * receive that is posted a moment later, takes longer than all else that is done for it.
 *
 * Rests are behind all messages that wait at their endpoint, and no receive is posted that could take one of them. A
 * receive takes the next message out of them; whatever else looks for messages, posts a receive, or lets a message wait,
 * makes messages that wait of all that the worker has. In credits and statistics they are that already.
 */
#ifndef HWS_CORE_REST_H
#define HWS_CORE_REST_H

#include "bundle_record.h"
#include "endpoint.h"

struct hws__rest {
    struct hws__list in_ep, in_worker; /* hws__scope.rests */
    struct hws__endpoint *ep;
    uint32_t at, end; /* bytes of `records` that were taken, and of all */
    char records[];
};

/**
 * Put records of a bundle aside, from the first on as long as they are tagged messages that nobody waits for. Owner
 * only.
 * @return their bytes; 0: none, or no memory
 */
size_t hws__rest_keep(struct hws__endpoint *ep, const char *records, size_t length);
/** A message that came alone, behind those that rest at its endpoint. False: it must wait. Owner only. */
bool hws__rest_add(struct hws__endpoint *ep, uint64_t tag, const void *data, uint64_t length);
/** One message fewer. Owner only. */
void hws__rest_took(struct hws__rest *rest, const struct hws__record *r);
/**
 * The oldest message that rests at an endpoint, into a buffer. False: there is none, or it has another tag or no room.
 * Owner only.
 * @param[out] r  what was received
 */
static inline bool hws__rest_take(struct hws__endpoint *ep, void *buffer, uint64_t length,
                                  uint64_t tag, uint64_t mask, struct hws__record *r)
{
    struct hws__list *rests = &ep->scope.rests;
    struct hws__rest *rest = hws__container(rests->next, struct hws__rest, in_ep);

    if (hws__list_empty(rests)) {
        return false;
    }
    memcpy(r, rest->records + rest->at, sizeof *r);
    if (((r->tag ^ tag) & mask) != 0 || r->length > length) {
        return false;
    }
    if (r->length != 0) {
        memcpy(buffer, rest->records + rest->at + sizeof *r, r->length);
    }
    hws__rest_took(rest, r);
    return true;
}
/** The rests of an endpoint are given up. Owner only. */
void hws__rests_drop(struct hws__endpoint *ep);

#endif
