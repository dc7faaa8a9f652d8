/*
 * Hawser: fast, safe messaging between processes over UCX, behind one flat C ABI.
 *
 * This header is the manual. It reads from simple to advanced:
 *
 *   1. Version            6. Worker and progress     11. Streams
 *   2. Types              7. Listener                12. Active messages
 *   3. Errors             8. Endpoint                13. Buffers
 *   4. Library and log    9. Operations and queues   14. Information and statistics
 *   5. Context           10. Tagged messages         15. Multi-buffer messages
 *                                                    16. Memory and remote keys
 *                                                    17. Remote memory access
 *                                                    18. Worker addresses
 *                                                    19. Plans
 *
 * SHAPE. A context holds one UCX instance and its configuration. A worker is a progress domain. A
 * listener or an endpoint lives on a worker. Everything is named by an id and closed by
 * hws_close(). An operation that is posted ends in exactly one final event.
 *
 * DIALECT. Fixed-width types only; no inline functions, enums, bit-fields, varargs or structures by
 * value; every option structure starts with `struct_size` and is all zero by default.
 *
 * RESULTS. Functions return int32_t: 0 or positive is success, negative a code HWS_E_*. After a
 * negative result hws_last_error() gives the details, on the thread that made the call. Each function
 * names the codes that say something of it alone. Not named again are HWS_E_INVALID (a null pointer, an
 * unknown flag, a number out of range), HWS_E_NEWER (an option of a later version), what a process may
 * lack (HWS_E_NO_MEMORY, HWS_E_NO_RESOURCE, HWS_E_TOO_MANY), HWS_E_CLOSING (what the id names, or what
 * it is part of, is being closed) and "the id's error": HWS_E_BAD_ID (it never named anything),
 * HWS_E_STALE (that is gone), HWS_E_KIND (that is of another kind), HWS_E_FORKED.
 *
 * TAGS. `@thread any`: callable from every thread at any time, also inside a callback.
 * `@thread outside`: not inside a callback (HWS_E_DEADLOCK). `@blocks no`: returns at once. What blocks
 * while another thread progresses the worker gives HWS_E_DEADLOCK in a callback of another worker, if that
 * thread is in a callback, too, and waits for this one in the same way: one of the two gets it.
 * `@owns`: who owns the memory that is passed. `@ucx`: the UCX call that it stands on.
 *
 * FORK. Once anything was opened, a forked child gets HWS_E_FORKED from every call about it; nothing of the parent is
 * touched. UCX may have been loaded and asked for its version before.
 *
 * EXIT. A process may exit() at any time, with everything open and from every thread. Handlers of atexit()
 * may still close; when the library's threads have been stopped, calls give HWS_E_CLOSING.
 */
#ifndef HAWSER_H
#define HAWSER_H

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#if defined(HWS_BUILD)
#define HWS_API __attribute__((visibility("default")))
#else
#define HWS_API
#endif

/* ------------------------------------------------------------------------------------------------
 * 1. Version
 */

#define HWS_VERSION_MAJOR 0
#define HWS_VERSION_MINOR 1
#define HWS_VERSION_PATCH 0
#define HWS_ABI_VERSION 1

/**
 * The version of the running library.
 * @return major << 16 | minor << 8 | patch
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
HWS_API uint32_t hws_version(void);

/**
 * The version of the ABI; it grows when functions or structure tails are added.
 * @return HWS_ABI_VERSION of the running library
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
HWS_API uint32_t hws_abi_version(void);

/* ------------------------------------------------------------------------------------------------
 * 2. Types
 */

/**
 * The name of an object or an operation: below 2^53, 0 is none. 4 bits of kind, then for objects 21
 * bits of generation and 28 of slot, for operations 29 and 20. Ids are never reused while their
 * generation lasts: a stale id gives HWS_E_STALE, never another object.
 */
typedef uint64_t hws_id;

#define HWS_KIND_CONTEXT 1
#define HWS_KIND_WORKER 2
#define HWS_KIND_LISTENER 3
#define HWS_KIND_ENDPOINT 4
#define HWS_KIND_QUEUE 5
#define HWS_KIND_OP 6
#define HWS_KIND_MEMORY 7
#define HWS_KIND_RKEY 8
#define HWS_KIND_MESSAGE 9
#define HWS_KIND_BUFFER 10
#define HWS_KIND_PLAN 11

/** A point in time that never comes. */
#define HWS_FOREVER UINT64_MAX

/** Kinds of memory a buffer can be in. */
#define HWS_MEMORY_HOST 0
#define HWS_MEMORY_CUDA 1
#define HWS_MEMORY_CUDA_MANAGED 2
#define HWS_MEMORY_UNKNOWN 255 /* found out each time: by CUDA's driver where it is, else by UCX */

/** One piece of a scattered buffer (see HWS_OP_IOV). */
typedef struct hws_iov {
    void *base;
    uint64_t length; /* bytes */
} hws_iov;

/** What happened. Kinds below 32 end an operation, the others concern an object.  @group EventKind */
#define HWS_EVENT_TAG_SEND 1
#define HWS_EVENT_TAG_RECV 2
#define HWS_EVENT_STREAM_SEND 3
#define HWS_EVENT_STREAM_RECV 4
#define HWS_EVENT_AM_SEND 5
#define HWS_EVENT_AM_RECV 6
#define HWS_EVENT_FLUSH 7
#define HWS_EVENT_CONNECT 8
#define HWS_EVENT_TASK 9
#define HWS_EVENT_PUT 10
#define HWS_EVENT_GET 11
#define HWS_EVENT_ATOMIC 12 /* tag: what was in the remote memory before */
#define HWS_EVENT_PLAN 13
#define HWS_EVENT_MULTI_SEND 20
#define HWS_EVENT_MULTI_RECV 21 /* detail: hws_multi_detail, unless it ends hws_multi_fetch() */
#define HWS_EVENT_MULTI_LIST 22 /* what HWS_MULTI_LIST asked for; detail: hws_multi_detail */
#define HWS_EVENT_AM 32         /* an active message arrived; detail: hws_am_detail */
#define HWS_EVENT_REQUEST 33  /* a peer wants to connect; source: its endpoint, op: the listener */
#define HWS_EVENT_ACCEPTED 34 /* a peer is connected; source: its endpoint, op: the listener or 0 */
#define HWS_EVENT_DISCONNECTED \
    35                      /* the peer left (HWS_E_PEER_CLOSED) or failed; once an endpoint */
#define HWS_EVENT_CLOSED 36 /* the last event of its source */
#define HWS_EVENT_NOTIFY 40 /* a peer's hws_put_notify(); tag: its value, length: bytes written */

/** Bits of hws_event.flags. */
#define HWS_EVENT_FLAG_BUFFER 1 /* detail names a buffer that the receiver must release */
#define HWS_EVENT_FLAG_RNDV 2   /* the data is still at the sender: fetch it by hws_am_recv() */

/**
 * The record of everything that happens: 64 bytes.
 *
 * For an operation `op` is its id (0 if it never got one), `source` the object it was posted on,
 * `length` the bytes moved, `tag` the tag of the message and `user` the value given when it was
 * posted. `detail` points to a NUL-terminated text when status is negative, to the record named at
 * the event kind otherwise, or is null. It is valid during the callback, or until the next pop of
 * the same queue, or (hws_wait) until the next library call on the same thread.
 */
typedef struct hws_event {
    uint32_t size; /* sizeof(hws_event) of the library */
    uint32_t kind;
    hws_id op;
    hws_id source;
    int32_t status; /* 0 or a negative code */
    uint32_t flags;
    uint64_t length;
    uint64_t tag;
    uint64_t user;
    const void *detail;
} hws_event;

/**
 * Receives events. It is called on the thread that makes progress, with no lock held: every call
 * marked `@thread any` is legal inside; it must not block, unwind or jump out.
 */
typedef void (*hws_event_fn)(void *arg, const hws_event *event);

/**
 * Where the events of an object go: to `callback` if set, else to `queue` if set, else nowhere.
 */
typedef struct hws_sink {
    hws_event_fn callback;
    void *callback_arg;
    hws_id queue;
    uint64_t user; /* copied to hws_event.user */
} hws_sink;

/* ------------------------------------------------------------------------------------------------
 * 3. Errors
 */

#define HWS_OK 0
#define HWS_DONE 1 /* posted and already complete: no event follows */

#define HWS_E_INVALID (-1)
#define HWS_E_BAD_ID (-2)
#define HWS_E_STALE (-3)
#define HWS_E_KIND (-4)
#define HWS_E_FORKED (-5)
#define HWS_E_NEWER (-6)
#define HWS_E_DEADLOCK (-7)
#define HWS_E_CONFIG (-8)
#define HWS_E_UNSUPPORTED (-9)
#define HWS_E_BUFFER_KIND (-10)
#define HWS_E_TOO_BIG (-11)
#define HWS_E_USER (-12)
#define HWS_E_CLOSING (-20)
#define HWS_E_NOT_CONNECTED (-21)
#define HWS_E_BUSY (-22)
#define HWS_E_IN_USE (-23)
#define HWS_E_ADDRESS_IN_USE (-24)
#define HWS_E_NOT_FOUND (-25)
#define HWS_E_MODE (-26)
#define HWS_E_CONNECTION_RESET (-40)
#define HWS_E_PEER_CLOSED (-41)
#define HWS_E_TIMED_OUT (-42)
#define HWS_E_REFUSED (-43)
#define HWS_E_REJECTED (-44)
#define HWS_E_UNREACHABLE (-45)
#define HWS_E_RESOLVE (-46)
#define HWS_E_PROTOCOL (-47)
#define HWS_E_PEER_VERSION (-48)
#define HWS_E_AUTH (-49)
#define HWS_E_KEEPALIVE (-50)
#define HWS_E_NO_MEMORY (-60)
#define HWS_E_NO_RESOURCE (-61)
#define HWS_E_QUEUE_FULL (-62)
#define HWS_E_TOO_MANY (-63)
#define HWS_E_ISOLATED_CAP (-64)
#define HWS_E_CANCELED (-80)
#define HWS_E_TRUNCATED (-81)
#define HWS_E_ALLOCATOR (-82)
#define HWS_E_NO_UCX (-100)
#define HWS_E_UCX_CONFLICT (-101)
#define HWS_E_UCX_VERSION (-102)
#define HWS_E_IO (-103)
#define HWS_E_NO_DEVICE (-104)
#define HWS_E_NO_SODIUM (-105)
#define HWS_E_SYSTEM (-106)
#define HWS_E_CUDA (-107)
#define HWS_E_INTERNAL (-127)

/** The details of the last failed call of a thread. */
typedef struct hws_error {
    uint32_t struct_size; /* in: sizeof(hws_error) */
    int32_t code;
    int32_t ucx_status; /* 0 if UCX was not involved */
    int32_t sys_errno;  /* 0 if the system was not involved */
    hws_id id;          /* the object, or 0 */
    char text[160];     /* one line, NUL-terminated */
} hws_error;

/**
 * The details of the last failed call on this thread.
 * @param[in,out] out  `struct_size` set by the caller; code 0 if nothing failed yet
 * @return 0, HWS_E_INVALID
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_last_error(hws_error *out);

/**
 * The text of a code, for people.
 * @return a constant string, never null
 * @thread any  @blocks no  @owns the library keeps the string  @since 0.1
 */
HWS_API const char *hws_error_text(int32_t code);

/**
 * The name of a code without its prefix, such as "TIMED_OUT".
 * @return a constant string, "UNKNOWN" for a number that is no code
 * @thread any  @blocks no  @owns the library keeps the string  @since 0.1
 */
