/* The awaitable: how it is made, ended and freed. Operations are taken from a list of free ones. */
#include "op.h"
#include "ucp.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define FREE_MAX 0 /* it must see what is used after it was freed */
#else
#define FREE_MAX 256
#endif
static struct op *free_ops; /* chained by `callback`; GIL */
static int free_count;

struct op *op_new(struct core *c, enum result result)
{
    struct op *op = free_ops;

    if (op != NULL) {
        free_ops = (struct op *)(void *)op->callback;
        free_count--;
        op->callback = NULL;
        Py_SET_REFCNT((PyObject *)op, 1);
    } else {
        op = PyObject_New(struct op, op_type);
        if (op == NULL) {
            return NULL;
        }
        memset((char *)op + sizeof(PyObject), 0, sizeof *op - sizeof(PyObject));
        op->record.op = op;
    }
    if (c->ops++ == 0) {
        core_ref(c);
    }
    op->core = c;
    op->id = 0;
    atomic_store_explicit(&op->ended, 0, memory_order_relaxed);
    op->status = 0;
    op->length = 0;
    op->multi = NULL;
    op->result = (uint8_t)result;
    op->back = BACK_NONE;
    op->told = op->cancelled = op->blocking = op->waiting = op->yielded = op->handed = false;
    op->late = false;
    op->deadline = 0;
    op->since = 0;
    return op;
}

/* All that it holds, but for its core. */
static void drop(struct op *op)
{
    if (op->weak != NULL) {
        PyObject_ClearWeakRefs((PyObject *)op);
    }
    if ((op->result == RESULT_MESSAGE || op->multi != NULL) && op_return(op, true) < 0) {
        PyErr_WriteUnraisable(NULL);
    }
    op->result = RESULT_NONE;
    op_give_back(op);
    Py_CLEAR(op->loop);
    Py_CLEAR(op->callback);
    Py_CLEAR(op->context);
    Py_CLEAR(op->more);
    Py_CLEAR(op->untaken);
    Py_CLEAR(op->message);
    if (op->late_link != NULL) {
        late_unlink(op);
    }
    ucp_drop(op);
    free(op->text);
    op->text = NULL;
}

/* Most hold nothing when they are freed: one branch for all. */
static inline bool holds_nothing(const struct op *op)
{
    return ((uintptr_t)op->keep | (uintptr_t)op->owner | (uintptr_t)op->loop |
            (uintptr_t)op->callback | (uintptr_t)op->text | (uintptr_t)op->ucp |
            (uintptr_t)op->untaken | (uintptr_t)op->message | (uintptr_t)op->weak |
            (uintptr_t)op->multi | (uintptr_t)op->late_link | (uintptr_t)op->has_view |
            (uintptr_t)(op->result == RESULT_MESSAGE)) == 0;
}

void op_dealloc(PyObject *self)
{
    struct op *op = (struct op *)(void *)self;
    struct core *c = op->core;
    PyTypeObject *type;

    if (!holds_nothing(op)) {
        drop(op);
    }
    if (--c->ops == 0) {
        core_unref(c);
    }
    if (free_count < FREE_MAX) {
        op->callback = (PyObject *)(void *)free_ops;
        free_ops = op;
        free_count++;
        return;
    }
    type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

void op_take_memory(struct op *op, struct memory *m)
{
    if (m->has_view) {
        op->view = m->view;
        op->has_view = true;
    }
    if (m->owner != NULL) {
        replace(&op->keep, m->owner);
    }
}

void op_options(struct op *op, uint64_t timeout_ns, uint32_t flags, uint32_t kind, hws_op_opts *o)
{
    *o = (hws_op_opts){.struct_size = sizeof *o,
                       .flags = flags,
                       .callback = op_event,
                       .callback_arg = op,
                       .timeout_ns = timeout_ns,
                       .memory_kind = kind};
    if (timeout_ns != 0 && timeout_ns != HWS_FOREVER) {
        op->deadline = now_ns() + timeout_ns;
    }
}

int op_stream(struct op *op, PyObject *stream, hws_op_opts *o)
{
    static PyObject *number; /* hawser._memory.stream_number() */
    PyObject *r;
    uint64_t n;
    int failed;

    if (stream == NULL || stream == Py_None) {
        return 0;
    }
    r = memory_function(&number, "stream_number") < 0
            ? NULL
            : PyObject_CallFunctionObjArgs(number, stream, NULL);
    failed = r == NULL ? -1 : to_u64(r, &n);
    Py_XDECREF(r);
    if (failed < 0) {
        Py_DECREF((PyObject *)op);
        return argument_wrong("stream");
    }
    o->flags |= HWS_OP_STREAM;
    o->stream = (void *)(uintptr_t)n;
    return 0;
}

/* The final event. Any thread, no GIL. */
void op_event(void *arg, const hws_event *event)
{
    struct op *op = arg;
    struct core *c = op->core;

    op->status = event->status;
    op->length = event->length;
    op->tag = event->tag;
    op->flags = event->flags;
    op->source = event->source;
    if (op->result == RESULT_MULTI && (event->flags & HWS_EVENT_FLAG_BUFFER)) {
        op_multi(op, event);
    }
    if (event->status < 0 && event->detail != NULL) {
        op->text = strdup(event->detail);
    }
    if (core_spins_for(op)) {
        op->handed = true;
        atomic_store_explicit(&op->ended, 1, memory_order_release);
        return;
    }
    if (core_in_progress(c)) { /* whoever makes progress here has a reference */
        atomic_store_explicit(&op->ended, 1, memory_order_release);
        core_push(c, &op->record);
        return;
    }
    /* Once it is pushed another thread may tell it, and the worker may go. */
    core_ref(c);
    atomic_store_explicit(&op->ended, 1, memory_order_release);
    core_push(c, &op->record);
    core_unref(c);
}
PyObject *op_posted(struct op *op, int32_t r)
{
    if (r == HWS_OK) {
        Py_INCREF((PyObject *)op); /* its own, until the final event is told */
        return (PyObject *)op;
    }
    if (r < 0) {
        Py_DECREF((PyObject *)op);
        return ends_here() ? NULL : raise_last(r);
    }
    if (op->result == RESULT_NONE && op->back == BACK_NONE && op->core->done != NULL) {
        struct op *done = op->core->done;

        Py_INCREF((PyObject *)done);
        Py_DECREF((PyObject *)op);
        return (PyObject *)done;
    }
    atomic_store_explicit(&op->ended, 1, memory_order_relaxed);
    op->told = true;
    if (op->back == BACK_NONE) {
        op_give_back(op);
    }
    if (op->ucp != NULL) {
        ucp_told(op);
    }
    return (PyObject *)op;
}
