/*
 * A task that is woken asks the future it waited for whether to go on or to raise. Of asyncio's own futures it
 * reads that from their memory; any other it asks by calling result(), which costs as much as the rest of
 * the waking. The task then goes on and takes the result from the operation itself, so one that has ended
 * well need not be asked: the task is given a future that has ended, one for all.
 */
#include "wakeup.h"
#include "ucp.h"

static PyTypeObject *future_type, *task_type; /* asyncio's, if they are those written in C */
static PyCFunction task_wakeup; /* what such a task is woken by; seen at the first waking */

PyObject *wakeup_future(PyObject *loop)
{
    PyObject *args = PyTuple_New(0), *kwargs = Py_BuildValue("{sO}", "loop", loop), *f = NULL, *r;

    if (args != NULL && kwargs != NULL && future_type != NULL) {
        f = PyObject_Call((PyObject *)future_type, args, kwargs);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (f != NULL) {
        r = PyObject_CallMethod(f, "set_result", "O", Py_None);
        if (r == NULL) {
            Py_CLEAR(f);
        }
        Py_XDECREF(r);
    }
    PyErr_Clear();
    return f;
}

/* The method of a task by which the loop wakes it. */
static bool wakes_a_task(PyObject *callback)
{
    PyCFunction function = PyCFunction_GetFunction(callback);
    PyObject *self, *name;
    bool same;

    if (task_wakeup != NULL || task_type == NULL) {
        return function != NULL && function == task_wakeup;
    }
    self = PyCFunction_GetSelf(callback);
    if (self == NULL || !PyObject_TypeCheck(self, task_type)) {
        return false;
    }
    name = PyObject_GetAttrString(callback, "__name__");
    same = name != NULL && PyUnicode_CompareWithASCIIString(name, "task_wakeup") == 0;
    Py_XDECREF(name);
    PyErr_Clear();
    if (same) {
        task_wakeup = function;
    }
    return same;
}

PyObject *wakeup_argument(const struct binding *b, PyObject *callback, struct op *op)
{
    bool well = op->status >= 0 && !op->cancelled && (op->ucp == NULL || !ucp_failed(op));

    return well && b->ended != NULL && PyCFunction_CheckExact(callback) && wakes_a_task(callback)
               ? b->ended
               : (PyObject *)op;
}

void wakeup_import(PyObject *asyncio)
{
    static const char *const names[] = {"Future", "Task"};
    PyTypeObject **types[] = {&future_type, &task_type};
    PyObject *builtin = PyImport_ImportModule("_asyncio");

    if (builtin == NULL) {
        PyErr_Clear();
        return;
    }
    for (int i = 0; i < 2; i++) {
        PyObject *used = PyObject_GetAttrString(asyncio, names[i]);
        PyObject *own = PyObject_GetAttrString(builtin, names[i]);

        PyErr_Clear();
        *types[i] = used != NULL && used == own ? (PyTypeObject *)Py_NewRef(used) : NULL;
        Py_XDECREF(used);
        Py_XDECREF(own);
    }
    Py_DECREF(builtin);
}
