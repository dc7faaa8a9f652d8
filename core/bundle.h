/*
 * Bundles: small messages of a burst travel in one message of UCX.
 *
 * Of a program that sends one message right after the other without making progress between them the first
 * HWS__BUNDLE_AFTER go at once, each on its own. Those that follow are copied behind one another into a bundle. It
 * goes when it is full, before whatever else is posted on its worker, with the next progress, and soon after
 * HWS__BUNDLE_NS even if the program never comes back. Who sends now and then, but makes no progress either, has no
 * bundles. The receiver takes each message out as if it had come alone: credits, statistics and the order are those of
 * the messages.
 *
 * Only sends that may end in the call (HWS_OP_INLINE) are bundled: their buffers are the program's again at once.
 */
#ifndef HWS_CORE_BUNDLE_H
#define HWS_CORE_BUNDLE_H

#include "background.h"
#include "list.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

struct hws__endpoint;
struct hws__worker;

/**
 * Sends without progress between them that go at once. They are with the peer when the call returns, even if the
 * process is killed then. Half of the places in UCX's queues in shared memory: bundles find room in the other half also
 * where the peer does not read just now.
 */
#define HWS__BUNDLE_AFTER 32u
/** From which of them on the time is taken, and what one may take, with what the program does between two. */
#define HWS__BUNDLE_TIMED 24u
#define HWS__BUNDLE_GAP_NS 500u
#define HWS__BUNDLE_GAP_TCP_NS 3000u
/** Bytes of a bundle, so that every transport takes it in one piece, and of the largest message in one. */
#define HWS__BUNDLE_BYTES 3840u
#define HWS__BUNDLE_MESSAGE 256u
/** Bundles of a UCX worker that UCX may hold; while it does, messages go on their own and wait there. */
#define HWS__BUNDLES_HELD 8u
/** How long one may wait for the next progress. */
#define HWS__BUNDLE_NS UINT64_C(1000000)

/** An endpoint's. */
struct hws__bundle {
    struct hws__list link;        /* hws__worker.bundles, while it has messages */
    struct bundle_memory *memory; /* null: none yet */
    uint32_t used;                /* bytes */
};

/** A worker's. */
struct hws__bundles {
    struct hws__list list; /* endpoints whose bundle is to be sent */
    uint64_t burst;        /* sends since the last progress */
    uint64_t timed_burst;  /* `burst` when the time was taken last, and the time */
    uint64_t timed_at;
    uint64_t since; /* none in the list began earlier */
    /* For the background thread, which sends what nobody else does. */
    _Atomic bool waiting;   /* the list is not empty; the owner writes */
    _Atomic uint32_t begun; /* bundles; the owner writes */
    uint32_t looked;        /* `begun` at its last look */
    struct hws__job watch;
};

/**
 * Of a burst of HWS__BUNDLE_TIMED and more, counted already: take a message with this tag, or an active message with
 * this id and without a header, which has credit. False: it goes on its own, and what came before it has gone. Owner
 * only.
 */
bool hws__bundle_add(struct hws__endpoint *ep, uint32_t kind, uint64_t tag, const void *data,
                     uint64_t length);
/** Hand the bundles to UCX, if there are any. Owner only. */
void hws__bundles_send_all(struct hws__bundles *all);
static inline void hws__bundles_send(struct hws__bundles *all)
{
    if (__builtin_expect(!hws__list_empty(&all->list), 0)) {
        hws__bundles_send_all(all);
    }
}
/**
 * The worker has an owner. If that is, or just was, the background thread, which does not stay to run what others
 * submit: own it when that has gone. Else false. Any thread.
 */
bool hws__own_after_watch(struct hws__worker *w);
/** The endpoint lets go of UCX: what was not sent never is. Owner only. */
void hws__bundle_drop(struct hws__endpoint *ep);
/** UCX's handler of HWS__AM_BUNDLE. */
ucs_status_t hws__bundle_cb(void *arg, const void *header, size_t header_length, void *data,
                            size_t length, const ucp_am_recv_param_t *param);

#endif
