/*
 * Endpoints: connections to one peer, from dialling to CLOSED.
 */
#ifndef HWS_CORE_ENDPOINT_H
#define HWS_CORE_ENDPOINT_H

#include "bundle.h"
#include "credit.h"
#include "gap.h"
#include "rma_state.h"
#include "stream.h"
#include "upgrade.h"
#include "worker.h"
#include <netinet/in.h>

/** The steps of an endpoint. Each has a deadline; a step that fails or is late ends it. */
enum hws__phase {
    HWS__PHASE_RESOLVING, /* client: the name */
    HWS__PHASE_WAITING,   /* for a UCX worker of its own or the TCP one */
    HWS__PHASE_HELLO,     /* UCX connects, hellos are exchanged */
    HWS__PHASE_REQUEST,   /* server: the application decides */
    HWS__PHASE_OPEN,
    HWS__PHASE_FLUSHING, /* close: everything posted */
    HWS__PHASE_GOODBYE,  /* close: wait for the peer's answer */
    HWS__PHASE_FORCING,  /* UCX closes */
    HWS__PHASE_GONE
};

struct hws__listener;

struct hws__endpoint {
    struct hws__obj obj;
    struct hws__worker *worker;
    struct hws__uworker *uworker;
    ucp_ep_h ucx; /* null: none */
    enum hws__phase phase;
    uint32_t send_flags; /* UCP_AM_SEND_FLAG_REPLY if the peer's UCX worker is shared */
    bool open;           /* sends are possible */
    bool raw;
    bool lazy;        /* raw: open without an answer of the peer */
    bool starting;    /* its connect operation is being posted, and must not end meanwhile */
    bool peer_closed; /* the peer said goodbye */
    bool failed;
    bool told;                      /* DISCONNECTED was delivered, or must not be */
    bool closing;                   /* by the user */
    uint32_t told_round, told_turn; /* its last turn, and in which round, see take_turns() */
    bool tcp;                       /* dials without shared memory */
    bool redialled;                 /* on a new TCP worker */
    bool answered;                  /* a dial that failed was taken in */
    bool rejected;                  /* a dial by TCP was, once */
    bool server;
    bool welcomed;    /* server: its answer to the hello has left UCX */
    bool unannounced; /* server: open, but who listens has not heard of it: it is not welcomed */
    bool one_device;  /* server: dialled from a UCX context for TCP only */
    bool ucx_error;   /* UCX reported an error: the UCX endpoint is useless */
    bool in_attention;
    bool tcp_only; /* by option: never tries shared memory */
    bool refused;  /* by us, after the hello: waits for the peer to leave */
    bool silent;   /* the user never heard of it */
    bool failure_handled;
    bool acked;      /* the peer answered our goodbye */
    bool accepted;   /* the application said yes */
    bool by_address; /* server: the peer knows our address, there is no listener */
    int address_kind;
    uint64_t number;      /* of the dial, see pairing.h; server: of the peer's */
    uint64_t dialled;     /* client: UCX's number of the UCX worker that the address is of */
    bool awaits_turn;     /* it is in hws__worker.dials */
    void *worker_address; /* where to, see waddress.c; or the peer's offer, see upgrade.h */
    void *first_hello;    /* server: to go on with, see waddress.c */
    uint16_t dial_port;   /* this end's, of the dial */
    int cm_socket;        /* UCX's, on which it watches the connection; -1: not known */
    ucs_status_t ucx_status;
    char lanes[128];
    int32_t status;     /* why it failed */
    char text[128];     /* of the failure */
    const char *detail; /* the same for events, which may outlive the endpoint; or null */

    struct hws__traffic traffic;
    struct hws__scope scope;
    struct hws__scope multi_scope;
    struct hws__list multis;      /* multi-buffer messages with parts to be fetched */
    struct hws__list multi_early; /* parts whose list is still to come */
    uint32_t multi_early_count;
    uint64_t multi_sent, multi_received; /* numbers of the last ones */
    uint64_t multi_bytes_max;            /* what the peer takes */
    uint32_t multi_count_max;
    struct hws__list ops;
    struct hws__list rkeys;
    uint32_t op_count;

