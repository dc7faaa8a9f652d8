/*
 * A receive of a message, of one buffer or many, that is cancelled while UCX fetches it cannot be ended at once, and
 * nobody wants what it will bring. So the message waits again, in front, before its bytes are there: the next receive
 * of its tag gets it, and not the message behind it, and waits for the bytes. Owner only.
 */
#ifndef HWS_CORE_UNDO_H
#define HWS_CORE_UNDO_H

#include <stdint.h>

struct hws__message;
struct hws__op;
struct hws__post;

struct hws__multi;

/** It is cancelled. Where this cannot be done, and for lack of memory, it ends as if it had not been. */
void hws__undo(struct hws__op *op);
/** A tagged receive meets a message whose bytes are still to come: it waits for them. As hws__post.run. */
int32_t hws__undo_meet(struct hws__post *p, struct hws__message *m);
/** A receive of either sort, that is in no list of matching, waits for the bytes of a message that waits no more. */
void hws__undo_wait(struct hws__op *op, struct hws__message *m);
/** The bytes are there, or will not come. What the cancelled receive ends with. Inside UCX. */
int32_t hws__undo_fetched(struct hws__op *op, int32_t code);
int32_t hws__undo_multi_fetched(struct hws__multi *x, int32_t code);
/** The UCX worker that fetched them is gone. */
void hws__undo_multi_orphan(struct hws__multi *x);
/** One of the two receives is about to end without that. Part of hws__op_unlink(). */
void hws__undo_forget(struct hws__op *op);
/** The message is: the cancelled receive ends as if it had not been. Part of hws__message_release(). */
void hws__undo_release(struct hws__message *m);

#endif
