/*
 * Streams: how their bytes are received. UCX takes no receive of a stream back, and an operation that is
 * cancelled or late must end, without the bytes that the next one is to get. So receives wait here, and bytes are taken
 * from UCX, which keeps them by the piece, when there is a receive for them.
 */
#ifndef HWS_CORE_STREAM_H
#define HWS_CORE_STREAM_H

#include "list.h"
#include <stdbool.h>
#include <stdint.h>

struct hws__endpoint;
struct hws__op;
struct hws__uworker;

/** The receiver's side of an endpoint's stream. */
struct hws__stream {
    struct hws__list waiting; /* receives, by `match`; while there are some, UCX has no bytes */
    struct hws__list link;    /* of the UCX worker's readers, while receives wait */
    char *piece;              /* whose bytes from `taken` on come next; null: ask UCX */
    uint64_t length, taken;
    bool returned; /* the piece is ours: bytes that a receive gave back, or that were kept */
    uint64_t owed; /* bytes that receives which wait for all of theirs still need */
    int64_t ahead; /* bytes that the peer was told of and that were not taken */
};

void hws__stream_init(struct hws__stream *s);
/** Give what is there to the receives that wait. Owner only. */
void hws__stream_read(struct hws__endpoint *ep);
/** The same for all endpoints of a UCX worker. Owner only. */
void hws__streams_read(struct hws__uworker *u);
/** A receive that waits ends without its bytes, which are the next one's. Owner only. */
void hws__stream_end_early(struct hws__op *op, int32_t code);
/** The same of all that wait, once what has come is read. Owner only. */
void hws__stream_end_all(struct hws__endpoint *ep, int32_t code);
/**
 * Bytes that were received come next again. Owner only. HWS_E_NO_MEMORY, or HWS_E_CUDA if what a receive into a GPU's
 * memory had got so far could not be had back.
 */
int32_t hws__stream_return(struct hws__endpoint *ep, const void *bytes, uint64_t length);
/** Whether bytes can still be received: also from a peer that has said goodbye. */
bool hws__stream_readable(const struct hws__endpoint *ep);
/** One that waits is about to end. Part of hws__op_unlink(). */
void hws__stream_unwait(struct hws__op *op);
/** The peer said goodbye: what has come is there whatever becomes of the connection. Owner only. */
void hws__stream_keep(struct hws__endpoint *ep);
/** UCX's endpoint is about to go. Owner only. */
void hws__stream_detach(struct hws__endpoint *ep);
/** The endpoint is. Owner only. */
void hws__stream_forget(struct hws__endpoint *ep);

#endif
