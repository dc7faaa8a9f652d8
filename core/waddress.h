/*
 * Worker addresses: bytes that name a UCX worker set aside for peers that connect without a
 * listener, and blobs that carry one with other things.
 */
#ifndef HWS_CORE_WADDRESS_H
#define HWS_CORE_WADDRESS_H

#include "endpoint.h"

/* Kinds of UCX workers for addresses: indexes of hws__worker.addressed. */
#define HWS__ADDRESSED_PLAIN 0
#define HWS__ADDRESSED_SHM 1
#define HWS__ADDRESSED_HELLO 2
/* Not handed out: peers with a hello are dialled from it. UCX makes one connection of two dials that meet, and of one
 * that meets an endpoint for the answer; by UCX workers of their own each has its own. */
#define HWS__ADDRESSED_DIALS 3

/**
 * A hello of a peer that knows our address came with the peer's own and the number of its dial (pairing.h): the
 * endpoint is made after the sweep. UCX's endpoint for replies will not do: it has no error handler, and UCX frees it
 * when the peer is gone. In UCX callbacks.
 */
void hws__address_hello(struct hws__uworker *u, const void *address, uint64_t length,
                        uint64_t number, const void *hello, uint64_t hello_length);
/**
 * Make UCX's endpoint for it, and for those dials before it that were given up, and go on with the hello; or dial, if
 * that was put off. Owner only, outside UCX callbacks.
 */
void hws__address_step(struct hws__endpoint *ep);
/** A connect operation has ended: the next dial of that address has its turn. Owner only. */
void hws__address_turn(struct hws__endpoint *ep);
/**
 * The address of a UCX worker for a peer's hws__address_peer(), behind `room` bytes, malloc'ed; null if there
 * is none.
 * @param length  without `room`
 */
void *hws__address_own(struct hws__uworker *u, uint64_t room, uint64_t *length);
/** UCX's address in what a peer sent, malloc'ed; null if it is damaged: UCX itself checks nothing. */
void *hws__address_peer(const void *bytes, uint64_t length);

#endif
