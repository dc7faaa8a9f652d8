/*
 * Exceptions of callbacks. KeyboardInterrupt and SystemExit end what makes progress, as those of an event loop's
 * own callbacks end its run; nobody could be told of the others, so they are reported.
 */
#include "ext.h"

_Thread_local PyObject *callback_kept __attribute__((tls_model("initial-exec")));

/* Keep the exception that is set, if it is one of these. */
static bool keep(void)
{
    PyObject *type, *value, *traceback;

    if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) &&
        !PyErr_ExceptionMatches(PyExc_SystemExit)) {
        return false;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    Py_XDECREF(callback_kept);
    callback_kept = value;
    return true;
}

void callback_failed(PyObject *where)
{
    if (PyErr_Occurred() && !keep()) {
        PyErr_WriteUnraisable(where);
    }
}

/* loop.call_exception_handler(), as a loop does for callbacks of its own. */
static int tell_loop(PyObject *loop, PyObject *callback)
{
    PyObject *type, *value, *traceback, *r;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    r = PyObject_CallMethod(loop, "call_exception_handler", "({s:N,s:O})", "message",
                            PyUnicode_FromFormat("Exception in callback %R", callback), "exception",
                            value);
    Py_XDECREF(r);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return r == NULL ? -1 : 0;
}

void callback_failed_on(PyObject *loop, PyObject *callback)
{
    if (PyErr_Occurred() && !keep() && tell_loop(loop, callback) < 0) {
        callback_failed(callback);
    }
}

int callback_raise_kept(void)
{
    PyObject *e = callback_kept;

    callback_kept = NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return -1;
}
