/*
 * The type of the awaitable. It is a future (what a task waits for), a coroutine (create_task() takes it) and its own
 * iterator, so awaiting it makes no other object.
 */
#include "op.h"
#include "ucp.h"

#include <string.h>
#include <structmember.h>

PyTypeObject *op_type;

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

static PyMemberDef fields[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct op, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, op_dealloc},
                              {Py_tp_members, fields},
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
