/*
 * The awaitable. It is a future (what a task waits for), a coroutine (create_task() takes it) and
 * its own iterator, so awaiting it makes no other object. An await first makes progress itself for
 * a bounded time; only if that brings nothing does the loop wait for the worker's descriptor.
 */
#include "ext.h"
#include <stdlib.h>
#include <string.h>

PyTypeObject *op_type;

static PyObject *cancelled_error, *invalid_state, *copy_context;

/* Progress under the GIL before it is released: a few microseconds. */
#define QUICK 48
/* Work between two looks at whether the loop is due, and how long it may wait for its turn. */
#define CREDIT 64
#define TURN_NS 1000000u
/* A blocking wait looks for signals so often. */
#define SLICE_NS 20000000u

/* ---- Making and freeing: operations are taken from a list of free ones ---- */

#define FREE_MAX 256
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
    core_ref(c);
    op->core = c;
    op->id = 0;
    atomic_store_explicit(&op->ended, 0, memory_order_relaxed);
    op->status = 0;
    op->length = 0;
    op->multi = NULL;
    op->result = (uint8_t)result;
    op->told = op->cancelled = op->blocking = op->waiting = op->yielded = false;
    op->since = 0;
    return op;
}

static void give_back(struct op *op)
{
    if (op->has_view) {
        op->has_view = false;
        PyBuffer_Release(&op->view);
    }
    if (op->result < RESULT_KEEP) {
        Py_CLEAR(op->keep);
    }
}

static void op_dealloc(PyObject *self)
{
    struct op *op = (struct op *)(void *)self;
    PyTypeObject *type;

    op->result = RESULT_NONE;
    give_back(op);
    if (op->multi != NULL) {
        hws_close(op->multi->buffer);
        op->multi = NULL;
    }
    if (op->core != NULL) {
        core_unref(op->core);
        op->core = NULL;
    }
    Py_CLEAR(op->loop);
    Py_CLEAR(op->callback);
    Py_CLEAR(op->context);
    Py_CLEAR(op->more);
    free(op->text);
    op->text = NULL;
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
        op->multi = event->detail;
    }
    if (event->status < 0 && event->detail != NULL) {
        op->text = strdup(event->detail);
    }
    /* Once it is pushed another thread may tell it, and the worker may go. */
    core_ref(c);
    atomic_store_explicit(&op->ended, 1, memory_order_release);
    core_push(c, &op->record);
    core_unref(c);
}

/* ---- Those who wait ---- */

static void unraisable(PyObject *where)
{
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(where);
    }
}

/* Have a callback called on the loop of the operation. */
static void schedule(struct op *op, PyObject *callback, PyObject *context, struct binding *direct)
{
    PyObject *r, *name, *method, *args, *kwargs;

    if (op->loop == NULL) {
        r = PyObject_CallFunctionObjArgs(callback, (PyObject *)op, NULL);
        Py_XDECREF(r);
        unraisable(callback);
        return;
    }
    if (direct != NULL && direct->loop == op->loop) {
        r = PyObject_CallMethod(context, "run", "OO", callback, (PyObject *)op);
        Py_XDECREF(r);
        unraisable(callback);
        return;
    }
    name = PyUnicode_InternFromString(
        op->thread == PyThread_get_thread_ident() ? "call_soon" : "call_soon_threadsafe");
    method = name == NULL ? NULL : PyObject_GetAttr(op->loop, name);
    args = Py_BuildValue("(OO)", callback, (PyObject *)op);
    kwargs = Py_BuildValue("{sO}", "context", context);
    r = method != NULL && args != NULL && kwargs != NULL ? PyObject_Call(method, args, kwargs)
                                                         : NULL;
    Py_XDECREF(name);
    Py_XDECREF(method);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (r == NULL && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        PyErr_Clear(); /* the loop is closed: nobody waits there any more */
    }
    Py_XDECREF(r);
    unraisable(callback);
}

static void call_waiters(struct op *op, struct binding *direct)
{
    PyObject *callback = op->callback, *context = op->context, *more = op->more;

    op->callback = op->context = op->more = NULL;
    if (callback != NULL) {
        schedule(op, callback, context, direct);
        Py_DECREF(callback);
        Py_DECREF(context);
    }
    for (Py_ssize_t i = 0; more != NULL && i < PyList_Size(more); i++) {
        PyObject *pair = PyList_GetItem(more, i);

        schedule(op, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1), NULL);
    }
    Py_XDECREF(more);
}

