/*
 * Multi-buffer messages on the receiver's side: what the files multi.c, multi_record.c, multi_recv.c, multi_fetch.c,
 * multi_place.c and multi_parts.c share. Owner only.
 */
#ifndef HWS_CORE_MULTI_RECV_H
#define HWS_CORE_MULTI_RECV_H

#include "multi.h"

/** A record with room for `count` segments, of no message yet. Null: no memory. */
struct hws__multi *hws__multi_new(struct hws__worker *w, uint64_t count);
/** Give back one that no message has. */
void hws__multi_free(struct hws__worker *w, struct hws__multi *x);
/** Segments whose data came with the list are in place. */
void hws__multi_place_inline(struct hws__multi *x);

/** Take the parts that were faster than their list. */
void hws__multi_add_early(struct hws__endpoint *ep, struct hws__multi *x);
/** Release the parts that nobody fetched. */
void hws__multi_drop_parts(struct hws__multi *x);

/**
 * Memory for every segment, by `want`. Not inside UCX. A code also if the user's hook has ended the
 * endpoint, and with it the message.
 */
int32_t hws__multi_allocate(struct hws__multi *x);
/** What came with the list, into the segments' own memory. */
void hws__multi_copy_inline(struct hws__multi *x);

/** Fetch the parts that are there; the rest follows as it comes. True if everything is in place. */
bool hws__multi_start(struct hws__multi *x);
/** The operation waits for parts: UCX holds its memory. */
void hws__multi_hold(struct hws__op *op, struct hws__multi *x);
/** The same with the operation of a posting, which must be at hand. */
int32_t hws__multi_wait(struct hws__post *p, struct hws__multi *x);
/** How far it has come: HWS_OK, or what the failure of UCX's that ended it means. */
int32_t hws__multi_status(const struct hws__multi *x);
/** The operation that has waited is over, one way or the other. */
void hws__multi_end(struct hws__multi *x, int32_t code);
/** Received: the buffer is the user's. */
const hws_multi_detail *hws__multi_hand_out(struct hws__multi *x);

#endif
