/*
 * Workers: progress domains. See progress.h for who may touch what.
 */
#ifndef HWS_CORE_WORKER_H
#define HWS_CORE_WORKER_H

#include "bundle.h"
#include "context.h"
#include "match.h"
#include "message.h"
#include "op.h"
#include "pool.h"
#include "sink.h"
#include "stats.h"
#include "uworker.h"

#define HWS__SPIN_NS 50000u
/* Cores that turn.h tells apart. */
#define HWS__TURNS 32u

/** The handler of an active-message id. */
struct hws__am_handler {
    struct hws__sink sink;
    uint32_t flags;
    uint32_t memory_kind;
    bool plain; /* eager messages go to a callback that keeps nothing of them */
    hws_alloc_fn alloc;
    hws_free_fn free;
    void *alloc_arg;
};

#define HWS__NOTICE_INLINE 512

/** An event on its way to a callback. */
struct hws__notice {
    struct hws__list link; /* in hws__worker.ready */
    hws_event event;
    hws_event_fn callback;
    void *callback_arg;
    struct hws__message *message; /* to release afterwards */
    bool counted;                 /* against the sender's window, until it is told of */
    /* A small active message for a callback needs no message of its own. */
    hws_am_detail detail;
    _Alignas(16) unsigned char inlined[HWS__NOTICE_INLINE]; /* its header, then its data */
};

#define HWS__CODES 128u /* error codes are -1 to -127 */

/** Statistics of a worker. Written by the owner only, read by anybody. */
struct hws__counters {
    _Atomic uint64_t endpoints, isolated, isolated_total, fallbacks, redials, lane_violations;
    _Atomic uint64_t ops_inline, ops_posted, ops_submitted, ops_ended, events, wakeups;
    _Atomic uint64_t safety_wakeups, signals, unexpected, unexpected_bytes, queue_overflows,
        am_dropped, failures, credit_waits;
    _Atomic uint64_t op_failures[HWS__CODES], endpoint_failures[HWS__CODES];
};

/** Count. ORDER: relaxed; a single writer needs no atomic addition. */
#define HWS__COUNT(w, name, n)                                                           \
    atomic_store_explicit(&(w)->count.name,                                              \
                          atomic_load_explicit(&(w)->count.name, memory_order_relaxed) + \
                              (uint64_t)(n),                                             \
                          memory_order_relaxed)

/** The thread that owns a worker without a locked instruction, see own.h. */
struct hws__favour {
    _Atomic uintptr_t thread; /* 0: nobody */
    _Atomic uint32_t inside;  /* it is, or may be, the owner */
    /* The owner's: */
    uint32_t streak,
        needed; /* how often `last` came without a competitor, and must to be favoured */
    uintptr_t last, only;
};

struct hws__worker {
    struct hws__obj obj;

    /* What other threads look at; ownership itself is in `obj`. Those before `signalled` outlive the worker:
     * who still is inside when it ends, and its memory becomes another's, counts itself out. */
    struct hws__favour favour;
    _Atomic uint32_t waiters;  /* threads inside a wait */
    _Atomic uint32_t sleepers; /* threads in epoll_wait: a change must signal them */
    uint32_t dozing;           /* 1: the owner is one of them already, but still looks for work */
    _Atomic uint32_t waking;   /* threads inside hws__wake(), or about to be */
    _Atomic bool wakeable;     /* wakefd is there */
    _Atomic bool armed;        /* the host polls epfd */
    _Atomic(struct hws__op *) submissions;
    _Atomic(struct hws__op *) returned; /* operations given back by other threads */
    /* All bits: times are taken, and no posting is plain or quick. Looked at before the worker is owned. */
    _Atomic uint32_t timed;
    /* The background thread looks after bundles; it has the worker, or is about to. See bundle.h. */
    _Atomic bool watched, visited;
    _Atomic uint32_t signalled;
    _Atomic uint32_t activity; /* grows while somebody makes progress */

