/*
 * Messages about credits, and what both sides of credit.h share. For credit*.c only; owner only.
 */
#ifndef HWS_CORE_CREDIT_WIRE_H
#define HWS_CORE_CREDIT_WIRE_H

#include "endpoint.h"

/** What a message says, see credit.h. */
enum hws__say {
    HWS__SAY_LIMIT = 1,
    HWS__SAY_ASK,
    HWS__SAY_LISTEN,
    HWS__SAY_WANT,
    HWS__SAY_NONE,
    HWS__SAY_RECALL,
    HWS__SAY_CLEAR,
    HWS__SAY_LONG /* how many long messages were sent, see gap.h */
};

/** A message about credits: little endian, 24 bytes. */
struct hws__credit_wire {
    uint8_t say, sort, zero[6];
    uint64_t a, b;
};

_Static_assert(sizeof(struct hws__credit_wire) == 24, "the wire format");

/** Far from every real count, both ways. */
#define HWS__CREDIT_MUCH (INT64_C(1) << 61)

/** What is taken before the peer is told, of a window. */
static inline uint64_t hws__credit_step(uint64_t window)
{
    return window < 4 ? 1 : window / 4;
}

/** Whether this side lets its peers send a window at most. */
static inline bool hws__credit_limited(const struct hws__worker *w)
{
    return w->credit_messages != 0;
}

void hws__credit_tell(struct hws__endpoint *ep, enum hws__say say, uint32_t sort, uint64_t a,
                      uint64_t b);

/** To the sender. */
void hws__credit_on_limit(struct hws__endpoint *ep, uint32_t sort, uint64_t messages,
                          uint64_t bytes);
void hws__credit_on_listen(struct hws__endpoint *ep, uint32_t sort);
void hws__credit_on_want(struct hws__endpoint *ep, uint32_t sort, uint64_t tag, hws_id receive);
void hws__credit_on_recall(struct hws__endpoint *ep, uint32_t sort, uint64_t tag, uint64_t mask);

/** To the receiver. */
void hws__credit_on_ask(struct hws__endpoint *ep, uint32_t sort, uint64_t tag);
void hws__credit_on_none(struct hws__endpoint *ep, uint32_t sort, hws_id receive);
/** gone: the sender is, and answers no receive any more. */
void hws__credit_on_clear(struct hws__endpoint *ep, uint32_t sort, bool gone);
/** When the peer is told next, by what it was told last. */
void hws__credit_set_next(const struct hws__worker *w, struct hws__credit_in *in);

#endif