void op_tell(struct op *op, struct binding *direct)
{
    struct core *c = op->core;

    op->told = true;
    give_back(op);
    if (op->since != 0) {
        /* It went to sleep for a time that a spin would have bridged: spin again from now on. */
        if (now_ns() - op->since < c->spin_ns) {
            c->spin_now = c->spin_ns;
        }
        op->since = 0;
    }
    if (op->callback != NULL) {
        call_waiters(op, direct);
    }
    Py_DECREF((PyObject *)op);
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
    if (op->result == RESULT_NONE) {
        struct op *done = op->core->done;

        Py_INCREF((PyObject *)done);
        Py_DECREF((PyObject *)op);
        return (PyObject *)done;
    }
    atomic_store_explicit(&op->ended, 1, memory_order_relaxed);
    op->told = true;
    give_back(op);
    return (PyObject *)op;
}

/* ---- The result ---- */

static PyObject *failure(struct op *op)
{
    PyObject *r, *e;

    if (op->cancelled) {
        return PyObject_CallNoArgs(cancelled_error);
    }
    if (op->status >= 0) {
        Py_RETURN_NONE;
    }
    e = make_error(op->status, op->text);
    if (e != NULL) {
        r = PyLong_FromUnsignedLongLong(op->length);
        if (r == NULL || PyObject_SetAttrString(e, "length", r) < 0) {
            PyErr_Clear();
        }
        Py_XDECREF(r);
    }
    return e;
}

static PyObject *value(struct op *op)
{
    if (op->cancelled || op->status < 0) {
        PyObject *e = failure(op);

        if (e != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(e), e);
            Py_DECREF(e);
        }
        return NULL;
    }
    switch (op->result) {
    case RESULT_LENGTH:
        return PyLong_FromUnsignedLongLong(op->length);
    case RESULT_ID:
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

static bool over(const struct op *op)
{
    return op->cancelled || atomic_load_explicit(&op->ended, memory_order_acquire);
}

/* ---- Waiting ---- */

/* Progress without the GIL while that is productive or the spin lasts. */
static void spin_unlocked(struct op *op, uint32_t spin_ns)
{
    struct core *c = op->core;
    uint64_t start = now_ns(), idle = start, now;

    if (c->fd < 0) {
        /* A progress thread stands aside only for a real wait. */
        hws_worker_wait(c->id, spin_ns);
        return;
    }
    do {
        int done = 0;

        for (int i = 0; i < 16 && !over(op); i++) {
            int r = core_progress(c);

            done += r > 0 ? r : 0;
        }
        now = now_ns();
        if (done != 0) {
            idle = now;
        }
    } while (!over(op) && now - idle < spin_ns && now - start < TURN_NS);
}

/* Others of this loop wait for their turn: do not hold them up. */
static bool loop_is_busy(const struct binding *b)
{
    return b->ready != NULL && PyObject_Size(b->ready) > (b->due ? 1 : 0);
}

/* Make progress for a bounded time. -1 with an error set. */
static int spin(struct op *op)
{
    struct core *c = op->core;
    struct binding *b = binding_of_thread(c);
    uint32_t spin_now = c->spin_now;

    if ((b == NULL || !b->due) &&
        ((b = binding_running(c)) == NULL || binding_schedule(c, b) < 0)) {
        return -1;
    }
    if (loop_is_busy(b)) {
        core_progress(c);
        return 0;
    }
    for (int i = 0; i < QUICK && !over(op); i++) {
        if (core_progress(c) == HWS_E_BUSY && i > 4) {
            break;
        }
    }
    if (over(op)) {
        return 0;
    }
    if (spin_now >= 2000) {
        UNLOCKED(spin_unlocked(op, spin_now));
        c->spin_now =
            over(op) ? (spin_now * 2 < c->spin_ns ? spin_now * 2 : c->spin_ns) : spin_now / 2;
        c->spun++;
    }
    return 0;
}

/* Whether the loop must get its turn before an operation that is done may go on. */
static bool turn_due(struct core *c)
{
    uint64_t now = now_ns();

    c->credit = CREDIT;
    if (now - c->turn < TURN_NS) {
        return false;
    }
    c->turn = now;
    return true;
}

static int bind_here(struct op *op)
{
    struct binding *b;

    if (op->loop != NULL && op != op->core->done) {
        return 0;
    }
    if ((b = binding_running(op->core)) == NULL) {
        return -1;
    }
    Py_INCREF(b->loop);
    replace(&op->loop, b->loop);
    op->thread = b->thread;
    return over(op) ? 0 : binding_schedule(op->core, b);
}

static PySendResult op_send(PyObject *self, PyObject *arg, PyObject **out)
{
    struct op *op = (struct op *)(void *)self;
    struct core *c = op->core;

    (void)arg;
    if (!over(op) && !op->waiting && spin(op) < 0) {
        *out = NULL;
        return PYGEN_ERROR;
    }
    if (over(op)) {
        if (!op->told) {
            core_drain(c, NULL);
        }
        if (!op->yielded && --c->credit == 0 && turn_due(c)) {
            op->yielded = true;
            *out = Py_None;
            Py_INCREF(Py_None);
            return PYGEN_NEXT;
        }
        op->yielded = false;
        *out = value(op);
        return *out == NULL ? PYGEN_ERROR : PYGEN_RETURN;
    }
    if (bind_here(op) < 0) {
        *out = NULL;
        return PYGEN_ERROR;
    }
    if (op->since == 0) {
        op->since = now_ns();
    }
    c->slept++;
    op->waiting = op->blocking = true;
    *out = self;
    Py_INCREF(self);
    return PYGEN_NEXT;
}

static void stop_iteration(PyObject *result)
{
    PyObject *e;

    if (result != Py_None) {
        e = PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, NULL);
        if (e != NULL) {
            PyErr_SetObject(PyExc_StopIteration, e);
            Py_DECREF(e);
        }
    }
    Py_DECREF(result);
}

