/* The C side of a worker: events come in on any thread and are told to Python under the GIL. */
#include "op.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* The worker whose events this thread will drain itself: they need no wake-up. The end of `op`, for
 * which it makes the progress, is not even chained: no locked instruction holds up what follows. A
 * library that is loaded later may have a few bytes of the fast kind of thread-local memory. */
static _Thread_local struct {
    const struct core *core;
    const struct op *op;
} draining __attribute__((tls_model("initial-exec")));

uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct core *core_new(hws_id id, uint32_t mode)
{
    struct core *c = calloc(1, sizeof *c);

    if (c == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&c->refs, 1);
    c->id = id;
    c->pid = getpid();
    c->mode = mode;
    c->spin_ns = c->spin_now = 50000;
    c->credit = 64;
    c->fd = -1;
    c->wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wakefd < 0) {
        free(c);
        PyErr_SetFromErrno(PyExc_OSError);
        return NULL;
    }
    return c;
}

void core_ref(struct core *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

static void free_records(struct record *r)
{
    while (r != NULL) {
        struct record *next = r->next;

        if (r->op == NULL) {
            struct notice *n = (struct notice *)(void *)r;

            if (n->event.flags & HWS_EVENT_FLAG_BUFFER) {
                hws_close(n->am.buffer);
            }
            free(n);
        }
        r = next;
    }
}

void core_unref(struct core *c)
{
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    free_records(c->untold);
    free_records(atomic_exchange(&c->arrived, NULL));
    close(c->wakefd);
    if (c->fd >= 0) {
        close(c->fd);
    }
    free(c);
}

void core_signal_news(struct core *c)
{
    uint64_t one = 1;

    if (atomic_exchange(&c->signalled, 1) == 0 && write(c->wakefd, &one, sizeof one) < 0) {
        atomic_store(&c->signalled, 0);
    }
}

void core_push(struct core *c, struct record *r)
{
    r->next = atomic_load_explicit(&c->arrived, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&c->arrived, &r->next, r, memory_order_seq_cst,
                                                  memory_order_relaxed)) {}
    if (draining.core == c) {
        return;
    }
    core_signal_news(c);
    if (atomic_load(&c->blocked) != 0) {
        hws_worker_signal(c->id);
    }
}

int core_progress(struct core *c)
{
    return core_spin(c, NULL, 1);
}

/* A round copies memory of a peer for up to a millisecond: other threads and tasks do not wait for many of those. */
#define ROUNDS_NS 100000u

int core_spin(struct core *c, struct op *op, int rounds)
{
    const struct core *outer = draining.core;
    const struct op *outer_op = draining.op;
    uint64_t worked = 0;
    int32_t r = 0;

    draining.core = c;
    draining.op = op;
    for (int i = 0; i < rounds; i++) {
        r = hws_worker_progress(c->id);
        if (op != NULL && op_over(op)) {
            break;
        }
        if (r == HWS_E_BUSY && i > 4) {
            break; /* another thread makes progress */
        }
        if (r > 0 && i + 1 < rounds) {
            uint64_t now = now_ns();

            if (worked != 0 && now - worked > ROUNDS_NS) {
                break;
            }
            worked = worked != 0 ? worked : now;
        }
    }
    draining.core = outer;
    draining.op = outer_op;
    return r;
}

int32_t core_wait(struct core *c, struct op *op, uint64_t timeout_ns)
{
    const struct core *outer = draining.core;
    const struct op *outer_op = draining.op;
    int32_t r;

    draining.core = c;
    draining.op = op;
    r = hws_worker_wait(c->id, timeout_ns);
    draining.core = outer;
    draining.op = outer_op;
    return r;
}

bool core_in_progress(const struct core *c)
{
    return draining.core == c;
}

bool core_spins_for(const struct op *op)
{
    return draining.op == op;
}

/* An event of an object. Any thread, no GIL: it is copied and chained. */
void core_event(void *arg, const hws_event *event)
{
    struct core *c = arg;
    bool arrived =
        event->kind == HWS_EVENT_AM && event->status == HWS_OK; /* else detail is a text */
    const hws_am_detail *am = arrived ? event->detail : NULL;
    uint64_t header = am != NULL ? am->header_length : 0;
    struct notice *n = malloc(sizeof *n + header);

    if (n == NULL) {
        if (event->flags & HWS_EVENT_FLAG_BUFFER) {
            hws_close(am->buffer);
        }
        return;
    }
    n->record.op = NULL;
    n->event = *event;
    n->event.detail = NULL;
    n->text[0] = 0;
    memset(&n->am, 0, sizeof n->am);
    if (am != NULL) {
        n->am = *am;
        if (header != 0) { /* without one it is null */
            memcpy(n->header, am->header, header);
        }
    } else if (event->status < 0 && event->detail != NULL) {
        strncpy(n->text, event->detail, sizeof n->text - 1);
        n->text[sizeof n->text - 1] = 0;
    }
    /* Once the last event is pushed another thread may tell it, and the worker may go. */
    core_ref(c);
    core_push(c, &n->record);
    core_unref(c);
}

/* An exception of a function that the program gave: the loop where progress is made reports it. */
static void handler_failed(struct core *c)
{
    struct binding *b = PyErr_Occurred() != NULL ? binding_of_thread(c) : NULL;

    if (b != NULL && b->wait == NULL) {
        PyObject *loop = Py_NewRef(b->loop);

        callback_failed_on(loop, c->worker);
        Py_DECREF(loop);
    } else {
        callback_failed(c->worker);
    }
}

