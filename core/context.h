/*
 * Contexts: UCX contexts with their configuration, and the budget of isolated workers.
 */
#ifndef HWS_CORE_CONTEXT_H
#define HWS_CORE_CONTEXT_H

#include "background.h"
#include "devices.h"
#include "handle.h"
#include "silence.h"
#include <ucp/api/ucp.h>

/** Workers of one context at most (hws_worker_open()). */
#define HWS__WORKERS 256u

/** A UCX context without shared memory. */
struct hws__tcp_context {
    struct hws__list link;
    ucp_context_h ucx;
    struct hws__devices devices; /* that it has */
    bool own;                    /* it has UCX's own tags, see hws__context_own() */
    uint32_t users;
};

struct hws__context {
    struct hws__obj obj;
    /* LOCK: before a queue's, never while owning more than one worker. Zero is unlocked; never
     * destroyed, since others may take it late. */
    pthread_mutex_t lock;
    ucp_context_h ucx;           /* all transports */
    _Atomic bool left;           /* a UCX worker that cannot be destroyed still uses one of them */
    int profile;                 /* that it was made with */
    struct hws__devices devices; /* that `ucx` has */
    struct hws__list tcp[2];     /* hws__tcp_context by `own`, the one in use first; lock */
    _Atomic bool bridges;        /* a peer is behind one: those in `tcp` take them from now on */
    ucp_context_h shm;           /* made when first needed, see hws__context_shm() */
    ucp_context_h own;           /* made when first needed, see hws__context_own() */
    char **config;               /* the user's pairs */
    uint64_t host;               /* hws__host_hash() */
    uint32_t network;            /* hws__host_network() */
    uint32_t flags;
    uint64_t features;
    bool ucx_rma;    /* UCX itself serves remote access */
    bool dev_shm;    /* the user chose the transports: segments may lie in /dev/shm */
    bool no_shm;     /* not to be had: opened without shared memory */
    bool no_network; /* the user's choice of transports leaves out every one: no data goes by TCP */
    bool upgrades;   /* connections begin by TCP, see upgrade.h */
    struct hws__silence silence;
    bool ipv6; /* TCP_AF_PRIO names inet6 first, see hws__context_family() */
    char name[64];
    unsigned char *psk;
    size_t psk_length;
    uint32_t isolated_max;     /* by option, 0: automatic */
    _Atomic uint32_t isolated; /* isolated workers that exist, spares included */
    _Atomic uint64_t isolated_cap;
    uint64_t cap_time; /* when the machine was last asked how many more it bears */
    int cap_further;
    uint32_t cap_base;
    _Atomic uint32_t closing;
    hws_id workers[HWS__WORKERS];
    uint32_t worker_count, opening; /* workers that are there, and on their way */
    uint32_t holds;                 /* see hws__context_hold() */
    struct hws__background background;
    struct hws__background streams; /* waits for CUDA's, see cuda_wait.c */
    uint64_t memory_types;          /* that UCX can handle, bits by HWS_MEMORY_* */
    _Atomic(void *) cuda;           /* the CUDA context for progress, see cuda.h; null: none */
    struct hws__list memories;      /* registered, see memory.h */
    hws_stats gone;                 /* of workers that are no more */
};

struct hws__context *hws__context_find(hws_id id, int32_t *error);
/**
 * The UCX context without shared memory that has the devices of now, made if needed; null on failure. It stays until
 * hws__tcp_context_leave(). Background thread.
 * @param own  with UCX's own tags, see hws__context_own()
 */
struct hws__tcp_context *hws__tcp_context_take(struct hws__context *c, bool own);
void hws__tcp_context_leave(struct hws__context *c, struct hws__tcp_context *t);
/** hws__device_towards(); a bridge is one of those that the next hws__tcp_context_take() gives. */
enum hws__device hws__context_device_towards(struct hws__context *c,
                                             const struct hws__devices *known,
                                             const struct sockaddr_storage *peer);
/**
 * The UCX context of spares and of registered memory, made if needed. Where connections begin by TCP
 * it has shared memory only: its UCX workers cost a quarter of the time and half of the descriptors.
 * Else, or if the user chooses the transports or UCX's own remote access, the one with everything.
 */
ucp_context_h hws__context_shm(struct hws__context *c);
/** Whether every UCX context has UCX's own tags: without shared memory all connections share UCX workers. */
static inline bool hws__context_all_own(const struct hws__context *c)
{
    return c->ucx_rma || (c->flags & HWS_CONTEXT_NO_SHARED_MEMORY) != 0;
}
/**
 * The UCX context for raw endpoints, made if needed, null on failure: it has UCX's own tags besides. Those are a third of
 * the kinds of messages that UCX has, and for each kind it asks the kernel about each network device, when a UCX worker
 * is made, when a connection starts or stops using TCP, and when the UCX worker ends.
 */
ucp_context_h hws__context_own(struct hws__context *c);
int32_t hws__context_close(hws_id id);
/**
 * Whether connections of an address family can be made. UCX's TCP interfaces have one family each,
 * and a connection of the other one overruns an address that was allocated too small: it must not
 * be tried. The context's configuration TCP_AF_PRIO=inet6,inet (UCX 1.14) chooses IPv6.
 */
bool hws__context_family(const struct hws__context *c, int family);
/** A worker will be opened: keeps the context `id` from ending meanwhile. 0, or the code. */
int32_t hws__context_enter(struct hws__context *c, hws_id id);
/**
 * Of a worker that is owned: keep its context until hws__context_let_go(), whatever closes meanwhile. False: it
 * closes.
 */
bool hws__context_hold(struct hws__context *c);
/** May end the context. */
void hws__context_let_go(struct hws__context *c);
/** It is open. False: the context was closed meanwhile, and the worker must not live. */
bool hws__context_worker_add(struct hws__context *c, hws_id worker);
/** A worker is gone (0: it never came); the last one of a closing context ends it. */
void hws__context_worker_gone(struct hws__context *c, hws_id worker);

#endif