static PyObject *op_next(PyObject *self)
{
    PyObject *result = NULL;

    switch (op_send(self, Py_None, &result)) {
    case PYGEN_NEXT:
        return result;
    case PYGEN_RETURN:
        stop_iteration(result);
        return NULL;
    default:
        return NULL;
    }
}

static PyObject *op_send_method(PyObject *self, PyObject *arg)
{
    PyObject *r = op_next(self);

    (void)arg;
    if (r == NULL && !PyErr_Occurred()) {
        PyErr_SetNone(PyExc_StopIteration);
    }
    return r;
}

static PyObject *op_await(PyObject *self)
{
    Py_INCREF(self);
    return self;
}

/* ---- Cancelling ---- */

/* Nobody waits any more; the buffer stays held until the final event. */
static bool cancel(struct op *op)
{
    struct binding *b;

    if (over(op)) {
        return false;
    }
    op->cancelled = true;
    op->waiting = false;
    if (op->id != 0) {
        hws_cancel(op->id);
    }
    if ((b = binding_of_thread(op->core)) != NULL && binding_schedule(op->core, b) < 0) {
        PyErr_Clear();
    }
    if (op->callback != NULL) {
        call_waiters(op, NULL);
    }
    return true;
}

static PyObject *op_cancel(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    return PyBool_FromLong(cancel((struct op *)(void *)self));
}

/* throw(exception) and throw(type, value, traceback): the task that awaits is interrupted. */
static PyObject *op_throw(PyObject *self, PyObject *args)
{
    PyObject *type, *val = NULL, *tb = NULL;

    if (!PyArg_ParseTuple(args, "O|OO:throw", &type, &val, &tb)) {
        return NULL;
    }
    cancel((struct op *)(void *)self);
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (val == Py_None || val == NULL) {
        PyErr_SetNone(type);
    } else {
        PyErr_SetObject(type, val);
    }
    return NULL;
}

static PyObject *op_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    cancel((struct op *)(void *)self);
    Py_RETURN_NONE;
}

/* ---- The interface of a future ---- */

static PyObject *op_done(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(over((struct op *)(void *)self));
}

static PyObject *op_cancelled(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct op *)(void *)self)->cancelled);
}

