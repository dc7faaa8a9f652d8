/*
 * Credits: what a peer may send before this side has taken it.
 *
 * Each direction of a connection has a window for each sort of message: tagged, active and
 * multi-buffer, and one for its stream; the hellos say how many messages and bytes each side lets
 * wait. A sender counts what it sends down and the receiver tells it what its program took, in steps
 * of a quarter of the window. What does not fit waits as an operation of its endpoint, in order:
 * deadlines, cancelling, closing and failures end it like any other.
 *
 *   sender                           receiver
 *   ASK (tag)                ->      a message of this tag waits for credit: the first that does
 *                            <-      LIMIT (messages, bytes): so many since the beginning
 *                            <-      LISTEN: there are receives; ask for all that wait, and will
 *                            <-      WANT (tag, receive): send the first with this tag, whatever the credit
 *   NONE (receive)           ->      none with this tag waits any more
 *                            <-      RECALL (tag, mask): the same as LISTEN, for a receive posted meanwhile
 *   CLEAR                    ->      nothing waits any more
 *
 * All but ASK, LIMIT and CLEAR are there so that a receive which waits for one tag gets its message
 * while those of other tags fill the window. Their order per tag stays. A stream has bytes, no messages,
 * and needs only LIMIT: a send goes in parts as large as what is left, see stream_parts.c.
 */
#ifndef HWS_CORE_CREDIT_H
#define HWS_CORE_CREDIT_H

#include "list.h"
#include <hawser.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <ucp/api/ucp.h>

struct hws__endpoint;
struct hws__message;
struct hws__op;
struct hws__post;
struct hws__worker;

#define HWS__CREDIT_TAG 0u
#define HWS__CREDIT_AM 1u
#define HWS__CREDIT_MULTI 2u
#define HWS__CREDIT_STREAM 3u
#define HWS__CREDIT_SORTS 4u

/** Defaults of hws_worker_opts. */
#define HWS__CREDIT_BYTES (UINT64_C(64) << 20)
#define HWS__CREDIT_MESSAGES 16384u
/** The hello says it in KiB, in 32 bits. */
#define HWS__CREDIT_BYTES_MAX ((UINT64_C(1) << 42) - 1024)
/** What a part of a multi-buffer message that waits costs, in bytes. */
#define HWS__CREDIT_PART 2048u

/** The sender's side of one sort. */
struct hws__credit_out {
    int64_t messages, bytes; /* left; far below 0 while something waits, so that all go behind it */
    uint64_t limit_messages, limit_bytes; /* since the beginning, as the peer said last */
    uint64_t window_bytes;                /* of the peer */
    struct hws__list waiting;             /* operations, by `match` */
    bool listened;                        /* the peer has receives: ask for each that waits */
};

/** The receiver's side of one sort. */
struct hws__credit_in {
    uint64_t messages, bytes;           /* taken since the beginning */
    uint64_t messages_next, bytes_next; /* tell the peer when reached */
    uint64_t messages_told, bytes_told; /* taken, when it was told last */
    uint32_t held;                      /* messages that nobody has taken yet */
    _Atomic bool blocked;               /* the peer has messages that wait; owner writes */
    /* Popped from a queue, by any thread, and not counted yet. */
    _Atomic uint64_t popped_messages, popped_bytes;
};

struct hws__credit {
    struct hws__credit_out out[HWS__CREDIT_SORTS];
    struct hws__credit_in in[HWS__CREDIT_SORTS];
    uint32_t waiting; /* operations */
    const struct hws__post *resumed;
};

/** Until the hello says otherwise: none. */
void hws__credit_init(struct hws__credit *c);
/** The windows of both sides are known. The peer's: 0 is none. */
void hws__credit_open(struct hws__endpoint *ep, uint32_t messages, uint32_t kib);
/** What a hello says of this side's window. */
void hws__credit_window(const struct hws__worker *w, uint32_t *messages, uint32_t *kib);

/** Whether a send may go now, on the short way. */
static inline bool hws__credit_fits(const struct hws__credit *c, uint32_t sort, uint64_t bytes)
{
    return c->out[sort].messages > 0 && (int64_t)bytes <= c->out[sort].bytes;
}

/**
 * A send that does not fit on the short way: HWS_DONE if it may go all the same, HWS_OK if it waits
 * and its operation is taken, else a code.
 */
int32_t hws__credit_wait(struct hws__post *p, uint32_t sort, uint64_t bytes);

/** Take the operation of a send that waits for its turn behind the others of its sort. */
int32_t hws__credit_park(struct hws__post *p, uint32_t sort, uint64_t bytes);
/** Bytes of the peer's stream that may be sent now. */
uint64_t hws__credit_stream_left(const struct hws__credit *c);
/** The least that is worth a part of its own: what the peer takes before it says so. */
uint64_t hws__credit_stream_step(const struct hws__credit *c);

/** It went. */
static inline void hws__credit_spend(struct hws__credit *c, uint32_t sort, uint64_t bytes)
{
    c->out[sort].messages--;
    c->out[sort].bytes -= (int64_t)bytes;
}

/** Tell the peer what was taken, if it is time to. Owner only. */
void hws__credit_return(struct hws__endpoint *ep, uint32_t sort);

/** A message was taken as it arrived. Owner only. */
#define HWS__CREDIT_TOOK(ep, sort, n)                                                              \
    do {                                                                                           \
        struct hws__credit_in *in_ = &(ep)->credit.in[sort];                                       \
                                                                                                   \
        in_->messages++;                                                                           \
        in_->bytes += (n);                                                                         \
        if (__builtin_expect(in_->messages >= in_->messages_next || in_->bytes >= in_->bytes_next, \
                             0)) {                                                                 \
            hws__credit_return(ep, sort);                                                          \
        }                                                                                          \
    } while (0)

/** Bytes of the stream were taken, or will be by a receive that waits for all of them. Owner only. */
void hws__credit_took_bytes(struct hws__endpoint *ep, uint64_t bytes);

/** A message waits for its receiver. Owner only. */
void hws__credit_hold(struct hws__message *m, uint32_t sort, uint64_t bytes);
/** Its receiver has it, or it is given up; nothing the second time. Owner only. */
void hws__credit_taken(struct hws__message *m);
/** Events were popped from a queue: active messages among them are taken. Any thread. */
void hws__credit_popped(const hws_event *events, uint32_t count);
/** A message of a buffer was taken. Any thread. */
void hws__credit_buffer_taken(struct hws__message *m);
/** Count what was popped; asked for by hws__credit_popped(). Owner only. */
void hws__credit_asked(struct hws__endpoint *ep);

/** A receive was posted while peers have messages that wait. Owner only. */
void hws__credit_recall(struct hws__worker *w, struct hws__endpoint *ep, uint32_t sort,
                        const struct hws__op *op);
/** Send what waits and fits now. Owner only, outside UCX callbacks. */
void hws__credit_push(struct hws__endpoint *ep);
/** The same of the stream, in parts. */
void hws__stream_push(struct hws__endpoint *ep);
/** One that waits is about to end. Part of hws__op_unlink(). */
void hws__credit_unwait(struct hws__op *op);
/** End all that wait. Owner only, outside UCX callbacks. */
void hws__credit_end(struct hws__endpoint *ep, int32_t status);
/** The endpoint is being closed: nobody will take what arrived. Owner only. */
void hws__credit_closing(struct hws__endpoint *ep);

/** UCX's handler of HWS__AM_CREDIT. */
ucs_status_t hws__credit_cb(void *arg, const void *header, size_t header_length, void *data,
                            size_t length, const ucp_am_recv_param_t *param);

#endif
