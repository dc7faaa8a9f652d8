/*
 * Multi-buffer messages.
 *
 * On the wire a message is one list (eager, in order, one UCX message) and its parts. The list
 * holds the number, tag and segments of the message, and the gathered segments' data if that is
 * little. Parts are sent by rendezvous: one with all gathered segments if they are not in the list,
 * and one for each segment that is large or not in host memory. The number is counted by each
 * endpoint and direction; a part names it.
 *
 * A list that has arrived is a hws__message that waits for a match like any other, with a
 * hws__multi; a part that has arrived waits in it as a hws__message that holds UCX's descriptor.
 */
#ifndef HWS_CORE_MULTI_H
#define HWS_CORE_MULTI_H

#include "endpoint.h"

/** Segments from here on are parts of their own. */
#define HWS__MULTI_LARGE (UINT64_C(64) << 10)
#define HWS__MULTI_COALESCE UINT64_C(32768)
#define HWS__MULTI_COALESCE_MAX (UINT64_C(1) << 20)
#define HWS__MULTI_COUNT 65536u
/** The index of the part that holds the gathered segments. */
#define HWS__MULTI_GATHER UINT32_MAX
/** Parts of lists that have not arrived; in order transports have none. */
#define HWS__MULTI_EARLY 4096u
#define HWS__MULTI_INLINE 16u

/** The list message; `count` entries follow, see below, then the gathered data if it is in it. */
struct hws__multi_wire {
    uint64_t tag;
    uint64_t sequence;
    uint64_t total;
    uint32_t count;
    uint32_t flags;
};

#define HWS__MULTI_DATA 1u /* the gathered data is in the list */
/**
 * With it: all of it is, from host memory. The entries are lengths of 16 bits, so that a receiver finds
 * the list of a few segments in one cache line: each one more has to come from the sender's core.
 */
#define HWS__MULTI_SHORT 2u

/** Bytes of the entries. */
static inline uint64_t hws__multi_entries(uint64_t count, uint32_t flags)
{
    return flags & HWS__MULTI_SHORT ? (count * sizeof(uint16_t) + 7) & ~UINT64_C(7)
                                    : count * sizeof(uint64_t);
}

/* A long entry: length, kind of memory, and whether it is a part of its own. */
#define HWS__ENTRY_OWN (UINT64_C(1) << 63)
#define HWS__ENTRY_KIND_SHIFT 56
#define HWS__ENTRY_KIND_UNKNOWN 127u
#define HWS__ENTRY_LENGTH ((UINT64_C(1) << HWS__ENTRY_KIND_SHIFT) - 1)

/** The header of a part. */
struct hws__multi_part {
    uint64_t sequence;
    uint32_t index;
    uint32_t zero;
};

static inline uint64_t hws__entry(const hws_segment *s, bool own)
{
    uint64_t kind = s->memory_kind == HWS_MEMORY_UNKNOWN ? HWS__ENTRY_KIND_UNKNOWN : s->memory_kind;

    return (own ? HWS__ENTRY_OWN : 0) | kind << HWS__ENTRY_KIND_SHIFT | s->length;
}

static inline uint64_t hws__entry_length(uint64_t entry)
{
    return entry & HWS__ENTRY_LENGTH;
}

static inline uint32_t hws__entry_kind(uint64_t entry)
{
    uint32_t kind = (uint32_t)(entry >> HWS__ENTRY_KIND_SHIFT) & HWS__ENTRY_KIND_UNKNOWN;

    return kind == HWS__ENTRY_KIND_UNKNOWN ? HWS_MEMORY_UNKNOWN : kind;
}

/** What a receive asked for; while it is posted, in its operation's `header`. */
struct hws__multi_want {
    uint32_t flags;
    uint64_t bytes_max, count_max;
    hws_alloc_fn alloc;
    hws_free_fn free;
    void *alloc_arg;
};