static PyObject *op_result(PyObject *self, PyObject *unused)
{
    struct op *op = (struct op *)(void *)self;

    (void)unused;
    if (!over(op)) {
        PyErr_SetString(invalid_state, "the operation goes on");
        return NULL;
    }
    return value(op);
}

static PyObject *op_exception(PyObject *self, PyObject *unused)
{
    struct op *op = (struct op *)(void *)self;

    if (!over(op) || op->cancelled) {
        return op_result(self, unused);
    }
    return failure(op);
}

static PyObject *op_add_done_callback(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "context", NULL};
    struct op *op = (struct op *)(void *)self;
    PyObject *fn, *context = Py_None, *pair;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:add_done_callback", names, &fn,
                                     &context) ||
        bind_here(op) < 0) {
        return NULL;
    }
    if (context == Py_None) {
        context = PyObject_CallNoArgs(copy_context);
        if (context == NULL) {
            return NULL;
        }
    } else {
        Py_INCREF(context);
    }
    if (over(op)) {
        schedule(op, fn, context, NULL);
        Py_DECREF(context);
    } else if (op->callback == NULL) {
        Py_INCREF(fn);
        op->callback = fn;
        op->context = context;
    } else {
        pair = Py_BuildValue("(ON)", fn, context);
        if (pair == NULL || (op->more == NULL && (op->more = PyList_New(0)) == NULL) ||
            PyList_Append(op->more, pair) < 0) {
            Py_XDECREF(pair);
            return NULL;
        }
        Py_DECREF(pair);
    }
    Py_RETURN_NONE;
}

/* _on_end(fn): fn(operation) is called where its end is noticed; no loop is needed. */
static PyObject *op_on_end(PyObject *self, PyObject *fn)
{
    struct op *op = (struct op *)(void *)self;

    if (op->loop != NULL || op->callback != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the operation is waited for already");
        return NULL;
    }
    if (over(op)) {
        return PyObject_CallFunctionObjArgs(fn, self, NULL);
    }
    Py_INCREF(fn);
    Py_INCREF(Py_None);
    op->callback = fn;
    op->context = Py_None;
    Py_RETURN_NONE;
}

static PyObject *op_remove_done_callback(PyObject *self, PyObject *fn)
{
    struct op *op = (struct op *)(void *)self;
    long removed = 0;

    for (Py_ssize_t i = op->more == NULL ? 0 : PyList_Size(op->more); i-- > 0;) {
        int same =
            PyObject_RichCompareBool(PyTuple_GetItem(PyList_GetItem(op->more, i), 0), fn, Py_EQ);

        if (same < 0 || (same > 0 && PySequence_DelItem(op->more, i) < 0)) {
            return NULL;
        }
        removed += same;
    }
    if (op->callback != NULL) {
        int same = PyObject_RichCompareBool(op->callback, fn, Py_EQ);

        if (same < 0) {
            return NULL;
        }
        if (same > 0) {
            PyObject *first =
                op->more != NULL && PyList_Size(op->more) > 0 ? PyList_GetItem(op->more, 0) : NULL;

            removed++;
            Py_CLEAR(op->callback);
            Py_CLEAR(op->context);
            if (first != NULL) {
                op->callback = PyTuple_GetItem(first, 0);
                op->context = PyTuple_GetItem(first, 1);
                Py_INCREF(op->callback);
                Py_INCREF(op->context);
                PySequence_DelItem(op->more, 0);
            }
        }
    }
    return PyLong_FromLong(removed);
}

static PyObject *op_get_loop(PyObject *self, PyObject *unused)
{
    struct op *op = (struct op *)(void *)self;

    (void)unused;
    if (bind_here(op) < 0) {
        return NULL;
    }
    Py_INCREF(op->loop);
    return op->loop;
}

/* ---- Blocking ---- */

