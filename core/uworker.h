/*
 * UCX workers. A worker of Hawser has a main one (listeners, peers on other machines), one for TCP
 * only (fall-backs), and an isolated one for each connection whose peer may use shared memory: a
 * peer that dies in the middle of writing can only wedge the UCX worker that dies with it.
 *
 * Hot ones are swept by whoever makes progress; one that had nothing to do for a while is armed and
 * becomes cold: the epoll set of the worker watches it.
 */
#ifndef HWS_CORE_UWORKER_H
#define HWS_CORE_UWORKER_H

#include "acceptor.h"
#include "data_sockets.h"
#include "gate.h"
#include "half_made.h"
#include "list.h"
#include "pairing.h"
#include "ucx_loader.h"
#include <hawser.h>
#include <stdbool.h>
#include <ucp/api/ucp.h>

struct hws__context;
struct hws__worker;
struct hws__endpoint;
struct raw_id;

#define HWS__MAIN 0 /* this and the next: any connection that begins by TCP */
#define HWS__TCP 1
#define HWS__ISOLATED 2
#define HWS__ADDRESS 3     /* for peers that connect by its address, by TCP */
#define HWS__ADDRESS_SHM 4 /* the same with shared memory, asked for by an option */

/** What UCX's handler of an active message without a header is given. */
struct hws__am_direct {
    struct hws__uworker *u;
    uint32_t am_id;
};
/** So many ids of the user travel as ids of UCX. */
#define HWS__AM_DIRECTS 64

struct hws__uworker {
    ucp_worker_h ucx;
    struct hws__context *context;
    struct hws__tcp_context *tcp; /* that it is of; null: another one */
    struct hws__worker *worker;
    int role;
    int efd;
    bool shm; /* isolated: the data of its connection travels by shared memory */
    bool hot;
    bool raw;        /* the peer is a plain UCX program */
    bool unread;     /* raw: messages may have arrived that UCX still holds, see raw.h */
    bool deaf;       /* the peer may be unable to wake it */
    bool by_tcp;     /* connections of it travel by TCP, see lost.h */
    bool keep_alive; /* there are more of these than were listed */
    struct hws__data_sockets sockets;
    uint64_t kept_alive;   /* when they were listed */
    uint32_t pending;      /* requests of operations that it holds */
    uint32_t bundles_held; /* see bundle.h */
    uint32_t burying;      /* UCX endpoints that are being closed */
    uint64_t dead_since;
    bool dead;        /* leaves at the end of the sweep */
    bool stranded;    /* dead, and never progressed again: see hws__uworker_strand() */
    bool replaced;    /* TCP: leaves with its last endpoint */
    bool unannounced; /* the safety net has heated it, its descriptor has not spoken yet */
    bool place_given; /* isolated: another one lives in its reservation */
    struct hws__acceptors acceptors; /* TCP */
    struct hws__gate gate;           /* before them, if peers dial its address */
    struct hws__half_made half_made;
    uint32_t idle;         /* sweeps without work */
    struct hws__list link; /* of the worker */
    struct hws__list hot_link;
    struct hws__list held;      /* messages that hold descriptors of it */
    struct hws__list fetching;  /* messages whose data it fetches */
    struct hws__list readers;   /* endpoints whose streams are waited for */
    struct hws__list rkeys;     /* remote keys unpacked on it */
    uint32_t pinned;            /* of these, whose memory the user has a pointer to */
    struct hws__list flushes;   /* of endpoints, see endpoint_ucx.c */
    struct hws__list cuts;      /* endpoints whose UCX part is still to be closed, see late_cut.h */
    struct hws__list answers;   /* of remote memory access, that UCX sends */
    struct hws__endpoint *only; /* isolated: its endpoint, or null while it is a spare */
    int32_t only_cause;         /* why that failed, once it is gone; 0: it did not */
    struct hws__endpoint **eps; /* shared: open addressing by ucp_ep_h */
    uint32_t ep_slots, ep_count;
    struct hws__pairings pairings; /* for addresses */
    uint32_t lines; /* shared: connections that only tell of the peer's end, see upgrade.h */
    uint64_t max_header;
    struct raw_id *raw_ids; /* raw.c */
    struct hws__am_direct direct[HWS__AM_DIRECTS];
};