    uint32_t asked;             /* HWS__ASKED_*: taken off the object, and about to be done */
    struct hws__list link;      /* of the worker */
    struct hws__list wait_link; /* hws__worker.waiting or .dials */
    struct hws__list attention;
    struct hws__sink sink;
    struct hws__list notices; /* for DISCONNECTED and CLOSED */
    uint64_t close_timeout;
    uint64_t deadline;     /* of the phase; 0: none */
    uint64_t device_until; /* see late_device.h; 0: it never waited */
    uint32_t ucx_flushes;  /* of UCX, under way: the endpoint must stay */
    struct {
        struct hws__list link; /* hws__uworker.cuts */
        struct hws__uworker *uworker;
        ucp_ep_h ucx; /* to be closed, see late_cut.h; or null */
        int socket;   /* cm_socket of it */
        uint64_t until;
    } cut;
    uint32_t reason, transports;
    struct hws__upgrade upgrade;

    /* Client: where to. */
    struct hws__op *connect;
    struct hws__lookup *lookup; /* of its name, under way */
    struct sockaddr_storage *addresses;
    uint32_t address_count, address_next;
    struct sockaddr_storage local;
    socklen_t local_length;
    char host[256];
    uint16_t port;

    /* Server. */
    hws_id listener;
    ucp_conn_request_h request;
    struct sockaddr_storage peer;
    struct sockaddr_storage request_peer; /* of the connection request */

    uint64_t flush_sent, flush_acked; /* sequence numbers of flushes */
    uint64_t flush_messages;          /* messages sent when that flush was */

    struct hws__rma rma;
    struct hws__credit credit;
    struct hws__stream stream;
    struct hws__bundle bundle;
    struct hws__gap gap;

    /* Hello. */
    uint64_t peer_pid, peer_host;
    unsigned char nonce[32], peer_nonce[32];
    bool hello_seen;
    bool hello_done; /* the peer proved itself: its messages count */
};

/** How long a close flushes when no time was given. */
#define HWS__CLOSE_NS UINT64_C(5000000000)

struct hws__endpoint *hws__endpoint_new(struct hws__worker *w);
struct hws__endpoint *hws__endpoint_find(hws_id id, int32_t *error);
/** The endpoint wants to be looked at after the sweep. Owner only, also inside UCX callbacks. */
void hws__endpoint_attend(struct hws__endpoint *ep);
/** Closed by the user, or about to be: what still arrives is dropped. Owner only. */
static inline bool hws__endpoint_left(const struct hws__endpoint *ep)
{
    uint64_t asked = ep->asked | atomic_load_explicit(&ep->obj.asked, memory_order_relaxed);

    return ep->closing || (asked & (HWS__ASKED_CLOSE | HWS__ASKED_ABORT)) != 0;
}

/** Server: no event has named it to the user, so none may speak of its end. Owner only. */
static inline bool hws__endpoint_unheard(const struct hws__endpoint *ep)
{
    return ep->server && !ep->accepted && ep->phase != HWS__PHASE_REQUEST &&
           (ep->phase < HWS__PHASE_OPEN || ep->unannounced);
}