HWS_API const char *hws_error_name(int32_t code);

/**
 * The category of a code: "usage", "state", "peer", "resource", "operation" or "system".
 * @return a constant string, "" for a number that is no code
 * @thread any  @blocks no  @owns the library keeps the string  @since 0.1
 */
HWS_API const char *hws_error_category(int32_t code);

/* ------------------------------------------------------------------------------------------------
 * 4. Library and log
 */

#define HWS_LOG_OFF 0
#define HWS_LOG_ERROR 1
#define HWS_LOG_WARN 2
#define HWS_LOG_INFO 3
#define HWS_LOG_DEBUG 4
#define HWS_LOG_TRACE 5

/** Receives one line of the log, without a newline, on whatever thread wrote it. */
typedef void (*hws_log_fn)(void *user, int32_t level, const char *line);

/**
 * Choose what is logged and where. UCX's own lines come the same way. Silent by default; the
 * environment variable HAWSER_LOG (off, error, warn, info, debug, trace) logs to standard error.
 * @param level  the least important level that is still logged
 * @param fn     receiver, or null for standard error
 * @return 0, HWS_E_INVALID
 * @thread any  @blocks no  @owns `user` stays the caller's, until it is replaced  @since 0.1
 */
HWS_API int32_t hws_log_set(int32_t level, hws_log_fn fn, void *user);

/** What is loaded. */
typedef struct hws_library_info {
    uint32_t struct_size; /* in */
    uint32_t version;     /* hws_version() */
    uint32_t ucx_major;
    uint32_t ucx_minor;
    uint32_t ucx_release;
    uint32_t has_sodium;  /* 1: pre-shared keys are available */
    char ucx_path[512];   /* the folder of the libraries */
    char ucx_reason[256]; /* why this copy */
} hws_library_info;

/**
 * Load UCX, if that has not happened, and describe it.
 * @param ucx       "system", "wheel", a folder, or null or "" for the automatic choice
 * @param[out] out  nullable
 * @return 0, HWS_E_NO_UCX, HWS_E_UCX_CONFLICT, HWS_E_UCX_VERSION
 * @thread any  @blocks while the libraries are loaded  @owns nothing  @since 0.1
 * @ucx ucp_get_version
 */
HWS_API int32_t hws_library_open(const char *ucx, hws_library_info *out);

/** What the loaded UCX or this build can do: hws_query_feature().  @group Can */
#define HWS_CAN_COPY_HEADER 1     /* UCX 1.14: UCX copies the header of an active message */
#define HWS_CAN_IPV6 2            /* UCX 1.14: connections by IPv6, see hws_listen() */
#define HWS_CAN_EXPORTED_MEMORY 3 /* UCX 1.14: memory handles for other processes (memh export) */
#define HWS_CAN_RKEY_COMPARE 4    /* UCX 1.16: hws_rkey_compare() of raw keys */
#define HWS_CAN_FAILOVER 5        /* UCX 1.21: the error mode that goes on over other lanes */
#define HWS_CAN_SGL_PUT 6         /* UCX 1.22: a list of remote addresses in one put */
#define HWS_CAN_PSK 7             /* this build: pre-shared keys */

/**
 * Whether the loaded UCX, or this build of the library, can do something that not all can. It tells
 * what UCX offers; Hawser itself has no call yet that uses EXPORTED_MEMORY, FAILOVER or SGL_PUT.
 * @param feature  HWS_CAN_*
 * @return 0: yes; HWS_E_UNSUPPORTED: no (the text names the version that can), HWS_E_INVALID (no
 *         such feature), or as hws_library_open()
 * @thread any  @blocks while the libraries are loaded, the first time  @owns nothing  @since 0.1
 * @ucx ucp_get_version
 */
HWS_API int32_t hws_query_feature(uint32_t feature);

/* ------------------------------------------------------------------------------------------------
 * 5. Context
 */

/** What a context must be able to do (bits); 0 means TAG, STREAM and AM. */
#define HWS_FEATURE_TAG 1
#define HWS_FEATURE_STREAM 2
#define HWS_FEATURE_AM 4
#define HWS_FEATURE_RMA 8
#define HWS_FEATURE_ATOMIC 16
#define HWS_FEATURE_UCX_RMA \
    32 /* plain UCX programs too, on raw endpoints: see section 14, SAFETY */

/** hws_context_opts.flags */
#define HWS_CONTEXT_NO_SHARED_MEMORY 1 /* every connection goes by TCP or RDMA */
#define HWS_CONTEXT_UCX_CONFIG_ONLY 2  /* leave UCX's own defaults: only `config` applies */

typedef struct hws_context_opts {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t features;
    const char *name;          /* for the logs of UCX; nullable */
    const char *ucx;           /* as hws_library_open() */
    const char *const *config; /* key, value, key, value, ..., null: UCX settings of this context */
    const void *psk;           /* pre-shared key that every peer must prove to have; nullable */
    uint64_t psk_length;       /* bytes, 16 to 1024; 0 without a key */
    uint32_t isolated_max;     /* isolated workers at most; 0: what the machine allows */
    uint32_t reserved;
} hws_context_opts;

/**
 * Open a context: one UCX instance with its configuration. UCX's TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT (in
 * `config` or the environment) say how long a peer over TCP may be silent before its connection is given up: at most
 * the first and as many intervals as the last; where none is set, a second and a half, 2 to 2.5 s while nothing is on
 * its way, when connections to other hosts are looked at twice a second (5 s where both ends have one address: a
 * peer's death is told of at once there). A TLS that leaves out every network ("sm") does so for data: connections
 * are still made by TCP, and a peer that no shared memory reaches is HWS_E_UNREACHABLE.
 * @param opts      nullable
 * @param[out] out  the id
 * @return 0, HWS_E_CONFIG (the text names the key), HWS_E_NO_UCX, HWS_E_NO_SODIUM, HWS_E_NO_DEVICE
 * @thread any  @blocks for milliseconds  @owns copies everything in opts  @since 0.1
 * @ucx ucp_init
 */
HWS_API int32_t hws_context_open(const hws_context_opts *opts, hws_id *out);

/**
 * Close any object: context, worker, listener, endpoint, queue, memory, remote key, message, buffer,
 * plan, or forget an operation whose result nobody will fetch. Children end first; the operations of an endpoint are
 * completed by a flush until the deadline of the endpoint, then aborted; sends that were cancelled
 * are not waited for. The object's CLOSED event is its last; only an operation that another thread was
 * posting in that moment may end after it. Calling it again on an object that is being closed gives 0.
 * @return 0, HWS_E_STALE if it is gone, HWS_E_BAD_ID
 * @thread any  @blocks no
 * @owns buffers of pending operations stay the library's until their final event
 * @since 0.1  @ucx ucp_ep_close_nbx, ucp_listener_destroy, ucp_worker_destroy, ucp_cleanup
 */
HWS_API int32_t hws_close(hws_id id);

/**
 * hws_close(), then wait until the object is gone.
 * @param timeout_ns  how long to wait
 * @return 0, HWS_E_TIMED_OUT (closing goes on), HWS_E_STALE, HWS_E_DEADLOCK
 * @thread outside  @blocks up to timeout_ns  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_close_wait(hws_id id, uint64_t timeout_ns);

/**
 * Attach a value to an object.
 * @return 0, or the id's error
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_user_set(hws_id id, uint64_t user);

/**
 * The value attached to an object, 0 at first.
 * @return 0, or the id's error
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_user_get(hws_id id, uint64_t *user);

/**
 * The kind of an id (HWS_KIND_*), if it names something that lives.
 * @return the kind, or the id's error
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_kind(hws_id id);

/* ------------------------------------------------------------------------------------------------
 * 6. Worker and progress
 */

/**
 * How a worker makes progress. Whoever waits, works: in every mode a thread inside hws_wait() or
 * hws_queue_pop() does the work itself; the mode says what happens while nobody waits.
 */
#define HWS_PROGRESS_MANUAL 0   /* nothing, until hws_worker_progress() or a wait */
#define HWS_PROGRESS_BLOCKING 1 /* nothing; hws_worker_fd() tells a poller when there is work */
#define HWS_PROGRESS_THREAD 2   /* a thread of the library, which sleeps when idle */
#define HWS_PROGRESS_THREAD_POLLING 3 /* a thread of the library, which never sleeps */

/** Called first on the progress thread, to prepare it: name, priority, a host language's state. */
typedef void (*hws_thread_fn)(void *arg);

/** hws_worker_opts.flags */
#define HWS_WORKER_LATENCY 1 /* keep histograms, see hws_latency_get(); nothing completes inline */
#define HWS_WORKER_STANDBY 2 /* a thread serves where the program has not got to it for 0.5 s */

typedef struct hws_worker_opts {
    uint32_t struct_size;
    uint32_t mode;
    const char *name;         /* worker and progress thread (first 15 bytes); nullable */
    uint64_t spin_ns;         /* how long a waiter spins before it sleeps; 0: 50 us */
    const uint64_t *cpu_mask; /* CPUs of the progress thread, 64 a word; nullable */
    uint32_t cpu_words;
    uint32_t spares;            /* isolated workers kept ready, until 2 s after the last
                                   endpoint and listener; 0: 1, UINT32_MAX: none */
    hws_thread_fn thread_start; /* called first on the progress thread; nullable */
    void *thread_start_arg;
    hws_sink sink;            /* events of the worker itself, and of children without their own */
    uint64_t multi_bytes_max; /* of an arriving multi-buffer message; 0: no limit */
    uint32_t multi_count_max; /* its segments; 0: 65536 */
    uint32_t
        credit_messages;   /* that may wait, see CREDITS; 0: 16384, UINT32_MAX: no limit at all */
    uint64_t credit_bytes; /* of these; 0: 64 MiB, at most 2^42 - 1024 */
    uint64_t flags;        /* HWS_WORKER_* */
    uint64_t pool_bytes;   /* free memory kept for messages to come; 0: 64 MiB, UINT64_MAX: none */
} hws_worker_opts;

/**
 * Open a worker: a progress domain with its own UCX workers. With HWS_WORKER_STANDBY in the modes
 * without a thread, one of the library's makes the progress while the program has made none for half
 * a second, as an event loop that computes; callbacks then run there.
 * @param context   a context
 * @param opts      nullable: manual mode
 * @param[out] out  the id
 * @return 0, HWS_E_TOO_MANY (256 workers a context), HWS_E_CLOSING, or another error
 * @thread any  @blocks for milliseconds  @owns copies everything in opts  @since 0.1
 * @ucx ucp_worker_create
 */
HWS_API int32_t hws_worker_open(hws_id context, const hws_worker_opts *opts, hws_id *out);

/**
 * Make progress once: network, submissions of other threads, deadlines; deliver what is ready.
 * @return how much was done (0: nothing), HWS_E_BUSY if another thread is at it, HWS_E_DEADLOCK in a
 *         callback
 * @thread outside  @blocks no  @owns nothing  @since 0.1  @ucx ucp_worker_progress
 */
HWS_API int32_t hws_worker_progress(hws_id worker);

/**
 * The descriptor that becomes readable when an armed worker has work.
 * @param[out] fd  stays the library's; never read, write or close it
 * @return 0, HWS_E_MODE in the polling modes that have none
 * @thread any  @blocks no  @owns the library keeps the descriptor  @since 0.1
 * @ucx ucp_worker_get_efd
 */
HWS_API int32_t hws_worker_fd(hws_id worker, int32_t *fd);

