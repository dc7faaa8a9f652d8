/*
 * Messages behind one that UCX has dropped.
 *
 * When a peer dies, UCX 1.13 goes on handing over what it left in shared memory, but no message of several fragments
 * and no announcement of a rendezvous: it drops those of an endpoint that has failed. Whatever was sent after one would
 * be received in its place. So both sides count the long tagged and active messages. Before the next short one, which
 * UCX does not drop, the sender says how many there were; if that is not what came, the connection ends there. The
 * lists of multi-buffer messages have numbers of their own.
 */
#ifndef HWS_CORE_GAP_H
#define HWS_CORE_GAP_H

#include "ucx_compat.h"
#include <stdbool.h>
#include <stdint.h>

struct hws__endpoint;

/** What is longer counts; what is not fits into a fragment of UCX's (8256 bytes, which include headers). */
#define HWS__GAP_SHORT UINT64_C(8000)
/** What is longer never fits, so that it need not be told of the long ones before it. */
#define HWS__GAP_SINGLE UINT64_C(8256)

struct hws__gap {
    bool tells;  /* the peer must hear of them */
    bool untold; /* there were some since it did */
    uint64_t sent, received;
};

/** UCX has taken a tagged or active message. */
static inline void hws__gap_sent(struct hws__gap *g, uint64_t bytes, bool rndv)
{
    if (__builtin_expect(bytes > HWS__GAP_SHORT || rndv, 0)) {
        g->sent++;
        g->untold = g->tells;
    }
}

/** The peer's, by what hws__gap_sent() was told. */
static inline void hws__gap_received(struct hws__gap *g, uint64_t bytes, uint64_t attr)
{
    g->received += bytes > HWS__GAP_SHORT || (attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
}

/** Before a message of HWS__GAP_SINGLE or less, if `untold`. Owner only. */
void hws__gap_tell(struct hws__endpoint *ep);
/** The peer has sent so many. */
void hws__gap_told(struct hws__endpoint *ep, uint64_t count);
/**
 * A message is missing. Of a peer that is gone nothing counts from here on; false: the peer is there, it has sent what
 * makes no sense.
 */
bool hws__gap_ends(struct hws__endpoint *ep);

#endif