/** Go on with whatever is due: errors, phases, closing. Owner only, outside UCX callbacks. */
void hws__endpoint_step(struct hws__endpoint *ep);
/** Note a failure; the rest happens in hws__endpoint_step(). Owner only. */
void hws__endpoint_fail(struct hws__endpoint *ep, int32_t status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** The same for what UCX has reported: ucx_status. */
void hws__endpoint_gone(struct hws__endpoint *ep);
/** There was no memory for a message: it fails, and none of those behind counts, for they would stand in its place. */
void hws__endpoint_lost(struct hws__endpoint *ep, const char *what);
void hws__endpoint_close(struct hws__endpoint *ep);
void hws__endpoint_deadline(struct hws__endpoint *ep, uint64_t timeout_ns);

int32_t hws__endpoint_close_id(hws_id id);
/** Close and abort what other threads asked for. Owner only. */
void hws__endpoints_asked(struct hws__worker *w);
/** Free one that nothing refers to. */
void hws__endpoint_forget(struct hws__endpoint *ep);
/** Let go of UCX: close by force; an isolated UCX worker goes with it. */
void hws__endpoint_detach(struct hws__endpoint *ep);
void hws__endpoint_addresses(struct hws__endpoint *ep);

/** A UCX worker was found for an endpoint that waits (or not: null). */
void hws__endpoint_uworker(struct hws__endpoint *ep, struct hws__uworker *u);
/** UCX's endpoint exists: register it. */
bool hws__endpoint_attach(struct hws__endpoint *ep, struct hws__uworker *u, ucp_ep_h ucx);
void hws__endpoint_error_cb(void *arg, ucp_ep_h ucx, ucs_status_t status);
/** Everything is exchanged: the endpoint can be used. */
void hws__endpoint_opened(struct hws__endpoint *ep);
/** Data would go by TCP though the user has left it out. A worker address has no other transport. */
bool hws__endpoint_unwanted(const struct hws__endpoint *ep);
void hws__endpoint_fail_unwanted(struct hws__endpoint *ep);
/** Reads the lanes; false (and failed) if shared memory reached a shared UCX worker. */
bool hws__endpoint_lanes(struct hws__endpoint *ep);
/**
 * Have UCX flush: HWS_DONE, or HWS_OK and `then` is called by the worker's owner, also when the UCX
 * worker was destroyed meanwhile; else a code.
 */
int32_t hws__endpoint_ucx_flush(struct hws__endpoint *ep,
                                void (*then)(struct hws__endpoint *, ucs_status_t));
/** End the flushes of a destroyed UCX worker. Owner only. */
void hws__endpoint_flush_orphans(struct hws__uworker *u);
/** Sends posted before `sequence` that UCX still holds. */
bool hws__flush_sends(const struct hws__endpoint *ep, uint64_t sequence);
/** End all operations that have not reached UCX. */
void hws__endpoint_end_matching(struct hws__endpoint *ep, int32_t status);

/** Open a raw endpoint when UCX has connected it. Owner only. */
void hws__raw_start(struct hws__endpoint *ep);
/** Its peer, which is further, has sent something. Owner only. */
void hws__raw_heard(struct hws__endpoint *ep);
/** Server: its answer to the hello has left UCX. Owner only, also inside UCX callbacks. */
void hws__endpoint_welcomed(struct hws__endpoint *ep);
/** Server: the peer speaks, so the answer has come to it. Owner only, also inside UCX callbacks. */
static inline void hws__endpoint_heard(struct hws__endpoint *ep)
{
    if (ep->unannounced) {
        hws__endpoint_welcomed(ep);
    }
}
/** A connect that was submitted did not run, or failed: its endpoint never was. Owner only. */
void hws__connect_refused(struct hws__post *p);

/**
 * Close an endpoint of UCX (null: none) by force; the UCX worker may leave with it. `cm_socket` as in hws__endpoint.
 */
void hws__uworker_cut(struct hws__uworker *u, ucp_ep_h ucx, int cm_socket);

/** Messages handed to UCX. */
static inline uint64_t hws__endpoint_sent(const struct hws__endpoint *ep)
{
    return hws__traffic_messages(&ep->traffic) + ep->rma.messages;
}

/** Whether posting on it is possible: 0 or the code. */
static inline int32_t hws__endpoint_check(const struct hws__endpoint *ep)
{
    return ep->open          ? HWS_OK
           : ep->closing     ? HWS_E_CLOSING
           : ep->failed      ? ep->status
           : ep->peer_closed ? HWS_E_PEER_CLOSED
                             : HWS_E_NOT_CONNECTED;
}

/** Posting on it is not possible: the code, with the endpoint's own words as the last error. */
int32_t hws__endpoint_refuse(const struct hws__endpoint *ep, hws_id source);
#endif
