/*
 * The awaitable: how it is made, ended and freed, and what it gives. It is a future (what a task
 * waits for), a coroutine (create_task() takes it) and its own iterator, so awaiting it makes no
 * other object.
 */
#include "op.h"
#include "ucp.h"
#include <stdlib.h>
#include <string.h>

PyTypeObject *op_type;

/* ---- Making and freeing: operations are taken from a list of free ones ---- */

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

void op_give_back(struct op *op)
{
    if (op->has_view) {
        op->has_view = false;
        PyBuffer_Release(&op->view);
    }
    if (op->result < RESULT_KEEP) {
        Py_CLEAR(op->keep);
    }
    Py_CLEAR(op->owner);
}

/* All that it holds, but for its core. */
static void drop(struct op *op)
{
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
            (uintptr_t)op->untaken | (uintptr_t)op->message | (uintptr_t)op->multi |
            (uintptr_t)op->late_link | (uintptr_t)op->has_view |
            (uintptr_t)(op->result == RESULT_MESSAGE)) == 0;
}

static void op_dealloc(PyObject *self)
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
        return -1;
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
        return raise_last(r);
    }
    if (op->result == RESULT_NONE && op->back == BACK_NONE) {
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
/* ---- The result ---- */

/* Of one that the library ended, or is to: hawser's own exception. */
static PyObject *failure_of_library(const struct op *op, int32_t status, const char *text)
{
    PyObject *r, *e;

    if (status >= 0) {
        Py_RETURN_NONE;
    }
    e = make_error(status, text);
    if (e != NULL) {
        r = PyLong_FromUnsignedLongLong(op->length);
        if (r == NULL || PyObject_SetAttrString(e, "length", r) < 0) {
            PyErr_Clear();
        }
        Py_XDECREF(r);
    }
    return e;
}

PyObject *op_failure(struct op *op)
{
    PyObject *e;

    if (op->late) {
        return failure_of_library(
            op, HWS_E_TIMED_OUT,
            "the deadline passed; the buffer is in use until UCX gives it back");
    }
    if (op->cancelled) {
        return op_cancelled_exception((PyObject *)op, NULL);
    }
    e = failure_of_library(op, op->status, op->text);
    return e != NULL && op->ucp != NULL && ucp_failed(op) ? ucp_failure(op, e) : e;
}

/* Raise its exception. */
static PyObject *raise_failure(struct op *op)
{
    PyObject *e = op_failure(op);

    if (e == Py_None) {
        return e;
    }
    if (e != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(e), e);
        Py_DECREF(e);
    }
    return NULL;
}

/* Messages of one worker are as long as the one before, as a rule: its number is kept. */
static PyObject *length_object(struct core *c, uint64_t length)
{
    if (c->worker == NULL) { /* nobody would free it */
        return PyLong_FromUnsignedLongLong(length);
    }
    if (c->length == NULL || c->length_was != length) {
        Py_XDECREF(c->length);
        c->length = PyLong_FromUnsignedLongLong(length);
        c->length_was = length;
    }
    return Py_XNewRef(c->length);
}

PyObject *op_value(struct op *op)
{
    if (op->cancelled || op->status < 0 || (op->ucp != NULL && ucp_failed(op))) {
        return raise_failure(op);
    }
    switch (op->result) {
    case RESULT_LENGTH:
        return length_object(op->core, op->length);
    case RESULT_UCP:
        Py_RETURN_TRUE;
    case RESULT_ID:
    case RESULT_MESSAGE:
        return PyLong_FromUnsignedLongLong(op->source);
    case RESULT_TAG:
        return PyLong_FromUnsignedLongLong(op->tag);
    case RESULT_KEEP:
        Py_INCREF(op->keep);
        return op->keep;
    case RESULT_MULTI:
        if ((op->keep = segments_new(op)) == NULL) {
            return NULL;
        }
        op->result = RESULT_KEEP;
        Py_INCREF(op->keep);
        return op->keep;
    case RESULT_CALL:
        return PyObject_CallFunctionObjArgs(op->keep, (PyObject *)op, NULL);
    default:
        Py_RETURN_NONE;
    }
}

