/*
 * Operations: from posting to the one final event.
 *
 * An operation lives in a slot of a process-wide table that is never freed, so its pointer may
 * always be read; its id tells whether it still is the same. Free operations are kept by the worker
 * that used them last (taken and given back under its ownership), those of other threads come from
 * and return to a pool with a lock.
 */
#ifndef HWS_CORE_OP_H
#define HWS_CORE_OP_H

#include "error.h"
#include "list.h"
#include <hawser.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define HWS__OP_SLOT_BITS 20
#define HWS__OP_GENERATION_BITS 29
#define HWS__OP_IOV 16
/* The HWS_OP_* flags of a plain posting; the pieces of HWS_OP_IOV are looked at first. */
#define HWS__OP_FLAGS (255u & ~(uint32_t)HWS_OP_IOV)
#define HWS__OP_HEADER 264

struct hws__worker;
struct hws__endpoint;
struct hws__queue;
struct hws__rkey;
struct hws__rma_job;
struct hws__post;
struct hws__scope;
struct hws__uworker;

/** Where an operation is. */
enum hws__stage {
    HWS__STAGE_FREE,
    HWS__STAGE_SUBMITTED, /* waits for the owner of the worker */
    HWS__STAGE_MATCHING,  /* a receive that no message has met: can be ended at any time */
    HWS__STAGE_READING,   /* a receive of a stream that waits for bytes, see stream.h: the same */
    HWS__STAGE_CREDIT,    /* a send that waits for credit, see credit.h */
    HWS__STAGE_STREAM,    /* a send that waits for a stream of CUDA, see cuda_wait.c */
    HWS__STAGE_UCX,       /* UCX holds the buffer */
    HWS__STAGE_COMING,    /* a receive whose message another one still fetches, see undo.h */
    HWS__STAGE_OWN,       /* a step of Hawser's own: connecting, a task */
    HWS__STAGE_ENDED
};

/* Values of hws__op.done, a futex word. */
#define HWS__PENDING 0
#define HWS__ENDED 1
#define HWS__SLEPT_ON 2

struct hws__op {
    /* What every operation uses comes first, in four cache lines. */
    _Alignas(64) _Atomic uint64_t id; /* 0 while free */
    /* A canceller reads it before it knows that the operation is still the one it means. */
    _Atomic(struct hws__worker *) worker;
    struct hws__endpoint *ep; /* null: of the worker */
    void *buffer;
    uint64_t length;
    uint64_t tag; /* also the header of a tagged message: must stay until UCX is done */
    uint64_t mask;
    uint8_t kind; /* HWS_EVENT_* */
    uint8_t stage;
    bool pooled;    /* came from the pool: returns there */
    int32_t wanted; /* the code to end with if it is ended early: asked for by cancel or deadline */

    struct hws__list match; /* posted receives, or the list of events to deliver */
    struct hws__list link;  /* operations of the endpoint or worker */
    _Atomic uint32_t flags; /* HWS_OP_*; a close may detach it while others wait */
    uint32_t memory_kind;
    struct hws__scope *scope; /* where a receive is posted */
    uint64_t sequence;        /* of posting: the first posted receive wins */
    union {
        uint64_t credit_bytes; /* of a send that waits for credit */
        hws_id credit_asked;   /* of a receive: the endpoint that was told to send, or 0 */
    };

    hws_event_fn callback;
    void *callback_arg;
    struct hws__queue *queue;
    uint64_t user;
    hws_id source;
    int32_t status;
    uint32_t event_flags;
    uint32_t heap; /* index in the worker's heap of deadlines + 1, 0: none */
    _Atomic uint32_t done;
    uint32_t slot, generation;

    uint64_t done_length;
    uint64_t done_tag;
    const char *detail;
    /* What the event's detail is on success, and after HWS_E_CUDA. It may be gone with the worker before the
     * operation is claimed; `tag` is the id of the buffer then. */
    const void *record;
    struct hws__message *multi; /* of a multi-buffer receive that waits for parts, or see undo.h */
    void *ucx;                  /* the UCX request */
    void *extra;                /* memory to free at the end (long headers, long iov) */
    struct hws__op *next;       /* free list, submissions */

    hws_id queue_id;              /* if there is a queue */
    struct hws__rkey *rkey;       /* remote memory access: the key, if UCX uses it */
    struct hws__rma_job *job;     /* remote memory access: its messages that wait, or null */
    struct hws__uworker *uworker; /* that holds it */
    hws_id from;                  /* while held: whose message is fetched, if `ep` is null; or 0 */
    uint64_t deadline;
    void (*command)(struct hws__worker *, void *); /* a submission that is a command */
    hws_task_fn task_fn;
    uint64_t period;