/*
 * True if the message is kept for later: worker._notice(kind, source, op, status, flags, length, tag, user, text,
 * header, buffer, endpoint)
 */
static void tell(struct core *c, struct notice *n)
{
    const hws_event *e = &n->event;
    PyObject *buffer = Py_None, *r;

    Py_INCREF(buffer);
    if (e->flags & HWS_EVENT_FLAG_BUFFER) {
        Py_DECREF(buffer);
        buffer = buffer_new(c, n->am.buffer, n->am.data, n->am.data_length);
        if (buffer == NULL) {
            callback_failed(NULL);
            return;
        }
    }
    if (c->worker != NULL && (uint32_t)Py_REFCNT(c->worker) != 0) { /* 0: it is being freed */
        r = PyObject_CallMethod(
            c->worker, "_notice", "IKKiIKKKsy#NK", e->kind, (unsigned long long)e->source,
            (unsigned long long)e->op, e->status, e->flags, (unsigned long long)e->length,
            (unsigned long long)e->tag, (unsigned long long)e->user, n->text, n->header,
            (Py_ssize_t)n->am.header_length, buffer, (unsigned long long)n->am.endpoint);
        handler_failed(c);
        if ((e->flags & HWS_EVENT_FLAG_BUFFER) && r != Py_True) {
            hws_buffer_taken(n->am.buffer); /* else whoever keeps it says so later */
        }
        Py_XDECREF(r);
    } else {
        Py_DECREF(buffer);
        if (e->kind == HWS_EVENT_CLOSED && e->source == c->id) {
            core_closed(c);
        }
    }
}

/* Handlers of the program may take so long before other callbacks of the loop get their turn. */
#define TELL_NS 1000000u

/* Put what arrived behind what is to be told already, oldest first. */
static void take_arrived(struct core *c)
{
    struct record *r, *newest, *first = NULL;

    if (atomic_load_explicit(&c->arrived, memory_order_relaxed) == NULL) {
        return;
    }
    r = newest = atomic_exchange_explicit(&c->arrived, NULL, memory_order_seq_cst);
    while (r != NULL) {
        struct record *next = r->next;

        r->next = first;
        first = r;
        r = next;
    }
    if (c->untold == NULL) {
        c->untold = first;
    } else {
        c->untold_last->next = first;
    }
    c->untold_last = newest;
}

/* Whether what is left can wait: not what somebody is about to take. */
static bool told_enough(uint64_t start, const struct op *until)
{
    return start != 0 && now_ns() - start > TELL_NS &&
           (until == NULL || until->told || !op_over(until));
}

int core_drain(struct core *c, struct binding *direct, bool all, const struct op *until)
{
    struct record *r;
    uint64_t dummy, start = 0;
    int n = 0;

    if (atomic_load_explicit(&c->signalled, memory_order_relaxed) != 0) {
        /* ORDER: read, clear, take: what is pushed before the clearing is taken below, what comes
         * later makes the descriptor readable again. */
        if (read(c->wakefd, &dummy, sizeof dummy) < 0 && errno != EAGAIN) {
            return 0;
        }
        atomic_store(&c->signalled, 0);
    }
    take_arrived(c);
    if (c->untold == NULL) {
        return 0;
    }
    core_ref(c);
    while ((r = c->untold) != NULL) {
        if (!all && told_enough(start, until)) {
            core_signal_news(c);
            break;
        }
        c->untold = r->next;
        n++;
        if (direct != NULL && !binding_is_of(c, direct)) {
            direct = NULL; /* who was told before has dropped the worker */
        }
        if (direct != NULL) {
            direct->more = c->untold != NULL;
        }
        if (r->op != NULL) {
            op_tell(r->op, direct);
        } else {
            start = start != 0 ? start : now_ns();
            tell(c, (struct notice *)(void *)r);
            free(r);
        }
    }
    core_unref(c);
    return n;
}

/* ---- Workers that nobody closed ---- */

static struct abandoned {
    struct abandoned *next;
    struct core *core;
} * abandoned; /* GIL */

static void *close_abandoned(void *arg)
{
    struct core *c = arg;

    hws_close_wait(c->id, 10000000000u);
    core_unref(c);
    return NULL;
}

/* Close without waiting: a thread of its own makes the progress that closing needs. */
void core_abandon(struct core *c)
{
    struct abandoned *a = malloc(sizeof *a);

    if (a != NULL) {
        core_ref(c);
        a->core = c;
        a->next = abandoned;
        abandoned = a;
    }
    core_ref(c);
    if (!thread_start(close_abandoned, c)) {
        hws_close(c->id);
        core_unref(c);
    }
}

/* Buffers of operations that ended after their worker was dropped. */
void core_reap(void)
{
    /* A list of its own: what is drained runs Python, which may come here again. */
    struct abandoned *list = abandoned, *a;

    abandoned = NULL;
    while ((a = list) != NULL) {
        list = a->next;
        core_drain(a->core, NULL, true, NULL);
        if (callback_raise() < 0) {
            PyErr_WriteUnraisable(NULL);
        }
        if (hws_kind(a->core->id) < 0 && atomic_load(&a->core->arrived) == NULL) {
            core_unref(a->core);
            free(a);
        } else {
            a->next = abandoned;
            abandoned = a;
        }
    }
}