/** A multi-buffer message on this side. Owner only. */
struct hws__multi {
    struct hws__message *message;
    struct hws__list link;  /* hws__endpoint.multis, while parts are to be fetched */
    struct hws__list parts; /* messages, arrived and not fetched, by order_ep; index in `tag` */
    uint64_t sequence;
    uint64_t gathered;     /* bytes of the gathered segments */
    uint64_t inline_at;    /* offset of the gathered data in the message's data */
    uint32_t part_count;   /* expected */
    uint32_t part_arrived; /* of these */
    int32_t status;        /* refused, or the peer is gone */

    /* While it is received into memory. */
    struct hws__op *op;
    struct hws__uworker *uworker;
    uint32_t left; /* parts that are not there yet; 1 more while they are being posted */
    struct hws__message
        *undone; /* the same message, waiting again: the receive was cancelled, see undo.h */
    bool ours;   /* the memory is the message's, not the caller's of hws_multi_fetch() */
    struct hws__multi_want want;
    bool hooked; /* memory of `want.alloc` */
    void *block; /* memory of the library */
    uint64_t block_length;
    ucp_dt_iov_t *iov;

    hws_multi_detail detail;
    hws_segment *segments;
    uint64_t *own;  /* a bit for each segment that is a part of its own */
    uint64_t *seen; /* and for each of these that has arrived */
    bool seen_gathered;
    void *memory; /* of the four arrays, when there are more than HWS__MULTI_INLINE segments */
    hws_segment few_segments[HWS__MULTI_INLINE];
    uint64_t few_own, few_seen;
    ucp_dt_iov_t few_iov[HWS__MULTI_INLINE];
};

static inline bool hws__multi_own(const struct hws__multi *x, uint64_t i)
{
    return (x->own[i / 64] >> (i % 64) & 1) != 0;
}

/** UCX's handlers of HWS__AM_MULTI and HWS__AM_MULTI_PART. */
ucs_status_t hws__multi_cb(void *arg, const void *header, size_t header_length, void *data,
                           size_t length, const ucp_am_recv_param_t *param);
ucs_status_t hws__multi_part_cb(void *arg, const void *header, size_t header_length, void *data,
                                size_t length, const ucp_am_recv_param_t *param);
/** Receives that met their message and need the user's allocator, after the sweep. */
int hws__multi_step(struct hws__worker *w);
/** The endpoint is cut: what has not arrived will not. Owner only, outside UCX callbacks. */
void hws__multi_lost(struct hws__endpoint *ep);
/** The message's data, `length` bytes at `from`, was copied to where message->data is now. */
void hws__multi_moved(struct hws__multi *x, const void *from, uint64_t length);
/** Give back what a message holds; part of hws__message_release(). */
void hws__multi_release(struct hws__message *m);
/** Nobody will take an operation's result: release the buffer in it. */
void hws__multi_unclaimed(hws_id buffer);
/** The UCX worker of a receive was destroyed: nothing touches the memory any more. */
void hws__multi_orphan(struct hws__op *op);
/** The peer refused a message of ours. */
void hws__multi_refused(struct hws__endpoint *ep, uint64_t sequence, int32_t code);
/**
 * A message of segments as long as these, for what was received from the endpoint before. Owner only. Null: no memory.
 */
struct hws__message *hws__multi_of(struct hws__endpoint *ep, uint64_t tag,
                                   const hws_segment *segments, uint64_t count);
/** Its data, copied. */
void hws__multi_fill(struct hws__message *m, const hws_segment *segments);
/** Turn an arriving message away, and tell its sender. */
void hws__multi_refuse(struct hws__multi *x, int32_t code);

/** A receive and a message have met (multi_recv.c). As hws__message_to(). */
int32_t hws__multi_to(struct hws__post *p, struct hws__multi *x,
                      const struct hws__multi_want *want);
/** The same inside a UCX callback, for a posted receive. */
void hws__multi_meet(struct hws__op *op, struct hws__multi *x);
/** A part has arrived for a message that is being received. */
void hws__multi_part_fetch(struct hws__multi *x, struct hws__message *part);
/** A part is there, or will never be; the last one ends the receive. */
void hws__multi_part_done(struct hws__multi *x, int32_t status);

#endif