/**
 * Prepare the descriptor: after 0 it becomes readable at the next work; after HWS_E_BUSY there is
 * work already: call hws_worker_progress() until 0 and arm again.
 * @return 0, HWS_E_BUSY, HWS_E_MODE where there is no descriptor, HWS_E_DEADLOCK in a callback
 * @thread outside  @blocks no  @owns nothing  @since 0.1  @ucx ucp_worker_arm
 */
HWS_API int32_t hws_worker_arm(hws_id worker);

/**
 * Make progress until something was delivered or the time is over; sleeps when idle.
 * @return how much was done, 0 after timeout_ns, HWS_E_STALE if the worker is closed meanwhile,
 *         HWS_E_DEADLOCK in a callback
 * @thread outside  @blocks up to timeout_ns  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_worker_wait(hws_id worker, uint64_t timeout_ns);

/**
 * Wake every thread that sleeps in this worker.
 * @return 0, or the id's error
 * @thread any  @blocks no  @owns nothing  @since 0.1  @ucx ucp_worker_signal
 */
HWS_API int32_t hws_worker_signal(hws_id worker);

/* ------------------------------------------------------------------------------------------------
 * 7. Listener
 */

/** hws_listener_opts.flags */
#define HWS_LISTENER_EXPLICIT 1 /* each peer is a REQUEST: answer by hws_accept() or hws_reject() */
#define HWS_LISTENER_RAW 2      /* plain UCX programs may connect too: no hello, no key */

typedef struct hws_listener_opts {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t hello_timeout_ns; /* a peer must be through its hello by then; 0: 5 s */
    hws_sink sink;             /* REQUEST, ACCEPTED, CLOSED */
    hws_sink endpoint_sink;    /* DISCONNECTED and CLOSED of accepted endpoints */
    uint64_t close_timeout_ns; /* of accepted endpoints, see hws_endpoint_opts */
} hws_listener_opts;

/**
 * Listen for peers.
 * @param worker    the worker of the accepted endpoints
 * @param host      IPv4 or IPv6 address in text; null: every address of this machine. UCX knows
 *                  127.0.0.1 only: it stands for all of 127.0.0.0/8, here and in hws_connect()
 *                  IPv6 needs UCX 1.14 and TCP_AF_PRIO=inet6,inet in the context's config
 *                  (HWS_E_UNSUPPORTED without; null means IPv4 then). With it a device that has
 *                  IPv6 addresses carries no IPv4 connections
 * @param port      0: any free port, see hws_listener_info()
 * @param[out] out  the id
 * @return 0, HWS_E_ADDRESS_IN_USE, HWS_E_INVALID (the address), HWS_E_UNREACHABLE (no device has it),
 *         HWS_E_UNSUPPORTED (IPv6, see host)
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns copies everything in opts  @since 0.1  @ucx ucp_listener_create
 */
HWS_API int32_t hws_listen(hws_id worker, const char *host, uint16_t port,
                           const hws_listener_opts *opts, hws_id *out);

/**
 * Let a peer in whose REQUEST was delivered; ACCEPTED follows.
 * @param endpoint  the source of the request
 * @return 0, HWS_E_STALE if the peer has given up, HWS_E_IN_USE if it was answered already
 * @thread any  @blocks for microseconds while another thread progresses the worker  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_accept(hws_id endpoint);

/**
 * Turn a peer away whose REQUEST was delivered; its connect ends in HWS_E_REJECTED.
 * @param endpoint  the source of the request; closed by this call
 * @return 0, HWS_E_STALE if the peer has given up, HWS_E_IN_USE if it was answered already
 * @thread any  @blocks for microseconds while another thread progresses the worker  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_reject(hws_id endpoint);

typedef struct hws_listener_info {
    uint32_t struct_size; /* in */
    uint32_t port;
    char address[64];  /* numeric, without the port */
    uint64_t requests; /* connection requests seen */
    uint64_t accepted;
    uint64_t rejected;   /* by the application */
    uint64_t redirected; /* sent to TCP because no isolated worker was left */
    uint64_t strangers;  /* no hello, garbage, wrong version, silence */
    uint64_t bad_auth;   /* missing or wrong key */
} hws_listener_info;

/**
 * Where a listener listens, and its counters.
 * @return 0, or the id's error
 * @thread any  @blocks no  @owns nothing  @since 0.1  @ucx ucp_listener_query
 */
HWS_API int32_t hws_listener_query(hws_id listener, hws_listener_info *out);

/* ------------------------------------------------------------------------------------------------
 * 8. Endpoint
 */

/** hws_endpoint_opts.flags */
#define HWS_ENDPOINT_RAW 1      /* the peer is a plain UCX program: no hello */
#define HWS_ENDPOINT_TCP_ONLY 2 /* do not use shared memory with this peer */
#define HWS_ENDPOINT_LAZY 4     /* plain worker address: open before the peer answers */

typedef struct hws_endpoint_opts {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t close_timeout_ns; /* how long hws_close() flushes before it aborts; 0: 5 s */
    hws_sink sink;             /* DISCONNECTED, CLOSED */
    const char *local_address; /* numeric address of this machine to connect from; nullable */
} hws_endpoint_opts;

typedef struct hws_op_opts hws_op_opts;

/**
 * Connect to a listener. Every address that the name resolves to is tried until the deadline of
 * the operation (none given: 30 s). The endpoint can be used after the CONNECT event.
 * @param host      name, IPv4 or IPv6 address
 * @param[out] out  the endpoint
 * @param[out] op   the operation: HWS_EVENT_CONNECT; nullable if opts names a sink
 * @return 0, or an error; final status also HWS_E_RESOLVE, HWS_E_REFUSED (nobody listens),
 *         HWS_E_CONNECTION_RESET (who listened is gone), HWS_E_REJECTED, HWS_E_TIMED_OUT,
 *         HWS_E_PEER_VERSION, HWS_E_AUTH, HWS_E_UNREACHABLE
 * @thread any  @blocks no  @owns copies everything in opts  @since 0.1  @ucx ucp_ep_create
 */
HWS_API int32_t hws_connect(hws_id worker, const char *host, uint16_t port,
                            const hws_endpoint_opts *endpoint_opts, const hws_op_opts *opts,
                            hws_id *out, hws_id *op);

/**
 * Close an endpoint at once: pending operations end with HWS_E_CANCELED, the peer sees a failure.
 * @return 0, or the id's error
 * @thread any  @blocks no  @owns buffers come back with the final events  @since 0.1
 * @ucx ucp_ep_close_nbx with UCP_EP_CLOSE_FLAG_FORCE
 */
HWS_API int32_t hws_abort(hws_id endpoint);

/** Bits of hws_endpoint_info.transports. */
#define HWS_TRANSPORT_SHM 1
#define HWS_TRANSPORT_TCP 2
#define HWS_TRANSPORT_RDMA 4
#define HWS_TRANSPORT_SELF 8
#define HWS_TRANSPORT_CUDA 16

/** Why an endpoint has, or has not, an isolated worker: hws_endpoint_info.reason. */
#define HWS_REASON_LOCAL 0      /* isolated: the peer may use shared memory */
#define HWS_REASON_REMOTE 1     /* the peer is on another machine or in another IPC namespace */
#define HWS_REASON_CAP 2        /* the cap on isolated workers was reached, here or at the peer */
#define HWS_REASON_TCP_ONLY 3   /* by an option or UCX_TLS, here or at the peer */
#define HWS_REASON_RAW 4        /* isolated: a plain UCX program */
#define HWS_REASON_SHM_FAILED 5 /* shared memory was tried and could not be set up */
#define HWS_REASON_ADDRESS 6    /* by a worker's address: shares one UCX worker, see section 18 */

/** States of an endpoint: hws_endpoint_info.state. */
#define HWS_STATE_CONNECTING 0
#define HWS_STATE_REQUEST 1
#define HWS_STATE_OPEN 2
#define HWS_STATE_PEER_CLOSED 3
#define HWS_STATE_FAILED 4
#define HWS_STATE_CLOSING 5

typedef struct hws_endpoint_info {
    uint32_t struct_size; /* in */
    uint32_t state;
    uint32_t isolated;   /* 1: has a UCX worker of its own */
    uint32_t reason;     /* HWS_REASON_* */
    uint32_t transports; /* HWS_TRANSPORT_* bits of the lanes in use */
    int32_t status;      /* why it failed, or 0 */
    uint64_t peer_pid;   /* as the peer says; 0 if unknown */
    uint64_t peer_host;  /* hash of the peer's machine and IPC namespace */
    uint64_t sent;       /* messages handed to UCX */
    uint64_t received;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    char local_address[64]; /* "address:port", "[address]:port" */
    char peer_address[64];
    char lanes[128]; /* "sysv/memory, tcp/lo" */
    char reason_text[96];
} hws_endpoint_info;

/**
 * What an endpoint is connected to, how, and what passed through it.
 * @return 0, or the id's error
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns nothing  @since 0.1  @ucx ucp_ep_query, ucp_ep_print_info
 */
HWS_API int32_t hws_endpoint_query(hws_id endpoint, hws_endpoint_info *out);

/* ------------------------------------------------------------------------------------------------
 * 9. Operations and queues
 *
 * CREDITS. What a peer has sent and the receiver's program has not taken yet is bounded, for each
 * connection and direction and for each of four sorts: tagged, active and multi-buffer messages, and
 * the bytes of the stream (no messages are counted there).
 * hws_worker_opts.credit_messages and credit_bytes are the receiver's; peers learn them when they
 * connect. A message is taken when a receive gets it, a probe takes it, its handler is called with
 * it or hws_queue_pop() returns its event; a buffer that is kept after that costs no credit. A send
 * without credit is an operation like any other: it is pending, deadline, cancel, close and failure
 * end it, and a flush or close of its endpoint waits for it. A message larger than the window goes
 * when nothing else waits. While a window is full, a receive still gets the message it matches, ahead
 * of those it does not match; only then may a message overtake one of another tag. Active messages
 * of all ids wait in one line: a program must pop all queues that its handlers feed. A send on a stream
 * goes in parts, as there is credit; if it is ended early, the length of its event is what went. Bytes
 * are taken when a receive gets them, with HWS_OP_WAIT_ALL already when it is posted. No credits on raw
 * endpoints and for remote memory access.
 *
 * GPU. Memory of kind HWS_MEMORY_CUDA or HWS_MEMORY_CUDA_MANAGED needs a UCX with CUDA
 * (HWS_E_BUFFER_KIND without). The CUDA context that is current on the thread that registers such
 * memory, or first posts an operation on it, is kept, and is current on each thread while it makes
 * progress on a worker of the context, also in callbacks. The context that was registered with last
 * counts; it must live until the memory's id is closed, or the context if nothing was registered.
 * What comes small is in host memory first, and the driver copies it into the receiver's on a
 * stream of the library's (HWS_E_CUDA if that fails); what is large UCX moves.
 *
 * With HWS_OP_STREAM what a call sends (also hws_put(), hws_put_notify() and hws_plan_post()) starts when all work of
 * hws_op_opts.stream is done, a CUstream or cudaStream_t: null is the default stream, CU_STREAM_PER_THREAD is refused
 * (HWS_E_INVALID), as are other operations. The call does not block, nor does the progress of others: a thread of the
 * library calls cuStreamSynchronize(), for one stream after the other, in the CUDA context of the caller. HWS_E_CUDA:
 * there is no usable libcuda. Until then the operation is pending like any other: deadline, cancel and failure end it
 * at once, a flush or close of its endpoint waits for it. A message takes its place in the order when it starts:
 * those sent later without a stream may overtake it. When CUDA fails, the final status is HWS_E_CUDA and the event's
 * text names CUDA's error. A worker is closed when the streams that its operations waited for are done.
 */

