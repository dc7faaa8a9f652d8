/*
 * hawser._core: the part of the Python binding where speed or asyncio needs C.
 *
 * A worker's C side (struct core) takes events on whatever thread makes progress, without the
 * interpreter; they are chained there until a thread that holds the GIL drains them. Nothing of
 * Python is touched in a callback of the library.
 */
#ifndef HAWSER_PYTHON_EXT_H
#define HAWSER_PYTHON_EXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <hawser.h>
#include <stdatomic.h>
#include <stdbool.h>

/** Something that happened and was not yet told to Python: the head of an operation or a notice. */
struct record {
    struct record *next;
    struct op *op; /* null: a notice */
};

/** An event of an object: of a peer, a listener, a worker, an arrived active message. */
struct notice {
    struct record record;
    hws_event event;
    hws_am_detail am;
    char text[160];
    char header[]; /* of an active message */
};

/**
 * One event loop that a worker feeds. GIL. Whoever calls Python may find afterwards that another thread has unbound it:
 * all objects are null then, and the memory is there for as long as it is held.
 */
struct binding {
    struct binding *next;
    uint32_t refs;
    PyObject *loop;
    PyObject *ready;    /* loop._ready: the callbacks that are due; null where the loop hides it */
    PyObject *on_fd;    /* the reader */
    PyObject *on_turn;  /* what looks before the loop sleeps */
    PyObject *ended;    /* for its tasks to be woken with, see wakeup.h; may be null */
    PyObject *get_loop; /* a callable that returns it */
    PyObject *wait;     /* its own way to wait for an operation; null where a task takes a future */
    unsigned long thread;
    int direct;        /* the worker's descriptor, if this loop watches it: see relay.c; else -1 */
    struct op *timed;  /* operations waited for here that have a deadline, see late.c */
    PyObject *on_late; /* what looks at them */
    uint64_t looks_at; /* when it does; 0: it is not scheduled */
    bool due;          /* on_turn is scheduled */
    bool nests;        /* it has run inside of a callback of itself: see look_nested() */
    bool
        telling; /* one of them runs: the loop is this thread's running one, which costs much to ask */
    bool
        more; /* what it tells is not the last that has ended: others of this loop are about to go on */
};

/** The C side of a worker. It lives until the worker and its operations have ended. */
struct core {
    _Atomic uint32_t refs;
    pid_t pid; /* of the process that it is for */
    hws_id id;
    uint32_t mode;
    int fd;                           /* a copy of the library's; -1 in the thread modes */
    int wakefd;                       /* ours: events that another thread's progress delivered */
    _Atomic(struct record *) arrived; /* newest first; pushed by any thread */
    struct record *untold;            /* taken of them, oldest first; GIL */
    struct record *untold_last;       /* if there are any */
    _Atomic uint32_t signalled;       /* wakefd is readable */
    _Atomic bool relays;      /* a thread makes it readable for loops that do not watch `fd` */
    _Atomic uint32_t blocked; /* threads in a blocking wait of this worker */
    PyObject *worker;         /* borrowed; null once the Python object is gone */
    struct op *done;          /* for everything that is done already; the worker's */
    struct op *spare;         /* for the next send, if UCX keeps its message; the worker's */
    hws_op_opts sending;      /* of that send */
    PyObject *length;         /* the bytes that the last receive gave, as an int; the worker's */
    uint64_t length_was;      /* and plainly */
    uint32_t ops;             /* operations that hold a reference together; GIL */
    uint32_t views; /* of buffers of the library, whose memory ends with the worker; GIL */
    struct binding *bindings;
    bool closed;
    uint32_t spin_ns, spin_now; /* how long an await spins; adapted to what came of it */
    uint32_t credit;            /* work until the loop's turn is looked at */
    uint64_t turn;              /* when the loop last had its turn */
    uint64_t awaited, inlined, spun, slept;
};

