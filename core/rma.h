/*
 * Remote memory access. Each key takes one of three ways, chosen when it is unpacked:
 *
 *   direct    the memory is mapped into this process: a copy, or an instruction of the CPU
 *   messages  Hawser's own active messages, checked and executed by the peer (rma_wire.h)
 *   UCX       its own operations: RDMA, and raw endpoints
 *
 * UCX would make messages of it too. It then obeys any peer without looking at the memory that was
 * registered; newer versions do so only in their new protocol layer, and have no atomics under peer
 * error handling there.
 */
#ifndef HWS_CORE_RMA_H
#define HWS_CORE_RMA_H

#include "post.h"
#include "rkey.h"
#include "rma_wire.h"

/** A message to send, whole or in pieces, in its turn. */
struct hws__rma_job {
    struct hws__list link;       /* hws__rma.jobs or .answers */
    struct hws__list of_uworker; /* of an answer that UCX holds */
    struct hws__endpoint *ep;    /* null: cut, only UCX still holds it */
    struct hws__op *op;          /* null: an answer */
    struct hws__uworker *uworker;
    struct hws__memory *memory; /* an answer: what the data is read from */
    const hws_iov *pieces;      /* the data: entries, the one in turn and how far in it */
    uint64_t index, offset;
    hws_iov one;
    uint64_t length, sent, piece; /* bytes in all, sent, and with UCX */
    uint32_t memory_kind;
    bool in_call;  /* of UCX: its callback only notes the status */
    bool early;    /* that came */
    bool answered; /* before UCX gave the question back */
    ucs_status_t early_status;
    struct hws__rma_msg msg, wire; /* `wire` is what UCX holds */
};

/* ---- all ways ---- */

/** Set up a posting on a key and an address at the peer; false: `*error` is that of the key's id. */
bool hws__rma_init(struct hws__post *p, int32_t (*run)(struct hws__post *), uint32_t kind,
                   hws_id rkey, uint64_t address, const void *buffer, uint64_t length,
                   int32_t *error);
/** The key of a posting, under ownership: usable, with the feature and in bounds; or the error. */
struct hws__rkey *hws__rma_key(const struct hws__post *p, uint64_t feature, uint64_t length,
                               int32_t *error);
/** Whether an operation may be done at once: the memory is here, and no fence is in between. */
bool hws__rma_direct(const struct hws__rkey *k, uint32_t memory_kind);
/* ---- direct (rma_copy.c) ---- */

/** Put or get all bytes of a posting at once. */
void hws__rma_copy(const struct hws__post *p, const struct hws__rkey *k, uint64_t bytes);

/** More than this is not copied at once. */
#define HWS__RMA_AT_ONCE (4u << 20)
/** hws__op.mask of an operation that waits for an answer of the peer's; for others it is the remote address. */
#define HWS__RMA_ASKED UINT64_MAX

/** Copy in pieces, from now on: 0 or an error. */
int32_t hws__rma_copy_long(struct hws__post *p, struct hws__rkey *k, uint64_t bytes);
/** The operation ends, done or not. */
void hws__rma_copy_forget(struct hws__op *op);
/** The next piece of one that is under way. How much was done. */
int hws__rma_copy_step(struct hws__worker *w);
/** All of those of an endpoint, at once. */
void hws__rma_copy_now(struct hws__endpoint *ep);

/** The peer answered a flush. */
void hws__rma_acked(struct hws__endpoint *ep);
/** The operations posted from now on must not overtake those before. Owner only. */
void hws__rma_fence(struct hws__endpoint *ep);

/* ---- messages (rma_job.c) ---- */

/**
 * Make an operation a message: a job in the operation itself, with the key's names filled in.
 * Null: no operation is free.
 */
struct hws__rma_job *hws__rma_job_of(struct hws__post *p, const struct hws__rkey *k,
                                     enum hws__rma_type type);
/** Queue it and send what can be sent: HWS_DONE, 0, or an error. */
int32_t hws__rma_job_post(struct hws__post *p, struct hws__rma_job *job);
/** An answer, to be filled and queued. Null: the endpoint has failed. */
struct hws__rma_job *hws__rma_answer(struct hws__endpoint *ep, const struct hws__rma_msg *to,
                                     enum hws__rma_type type);
void hws__rma_answer_queue(struct hws__rma_job *job);
/** The last piece of an answer has come. */
void hws__rma_answer_came(struct hws__endpoint *ep);
/** Something is to be sent. */
bool hws__rma_waits(const struct hws__endpoint *ep);
/** Send on. Owner only, outside UCX's callbacks. */
void hws__rma_push(struct hws__endpoint *ep);
/** The operation ends: its job goes. */
void hws__rma_forget(struct hws__op *op);
/** The endpoint is cut: end everything with `status`. */
void hws__rma_end(struct hws__endpoint *ep, int32_t status);
/** The UCX worker is gone, with the answers that it held. */
void hws__rma_orphans(struct hws__uworker *u);

/* ---- the peer's side (rma_peer.c) ---- */

/** UCX's handler of HWS__AM_RMA. */
ucs_status_t hws__rma_cb(void *arg, const void *header, size_t header_length, void *data,
                         size_t length, const ucp_am_recv_param_t *param);
/** What an atomic action does to a number of this process. Returns the old value. */
uint64_t hws__atomic_do(void *at, uint32_t action, uint32_t size, uint64_t value, uint64_t compare);

/* ---- UCX (rma_ucx.c) ---- */

int32_t hws__rma_ucx_put(struct hws__post *p, struct hws__rkey *k);
int32_t hws__rma_ucx_get(struct hws__post *p, struct hws__rkey *k);
int32_t hws__rma_ucx_atomic(struct hws__post *p, struct hws__rkey *k);
/** UCX's callback of an operation on a key: op->rkey. */
void hws__rma_done(void *request, ucs_status_t status, void *user_data);
/** What UCX returned for an operation on a key: hws__op_posted() with the key's use counted. */
int32_t hws__rma_posted(struct hws__post *p, struct hws__op *op, struct hws__rkey *k,
                        ucs_status_ptr_t ptr);
/** Part of a flush: true if what UCX was given is complete at the peer; false: look again. */
bool hws__rma_flushed(struct hws__endpoint *ep);

#endif