/** hws_op_opts.flags */
#define HWS_OP_INLINE 1         /* may return HWS_DONE; then there is no event and no id */
#define HWS_OP_IOV 2            /* `buffer` is an array of hws_iov, `length` their number */
#define HWS_OP_DEADLINE_ABORT 4 /* a deadline that UCX cannot honour aborts the endpoint */
#define HWS_OP_WAIT_ALL 8       /* stream receive: only when the buffer is full */
#define HWS_OP_EAGER 16         /* active message: force eager */
#define HWS_OP_RNDV 32          /* active message: force rendezvous */
#define HWS_OP_DETACHED 64      /* no callback, no queue, nobody waits: the result is dropped */
#define HWS_OP_TAKE 128         /* tag receive: take the message instead of its data, see there */
#define HWS_OP_TIMED 256        /* fill `timing`; never completes inline */
#define HWS_OP_STREAM 512       /* a send waits for `stream`; never completes inline, see GPU */

/**
 * When an operation passed which point, in nanoseconds of the monotonic clock. Filled before the
 * final event.
 */
typedef struct hws_timing {
    uint64_t posted_ns;  /* the call */
    uint64_t started_ns; /* its turn on the thread that makes progress; at once if that was free */
    uint64_t ended_ns;   /* its end was known; a callback or a queue tells of it next */
} hws_timing;

/**
 * How an operation is to be done and told of. All functions that post one take it, nullable.
 *
 * The final event goes to `callback`, else to `queue`; with neither, the result waits in the
 * operation for hws_wait() or hws_close() (or is dropped with HWS_OP_DETACHED).
 * The buffer belongs to the library until the final event, whatever happens, deadline and cancel
 * included. An array of hws_iov is copied if it has at most 16 entries and must live as the data
 * otherwise. A header is copied.
 */
struct hws_op_opts {
    uint32_t struct_size;
    uint32_t flags;
    hws_event_fn callback;
    void *callback_arg;
    hws_id queue;
    uint64_t user;
    uint64_t timeout_ns;  /* from now; 0: none */
    uint32_t memory_kind; /* HWS_MEMORY_* of the buffer */
    uint32_t reserved;
    hws_event *result;  /* filled when HWS_DONE is returned; nullable */
    hws_timing *timing; /* with HWS_OP_TIMED, the library's until the final event; else null */
    void *stream;       /* with HWS_OP_STREAM: a CUstream that lives until the final event */
};

/**
 * Ask for the end of an operation. Its final event still comes: HWS_E_CANCELED, or what it was if
 * it was faster. An operation that UCX cannot cancel keeps its buffer until UCX gives it back. A tagged
 * receive (not on a raw endpoint) or hws_multi_fetch() that is cancelled on its way gives the message
 * back, as hws_tag_return() does, and at once: the next receive of its tag waits for it.
 * @return 0, HWS_E_STALE if it has ended
 * @thread any  @blocks no  @owns the buffer stays the library's until the final event  @since 0.1
 * @ucx ucp_request_cancel
 */
HWS_API int32_t hws_cancel(hws_id op);

/**
 * Wait for an operation that has neither callback nor queue, making progress meanwhile, and take
 * its result; the id is stale then. Of several who wait for one operation one gets the result, the
 * others HWS_E_STALE.
 * @param timeout_ns  0: make progress once and look
 * @param[out] event  the final event; nullable
 * @return 0 (the operation ended: see event->status; without `event` its negative status is
 *         returned), HWS_E_TIMED_OUT (it goes on), HWS_E_INVALID (its result goes to a callback, a queue
 *         or nowhere), HWS_E_DEADLOCK in a callback
 * @thread outside  @blocks up to timeout_ns  @owns the buffer is the caller's again  @since 0.1
 */
HWS_API int32_t hws_wait(hws_id op, uint64_t timeout_ns, hws_event *event);

#define HWS_WAIT_ANY 0
#define HWS_WAIT_ALL 1

/**
 * Wait for one or all of many operations of one worker and take their results. Entries of `ops`
 * that ended are set to 0, their event stands at the same index; entries that are 0 are skipped.
 * @param[in,out] ops ids of operations, or 0
 * @param count       entries
 * @param mode        HWS_WAIT_ANY or HWS_WAIT_ALL
 * @param[out] events array of `count` events; nullable
 * @return how many ended in this call, HWS_E_TIMED_OUT if the mode was not fulfilled (those that
 *         ended are taken all the same), HWS_E_INVALID for operations of different workers, or as
 *         hws_wait(); then none is taken
 * @thread outside  @blocks up to timeout_ns  @owns buffers of ended operations come back  @since 0.1
 */
HWS_API int32_t hws_wait_many(hws_id *ops, uint32_t count, uint32_t mode, uint64_t timeout_ns,
                              hws_event *events);

typedef struct hws_queue_opts {
    uint32_t struct_size;
    uint32_t capacity; /* events; 0: 4096; rounded up to a power of two */
} hws_queue_opts;

/**
 * Open a completion queue: events for one consumer, taken in batches on its own thread.
 * Overflow: an operation reserves its place when it is posted (HWS_E_QUEUE_FULL if there is none),
 * so its event always fits; events that nobody posted (arrived messages, peers) use what is free
 * and then memory, counted in hws_stats.queue_overflows. No event is dropped while there is memory.
 * @return 0, HWS_E_INVALID (a capacity above 2^24), HWS_E_NO_MEMORY, HWS_E_NO_RESOURCE, HWS_E_TOO_MANY
 * @thread any  @blocks no  @owns copies everything in opts  @since 0.1
 */
HWS_API int32_t hws_queue_open(const hws_queue_opts *opts, hws_id *out);

/**
 * The descriptor that is readable exactly while the queue holds events.
 * @param[out] fd  an eventfd that stays the library's: poll it, never read, write or close it
 * @return 0, or an error
 * @thread any  @blocks no  @owns the library keeps the descriptor  @since 0.1
 */
HWS_API int32_t hws_queue_fd(hws_id queue, int32_t *fd);

/**
 * Take events; while there are none, make progress on the workers that feed the queue (on 16 of them
 * at most: others that feed it need a progress thread, or somebody else who makes their progress).
 * @param[out] events  room for `count`
 * @param timeout_ns   0: take what is there, making progress once
 * @return how many were taken, 0 after timeout_ns, HWS_E_DEADLOCK in a callback
 * @thread outside  @blocks up to timeout_ns  @owns `detail` is valid until the next pop  @since 0.1
 */
HWS_API int32_t hws_queue_pop(hws_id queue, hws_event *events, uint32_t count, uint64_t timeout_ns);

/**
 * Complete everything posted before on an endpoint, or on all endpoints of a worker: the sends have
 * ended, then a message of Hawser's own has made the round trip behind them, so that the peer has
 * all of it. What it has not read of a stream is lost all the same if this process is killed then; messages
 * are not. On a raw endpoint it is UCX's flush: data has left this process.
 * @param source   endpoint or worker
 * @param[out] op  nullable if opts names a sink
 * @return 0, HWS_DONE, HWS_E_CLOSING, HWS_E_NOT_CONNECTED, ...; final status also why the endpoint
 *         failed or HWS_E_PEER_CLOSED
 * @thread any  @blocks no  @owns nothing  @since 0.1
 * @ucx ucp_am_send_nbx, ucp_ep_flush_nbx on a raw endpoint
 */
HWS_API int32_t hws_flush(hws_id source, const hws_op_opts *opts, hws_id *op);

/** A function for hws_task(): called on the thread that owns the worker. */
typedef void (*hws_task_fn)(void *arg);

/**
 * Run a function under the worker's ownership, once (then its operation ends) or each period
 * until hws_cancel() or the deadline, after which it is not run any more.
 * @param period_ns  0: once, as soon as possible
 * @param[out] op    nullable if opts names a sink or HWS_OP_DETACHED
 * @return 0, or an error
 * @thread any  @blocks no  @owns `arg` is the caller's again after the final event  @since 0.1
 */
HWS_API int32_t hws_task(hws_id worker, hws_task_fn fn, void *arg, uint64_t period_ns,
                         const hws_op_opts *opts, hws_id *op);

/* ------------------------------------------------------------------------------------------------
 * 10. Tagged messages
 *
 * A message carries a 64-bit tag. A receive matches when ((sent ^ tag) & mask) == 0. Matching is in
 * order: among the receives that match a message, the one posted first takes it, whether it was
 * posted on the endpoint or on the worker; among the messages that match a receive, the one that
 * arrived first is taken. Messages of one endpoint arrive in the order they were sent.
 */

/**
 * Send a tagged message. Complete means that the buffer can be used again, not that it arrived.
 * @param length   bytes (entries with HWS_OP_IOV); fewer than 2^63
 * @param[out] op  nullable if opts names a sink or HWS_OP_DETACHED
 * @return 0, HWS_DONE, HWS_E_NOT_CONNECTED, HWS_E_CLOSING, HWS_E_QUEUE_FULL, HWS_E_INVALID (too long,
 *         null, or a piece that is null and not empty), ...
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 * @ucx ucp_am_send_nbx, ucp_tag_send_nbx on a raw endpoint
 */
HWS_API int32_t hws_tag_send(hws_id endpoint, const void *buffer, uint64_t length, uint64_t tag,
                             const hws_op_opts *opts, hws_id *op);

/**
 * Send a tagged message that completes when the peer has matched it with a receive.
 * @param length   bytes (entries with HWS_OP_IOV)
 * @param[out] op  nullable if opts names a sink or HWS_OP_DETACHED
 * @return as hws_tag_send()
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 * @ucx ucp_am_send_nbx with rendezvous, ucp_tag_send_sync_nbx on a raw endpoint
 */
HWS_API int32_t hws_tag_send_sync(hws_id endpoint, const void *buffer, uint64_t length,
                                  uint64_t tag, const hws_op_opts *opts, hws_id *op);

/**
 * Receive a tagged message from one endpoint, or from any endpoint of a worker.
 *
 * With HWS_OP_TAKE no buffer is needed: the receive ends when a message has come, its event's
 * `source` is the message's id for hws_message_recv() or hws_close(), `length` its bytes.
 * @param source   endpoint or worker
 * @param length   bytes that fit (entries with HWS_OP_IOV); a longer message gives HWS_E_TRUNCATED
 * @param mask     bits of the tag that count; UINT64_MAX: all
 * @param[out] op  nullable if opts names a sink
 * @return 0, HWS_DONE, HWS_E_PEER_CLOSED when the peer left and nothing is waiting, HWS_E_BUFFER_KIND
 *         (this UCX cannot handle such memory), HWS_E_UNSUPPORTED (HWS_OP_TAKE on a raw endpoint), ...
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 * @ucx ucp_am_recv_data_nbx, ucp_tag_recv_nbx on a raw endpoint
 */
HWS_API int32_t hws_tag_recv(hws_id source, void *buffer, uint64_t length, uint64_t tag,
                             uint64_t mask, const hws_op_opts *opts, hws_id *op);

typedef struct hws_message_info {
    uint32_t struct_size; /* in */
    uint32_t flags;       /* HWS_EVENT_FLAG_RNDV: the data is still at the sender */
    hws_id endpoint;      /* where it came from */
    uint64_t length;      /* bytes */
    uint64_t tag;
} hws_message_info;