/** What an operation gives when it is awaited. */
enum result {
    RESULT_NONE,
    RESULT_LENGTH,
    RESULT_UCP,     /* True, see ucp.c */
    RESULT_KEEP,    /* the object kept with it */
    RESULT_CALL,    /* `keep` is called with the operation */
    RESULT_ID,      /* source of the event */
    RESULT_MESSAGE, /* the same: a message, which is returned if nobody goes on with it */
    RESULT_MULTI,   /* the list of a multi-buffer message, made of `multi` */
    RESULT_TAG      /* tag of the event */
};

/** How what an operation brought goes back, see op_return.c. */
enum back { BACK_NONE, BACK_TAG, BACK_STREAM, BACK_LIST, BACK_SEGMENTS };

/** An operation: awaitable, future and coroutine at once. It is its own keeper while it goes on. */
struct op {
    PyObject_HEAD struct record record;
    struct core *core;
    hws_id id;
    _Atomic uint32_t ended; /* ORDER: released after the fields of the event are written */
    int32_t status;
    uint32_t flags;
    hws_id source;
    uint64_t length, tag;
    char *text;                    /* malloc */
    const hws_multi_detail *multi; /* ours to close until Python has it; goes with its worker */
    hws_id multi_id;               /* its buffer */
    uint8_t result;
    uint8_t back; /* not none: buffer and `keep` stay until the result is taken */
    bool has_view, told, cancelled, blocking, waiting, yielded;
    bool late;      /* cancelled by its deadline */
    bool handed;    /* ended in the progress of the thread that waits for it, which tells it */
    uint64_t since; /* when it went to sleep, where awaits spin less than they may; else 0 */
    void *data;     /* the memory, if `back` says that its bytes may go back */
    Py_buffer view;
    PyObject *keep;
    PyObject *owner; /* of the memory, where `keep` is the result */
    PyObject *loop;  /* where it is waited for, and that loop's thread */
    unsigned long thread;
    PyObject *callback, *context;
    PyObject *more;                    /* further callbacks: list of (callback, context) */
    PyObject *message;                 /* what cancel() was given, or null */
    PyObject *weak;                    /* weak references to it */
    uint64_t deadline;                 /* now_ns() then; 0: none */
    struct op *late_next, **late_link; /* in the binding's list; null: in none */
    PyObject
        *untaken; /* of one that Python ends: takes its result back if who waits is interrupted */
    /* Of hawser.ucp, see ucp.c. */
    PyObject *ucp,
        *buffer; /* the endpoint, null for all others, and what was given to be sent or filled */
    struct op *sending_next, **sending_link; /* in the endpoint's list of sends; null: in none */
    bool receives, untaken_message;
    uint64_t number, expected; /* which message of the endpoint, and its bytes */
};

/** Memory that was borrowed from a Python object. */
struct memory {
    void *data;
    uint64_t length;
    uint32_t kind; /* HWS_MEMORY_* */
    bool has_view;
    Py_buffer view;
    PyObject *owner; /* what keeps memory alive that has no view */
};

extern PyTypeObject *op_type, *worker_type, *endpoint_type, *buffer_type, *binding_type;

/* errors.c */
int errors_import(void);
/** Raise the exception of a code. */
PyObject *raise_code(int32_t code, const char *text);
/** Raise the last error of this thread. */
PyObject *raise_last(int32_t code);
/** ends(): Python ends on this thread, and closes what others still wait on. */
PyObject *py_ends(PyObject *self, PyObject *unused);
/**
 * Whether this is another thread, that runs no loop: a daemon. SystemExit is set, which ends it without a word. A thread
 * that reads a socket then never comes back, but what joins this one does.
 */
bool ends_here(void);
/** The exception of a code, not raised. */
PyObject *make_error(int32_t code, const char *text);
/** A str of a text of the library's, which a peer or another program may have written: what is no UTF-8 is replaced. */
PyObject *from_text(const char *text);
/** An id, a tag, ... of an int or what stands for one (`__index__`); -1 with an error set. */
int to_u64(PyObject *o, uint64_t *out);
/** Seconds (float, int or None) as nanoseconds, 0 for None. */
int to_timeout(PyObject *seconds, uint64_t *ns);