static __attribute__((noinline)) PyObject *take_other(struct op *op)
{
    PyObject *value = op_value(op);

    if (op->result == RESULT_MESSAGE) {
        op->result = RESULT_ID;
    }
    if (op->back != BACK_NONE && op->told) { /* a cancelled one may still bring its message */
        op->back = BACK_NONE;
        op_give_back(op);
    }
    if (op->untaken != NULL) {
        Py_CLEAR(op->untaken);
    }
    if (op->ucp != NULL && value != NULL) {
        ucp_taken(op, false);
    }
    return value;
}

PyObject *op_take(struct op *op)
{
    PyObject *length;

    /* The usual receive: most of what an await costs after its message has come is here. */
    if (op->result != RESULT_LENGTH || op->status < 0 || !op->told || op->cancelled ||
        op->ucp != NULL) {
        return take_other(op);
    }
    length = length_object(op->core, op->length);
    op->back = BACK_NONE;
    op_give_back(op);
    return length;
}

/* None: no future, but a coroutine, of which asyncio.ensure_future() makes a task. UCX-Py's programs give these to
 * asyncio.wait(), which refuses coroutines. */
static PyObject *get_blocking(PyObject *self, void *unused)
{
    const struct op *op = (struct op *)(void *)self;

    (void)unused;
    if (op->ucp != NULL && !op->blocking && !op->waiting) {
        Py_RETURN_NONE;
    }
    return PyBool_FromLong(op->blocking);
}

static int set_blocking(PyObject *self, PyObject *v, void *unused)
{
    int truth = v == NULL ? 0 : PyObject_IsTrue(v);

    (void)unused;
    if (truth < 0) {
        return -1;
    }
    ((struct op *)(void *)self)->blocking = truth != 0;
    return 0;
}

#define NUMBER(name, expression)                                              \
    static PyObject *get_##name(PyObject *self, void *unused)                 \
    {                                                                         \
        const struct op *op = (const struct op *)(const void *)self;          \
        (void)unused;                                                         \
        return PyLong_FromUnsignedLongLong((unsigned long long)(expression)); \
    }
NUMBER(length, op->length)
NUMBER(tag, op->tag)
NUMBER(source, op->source)
NUMBER(id, op->id)

static PyObject *get_status(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((struct op *)(void *)self)->status);
}

static PyObject *op_repr(PyObject *self)
{
    struct op *op = (struct op *)(void *)self;

    return PyUnicode_FromFormat("<hawser.Operation %s>", op->late        ? "TIMED_OUT"
                                                         : op->cancelled ? "cancelled"
                                                         : !op_over(op)  ? "pending"
                                                         : op->status < 0
                                                             ? hws_error_name(op->status)
                                                             : "done");
}
/* ---- Operations that are not the library's ---- */

/* What everything gives that is done already and has no result: awaiting it costs little. */
struct op *op_new_done(struct core *c)
{
    struct op *op = op_new(c, RESULT_NONE);

    if (op != NULL) {
        atomic_store(&op->ended, 1);
        op->told = true;
    }
    return op;
}

/** operation(worker, untaken=None): an operation that Python ends by _end(status, result, text).
 * untaken(result) is called if who awaits it is interrupted between its end and the result. */
PyObject *py_operation(PyObject *self, PyObject *args)
{
    PyObject *worker, *untaken = NULL;
    struct core *c;
    struct op *op;

    (void)self;
    if (!PyArg_ParseTuple(args, "O|O:operation", &worker, &untaken) ||
        (c = core_of(worker)) == NULL || (op = op_new(c, RESULT_NONE)) == NULL) {
        return NULL;
    }
    op->untaken = untaken != NULL ? Py_NewRef(untaken) : NULL;
    return (PyObject *)op;
}

static PyObject *op_end(PyObject *self, PyObject *args)
{
    struct op *op = (struct op *)(void *)self;
    PyObject *result = NULL;
    const char *text = NULL;
    int status = 0;

    if (!PyArg_ParseTuple(args, "|iOz:_end", &status, &result, &text)) {
        return NULL;
    }
    if (atomic_load(&op->ended)) {
        Py_RETURN_FALSE;
    }
    if (op->cancelled) {
        atomic_store(&op->ended, 1);
        op->told = true;
        Py_RETURN_FALSE;
    }
    op->status = status;
    op->text = text != NULL ? strdup(text) : NULL;
    if (result != NULL && result != Py_None) {
        op->result = RESULT_KEEP;
        Py_INCREF(result);
        replace(&op->keep, result);
    }
    atomic_store(&op->ended, 1);
    op->told = true;
    if (op->callback != NULL) {
        op_call_waiters(op, NULL);
    }
    if (atomic_load(&op->core->blocked) != 0) {
        hws_worker_signal(op->core->id);
    }
    Py_RETURN_TRUE;
}