/**
 * Look for a message that has arrived and was not received. It does not make progress.
 * @param source        endpoint or worker
 * @param[out] info     nullable
 * @param[out] message  nullable: only look. Else the message is taken out of matching and must be
 *                      received by hws_message_recv() or dropped by hws_close()
 * @return 0, HWS_E_NOT_FOUND
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns the message is the caller's  @since 0.1  @ucx ucp_tag_probe_nb on a raw endpoint
 */
HWS_API int32_t hws_tag_probe(hws_id source, uint64_t tag, uint64_t mask, hws_message_info *info,
                              hws_id *message);

/**
 * Receive the data of a message that a probe took.
 * @param message  stale after this call, unless it fails
 * @param length   bytes that fit (entries with HWS_OP_IOV)
 * @return 0, HWS_DONE, or an error; the event is HWS_EVENT_TAG_RECV
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 * @ucx ucp_am_recv_data_nbx, ucp_tag_msg_recv_nbx on a raw endpoint
 */
HWS_API int32_t hws_message_recv(hws_id message, void *buffer, uint64_t length,
                                 const hws_op_opts *opts, hws_id *op);

/**
 * Undo a probe or a receive with HWS_OP_TAKE: a receive that waits for the message gets it (not one that
 * waits on a raw endpoint, which UCX has), else it is the first that the next one finds, behind those that
 * were returned before it. If its endpoint is being closed it is dropped.
 * @param message  stale after this call, unless it fails
 * @return 0, HWS_E_STALE
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns the message is the library's  @since 0.1
 */
HWS_API int32_t hws_message_return(hws_id message);

/**
 * Undo a receive that has ended well: the message is received again, as hws_message_return() says. For
 * whoever learns too late that nobody goes on with what was received, as a task that was cancelled.
 * @param source  endpoint or worker, that of the receive. Of a message that was received from a worker it is not
 *                known which endpoint's it was: receives on endpoints do not find it again
 * @param buffer  its data, host memory, contiguous; copied
 * @param length  bytes
 * @param tag     hws_event.tag of the receive
 * @return 0, HWS_E_CLOSING, HWS_E_NO_MEMORY
 * @thread any  @blocks as hws_message_return()  @owns nothing: the buffer stays the caller's  @since 0.1
 */
HWS_API int32_t hws_tag_return(hws_id source, const void *buffer, uint64_t length, uint64_t tag);

/* ------------------------------------------------------------------------------------------------
 * 11. Streams: bytes in order, one stream an endpoint and direction
 */

/**
 * Send bytes.
 * @param length   bytes (entries with HWS_OP_IOV)
 * @param[out] op  nullable if opts names a sink or HWS_OP_DETACHED
 * @return as hws_tag_send()
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 * @ucx ucp_stream_send_nbx
 */
HWS_API int32_t hws_stream_send(hws_id endpoint, const void *buffer, uint64_t length,
                                const hws_op_opts *opts, hws_id *op);

/**
 * Receive bytes: as many as are there, or with HWS_OP_WAIT_ALL exactly `length`. A receive that is
 * cancelled or late, or that the peer's close leaves short, takes nothing: what has come is for the next
 * one, and its event's length is 0.
 * @param length   bytes that fit (entries with HWS_OP_IOV)
 * @param[out] op  nullable if opts names a sink
 * @return as hws_tag_recv()
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 * @ucx ucp_stream_recv_data_nb: what ucp_stream_recv_nbx receives into cannot be taken back
 */
HWS_API int32_t hws_stream_recv(hws_id endpoint, void *buffer, uint64_t length,
                                const hws_op_opts *opts, hws_id *op);

/**
 * Undo a receive that has ended well: its bytes come next again, before those that a waiting receive may have
 * got meanwhile. What other receives ended with meanwhile stays theirs: return the last one first.
 * @param buffer  what was received, host memory, contiguous; copied
 * @param length  bytes
 * @return 0, HWS_E_NO_MEMORY, or the endpoint's error if nothing can be received any more
 * @thread any  @blocks as hws_message_return()  @owns nothing: the buffer stays the caller's  @since 0.1
 */
HWS_API int32_t hws_stream_return(hws_id endpoint, const void *buffer, uint64_t length);

/* ------------------------------------------------------------------------------------------------
 * 12. Active messages
 *
 * A message with an id, a header and data runs a handler at the receiver. Order: eager messages of
 * one endpoint arrive in order; a rendezvous message may be told of before earlier data is fetched.
 */

/** Ids are 0 to HWS_AM_ID_MAX; on a raw endpoint the number is UCX's own. */
#define HWS_AM_ID_MAX 1023

/**
 * What an arrived active message is (hws_event.detail of HWS_EVENT_AM; hws_event.tag is the id).
 *
 * With HWS_EVENT_FLAG_BUFFER `buffer` is a buffer id that the receiver releases by hws_close();
 * everything here is valid until then, or until its worker is closed. Without it everything is
 * valid during the callback only.
 * With HWS_EVENT_FLAG_RNDV the data is not here yet (`data` is null): hws_am_recv() fetches it into
 * memory of the receiver's choice; closing the buffer drops it.
 */
typedef struct hws_am_detail {
    const void *header;
    uint64_t header_length;
    const void *data;
    uint64_t data_length;
    hws_id buffer;
    hws_id endpoint; /* reply here; 0: by a plain address, and this side has not connected */
} hws_am_detail;

/**
 * Gives memory for an arriving message, on the thread that makes progress.
 * @return memory of at least `length` bytes, or null: the message ends with HWS_E_ALLOCATOR
 */
typedef void *(*hws_alloc_fn)(void *arg, uint64_t length, uint32_t memory_kind);

/** Takes memory back that an allocator gave, when the buffer is released. */
typedef void (*hws_free_fn)(void *arg, void *memory, uint64_t length);

/** hws_am_opts.flags */
#define HWS_AM_DEFER \
    1 /* large messages are told of before they are fetched (HWS_EVENT_FLAG_RNDV) */
#define HWS_AM_BUFFER 2 /* callbacks too get a buffer to keep; queues always do */
#define HWS_AM_HOLD 4   /* the same; hws_buffer_taken() gives the sender its credit back */

typedef struct hws_am_opts {
    uint32_t struct_size;
    uint32_t flags;
    hws_sink sink;      /* neither callback nor queue: unset the handler */
    hws_alloc_fn alloc; /* nullable: the library's own memory */
    hws_free_fn free;   /* nullable: memory from `alloc` is not given back */
    void *alloc_arg;
    uint32_t memory_kind; /* of the memory that `alloc` gives, which need not be the processor's */
    uint32_t reserved;
} hws_am_opts;

/**
 * Set, replace or unset the handler of an active-message id on a worker, for all its endpoints.
 * Messages that arrive without a handler are counted and dropped. The old handler is not called any
 * more; a new callback gets what had arrived and was not told of, a queue only what arrives later.
 * @param am_id  0 to HWS_AM_ID_MAX
 * @return 0, HWS_E_INVALID (also memory of a GPU without `alloc` or HWS_AM_DEFER), HWS_E_BUFFER_KIND (this UCX cannot
 *         handle such memory)
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns copies everything in opts  @since 0.1  @ucx ucp_worker_set_am_recv_handler
 */
HWS_API int32_t hws_am_handler(hws_id worker, uint32_t am_id, const hws_am_opts *opts);

/**
 * Send an active message.
 * @param header         nullable; copied
 * @param header_length  bytes, up to hws_am_header_max()
 * @param length         bytes (entries with HWS_OP_IOV)
 * @param[out] op        nullable if opts names a sink or HWS_OP_DETACHED
 * @return as hws_tag_send(); HWS_E_TOO_BIG for the header
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 * @ucx ucp_am_send_nbx
 */
HWS_API int32_t hws_am_send(hws_id endpoint, uint32_t am_id, const void *header,
                            uint64_t header_length, const void *buffer, uint64_t length,
                            const hws_op_opts *opts, hws_id *op);

/**
 * Fetch the data of a message told of with HWS_EVENT_FLAG_RNDV.
 * @param buffer_id  hws_am_detail.buffer; its header stays valid until it is closed
 * @param length     bytes that fit (entries with HWS_OP_IOV); less than the data: HWS_E_TRUNCATED
 * @return 0, HWS_DONE, HWS_E_IN_USE if it was fetched already, HWS_E_CONNECTION_RESET if the sender is gone
 * @thread any  @blocks no  @owns `buffer` is the library's until the final event  @since 0.1
 * @ucx ucp_am_recv_data_nbx
 */
HWS_API int32_t hws_am_recv(hws_id buffer_id, void *buffer, uint64_t length,
                            const hws_op_opts *opts, hws_id *op);

/**
 * The largest header of an active message on this worker, in bytes.
 * @param[out] out  bytes
 * @return 0, or the id's error
 * @thread any  @blocks no  @owns nothing  @since 0.1  @ucx ucp_worker_query MAX_AM_HEADER
 */
HWS_API int32_t hws_am_header_max(hws_id worker, uint64_t *out);

/* ------------------------------------------------------------------------------------------------
 * 13. Buffers: memory of the library, named by an id
 */

/**
 * Memory of the worker's pool to receive into, by a stream, say. What messages arrive in and no
 * allocator of the user's gives comes from there too, and hws_close() of a buffer puts it back for the
 * next: hws_worker_opts.pool_bytes says how much is kept. What nobody needed for seconds goes back to
 * the system; from 2 MiB on huge pages are asked for.
 * @param length     bytes
 * @param[out] data  the memory, aligned to 64 bytes, with anything in it; nullable
 * @param[out] out   the buffer
 * @return 0, HWS_E_CLOSING, or the id's error
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns the library, until the buffer or its worker is closed: not while an operation uses it
 * @since 0.1
 */
HWS_API int32_t hws_buffer_alloc(hws_id worker, uint64_t length, void **data, hws_id *out);

/**
 * The memory of a buffer; released by hws_close(id).
 * @param[out] data    nullable
 * @param[out] length  bytes; nullable
 * @return 0, or the id's error
 * @thread any  @blocks no  @owns the library, until the buffer is closed  @since 0.1
 */
HWS_API int32_t hws_buffer_data(hws_id buffer, void **data, uint64_t *length);

/**
 * Somebody has taken the active message of a handler with HWS_AM_HOLD: its sender gets back what it may
 * send before that (flow control). Closing the buffer says so too; again, or for other buffers, it does
 * nothing. For callbacks that only put messages aside.
 * @return 0, or the id's error
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_buffer_taken(hws_id buffer);

/* ------------------------------------------------------------------------------------------------
 * 14. Information and statistics
 */

/**
 * A description for people of UCX's view of a context, worker or endpoint.
 * @param id           context, worker or endpoint
 * @param[out] text    room for `size` bytes, always NUL-terminated; nullable if size is 0
 * @param[out] needed  bytes with the NUL; nullable
 * @return 0, also if size is 0: then it is only asked how long it is; HWS_E_TOO_BIG if it was cut
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns fills the caller's memory  @since 0.1
 * @ucx ucp_context_print_info, ucp_worker_print_info, ucp_ep_print_info
 */
HWS_API int32_t hws_describe(hws_id id, char *text, uint64_t size, uint64_t *needed);

/** What passed through: indexes of hws_stats.sent and its like. */
#define HWS_TRAFFIC_TAG 0
#define HWS_TRAFFIC_STREAM 1
#define HWS_TRAFFIC_AM 2
#define HWS_TRAFFIC_MULTI 3
#define HWS_TRAFFIC_PUT 4
#define HWS_TRAFFIC_GET 5
#define HWS_TRAFFIC_ATOMIC 6