/* arguments.c */
/**
 * The arguments of a call by position. `list` has a "name:kind" for each, and a pointer for each follows:
 *   o: any object (PyObject *, borrowed)         w: a worker (struct core *)         p: whether it is true (int)
 *   n: a number (uint64_t)   u: one of 32 bits   i: one of Py_ssize_t, or its limit  h: a port (uint16_t)
 *   s: a str (const char *)  z: a str or None    t: seconds or None (uint64_t, ns)
 * What is wrong with one begins with its name. -1 with an error set.
 */
int parse(PyObject *args, const char *list, ...);
/** Put the argument's name before the text of the exception that is set. -1. */
int argument_wrong(const char *name);

/* callback.c */
/** Report a callback's exception, if one is set; KeyboardInterrupt and SystemExit are kept for callback_raise(). */
void callback_failed(PyObject *where);
/** The same of a callback that was called in the place of a loop: the loop reports it. */
void callback_failed_on(PyObject *loop, PyObject *callback);
/** What a callback of this thread kept; null nearly always. */
extern _Thread_local PyObject *callback_kept __attribute__((tls_model("initial-exec")));
int callback_raise_kept(void);
/** After core_drain(), once everything is in order again: -1 with what a callback of this thread kept. */
static inline int callback_raise(void)
{
    return callback_kept == NULL ? 0 : callback_raise_kept();
}

/* memory.c */
int memory_import(void);
int memory_get(PyObject *object, bool writable, struct memory *m);
/** A function of hawser._memory, looked up once. -1 with an error set. */
int memory_function(PyObject **function, const char *name);
void memory_release(struct memory *m);
PyObject *py_memory(PyObject *self, PyObject *args);
PyObject *py_hold_memory(PyObject *self, PyObject *args);
PyObject *py_pointer(PyObject *self, PyObject *object);

/* core.c */
struct core *core_new(hws_id id, uint32_t mode);
void core_ref(struct core *c);
void core_unref(struct core *c);
void core_push(struct core *c, struct record *r);
/** Make wakefd readable. Any thread, no GIL. */
void core_signal_news(struct core *c);
/** Progress once; the events it delivers need no wake-up. */
int core_progress(struct core *c);
/** Progress until the operation has ended or nothing came of so many rounds, for a thread that settles
 * the operation then. How much was done in the last round. */
int core_spin(struct core *c, struct op *op, int rounds);
/** hws_worker_wait() for such a thread. */
int32_t core_wait(struct core *c, struct op *op, uint64_t timeout_ns);
/** Whether this thread is inside core_progress(), core_spin() or core_wait(). */
bool core_in_progress(const struct core *c);
/** Whether this thread makes progress for this operation and settles it afterwards. */
bool core_spins_for(const struct op *op);
/**
 * Tell Python what arrived. How many were told.
 * direct: callbacks of this loop are called, not scheduled. all: however long handlers of the program take; else only
 * for a while, and what is left makes the worker's descriptor readable. until: but this one, if it has ended; nullable.
 */
int core_drain(struct core *c, struct binding *direct, bool all, const struct op *until);
void core_event(void *arg, const hws_event *event);
void core_abandon(struct core *c);
void core_reap(void);
/** The worker's last event was told: give back the library's reference. */
void core_closed(struct core *c);
uint64_t now_ns(void);

/* thread.c */
/**
 * Have fn(arg) run on a thread of its own, which never touches Python. It takes no signals of the program but those of
 * its own faults. False if there is none to be had.
 */
bool thread_start(void *(*fn)(void *), void *arg);

/* relay.c */
/** Decide whether a loop watches the worker's descriptor itself. -1 with an error set. */
int relay_share(struct core *c, struct binding *b);
void relay_stop(struct core *c);