    hws_iov iov[HWS__OP_IOV];
    union {
        char header[HWS__OP_HEADER];
        uint64_t rma[48]; /* a struct hws__rma_job, or what an atomic of UCX's needs */
    };
    uint64_t submitted[32]; /* a submission, see post.h */

    /* Only of an operation whose time is taken, see latency.h. */
    int32_t (*run)(struct hws__post *);
    uint64_t posted_at;
    uint64_t started_at; /* 0: no time is taken */
    hws_timing *timing;

    /* Only of a send that waits for a stream of CUDA. */
    int32_t (*after_stream)(struct hws__post *);
    void *stream;
    void *cuda; /* the poster's CUDA context */
};

/**
 * A posting on its way: what the caller gave, and the function that does it under ownership.
 * `run` returns HWS_DONE with `done_length` and `done_tag` set, 0 with `op` taken and pending, or a
 * negative code with nothing changed.
 */
struct hws__post {
    int32_t (*run)(struct hws__post *p);
    struct hws__worker *worker;
    struct hws__endpoint *ep;
    hws_id source;
    void *buffer;
    uint64_t length;
    uint64_t tag;
    uint64_t mask; /* or the length of the header, or the address at the peer */
    const void *header;
    uint64_t keep;            /* bytes of `header` that a submission copies, but for AM_SEND */
    const hws_op_opts *opts;  /* never null inside run */
    struct hws__op *op;       /* taken, or null */
    struct hws__queue *queue; /* a place is reserved in it, or null */
    uint64_t done_length;
    uint64_t done_tag;
    uint32_t kind;
    uint32_t done_flags;
    int32_t done_status; /* HWS_DONE with this status: truncated */
    uint32_t am_id;
    const void *done_record;
    hws_id rkey;      /* remote memory access: the key */
    uint64_t operand; /* of an atomic */
};

/** An operation for a pending posting: p->op, or a free one; initialised, with an id. */
struct hws__op *hws__op_take(struct hws__post *p);
/** The same of the short way of quick.h: without a queue, and one is free. */
struct hws__op *hws__op_take_free(struct hws__endpoint *ep, const hws_op_opts *opts, uint32_t kind);
/**
 * The operation that hws__op_take() will return next, for calls of UCX that need its address before
 * it is known whether they complete at once. Null: no memory.
 */
struct hws__op *hws__op_peek(struct hws__post *p);
/**
 * Keep the one of the posting from others that are posted before it is taken: hws__op_unreserve() makes it the next
 * again, in any case. False: no memory.
 */
bool hws__op_reserve(struct hws__post *p, struct hws__op **reserved);
void hws__op_unreserve(struct hws__post *p, struct hws__op *reserved);
/** An operation of the pool, for submissions and commands. Any thread. */
struct hws__op *hws__op_pool_take(void);
/**
 * Claim the result of an ended operation that nobody is told of: true for one of all who try. The
 * id is stale then, and the operation the caller's until hws__op_release(). Any thread.
 */
static inline bool hws__op_claim(struct hws__op *op, hws_id id)
{
    return atomic_compare_exchange_strong_explicit(&op->id, &id, 0, memory_order_acq_rel,
                                                   memory_order_relaxed);
}
/** Give an operation back; its id is stale at once. Owner, or any thread for pooled ones. */
void hws__op_release(struct hws__op *op);
/** Give back from a thread that does not own the worker. */
void hws__op_release_any(struct hws__op *op);
/** Whether the pool had none for the last who asked: workers give back what they keep. */
bool hws__op_short(void);
/** Give the worker's free operations back to the pool. Owner only. */
void hws__op_drain(struct hws__worker *w);
/** Set what the final event needs, and the id: for operations that do not go through a posting. */
void hws__op_prepare(struct hws__op *op, const struct hws__post *p);
/** The operation named by `id`, or null. */
struct hws__op *hws__op_find(hws_id id);
/**
 * The same under ownership of `w`, if it is w's and its end is not known to others: only then does it stay
 * what it is, since whoever sees the end may claim the operation and give it back.
 */
