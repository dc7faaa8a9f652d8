/*
 * A message that has arrived and is not with its receiver yet: waiting for a match, held by a
 * probe, or an active message on its way to a handler or kept as a buffer.
 */
#ifndef HWS_CORE_MESSAGE_H
#define HWS_CORE_MESSAGE_H

#include "handle.h"

#define HWS__MESSAGE_INLINE 512

struct hws__endpoint;
struct hws__uworker;
struct hws__worker;
struct hws__scope;
struct hws__op;

struct hws__message {
    struct hws__obj obj; /* has an id once it is a message or buffer of the user */
    struct hws__worker *worker;
    struct hws__endpoint *ep; /* may be gone: compare ep_id */
    hws_id ep_id;
    struct hws__uworker *uworker;    /* holds `desc`; null once that is released */
    struct hws__uworker *fetch_from; /* while fetching */
    void *desc;                      /* UCX's descriptor */
    struct hws__list held;           /* messages that hold a descriptor of the UCX worker */
    struct hws__list kept;           /* messages that the user holds by their id */
    struct hws__list order_ep, order_worker, tag_ep, tag_worker;
    struct hws__scope *scope_ep, *scope_worker;
    uint64_t tag;
    uint64_t length;
    const void *data; /* eager: in `desc`, in `inlined` or in `memory` */
    uint64_t stored;  /* bytes there; `length` of a multi-buffer message is that of its segments */
    void *memory;     /* allocated: by the user's hook if `hooked`, else of the worker's pool */
    bool rndv;        /* the data is at the sender */
    bool raw;         /* `desc` is a ucp_tag_message_h of a raw endpoint */
    bool fetching;    /* a receive works on `desc` */
    bool returned;    /* it was received and given back: waits before those that were not */
    bool hooked;      /* `free_fn`, nullable, gives `memory` back */
    struct hws__multi *multi; /* a multi-buffer message, see multi.h */
    uint64_t sequence;        /* of the multi-buffer message that it is a part of */
    _Atomic uint8_t credit;   /* the sort that its credit is of, and 1; 0: none is held */
    uint64_t credit_bytes;
    struct hws__op *coming; /* a cancelled receive that gets the data, see undo.h */
    struct hws__op *meant;  /* a receive that waits for that */
    hws_free_fn free_fn;
    void *alloc_arg;
    hws_am_detail detail;
    uint64_t header_length;
    _Alignas(16) unsigned char inlined[HWS__MESSAGE_INLINE]; /* header, then small data */
};

/** A free message of the worker; kind BUFFER or MESSAGE. Owner only. Null: no memory. */
struct hws__message *hws__message_take(struct hws__worker *w, uint32_t kind);
/** Whether hws__message_take() will find one. */
bool hws__message_ready(struct hws__worker *w, uint32_t kind);
/** Give it to the user: an id that lives until it is closed, or the worker is. Owner only. */
hws_id hws__message_publish(struct hws__message *m);
/**
 * Copy the data out of UCX's hands (or anybody's, if `recv_attr` is 0), or note that UCX keeps it for us.
 * @return UCS_OK, UCS_INPROGRESS (UCX keeps it) or UCS_ERR_NO_MEMORY
 */
int hws__message_fill(struct hws__message *m, struct hws__uworker *u, const void *data,
                      uint64_t length, uint64_t recv_attr);
/** Give it back, with whatever it holds. Owner only. */
void hws__message_release(struct hws__message *m);
/**
 * Release it once the sweep is over: UCX may be in the middle of handing its descriptor over. Owner
 * only.
 */
void hws__message_drop(struct hws__message *m);
/** Release what hws__message_drop() left. Owner only, outside UCX callbacks. */
void hws__messages_drop(struct hws__worker *w);
/** Receive a raw endpoint's message into nothing (raw.c). */
void hws__raw_drop(struct hws__message *m);
/**
 * Copy what waits for a receiver out of the hands of a UCX worker whose connection is over. False: the user holds
 * more of it, or there is no memory.
 */
bool hws__messages_let_go(struct hws__uworker *u);
/**
 * Give UCX its descriptor back, whose UCX worker leaves: data that has come is copied, what is still at the sender
 * can be fetched no more. Owner only.
 */
void hws__message_orphan(struct hws__message *m);

#endif
