/*
 * The operation as a future: callbacks of those who wait, and cancelling.
 */
#include "op.h"
#include "arguments.h"
#include "ucp.h"
#include "wakeup.h"

PyObject *op_cancelled_error;
static PyObject *invalid_state, *copy_context, *run_name;

/* ---- Those who wait ---- */

/* Have a callback called on the loop of the operation. */
static void schedule(struct op *op, PyObject *callback, PyObject *context, struct binding *direct)
{
    PyObject *r, *name, *method, *args, *kwargs, *woken_with;

    if (op->loop == NULL) {
        r = PyObject_CallFunctionObjArgs(callback, (PyObject *)op, NULL);
        Py_XDECREF(r);
        callback_failed(callback);
        return;
    }
    if (direct != NULL && direct->loop == op->loop) {
        woken_with = Py_NewRef(wakeup_argument(direct, callback, op));
        r = context == Py_None /* see op_on_end() */
                ? PyObject_CallFunctionObjArgs(callback, woken_with, NULL)
                : PyObject_CallMethodObjArgs(context, run_name, callback, woken_with, NULL);
        Py_XDECREF(r);
        Py_DECREF(woken_with);
        callback_failed_on(op->loop, callback);
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
    callback_failed(callback);
}

void op_call_waiters(struct op *op, struct binding *direct)
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
    if (op->cancelled && op_return(op, true) < 0) { /* it was cancelled too late */
        PyErr_WriteUnraisable((PyObject *)op);
    }
    if (op->back == BACK_NONE || op->cancelled) {
        op_give_back(op);
    }
    if (op->ucp != NULL) {
        ucp_told(op);
    }
    if (op->since != 0) {
        /* It went to sleep for a time that a spin would have bridged: spin again from now on. */
        if (now_ns() - op->since < c->spin_ns) {
            c->spin_now = c->spin_ns;
        }
        op->since = 0;
    }
    if (op->late_link != NULL) {
        late_unlink(op);
    }
    if (op->callback != NULL) {
        op_call_waiters(op, direct);
    }
    Py_DECREF((PyObject *)op);
}
/* ---- Cancelling ---- */

/* Nobody waits any more; the buffer stays held until the final event. */
bool op_stop(struct op *op)
{
    struct binding *b;

    if (op_over(op)) {
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
        op_call_waiters(op, NULL);
    }
    return true;
}

PyObject *op_cancel(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"msg", NULL};
    struct op *op = (struct op *)(void *)self;
    PyObject *message = Py_None;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:cancel", names, &message)) {
        return NULL;
    }
    if (message != Py_None && !op_over(op)) {
        replace(&op->message, Py_NewRef(message));
    }
    return PyBool_FromLong(op_stop(op));
}

PyObject *op_cancelled_exception(PyObject *self, PyObject *unused)
{
    /* Null ends the arguments: without a message there is none. */
    (void)unused;
    return PyObject_CallFunctionObjArgs(op_cancelled_error, ((struct op *)(void *)self)->message,
                                        NULL);
}

PyObject *op_cancel_message(PyObject *self, void *unused)
{
    struct op *op = (struct op *)(void *)self;

    (void)unused;
    return Py_NewRef(op->message != NULL ? op->message : Py_None);
}

/* throw(exception) and throw(type, value, traceback): the task that awaits is interrupted. */
PyObject *op_throw(PyObject *self, PyObject *args)
{
    PyObject *type, *val = NULL, *tb = NULL;
    struct op *op = (struct op *)(void *)self;
    bool error;

    if (!PyArg_ParseTuple(args, "O|OO:throw", &type, &val, &tb)) {
        return NULL;
    }
    /* What interrupts tasks is no Exception. A task throws the operation's own error into it, too; and one of another
     * loop, which may not await it, its own: the operation goes on for who may. */
    error = PyErr_GivenExceptionMatches(type, PyExc_Exception);
    if ((!error || op_over(op)) && op_interrupt(op, error) < 0) {
        return NULL;
    }
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (val == Py_None || val == NULL) {
        PyErr_SetNone(type);
    } else {
        PyErr_SetObject(type, val);
    }
    return NULL;
}