/** wait(timeout=None): block until the operation has ended; other threads run meanwhile. */
static PyObject *op_wait(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"timeout", NULL};
    struct op *op = (struct op *)(void *)self;
    struct core *c = op->core;
    PyObject *seconds = Py_None;
    uint64_t timeout, end = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:wait", names, &seconds) ||
        to_timeout(seconds, &timeout) < 0) {
        return NULL;
    }
    for (int i = 0; i < QUICK && !over(op); i++) {
        core_progress(c);
    }
    if (!over(op) && timeout != 0 && timeout != HWS_FOREVER) {
        end = now_ns() + timeout;
    }
    Py_INCREF(self);
    while (!over(op)) {
        uint64_t now = end == 0 ? 0 : now_ns(), slice = SLICE_NS;

        if (end != 0 && now >= end) {
            Py_DECREF(self);
            PyErr_SetString(PyExc_TimeoutError, "the operation goes on");
            return NULL;
        }
        if (end != 0 && end - now < slice) {
            slice = end - now;
        }
        atomic_fetch_add(&c->blocked, 1);
        if (!over(op)) {
            UNLOCKED(hws_worker_wait(c->id, slice));
        }
        atomic_fetch_sub(&c->blocked, 1);
        core_drain(c, NULL);
        if (PyErr_CheckSignals() < 0) {
            cancel(op);
            Py_DECREF(self);
            return NULL;
        }
    }
    if (!op->told && !op->cancelled) {
        core_drain(c, NULL);
    }
    Py_DECREF(self);
    return value(op);
}

static PyObject *get_blocking(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct op *)(void *)self)->blocking);
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

    return PyUnicode_FromFormat("<hawser.Operation %s>", op->cancelled ? "cancelled"
                                                         : !over(op)   ? "pending"
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

/** operation(worker): an operation that Python ends by _end(status, result, text). */
PyObject *py_operation(PyObject *self, PyObject *worker)
{
    struct core *c = core_of(worker);

    (void)self;
    return c == NULL ? NULL : (PyObject *)op_new(c, RESULT_NONE);
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
        Py_RETURN_NONE;
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
    if (!op->cancelled && op->callback != NULL) {
        call_waiters(op, NULL);
    }
    if (atomic_load(&op->core->blocked) != 0) {
        hws_worker_signal(op->core->id);
    }
    Py_RETURN_NONE;
}

int op_import(PyObject *module)
{
#define KEYWORDS METH_VARARGS | METH_KEYWORDS
#define FN(f) (PyCFunction)(void (*)(void))(f)
    static PyMethodDef methods[] = {
        {"send", op_send_method, METH_O, NULL},
        {"throw", op_throw, METH_VARARGS, NULL},
        {"close", op_close, METH_NOARGS, NULL},
        {"wait", FN(op_wait), KEYWORDS,
         "wait($self, /, timeout=None)\n--\n\n"
         "Block until the operation has ended and return its result. After `timeout` seconds\n"
         "TimeoutError is raised and the operation goes on."},
        {"cancel", FN(op_cancel), KEYWORDS,
         "cancel($self, /, msg=None)\n--\n\n"
         "Ask for the end of the operation; False if it has ended. Its buffer stays in use until\n"
         "UCX gives it back."},
        {"done", op_done, METH_NOARGS, NULL},
        {"cancelled", op_cancelled, METH_NOARGS, NULL},
        {"result", op_result, METH_NOARGS, NULL},
        {"exception", op_exception, METH_NOARGS, NULL},
        {"add_done_callback", FN(op_add_done_callback), KEYWORDS, NULL},
        {"remove_done_callback", op_remove_done_callback, METH_O, NULL},
        {"get_loop", op_get_loop, METH_NOARGS, NULL},
        {"_end", op_end, METH_VARARGS, NULL},
        {"_on_end", op_on_end, METH_O, NULL},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef members[] = {
        {"_asyncio_future_blocking", get_blocking, set_blocking, NULL, NULL},
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
                                  {Py_tp_doc, "A posted operation: await it, or wait() for it."},
                                  {0, NULL}};
    static PyType_Spec spec = {"hawser._core.Operation", sizeof(struct op), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    PyObject *m;

    if ((op_type = add_type(module, "Operation", &spec)) == NULL ||
        (m = PyImport_ImportModule("asyncio")) == NULL) {
        return -1;
    }
    cancelled_error = PyObject_GetAttrString(m, "CancelledError");
    invalid_state = PyObject_GetAttrString(m, "InvalidStateError");
    Py_DECREF(m);
    if ((m = PyImport_ImportModule("contextvars")) == NULL) {
        return -1;
    }
    copy_context = PyObject_GetAttrString(m, "copy_context");
    Py_DECREF(m);
    return cancelled_error == NULL || invalid_state == NULL || copy_context == NULL ? -1 : 0;
}