/** Make one on one of the context's UCX contexts; any thread. Null with the last error set. */
struct hws__uworker *hws__uworker_create(struct hws__context *c, int role, ucp_context_h context);
/** The same on one without shared memory that has the devices of now, see hws__tcp_context_take(). */
struct hws__uworker *hws__uworker_create_tcp(struct hws__context *c, int role, bool own);
/** Destroy one that belongs to no worker any more; any thread. */
void hws__uworker_destroy(struct hws__uworker *u);
/** Take one out of a worker that never was, and destroy it here. */
void hws__uworker_drop(struct hws__uworker *u);
/**
 * This thread destroys a UCX worker: UCX calls back for what that still held. The owner has ended it, or does, and what
 * `user_data` points to may be another's by now. Read first in each callback of a request.
 */
extern _Thread_local bool hws__uworker_destroying __attribute__((tls_model("initial-exec")));

/** The one that this thread progresses just now. */
extern _Thread_local struct hws__uworker *hws__progressing
    __attribute__((tls_model("initial-exec")));
/** All progress is made by this: what UCX says meanwhile is about this UCX worker. Owner only. */
static inline unsigned hws__uworker_look(struct hws__uworker *u, int looks)
{
    unsigned r;

    hws__progressing = u;
    do {
        r = hws__ucx.ucp_worker_progress(u->ucx);
    } while (r == 0 && --looks > 0);
    hws__progressing = NULL;
    return r;
}
static inline unsigned hws__uworker_progress(struct hws__uworker *u)
{
    return hws__uworker_look(u, 1);
}
/** UCX has dropped a message that came here, for want of memory. Also inside UCX: whose it may be fail. */
void hws__uworker_dropped(struct hws__uworker *u);

/**
 * End what a dead one still holds, though it cannot be destroyed: the program has pointers to messages that lie in it.
 * The peer is gone, so nothing comes into the memory of those operations as long as it is not progressed. Owner only.
 */
void hws__uworker_strand(struct hws__uworker *u);
/** A connection of u is over: without another, and unless it is kept for the next, u leaves. */
void hws__uworker_unused(struct hws__uworker *u);
/** TCP: the next connection gets a new one; u leaves with its last. */
void hws__uworker_replace(struct hws__uworker *u);
/** Put one under a worker: handlers, epoll set, hot. Owner only. */
int32_t hws__uworker_adopt(struct hws__worker *w, struct hws__uworker *u);
/** Take it out of the worker and destroy it in the background. Owner only, not inside a sweep. */
void hws__uworker_retire(struct hws__uworker *u);

/** Whether a pointer from an epoll event is not one of the worker's any more. */
bool hws__uworker_stale(struct hws__worker *w, const struct hws__uworker *u);
void hws__uworker_heat(struct hws__uworker *u);
/** Its descriptor became readable: it is hot. */
void hws__uworker_announced(struct hws__uworker *u);
/** Keep it hot without resetting its idleness. */
void hws__uworker_heat_again(struct hws__uworker *u);
/** Arm; 0 and cold, or HWS_E_BUSY and still hot. */
int32_t hws__uworker_cool(struct hws__uworker *u);

/**
 * UCX wakes a sleeping peer on shared memory through an abstract Unix socket, which does not cross
 * network namespaces. A deaf UCX worker is looked at every HWS__DEAF_NS instead.
 */
void hws__uworker_set_deaf(struct hws__uworker *u, bool deaf);

/** The endpoints of a shared UCX worker, by their UCX handle. */
bool hws__uworker_ep_add(struct hws__uworker *u, struct hws__endpoint *ep);
void hws__uworker_ep_remove(struct hws__uworker *u, struct hws__endpoint *ep);
struct hws__endpoint *hws__uworker_ep_lookup(struct hws__uworker *u, ucp_ep_h ucx);

/** The endpoint by which the peer replies, or the only one. */
static inline struct hws__endpoint *hws__uworker_ep(struct hws__uworker *u, ucp_ep_h reply)
{
    return u->only != NULL ? u->only : reply != NULL ? hws__uworker_ep_lookup(u, reply) : NULL;
}
/** Who sent an active message; null: a plain peer that knows our address, or one that is gone. */
static inline struct hws__endpoint *hws__am_sender(struct hws__uworker *u,
                                                   const ucp_am_recv_param_t *param)
{
    return hws__uworker_ep(u, param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP ? param->reply_ep
                                                                                 : NULL);
}

#endif