/** The way an endpoint goes: indexes of hws_stats.via_sent and its like. */
#define HWS_VIA_OTHER 0 /* not connected yet, or unknown */
#define HWS_VIA_SHM 1
#define HWS_VIA_TCP 2
#define HWS_VIA_RDMA 3
#define HWS_VIA_SELF 4

/**
 * Counters. Those of an endpoint are `sent` to `via_bytes_received` and `ops_pending`, the others
 * are 0 then. What is called "now" is a level, everything else grows.
 */
typedef struct hws_stats {
    uint32_t struct_size; /* in */
    uint32_t reserved;
    uint64_t endpoints;       /* open now */
    uint64_t isolated;        /* isolated workers in use now */
    uint64_t spares;          /* isolated workers ready now */
    uint64_t isolated_cap;    /* at most, as of now */
    uint64_t isolated_total;  /* made so far */
    uint64_t fallbacks;       /* connections that went to TCP for want of an isolated worker */
    uint64_t redials;         /* second dials after a redirect */
    uint64_t lane_violations; /* connections ended because shared memory reached a shared worker */
    uint64_t ops_inline;      /* operations complete at posting */
    uint64_t ops_posted;      /* operations that got an id */
    uint64_t ops_submitted;   /* operations handed to another thread's progress */
    uint64_t ops_pending;     /* now */
    uint64_t events;          /* delivered */
    uint64_t queue_overflows; /* events that did not fit into a queue's ring */
    uint64_t wakeups;         /* returns from sleep */
    uint64_t safety_wakeups;  /* work that only the safety net found: should be 0 */
    uint64_t signals;         /* wake-ups sent to a sleeping thread */
    uint64_t unexpected;      /* messages waiting for a receive, now */
    uint64_t unexpected_bytes;
    uint64_t am_dropped;    /* active messages without a handler */
    uint64_t failures;      /* endpoints that failed */
    uint64_t credit_waits;  /* sends that waited for credit of their peer */
    uint64_t sent[8];       /* by HWS_TRAFFIC_*: messages; puts, gets and atomics of this side */
    uint64_t bytes_sent[8]; /* a get's are those that it read; atomics have none */
    uint64_t received[8]; /* messages, but for those of am_dropped; puts, gets and atomics of peers
                               that were served here (in shared memory nobody serves them) */
    uint64_t bytes_received[8];
    uint64_t via_sent[8]; /* the sums of the above by HWS_VIA_* */
    uint64_t via_bytes_sent[8];
    uint64_t via_received[8];
    uint64_t via_bytes_received[8];
    uint64_t op_failures[128];       /* operations that ended with the code -index */
    uint64_t endpoint_failures[128]; /* endpoints that failed with the code -index */
    uint64_t pool_bytes;  /* free memory kept for messages to come, now: see hws_buffer_alloc() */
    uint64_t pool_reused; /* blocks that were taken from it */
    uint64_t pool_fresh;  /* blocks that were new */
} hws_stats;

/**
 * The counters of a context (all its workers), of a worker or of an endpoint. What was closed stays
 * counted in what it belonged to.
 *
 * `sent` to `via_bytes_received` and `pool_*` are up to 0.1 s old while another thread makes progress on the
 * worker; everything else is of now.
 * @param id  context, worker or endpoint
 * @return 0, or the id's error
 * @thread any  @blocks for an endpoint: for microseconds while another thread progresses the worker
 * @owns nothing  @since 0.1
 */
HWS_API int32_t hws_stats_get(hws_id id, hws_stats *out);

/**
 * The counters of the process: all contexts that are or were.
 * @return 0
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_stats_total(hws_stats *out);

/** Buckets of a histogram: see hws_latency. */
#define HWS_LATENCY_BUCKETS 160

/**
 * How long operations of one kind took, from the call that posted them to their end.
 *
 * Bucket i counts what took less than its upper bound and was not counted before: the bounds are 1,
 * 2, 3, 4 ns, then four to each power of two (5, 6, 7, 8, 10, 12, 14, 16, 20, ...); the last bucket
 * has no bound.
 */
typedef struct hws_latency {
    uint32_t struct_size; /* in */
    uint32_t kind;        /* HWS_EVENT_* below 32 */
    uint64_t count;
    uint64_t sum_ns;
    uint64_t min_ns;
    uint64_t max_ns;
    uint64_t p50_ns; /* upper bound of the bucket that holds the median, not above max_ns */
    uint64_t p90_ns;
    uint64_t p99_ns;
    uint64_t p999_ns;
    uint64_t buckets[160]; /* operations */
} hws_latency;

/**
 * The histogram of a worker with HWS_WORKER_LATENCY.
 * @param kind  HWS_EVENT_* of the operations, below 32
 * @return 0 (empty for a kind that has none), HWS_E_INVALID (32 or above), HWS_E_UNSUPPORTED (without
 *         HWS_WORKER_LATENCY)
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns nothing  @since 0.1
 */
HWS_API int32_t hws_latency_get(hws_id worker, uint32_t kind, hws_latency *out);

/** A worker of another process. */
typedef struct hws_peek_info {
    uint32_t struct_size; /* in */
    uint32_t mode;        /* HWS_PROGRESS_* */
    uint32_t latency;     /* 1: it has histograms */
    uint32_t reserved;
    hws_id worker;   /* its id there */
    uint64_t age_ns; /* how old the counters are */
    char name[64];
} hws_peek_info;

/**
 * The counters of a worker of another process of this user, from a page of memory that every worker
 * keeps (what `hawser stats PID` prints). Reading it costs that process nothing. The page is brought
 * up to date every 0.1 s while the worker is busy, every second while somebody sleeps in it, and not
 * while nobody makes progress on it.
 * @param pid          the process; may be this one
 * @param index        0 for its first worker, and so on
 * @param[out] stats   nullable
 * @param[out] info    nullable
 * @return 0, HWS_E_NOT_FOUND (no such process, or no such worker in it), HWS_E_SYSTEM (not allowed),
 *         HWS_E_PEER_VERSION (it runs another version of the library), HWS_E_BUSY (it was stopped, or died, while
 *         it wrote the counters)
 * @thread any  @blocks while /proc is read  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_stats_peek(uint32_t pid, uint32_t index, hws_stats *stats, hws_peek_info *info);

/**
 * A histogram of a worker of another process, as hws_stats_peek().
 * @param pid    the process
 * @param index  of the worker, as hws_stats_peek()
 * @param kind   HWS_EVENT_* of the operations, below 32
 * @return as hws_stats_peek(), and HWS_E_UNSUPPORTED (that worker has no histograms)
 * @thread any  @blocks while /proc is read  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_latency_peek(uint32_t pid, uint32_t index, uint32_t kind, hws_latency *out);

/* ------------------------------------------------------------------------------------------------
 * 15. Multi-buffer messages: many segments in one message, in any mix of sizes and kinds of memory
 *
 * The sender names its segments in one call; the receiver needs to know nothing beforehand. Small
 * segments travel together, large ones one by one by rendezvous, all at once, straight into their
 * place. These messages are matched like tagged messages (section 10), among themselves: a tagged
 * receive never takes one, nor the reverse.
 *
 * A receive is done in one step or in two. In one: the library, or the receive's `alloc`, provides
 * the memory of each segment, and the final event brings it as a buffer. In two, with
 * HWS_MULTI_LIST: the receive ends as soon as a message is there, with the list of its segments;
 * then hws_multi_fetch() moves the data into memory of the receiver's choice.
 *
 * Each worker limits what it takes, hws_worker_opts.multi_count_max and multi_bytes_max. A peer
 * learns the limits when it connects: its hws_multi_send() returns HWS_E_TOO_BIG. What is over a
 * limit of a single receive is refused: the receive ends in HWS_E_TOO_BIG, so does the send unless
 * it has ended already (small messages do), and the connection goes on.
 */

/** One piece of a multi-buffer message. */
typedef struct hws_segment {
    void *base;
    uint64_t length;      /* bytes, below 2^56 */
    uint32_t memory_kind; /* HWS_MEMORY_* */
    uint32_t reserved;
} hws_segment;

/**
 * A received multi-buffer message (hws_event.detail). Everything here, the data included, is valid
 * until `buffer` is closed or consumed by hws_multi_fetch(), or its worker is closed.
 *
 * In a list, `base` is null for a segment that is still at the sender and `memory_kind` is the
 * sender's; the others are here already and can be used in place (they have no alignment). With
 * HWS_EVENT_FLAG_RNDV in the event at least one segment is still at the sender.
 */
typedef struct hws_multi_detail {
    const hws_segment *segments; /* null if there are none */
    uint64_t count;
    uint64_t total; /* bytes of all segments */
    hws_id buffer;
    hws_id endpoint; /* where it came from */
} hws_multi_detail;

typedef struct hws_multi_opts {
    uint32_t struct_size;
    uint32_t flags;    /* 0 */
    uint64_t coalesce; /* segments in host memory of up to 64 KiB each travel inside the list when
                          they have no more bytes than this together; 0: 32768, at most 1 MiB */
} hws_multi_opts;

/** hws_multi_recv_opts.flags */
#define HWS_MULTI_LIST 1 /* end with the list, the data is fetched by hws_multi_fetch() */

typedef struct hws_multi_recv_opts {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t bytes_max; /* a bigger message is refused; 0: what the worker takes */
    uint64_t count_max; /* segments; 0: what the worker takes */
    hws_alloc_fn alloc; /* called for each segment with bytes; null: one block of host memory */
    hws_free_fn free;   /* nullable: memory from `alloc` is not given back */
    void *alloc_arg;
} hws_multi_recv_opts;

/**
 * Send segments as one message. Complete means that all of them can be used again.
 * @param segments    nullable if count is 0; copied; the data stays until the final event
 * @param count       segments
 * @param multi_opts  nullable
 * @param[out] op     nullable if opts names a sink or HWS_OP_DETACHED
 * @return as hws_tag_send(); HWS_E_TOO_BIG over the peer's limits (nothing is sent then),
 *         HWS_E_UNSUPPORTED on a raw endpoint; final status HWS_E_TOO_BIG if the receive refused it
 * @thread any  @blocks no  @owns the segments' data is the library's until the final event
 * @since 0.1  @ucx ucp_am_send_nbx
 */
HWS_API int32_t hws_multi_send(hws_id endpoint, uint64_t tag, const hws_segment *segments,
                               uint64_t count, const hws_multi_opts *multi_opts,
                               const hws_op_opts *opts, hws_id *op);

/**
 * Receive a multi-buffer message from one endpoint, or from any endpoint of a worker. The final
 * event is HWS_EVENT_MULTI_RECV, or with HWS_MULTI_LIST HWS_EVENT_MULTI_LIST; on success it has
 * HWS_EVENT_FLAG_BUFFER and the receiver closes `detail->buffer`. Without `alloc` small segments
 * are where they arrived (without alignment) and the others in one block, 64-byte aligned, in host
 * memory whatever the sender's kind.
 * @param source      endpoint or worker
 * @param mask        bits of the tag that count; UINT64_MAX: all
 * @param recv_opts   nullable
 * @param opts        nullable; HWS_OP_DETACHED is refused; HWS_OP_INLINE counts with `result` only
 * @param[out] op     nullable if opts names a sink
 * @return as hws_tag_recv(); final status also HWS_E_TOO_BIG, HWS_E_ALLOCATOR
 * @thread any  @blocks no  @owns the buffer of the final event is the receiver's  @since 0.1
 * @ucx ucp_am_recv_data_nbx
 */
HWS_API int32_t hws_multi_recv(hws_id source, uint64_t tag, uint64_t mask,
                               const hws_multi_recv_opts *recv_opts, const hws_op_opts *opts,
                               hws_id *op);