    _Alignas(64) struct hws__list hot;
    uint32_t tick;    /* sweeps until the slow checks */
    uint64_t slow_at; /* when they were made last */
    uint32_t worked;  /* not 0: sweeps found work since the counters were published */
    /* How long callbacks take: the number of calls at which the clock is looked at next, and when it was. */
    uint64_t calls_next, called_at;
    bool calls_slow;
    uint32_t told_round; /* see take_turns() */
    hws_id taking;       /* the operation whose end the owner waits for and takes itself */
    bool submitting;     /* submissions are being run */
    struct hws__bundles bundles;
    bool todo;     /* something waits for the end of the sweep */
    bool sweeping; /* the owner is inside UCX's progress, see hws__call_now() */
    struct hws__op *free_ops;
    struct hws__list ready_ops; /* operations whose callback is due */
    struct hws__list ready;     /* notices whose callback is due */
    struct hws__list free_notices;
    uint32_t free_notices_count;
    struct hws__list ops; /* operations without an endpoint */
    struct hws__list free_messages[2];
    struct hws__list am_pending; /* messages that need memory or fetching, by order_worker */
    struct hws__list dropped;    /* messages to release after the sweep, by order_worker */
    struct hws__list kept;       /* messages and buffers that the user holds */
    struct hws__pool pool;       /* memory for what arrives */
    struct hws__scope scope;
    struct hws__scope multi_scope;  /* of multi-buffer messages */
    struct hws__list multi_pending; /* messages to go on with after the sweep, by order_worker */
    struct hws__list free_multis;
    void *multi_scratch; /* for a list on its way into UCX */
    uint64_t multi_scratch_room;
    void *reserve; /* memory for UCX to close a connection with, see reserve.h */
    uint64_t multi_bytes_max;
    uint32_t multi_count_max;
    uint32_t credit_messages; /* see credit.h; 0: no limit */
    uint64_t credit_bytes;
    uint32_t credit_blocked; /* peers with sends that wait for credit, each sort counted */
    uint64_t sequence;
    uint32_t
        watching; /* who looks at every end: flushes that wait, operations whose time is taken */
    struct hws__list flushing;
    struct hws__list copying; /* long copies of direct access, by match */
    uint32_t raw_count;       /* raw endpoints */
    uint32_t gated;           /* UCX workers with a gate, see gate.h; */
    uint64_t gates_due;       /* when descriptors are counted for it next */
    uint32_t dead_count;      /* isolated UCX workers whose connection is over */
    uint64_t drain_due;       /* with dead_count: when one of them is to be looked at next */
    uint32_t late_cuts;       /* UCX endpoints still to be closed, see late_cut.h */
    uint32_t deaf_count;      /* UCX workers that nothing may wake */
    uint32_t pending_ucx;     /* operations that UCX holds */

    struct hws__op **heap;
    uint32_t heap_size, heap_room;
    uint64_t next_deadline;
    uint64_t cold_checked; /* when, see check_cold() */
    uint64_t lost_due;     /* when hws__lost_check() looks; UINT64_MAX: nothing was sent */

    struct hws__context *context;
    struct hws__uworker *main, *tcp;   /* null once the worker is closed */
    struct hws__uworker *addressed[4]; /* for peers that connect by address, see waddress.h */
    struct hws__scope address_scope;   /* receives and messages of those without a hello */
    uint64_t max_header;
    bool tcp_coming;
    struct hws__list uworkers;
    struct hws__list spares;
    uint32_t spares_coming, spares_wanted, full_coming;
    uint64_t unused_since; /* the last endpoint or listener left, see idle.c */
    bool idle_look;        /* somebody will look whether it still is */
    struct hws__list endpoints;
    struct hws__list listeners;
    struct hws__list looks;   /* for silent connections, see strangers.c */
    struct hws__list waiting; /* endpoints that wait for an isolated or a TCP worker */
    struct hws__list dials; /* that wait for an earlier dial of the same address, see waddress.h */
    struct hws__list attention; /* endpoints with something to do after the sweep */
    struct hws__am_handler *handlers[HWS_AM_ID_MAX + 1];
    struct hws__sink sink;
    _Atomic int epfd; /* asked for by who does not own it */
    int wakefd, timerfd;
    uint64_t timer_at; /* when the timer ends, 0: never */
    uint32_t mode;
    uint64_t spin_ns;
    char name[64];
    uint64_t closing_since; /* hws__now() */
    _Atomic bool closing;   /* the owner writes; other threads then hand nothing more over */
    _Atomic bool asked;     /* see hws__obj.asked */
    _Atomic uint32_t pokes; /* calls of hws_worker_signal() */
    _Atomic uint32_t baton; /* futex: waiters that are not the owner sleep on it */
    _Atomic uint32_t baton_sleepers;
    _Atomic uintptr_t turns[HWS__TURNS]; /* the last waiter on each core, see turn.h */
    _Atomic uint32_t jobs;               /* background jobs that will come back */

    pthread_t thread;
    bool thread_running; /* or about to: the thread ends the worker, see hws__worker_ended() */
    hws_id thread_of;    /* the worker's id, also when it is gone already */
    _Atomic uint32_t thread_parked; /* futex: the progress thread leaves the work to others */
    void (*thread_start)(void *);
    void *thread_start_arg;
    uint64_t *cpu_mask;
    uint32_t cpu_words;

    struct hws__counters count;
    struct hws__traffic gone[HWS__VIAS]; /* of endpoints that are no more */
    struct hws__stats_words published;   /* see stats.h */
    uint64_t published_posts;            /* operations posted by then */
    struct hws__stats_page *page;        /* for other processes; null: there is none */
    int page_fd;
    struct hws__latency *latency; /* histograms, in the page; null: not asked for */
};

struct hws__worker *hws__worker_find(hws_id id, int32_t *error);
int32_t hws__worker_close(hws_id id);
/** Do what other threads asked for by hws__ask(). Owner only. */
void hws__worker_asked(struct hws__worker *w);
/** Go on with closing. Owner only; true once the worker is gone. */
bool hws__worker_step(struct hws__worker *w);
/** Free what opening made, when it fails or closing ends. Owner only. */
void hws__worker_free_parts(struct hws__worker *w);
/** Free what a closed worker leaves, under ownership: the last step. */
void hws__worker_ended(struct hws__worker *w, hws_id id);
/** The progress thread (thread.c). */
int32_t hws__thread_start(struct hws__worker *w, hws_id id);

#endif