PyObject *op_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (op_interrupt((struct op *)(void *)self, false) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- The interface of a future ---- */

/* Who asks without awaiting it may use the buffer once it hears of the end. A task's own waking asks as well, which is not
 * to go on yet. */
static void leave_buffer(struct op *op)
{
    if (op->told && !op->waiting && !op->yielded) {
        op->back = BACK_NONE;
        op_give_back(op);
        if (op->ucp != NULL) {
            ucp_taken(op, true); /* as a gather(), which wakes others then */
        }
    }
}

PyObject *op_done(PyObject *self, PyObject *unused)
{
    struct op *op = (struct op *)(void *)self;
    bool over = op_over(op);

    (void)unused;
    leave_buffer(op);
    return PyBool_FromLong(over);
}

PyObject *op_cancelled(PyObject *self, PyObject *unused)
{
    const struct op *op = (struct op *)(void *)self;

    (void)unused;
    return PyBool_FromLong(op->cancelled && !op->late);
}

PyObject *op_result(PyObject *self, PyObject *unused)
{
    struct op *op = (struct op *)(void *)self;

    (void)unused;
    if (!op_over(op)) {
        PyErr_SetString(invalid_state, "the operation goes on");
        return NULL;
    }
    leave_buffer(op);
    return op_value(op);
}

PyObject *op_exception(PyObject *self, PyObject *unused)
{
    struct op *op = (struct op *)(void *)self;

    if (!op_over(op) || (op->cancelled && !op->late)) {
        return op_result(self, unused);
    }
    return op_failure(op);
}

PyObject *op_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *kwnames)
{
    static struct signature signature = {"add_done_callback", 2,      1,
                                         {"fn", "context"},   {NULL}, {NULL}};
    struct op *op = (struct op *)(void *)self;
    PyObject *a[2], *fn, *context, *pair;

    if (arguments(&signature, args, n, kwnames, a) < 0 || op_bind(op) < 0) {
        return NULL;
    }
    fn = a[0];
    context = a[1];
    if (context == NULL || context == Py_None) {
        context = PyObject_CallNoArgs(copy_context);
        if (context == NULL) {
            return NULL;
        }
    } else {
        Py_INCREF(context);
    }
    if (op_over(op)) {
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
PyObject *op_on_end(PyObject *self, PyObject *fn)
{
    struct op *op = (struct op *)(void *)self;

    if (op->loop != NULL || op->callback != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the operation is waited for already");
        return NULL;
    }
    if (op_over(op)) {
        return PyObject_CallFunctionObjArgs(fn, self, NULL);
    }
    Py_INCREF(fn);
    Py_INCREF(Py_None);
    op->callback = fn;
    op->context = Py_None;
    Py_RETURN_NONE;
}

/* Comparing runs Python, in which the operation may end and give its callbacks away. */
static int is_callback(PyObject *one, PyObject *fn)
{
    int same;

    Py_INCREF(one);
    same = PyObject_RichCompareBool(one, fn, Py_EQ);
    Py_DECREF(one);
    return same;
}

/* Among those after the first; how many there were, -1 with an error set. */
static long remove_more(struct op *op, PyObject *fn)
{
    PyObject *more = op->more;
    long removed = 0;
    int same = 0;

    if (more == NULL) {
        return 0;
    }
    Py_INCREF(more);
    for (Py_ssize_t i = PyList_Size(more); same >= 0 && i-- > 0;) {
        PyObject *pair = i < PyList_Size(more) ? PyList_GetItem(more, i) : NULL;

        if (pair == NULL) {
            continue;
        }
        Py_INCREF(pair);
        same = is_callback(PyTuple_GetItem(pair, 0), fn);
        if (same > 0 && op->more == more && i < PyList_Size(more) &&
            PyList_GetItem(more, i) == pair) {
            same = PySequence_DelItem(more, i);
            removed += same == 0;
        }
        Py_DECREF(pair);
    }
    Py_DECREF(more);
    return same < 0 ? -1 : removed;
}

/* Let go of the first, in whose place the next one comes. */
static void remove_first(struct op *op)
{
    PyObject *next =
        op->more != NULL && PyList_Size(op->more) > 0 ? PyList_GetItem(op->more, 0) : NULL;
    PyObject *callback = op->callback, *context = op->context;

    op->callback = next != NULL ? Py_NewRef(PyTuple_GetItem(next, 0)) : NULL;
    op->context = next != NULL ? Py_NewRef(PyTuple_GetItem(next, 1)) : NULL;
    if (next != NULL) {
        PySequence_DelItem(op->more, 0);
    }
    Py_DECREF(callback);
    Py_XDECREF(context);
}

PyObject *op_remove_done_callback(PyObject *self, PyObject *fn)
{
    struct op *op = (struct op *)(void *)self;
    long removed = remove_more(op, fn);
    PyObject *first = op->callback;

    if (removed >= 0 && first != NULL) {
        int same = is_callback(first, fn);

        if (same < 0) {
            return NULL;
        }
        if (same > 0 && op->callback == first) {
            removed++;
            remove_first(op);
        }
    }
    return removed < 0 ? NULL : PyLong_FromLong(removed);
}

static PyObject *itself(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

/* The binding of the loop where it is waited for; null if that is none any more. */
static struct binding *binding_of(const struct op *op)
{
    struct binding *b = op->core->bindings;

    while (b != NULL && b->loop != op->loop) {
        b = b->next;
    }
    return b;
}

/* A method of the loop's, so that the tasks which ask each operation for its loop make no new one each time. */
PyObject *op_get_loop(PyObject *self, void *unused)
{
    static PyMethodDef method = {"get_loop", itself, METH_NOARGS, NULL};
    struct op *op = (struct op *)(void *)self;
    struct binding *b;
    PyObject *r;

    (void)unused;
    if (op_bind(op) < 0) {
        return NULL;
    }
    if ((b = binding_of(op)) != NULL && b->get_loop != NULL) {
        return Py_NewRef(b->get_loop);
    }
    /* This may run the collector, and so what unbinds the loop. */
    r = PyCFunction_New(&method, op->loop);
    if (r != NULL && (b = binding_of(op)) != NULL) {
        replace(&b->get_loop, Py_NewRef(r));
    }
    return r;
}

int op_future_import(void)
{
    PyObject *m = PyImport_ImportModule("asyncio");

    if (m == NULL) {
        return -1;
    }
    op_cancelled_error = PyObject_GetAttrString(m, "CancelledError");
    invalid_state = PyObject_GetAttrString(m, "InvalidStateError");
    Py_DECREF(m);
    if ((m = PyImport_ImportModule("contextvars")) == NULL) {
        return -1;
    }
    copy_context = PyObject_GetAttrString(m, "copy_context");
    Py_DECREF(m);
    run_name = PyUnicode_InternFromString("run");
    return op_cancelled_error == NULL || invalid_state == NULL || copy_context == NULL ||
                   run_name == NULL
               ? -1
               : 0;
}