/**
 * Move the data of a listed message into the receiver's memory. The final event is
 * HWS_EVENT_MULTI_RECV without detail.
 * @param buffer    hws_multi_detail.buffer of the list; not the caller's after this call, unless it
 *                  fails
 * @param[out] segments  as many as listed, none shorter than listed; copied
 * @param count     segments
 * @param[out] op   nullable if opts names a sink or HWS_OP_DETACHED
 * @return 0, HWS_DONE, HWS_E_TRUNCATED (a segment is too short), HWS_E_INVALID (another count, a
 *         null base), HWS_E_BUFFER_KIND (memory of a GPU for a segment below 64 KiB that the sender
 *         had in host memory, where there is more of these than comes with the list), HWS_E_IN_USE (it was received in one step), or
 *         the endpoint's error when the peer is gone and data was still there
 * @thread any  @blocks no  @owns the segments' data is the library's until the final event
 * @since 0.1  @ucx ucp_am_recv_data_nbx
 */
HWS_API int32_t hws_multi_fetch(hws_id buffer, const hws_segment *segments, uint64_t count,
                                const hws_op_opts *opts, hws_id *op);

/**
 * Undo a receive that ended with a list: the message is received again, as hws_message_return() says.
 * @param buffer  hws_multi_detail.buffer of the list; stale after this call, unless it fails
 * @return 0, HWS_E_STALE, HWS_E_INVALID (not of such a message), HWS_E_IN_USE (its data was fetched)
 * @thread any  @blocks as hws_message_return()  @owns the message is the library's  @since 0.1
 */
HWS_API int32_t hws_multi_return(hws_id buffer);

/**
 * Undo a multi-buffer receive whose data has come, by hws_multi_fetch() or in one step: the message is received
 * again, as hws_message_return() says.
 * @param endpoint  hws_multi_detail.endpoint, hws_event.source of a fetch
 * @param tag       hws_event.tag
 * @param segments  the data, host memory; copied
 * @param count     segments
 * @return 0, HWS_E_CLOSING, HWS_E_NO_MEMORY, HWS_E_BUFFER_KIND, HWS_E_INVALID (a null base)
 * @thread any  @blocks as hws_message_return()  @owns nothing: the segments stay the caller's  @since 0.1
 */
HWS_API int32_t hws_segments_return(hws_id endpoint, uint64_t tag, const hws_segment *segments,
                                    uint64_t count);

/* ------------------------------------------------------------------------------------------------
 * 16. Memory and remote keys
 *
 * Memory that peers read and write by themselves is registered with a context, its key is packed,
 * sent to the peer by any means, and unpacked there on the endpoint over which it will be used.
 *
 * SAFETY. A peer reaches registered memory only, with a key that was given to it, inside its bounds
 * and for the access it was registered for; a violation ends the connection. HWS_FEATURE_UCX_RMA
 * gives this up: UCX then serves remote access itself (to plain UCX programs on raw endpoints) and
 * obeys any peer of the context for any address. RDMA hardware checks keys by itself, but a context
 * with RDMA devices and these features serves as that one does: only trusted peers there.
 */

/** hws_mem_opts.flags */
#define HWS_MEM_NONBLOCK 1 /* map pages when they are first used: faster now, slower then */
#define HWS_MEM_FIXED 2    /* allocate exactly at `address`, or fail */

/** hws_mem_opts.access: what the memory will be used for; 0: everything. */
#define HWS_MEM_LOCAL_READ 1
#define HWS_MEM_LOCAL_WRITE 2
#define HWS_MEM_REMOTE_READ 4
#define HWS_MEM_REMOTE_WRITE 8

typedef struct hws_mem_opts {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t memory_kind; /* HWS_MEMORY_* */
    uint32_t access;
    void *address; /* where to allocate, as a wish or with HWS_MEM_FIXED; nullable */
} hws_mem_opts;

/**
 * Register memory of the caller's with a context. Of a GPU's memory the CUDA context that is current
 * now is kept, see GPU in section 9.
 * @param length    bytes, not 0
 * @param opts      nullable: host memory, every access
 * @param[out] out  the id; released by hws_close(), or with the context
 * @return 0, HWS_E_INVALID, HWS_E_BUFFER_KIND (this UCX cannot handle it), HWS_E_CUDA (its kind
 *         cannot be found out), HWS_E_NO_MEMORY, HWS_E_NO_RESOURCE (locked memory)
 * @thread any  @blocks while pages are mapped
 * @owns the memory stays the caller's and must live until the id is stale, see hws_close_wait()  @since 0.1
 * @ucx ucp_mem_map
 */
HWS_API int32_t hws_mem_register(hws_id context, void *base, uint64_t length,
                                 const hws_mem_opts *opts, hws_id *out);

/**
 * Allocate memory and register it: preferably in shared memory, where a peer on the same machine
 * then reaches it without a copy (see hws_rkey_ptr()) and without this process making progress.
 * @param length    bytes at least, not 0; hws_mem_query() tells the length and where it is
 * @param opts      nullable: host memory, every access
 * @param[out] out  the id; the memory is freed when it is closed, or with the context
 * @return 0, HWS_E_INVALID, HWS_E_BUFFER_KIND, HWS_E_NO_MEMORY
 * @thread any  @blocks while pages are mapped  @owns the library, until the id is closed  @since 0.1
 * @ucx ucp_mem_map with UCP_MEM_MAP_ALLOCATE
 */
HWS_API int32_t hws_mem_alloc(hws_id context, uint64_t length, const hws_mem_opts *opts,
                              hws_id *out);

typedef struct hws_mem_info {
    uint32_t struct_size; /* in */
    uint32_t memory_kind; /* HWS_MEMORY_*, as UCX sees it */
    void *base;
    uint64_t length;    /* bytes */
    uint32_t allocated; /* 1: by hws_mem_alloc() */
    uint32_t uses;      /* plans and operations that hold it now */
} hws_mem_info;

/**
 * Where a registered memory is, and what it is.
 * @return 0, or the id's error
 * @thread any  @blocks no  @owns nothing  @since 0.1  @ucx ucp_mem_query
 */
HWS_API int32_t hws_mem_query(hws_id memory, hws_mem_info *out);

#define HWS_MEM_ADVISE_NORMAL 0
#define HWS_MEM_ADVISE_WILLNEED 1 /* will be used soon: map its pages now */

/**
 * Advise how a part of a registered memory will be used.
 * @param offset  bytes from its base
 * @param length  bytes
 * @return 0, HWS_E_INVALID if the part is not inside, HWS_E_UNSUPPORTED
 * @thread any  @blocks while pages are mapped  @owns nothing  @since 0.1  @ucx ucp_mem_advise
 */
HWS_API int32_t hws_mem_advise(hws_id memory, uint64_t offset, uint64_t length, uint32_t advice);

/** hws_rkey_pack() and hws_rkey_unpack(): flags */
#define HWS_RKEY_RAW 1 /* UCX's own packed key, for or from a plain UCX program */

/**
 * Pack the key by which a peer reaches a registered memory: bytes to be sent to it by any means.
 * They carry a version, the address and length, and what UCX needs for every kind of endpoint.
 * @param flags        0 or HWS_RKEY_RAW
 * @param[out] packed  room for `size` bytes; nullable if size is 0
 * @param[out] needed  bytes; nullable
 * @return 0, HWS_E_TOO_BIG if the room is too small, as it is if size is 0 (nothing is written),
 *         HWS_E_UNSUPPORTED (raw, without RDMA and HWS_FEATURE_UCX_RMA)
 * @thread any  @blocks for milliseconds the first time  @owns fills the caller's memory  @since 0.1
 * @ucx ucp_rkey_pack
 */
HWS_API int32_t hws_rkey_pack(hws_id memory, uint32_t flags, void *packed, uint64_t size,
                              uint64_t *needed);

/**
 * Make a packed key usable on one endpoint, whose peer must be the process that packed it. That the
 * memory was closed meanwhile is not found out here: reaching for it ends the connection.
 * @param length    bytes
 * @param flags     0 or HWS_RKEY_RAW: no checks, bounds are not known
 * @param[out] out  the id; released by hws_close(), or with the endpoint
 * @return 0, HWS_E_INVALID (not a key, truncated, damaged, of another process: the text tells),
 *         HWS_E_PEER_VERSION (packed by another version), HWS_E_NOT_CONNECTED, HWS_E_UNSUPPORTED
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns copies `packed`  @since 0.1  @ucx ucp_ep_rkey_unpack
 */
HWS_API int32_t hws_rkey_unpack(hws_id endpoint, const void *packed, uint64_t length,
                                uint32_t flags, hws_id *out);

typedef struct hws_rkey_info {
    uint32_t struct_size; /* in */
    uint32_t memory_kind; /* HWS_MEMORY_* at the peer */
    uint64_t base;        /* address at the peer; 0 for a raw key */
    uint64_t length;      /* bytes; UINT64_MAX for a raw key */
    hws_id endpoint;
    uint32_t direct; /* 1: hws_rkey_ptr() works */
    uint32_t reserved;
} hws_rkey_info;

/**
 * What a remote key reaches.
 * @return 0, or the id's error
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns nothing  @since 0.1
 */
HWS_API int32_t hws_rkey_query(hws_id rkey, hws_rkey_info *out);

/**
 * Compare two remote keys of one worker.
 * @param a            rkey: one
 * @param b            rkey: the other
 * @param[out] result  0: they reach the same memory over the same endpoint; else an order (< 0, > 0)
 * @return 0, HWS_E_INVALID for keys of different workers
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns nothing  @since 0.1  @ucx ucp_rkey_compare for raw keys, where the running UCX has it (1.16)
 */
HWS_API int32_t hws_rkey_compare(hws_id a, hws_id b, int32_t *result);

/**
 * The peer's memory as a pointer of this process: what is read and written there needs no call and
 * no copy. Only memory of hws_mem_alloc(), over shared memory.
 * @param address   at the peer, inside the key's memory
 * @param[out] out  valid until the key is closed
 * @return 0, HWS_E_UNREACHABLE if the memory is not shared with this process, HWS_E_INVALID (outside
 *         the key's memory)
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns the peer; the mapping is the library's  @since 0.1  @ucx ucp_rkey_ptr
 */
HWS_API int32_t hws_rkey_ptr(hws_id rkey, uint64_t address, void **out);

/* ------------------------------------------------------------------------------------------------
 * 17. Remote memory access
 *
 * Operations on the memory of a peer, whose program takes no part in them. They need a context
 * opened with HWS_FEATURE_RMA or HWS_FEATURE_ATOMIC, on both sides. Memory of hws_mem_alloc() of a
 * peer that is connected by shared memory is reached directly (more than 4 MiB in pieces, as progress is
 * made), and RDMA by the hardware. Otherwise
 * (TCP; memory of hws_mem_register()) the operation is a message, and the peer must make progress
 * for anything to happen.
 *
 * ORDER. Operations are not ordered, unless hws_fence() stands between them. The final event of a
 * put means that the buffer can be used again; that the data is in the peer's memory is told by the
 * end of a hws_flush() posted after it.
 *
 * OVERLAP. A process may reach memory of its own. The buffer must not overlap with the remote memory then:
 * what both hold afterwards is undefined.
 */

/**
 * Write to the peer's memory.
 * @param address  at the peer, inside the key's memory
 * @param length   bytes (entries with HWS_OP_IOV: gathered to consecutive addresses)
 * @param[out] op  HWS_EVENT_PUT; nullable if opts names a sink or HWS_OP_DETACHED
 * @return 0, HWS_DONE, HWS_E_INVALID (out of bounds), HWS_E_UNSUPPORTED (no HWS_FEATURE_RMA), or as
 *         hws_tag_send()
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 * @ucx ucp_put_nbx
 */