/* loop.c */
int loop_import(void);
struct binding *binding_of_thread(struct core *c);
/** Whether it still is one of the worker's. */
bool binding_is_of(const struct core *c, const struct binding *b);
/** The binding of the running loop; null with an error set where none runs. */
struct binding *binding_running(struct core *c);
static inline struct binding *binding_hold(struct binding *b)
{
    b->refs++;
    return b;
}
void binding_drop(struct binding *b);
/** late.c: tell those whose deadline has passed. -1 with an error set. */
int late_look(struct binding *b);
/** Mind no deadline any more. */
void late_forget(struct binding *b);
/** Before the loop sleeps, look and arm. */
int binding_schedule(struct core *c, struct binding *b);
/** Have on_late called in so many seconds. */
int binding_call_later(struct binding *b, double seconds);
void binding_look_again(struct core *c);
void bindings_clear(struct core *c);
/** The running loop, None where none runs. */
PyObject *running_loop(void);
PyObject *py_running_loop(PyObject *self, PyObject *unused);
/** Whether loops other than asyncio's may run; found out when there is a new worker or no loop. */
bool loop_others(void);
void loop_find_others(void);

/* op.c */
int op_import(PyObject *module);
struct op *op_new(struct core *c, enum result result);
struct op *op_new_done(struct core *c);
PyObject *py_operation(PyObject *self, PyObject *worker);
/** The options of an operation that ends in `op`. */
void op_options(struct op *op, uint64_t timeout_ns, uint32_t flags, uint32_t kind, hws_op_opts *o);
/** What is sent is there when this CUDA stream's work is done: a number, or an object that has one. Null and
 * None: nothing to wait for. -1 with an error set, and the operation, which was not posted, dropped. */
int op_stream(struct op *op, PyObject *stream, hws_op_opts *o);
/** What posting returned: the awaitable, or an exception. Steals `op`. */
PyObject *op_posted(struct op *op, int32_t r);
/** It has ended: give the buffer back and call those who wait. Takes the keeper's reference. */
void op_tell(struct op *op, struct binding *direct);
void op_event(void *arg, const hws_event *event);
void op_take_memory(struct op *op, struct memory *m);
/** Block until it has ended, for 0 without a limit; its result. Steals `op`, which may be null. */
PyObject *op_block(PyObject *op, uint64_t timeout_ns);

/* worker.c, endpoint.c, buffer.c */
int worker_import(PyObject *module);
int endpoint_import(PyObject *module);
int buffer_import(PyObject *module);
PyObject *buffer_new(struct core *c, hws_id id, const void *data, uint64_t length);
struct core *core_of(PyObject *worker);
extern PyMethodDef functions[], rma_functions[], address_functions[], plan_functions[],
    query_functions[];

/** The id, or the exception of a code. */
PyObject *result_id(int32_t r, hws_id id);

/* multi.c */
int multi_import(PyObject *module);
PyObject *py_multi_send(PyObject *self, PyObject *args);
PyObject *py_multi_recv(PyObject *self, PyObject *args);
/** The listed message of an operation, as an object of Python; takes it from the operation. */
PyObject *segments_new(struct op *op);
/** hws_multi_return() of a list, which may be an object of Python already: a task that is woken asks for it first. */
int32_t list_return(struct op *op);
/** hws_segments_return() of what a fetch brought. */
int32_t segments_return(const struct op *op);

PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec);

/** Put `o` (stolen) into a slot. */
static inline void replace(PyObject **slot, PyObject *o)
{
    PyObject *old = *slot;

    *slot = o;
    Py_XDECREF(old);
}

/** Whoever blocks looks for signals so often. */
#define SIGNALS_NS 20000000u

/** Run without the GIL. */
#define UNLOCKED(statement)                          \
    do {                                             \
        PyThreadState *state_ = PyEval_SaveThread(); \
        statement;                                   \
        PyEval_RestoreThread(state_);                \
    } while (0)

#endif