#define KEYWORDS METH_VARARGS | METH_KEYWORDS
#define FN(f) (PyCFunction)(void (*)(void))(f)

static PyMethodDef methods[] = {
    {"send", op_send_method, METH_O,
     "send($self, value, /)\n--\n\nAs of a coroutine: go on to await it."},
    {"throw", op_throw, METH_VARARGS,
     "throw($self, /, *exception)\n--\n\nAs of a coroutine: interrupt who awaits it."},
    {"close", op_close, METH_NOARGS,
     "close($self, /)\n--\n\nAs of a coroutine: give up awaiting it."},
    {"wait", FN(op_wait), KEYWORDS,
     "wait($self, /, timeout=None)\n--\n\n"
     "Block until the operation has ended and return its result. After `timeout` seconds\n"
     "TimeoutError is raised and the operation goes on."},
    {"cancel", FN(op_cancel), KEYWORDS,
     "cancel($self, /, msg=None)\n--\n\n"
     "Ask for the end of the operation; False if it has ended. Its buffer stays in use until\n"
     "UCX gives it back."},
    {"done", op_done, METH_NOARGS, "done($self, /)\n--\n\nWhether it has ended."},
    {"cancelled", op_cancelled, METH_NOARGS,
     "cancelled($self, /)\n--\n\nWhether it was cancelled by cancel()."},
    {"result", op_result, METH_NOARGS,
     "result($self, /)\n--\n\n"
     "What an await gives or raises; asyncio.InvalidStateError before it has ended."},
    {"exception", op_exception, METH_NOARGS,
     "exception($self, /)\n--\n\n"
     "What it failed with, or None; asyncio.InvalidStateError before it has ended."},
    {"add_done_callback", FN(op_add_done_callback), METH_FASTCALL | METH_KEYWORDS,
     "add_done_callback($self, /, fn, *, context=None)\n--\n\n"
     "Have fn(operation) called on the loop once it has ended, in `context` or a copy of the\n"
     "current one."},
    {"remove_done_callback", op_remove_done_callback, METH_O,
     "remove_done_callback($self, fn, /)\n--\n\n"
     "Take a callback back; gives how many times it was there."},
    /* asyncio.gather() asks futures of any kind for this one and for _cancel_message. */
    {"_make_cancelled_error", op_cancelled_exception, METH_NOARGS, NULL},
    {"_end", op_end, METH_VARARGS, NULL},
    {"_on_end", op_on_end, METH_O, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS,
     "Operation[T] is one whose result is a T."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {
    {"_asyncio_future_blocking", get_blocking, set_blocking, NULL, NULL},
    {"_cancel_message", op_cancel_message, NULL, NULL, NULL},
    {"get_loop", op_get_loop, NULL, "get_loop(): the event loop where it is waited for.", NULL},
    {"length", get_length, NULL, "Bytes moved.", NULL},
    {"tag", get_tag, NULL, "Tag of the message.", NULL},
    {"source", get_source, NULL, "Id of the object it was posted on.", NULL},
    {"id", get_id, NULL, "Id of the operation, 0 if it was done at once.", NULL},
    {"status", get_status, NULL, "0 or a negative code, once it has ended.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, op_dealloc},
                              {Py_tp_repr, op_repr},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, members},
                              {Py_am_await, op_await},
                              {Py_am_send, op_send},
                              {Py_tp_iter, op_await},
                              {Py_tp_iternext, op_next},
                              {Py_tp_doc, "A posted operation: await it, or wait() for it.\n\n"
                                          "It is a future and a coroutine at once: gather(), "
                                          "wait_for(), shield() and create_task()\n"
                                          "take it. asyncio.wait() refuses coroutines: give it "
                                          "tasks, asyncio.wait([create_task(op)])."},
                              {0, NULL}};

int op_import(PyObject *module)
{
    static PyType_Spec spec = {"hawser._core.Operation", sizeof(struct op), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

    op_type = add_type(module, "Operation", &spec);
    return op_type == NULL ? -1 : op_future_import();
}
