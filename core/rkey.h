/*
 * Remote keys: a peer's registered memory, as one endpoint reaches it.
 *
 * UCX's key belongs to the UCX endpoint and to the UCX worker under it: it is destroyed before the
 * endpoint is closed, or, while operations use it, when the last of them has ended, or, while the user
 * has a pointer by it, when its id is closed; at the latest before the UCX worker goes. The id lives
 * until it is closed or the endpoint is gone.
 */
#ifndef HWS_CORE_RKEY_H
#define HWS_CORE_RKEY_H

#include "endpoint.h"

/** How the memory is reached: see rma.h. */
enum hws__way { HWS__WAY_MESSAGES, HWS__WAY_DIRECT, HWS__WAY_UCX };

struct hws__rkey {
    struct hws__obj obj;
    struct hws__worker *worker;
    struct hws__endpoint *ep;
    struct hws__list link;       /* of the endpoint */
    struct hws__list of_uworker; /* while `ucx` is not null */
    struct hws__uworker *uworker;
    ucp_rkey_h ucx;        /* null: messages, or the endpoint was cut */
    uint64_t base, length; /* at the peer */
    char *direct;          /* HWS__WAY_DIRECT: where that is in this process */
    hws_id memory;         /* the peer's names for it */
    uint64_t key;
    uint32_t memory_kind;
    enum hws__way way;
    uint32_t uses; /* operations of UCX and plans that hold it */
    bool closing;  /* by the user: goes with its last use */
    bool pinned;   /* the user has a pointer: stays mapped until the key is closed */
};

/** The key of an id under ownership, usable: its endpoint is open, or lets a posting go on. Null with `*error` set. */
struct hws__rkey *hws__rkey_ready(hws_id id, int32_t *error);
/** 0 if `length` bytes at `address` are inside, else HWS_E_INVALID with the last error set. */
int32_t hws__rkey_bounds(const struct hws__rkey *k, uint64_t address, uint64_t length);

static inline void hws__rkey_use(struct hws__rkey *k)
{
    k->uses++;
}

/** The last use of a key that was closed, or whose endpoint was cut, ends it. Owner only. */
void hws__rkey_unuse(struct hws__rkey *k);

/** Destroy UCX's part of the endpoint's keys that no operation uses; before it is closed. */
void hws__rkeys_detach(struct hws__endpoint *ep);
/** The endpoint is gone: so are its keys. Owner only. */
void hws__rkeys_forget(struct hws__endpoint *ep);
/** Destroy UCX's part of every key on a UCX worker that is about to be destroyed. */
void hws__rkeys_orphan(struct hws__uworker *u);
/** Close one. Owner only. */
void hws__rkey_close(struct hws__rkey *k);

#endif