struct hws__op *hws__op_find_open(const struct hws__worker *w, hws_id id);
int32_t hws__op_id_error(hws_id id);
/** Give out so many slots at most, a multiple of 256: for tests of what happens without one. */
void hws__op_limit(uint32_t slots);

/** End an operation: the one place where final events are made. Owner only. */
void hws__op_finish(struct hws__op *op, int32_t status);
/**
 * The same as the last thing that a callback of UCX does: who posted it with a callback is told at once,
 * where that may be.
 */
void hws__op_finish_now(struct hws__op *op, int32_t status);
/** Call the callback of one that ended, and give it back. Owner only. */
void hws__op_tell(struct hws__op *op);
/** Whether the result of an ended operation brings an object: a buffer, or the message itself. */
static inline bool hws__op_carries(const struct hws__op *op)
{
    return (op->record != NULL ||
            ((op->flags & HWS_OP_TAKE) != 0 && op->kind == HWS_EVENT_TAG_RECV)) &&
           op->status >= 0;
}

/** Nobody will see the result of an ended operation: give back what it holds. Owner only. */
void hws__op_unclaimed(struct hws__op *op);
/** Take it out of the match and deadline structures; part of hws__op_finish(). */
void hws__op_unlink(struct hws__op *op);
/** Leave and rejoin the lists of endpoint or worker, between two stages. */
void hws__op_leave(struct hws__op *op);
void hws__op_rejoin(struct hws__op *op);
void hws__op_event(const struct hws__op *op, hws_event *event);

/** Arm the deadline that the options ask for. Owner only. */
int32_t hws__op_deadline(struct hws__op *op, uint64_t timeout_ns);
/** A task's time has come. Owner only. */
void hws__task_due(struct hws__op *op, uint64_t now);
/** Flushes that waited for earlier sends. Owner only. */
void hws__flush_step(struct hws__worker *w);
/** End what is overdue; the next deadline, UINT64_MAX if none. */
uint64_t hws__op_expire(struct hws__worker *w, uint64_t now);

/** What an operation that UCX ended with an error ends with: what asked for it, or the endpoint's failure. */
int32_t hws__op_cause(const struct hws__op *op, int32_t code);
/** The same of one that UCX holds: a receive of the worker has no endpoint, but its message came by one. */
int32_t hws__op_held_cause(const struct hws__op *op, int32_t code);
/** What an error of UCX's on an endpoint (null: none) means: its failure, or the peer's goodbye. */
int32_t hws__endpoint_cause(const struct hws__endpoint *ep, int32_t code);
/** UCX's send and receive callbacks end here. */
void hws__op_ucx_done(void *request, ucs_status_t status, void *user_data);

/** Copy a short array of pieces into the operation. */
void *hws__op_keep_iov(const struct hws__post *p, struct hws__op *op);
/** UCX works with its buffer on `u` from here on; `request` is null if it does in several. Owner only. */
void hws__op_hold(struct hws__op *op, struct hws__uworker *u, void *request);
/** UCX has given it back. Owner only. */
void hws__op_unhold(struct hws__op *op);
/** UCX returned a request or an error. */
int32_t hws__op_pending(struct hws__post *p, struct hws__op *op, struct hws__uworker *u,
                        ucs_status_ptr_t ptr);
/** End the operations that a destroyed UCX worker held: nothing touches their buffers any more. */
void hws__op_orphans(struct hws__worker *w, const struct hws__uworker *u);

/** Bytes of a buffer or of all its pieces. */
static inline uint64_t hws__bytes(const void *buffer, uint64_t length, uint32_t flags)
{
    const hws_iov *v = buffer;
    uint64_t sum = 0;

    if (__builtin_expect((flags & HWS_OP_IOV) == 0, 1)) {
        return length;
    }
    for (uint64_t i = 0; i < length; i++) {
        sum += v[i].length;
    }
    return sum;
}
void hws__scatter_iov(const hws_iov *v, uint64_t count, const void *data, uint64_t length);
/** Copy contiguous data into a buffer or its pieces; at most `length` bytes. */
static inline void hws__scatter(void *buffer, uint64_t count, uint32_t flags, const void *data,
                                uint64_t length)
{
    if (__builtin_expect((flags & HWS_OP_IOV) != 0, 0)) {
        hws__scatter_iov(buffer, count, data, length);
    } else if (length == sizeof(uint64_t)) {
        memcpy(buffer, data, sizeof(uint64_t)); /* spares the smallest messages a call */
    } else if (length != 0) {
        memcpy(buffer, data, length);
    }
}

#endif