HWS_API int32_t hws_put(hws_id rkey, uint64_t address, const void *buffer, uint64_t length,
                        const hws_op_opts *opts, hws_id *op);

/**
 * Write to the peer's memory, then tell its application: HWS_EVENT_NOTIFY with `value`, delivered
 * to the sink of the peer's endpoint when the data is there. Notifications of an endpoint arrive in
 * the order they were posted. Value and length are what the writer says.
 * @param address  at the peer, inside the key's memory
 * @param length   bytes (entries with HWS_OP_IOV); 0: only tell
 * @param value    the event's `tag`
 * @param[out] op  HWS_EVENT_PUT; nullable if opts names a sink or HWS_OP_DETACHED
 * @return as hws_put(); HWS_E_UNSUPPORTED also where UCX does the put itself (RDMA, raw endpoints)
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 */
HWS_API int32_t hws_put_notify(hws_id rkey, uint64_t address, const void *buffer, uint64_t length,
                               uint64_t value, const hws_op_opts *opts, hws_id *op);

/**
 * Read from the peer's memory.
 * @param address  at the peer, inside the key's memory
 * @param length   bytes (entries with HWS_OP_IOV: scattered from consecutive addresses)
 * @param[out] op  HWS_EVENT_GET; nullable if opts names a sink or HWS_OP_DETACHED
 * @return as hws_put()
 * @thread any  @blocks no  @owns the buffer is the library's until the final event  @since 0.1
 * @ucx ucp_get_nbx
 */
HWS_API int32_t hws_get(hws_id rkey, uint64_t address, void *buffer, uint64_t length,
                        const hws_op_opts *opts, hws_id *op);

#define HWS_ATOMIC_ADD 0
#define HWS_ATOMIC_AND 1
#define HWS_ATOMIC_OR 2
#define HWS_ATOMIC_XOR 3
#define HWS_ATOMIC_SWAP 4
#define HWS_ATOMIC_CSWAP 5 /* the value is stored if the old one equals `compare` */

/** Asks for the old value: or it into the action. SWAP and CSWAP always fetch. */
#define HWS_ATOMIC_FETCH 256

/**
 * Change a number in the peer's memory atomically (against other operations of this kind). A
 * fetching action gives the old value in the `tag` of its final event, and in `result`.
 * @param address      at the peer, a multiple of `size`
 * @param action       HWS_ATOMIC_*, perhaps | HWS_ATOMIC_FETCH
 * @param size         bytes of the number: 4 or 8
 * @param value        operand
 * @param compare      for CSWAP; ignored otherwise
 * @param[out] result  the old value, `size` bytes, written before the final event; nullable
 * @param[out] op      HWS_EVENT_ATOMIC; nullable if opts names a sink or HWS_OP_DETACHED
 * @return as hws_put(); HWS_E_INVALID also for a misaligned address, HWS_E_UNSUPPORTED without
 *         HWS_FEATURE_ATOMIC, HWS_E_BUFFER_KIND (memory of a GPU that only the peer's processor reaches)
 * @thread any  @blocks no  @owns `result` is the library's until the final event  @since 0.1
 * @ucx ucp_atomic_op_nbx
 */
HWS_API int32_t hws_atomic(hws_id rkey, uint64_t address, uint32_t action, uint32_t size,
                           uint64_t value, uint64_t compare, void *result, const hws_op_opts *opts,
                           hws_id *op);

/**
 * Order remote memory operations: what was posted before on the same endpoint takes effect before
 * what is posted after. Tagged, active and stream messages are not concerned.
 * @param source  endpoint or worker
 * @return 0, or the id's error
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns nothing  @since 0.1  @ucx ucp_worker_fence
 */
HWS_API int32_t hws_fence(hws_id source);

/* ------------------------------------------------------------------------------------------------
 * 18. Worker addresses: connecting without a listener, by bytes that travel some other way
 *
 * An address names a UCX worker that a worker of Hawser sets aside for it: limited to TCP, so that
 * a peer that dies cannot wedge others through shared memory. Peers reached by one kind of address
 * share one such UCX worker on each side; hws_endpoint_info.reason is HWS_REASON_ADDRESS.
 *
 * A plain address has no hello. Its endpoints speak UCX's own tags and active messages (with
 * HWS_ENDPOINT_RAW's limits: no peer identity, no goodbye, no multi-buffer messages), both ends may
 * be plain UCX programs, and tagged messages carry no source: a receive posted on such an endpoint
 * or its worker takes them from any peer that knows the address. Connecting is one-sided: an
 * active message brings an endpoint for the answer (hws_am_detail.endpoint) only where this side has
 * connected to the peer's address, too.
 *
 * With HWS_ADDRESS_HELLO connecting goes through the hello, keys included; both ends get full
 * endpoints, the owner of the address by HWS_EVENT_ACCEPTED on the worker's sink.
 *
 * The bytes carry a version, UCX's version and a checksum; what is foreign, damaged or of another
 * UCX version is refused. They must come from somebody who is trusted: UCX believes what is inside.
 */

/** Flags of hws_worker_address() and hws_blob_pack(). */
#define HWS_ADDRESS_HELLO 1 /* who connects goes through the hello */
#define HWS_ADDRESS_PLAIN 2 /* UCX's bytes alone, for plain UCX programs: no version, no checksum */
/** A peer on this machine that dies at the wrong moment stops the traffic of all others. */
#define HWS_ADDRESS_UNSAFE_SHARED_MEMORY 4

/**
 * The address of a worker. The first call for a kind of address makes its UCX worker.
 * @param flags         HWS_ADDRESS_*; HELLO does not go with the others
 * @param[out] address  room for `size` bytes; nullable if size is 0
 * @param[out] needed   bytes of the address; nullable
 * @return 0, also if size is 0: then it is only asked how long it is; HWS_E_TOO_BIG if it does not fit (nothing is
 *         filled)
 * @thread any  @blocks for milliseconds the first time  @owns fills the caller's memory  @since 0.1
 * @ucx ucp_worker_create, ucp_worker_query
 */
HWS_API int32_t hws_worker_address(hws_id worker, uint32_t flags, void *address, uint64_t size,
                                   uint64_t *needed);

/**
 * Connect to a worker by its address, or by a blob that holds one.
 * @param address        of any kind; plain UCX bytes need HWS_ENDPOINT_RAW
 * @param length         bytes
 * @param endpoint_opts  nullable; flags HWS_ENDPOINT_RAW, HWS_ENDPOINT_LAZY. With the latter, for a
 *                       plain address, the endpoint is open at once: UCX keeps what is posted until
 *                       the peer makes progress, and a failure comes as HWS_EVENT_DISCONNECTED
 * @param[out] out       the endpoint
 * @param[out] op        the operation: HWS_EVENT_CONNECT; nullable if opts names a sink
 * @return 0, HWS_E_INVALID (not an address, or a damaged one), HWS_E_PEER_VERSION; final status as
 *         hws_connect()
 * @thread any  @blocks for milliseconds the first time  @owns copies the address  @since 0.1
 * @ucx ucp_ep_create
 */
HWS_API int32_t hws_connect_address(hws_id worker, const void *address, uint64_t length,
                                    const hws_endpoint_opts *endpoint_opts, const hws_op_opts *opts,
                                    hws_id *out, hws_id *op);

/** One thing that travels with an address in a blob. */
typedef struct hws_blob_item {
    uint64_t key;     /* the application's: which memory, say */
    const void *data; /* a packed remote key, or whatever else */
    uint64_t length;  /* bytes */
} hws_blob_item;

/**
 * Pack a worker's address and any items, packed remote keys above all, into one blob.
 * @param flags         HWS_ADDRESS_HELLO, HWS_ADDRESS_UNSAFE_SHARED_MEMORY
 * @param items         nullable if count is 0
 * @param[out] blob     room for `size` bytes; nullable if size is 0
 * @param[out] needed   bytes of the blob; nullable
 * @return 0, also if size is 0: then it is only asked how long it is; HWS_E_TOO_BIG if it does not fit (nothing is
 *         filled)
 * @thread any  @blocks for milliseconds the first time  @owns fills the caller's memory  @since 0.1
 */
HWS_API int32_t hws_blob_pack(hws_id worker, uint32_t flags, const hws_blob_item *items,
                              uint32_t count, void *blob, uint64_t size, uint64_t *needed);

/** What a blob or an address is. */
typedef struct hws_address_info {
    uint32_t struct_size; /* in */
    uint32_t flags;       /* HWS_ADDRESS_* */
    uint32_t ucx_major;
    uint32_t ucx_minor;
    uint32_t items;
    uint32_t reserved;
    uint64_t worker; /* UCX's number of the worker: the same in all addresses of one */
    char text[64];   /* for people */
} hws_address_info;

/**
 * Describe an address or blob. Two addresses lead to the same UCX worker exactly if their
 * `worker` is the same.
 * @return 0, HWS_E_INVALID (foreign or damaged)
 * @thread any  @blocks no  @owns nothing  @since 0.1  @ucx ucp_worker_address_query
 */
HWS_API int32_t hws_address_query(const void *address, uint64_t length, hws_address_info *out);

/**
 * One item of a blob.
 * @param[out] item  `data` points into the blob
 * @return 0, HWS_E_INVALID (foreign or damaged), HWS_E_NOT_FOUND (no such index)
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
HWS_API int32_t hws_blob_item_get(const void *blob, uint64_t length, uint32_t index,
                                  hws_blob_item *item);

/* ------------------------------------------------------------------------------------------------
 * 19. Plans: lists of transfers that are prepared once and posted often
 */

/** One transfer of a plan. */
typedef struct hws_transfer {
    uint32_t kind;        /* HWS_EVENT_PUT or HWS_EVENT_GET */
    uint32_t memory_kind; /* HWS_MEMORY_* of the buffer */
    hws_id rkey;
    uint64_t address; /* at the peer, inside the key's memory */
    void *buffer;
    uint64_t length; /* bytes */
    hws_id memory;   /* what the buffer lies in: kept registered as long as the plan; 0: nothing */
} hws_transfer;

/**
 * Prepare a list of transfers with one peer.
 * @param transfers  `count` entries, whose keys are all of this endpoint
 * @param count      entries, not 0
 * @param[out] out   the id; released by hws_close(), or with the endpoint
 * @return 0, HWS_E_INVALID (out of bounds, a key of another endpoint, memory of another context), the error of an id
 * @thread any  @blocks for microseconds while another thread progresses the worker
 * @owns copies the list; the buffers are the caller's while no posting of the plan is pending
 * @since 0.1
 */
HWS_API int32_t hws_plan_open(hws_id endpoint, const hws_transfer *transfers, uint64_t count,
                              hws_id *out);

/**
 * Post all transfers of a plan, in any order. Its one final event means that all have ended and
 * that what was written is in the peer's memory; `length` is the sum of their bytes, `status` the
 * first failure.
 * @param[out] op  HWS_EVENT_PLAN; nullable if opts names a sink or HWS_OP_DETACHED
 * @return as hws_put()
 * @thread any  @blocks no  @owns the buffers are the library's until the final event  @since 0.1
 * @ucx ucp_put_nbx, ucp_get_nbx, ucp_ep_flush_nbx
 */
HWS_API int32_t hws_plan_post(hws_id plan, const hws_op_opts *opts, hws_id *op);

#if defined(__cplusplus)
}
#endif

#endif
