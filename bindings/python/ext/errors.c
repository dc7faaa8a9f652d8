/* Codes to exceptions, and numbers from Python. */
#include "ext.h"
#include <math.h>
#include <string.h>

static PyObject *from_code; /* hawser._errors.from_code(code, text, ucx_status, errno, id) */

int errors_import(void)
{
    PyObject *m = PyImport_ImportModule("hawser._errors");

    if (m == NULL) {
        return -1;
    }
    from_code = PyObject_GetAttrString(m, "from_code");
    Py_DECREF(m);
    return from_code == NULL ? -1 : 0;
}

PyObject *from_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *build(int32_t code, const char *text, const hws_error *e)
{
    /* "N" takes the string over, and a null pointer as the failure that it is. */
    return PyObject_CallFunction(
        from_code, "iNiiK", (int)code,
        from_text(text != NULL && *text != 0 ? text : hws_error_text(code)), e->ucx_status,
        e->sys_errno, (unsigned long long)e->id);
}

static unsigned long ends_on; /* the thread on which Python ends; 0: it goes on. GIL */

PyObject *py_ends(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    ends_on = PyThread_get_thread_ident();
    Py_RETURN_NONE;
}

bool ends_here(void)
{
    PyObject *loop;
    bool none;

    if (ends_on == 0 || ends_on == PyThread_get_thread_ident()) {
        return false;
    }
    loop = running_loop();
    none = loop == Py_None;
    Py_XDECREF(loop);
    if (none) {
        PyErr_SetNone(PyExc_SystemExit);
    }
    return none;
}

static PyObject *raise(PyObject *e)
{
    if (e != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(e), e);
        Py_DECREF(e);
    }
    return NULL;
}

PyObject *make_error(int32_t code, const char *text)
{
    hws_error none = {.struct_size = sizeof none};

    return build(code, text, &none);
}

PyObject *raise_code(int32_t code, const char *text)
{
    return raise(make_error(code, text));
}

PyObject *raise_last(int32_t code)
{
    hws_error e = {.struct_size = sizeof e};

    hws_last_error(&e);
    return e.code == code ? raise(build(code, e.text, &e)) : raise_code(code, NULL);
}

int to_u64(PyObject *o, uint64_t *out)
{
    PyObject *number = PyLong_Check(o) ? Py_NewRef(o) : PyNumber_Index(o); /* numpy's, for one */

    if (number == NULL) {
        return -1;
    }
    *out = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return *out == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

int to_timeout(PyObject *seconds, uint64_t *ns)
{
    double s;

    *ns = 0;
    if (seconds == NULL || seconds == Py_None) {
        return 0;
    }
    s = PyFloat_AsDouble(seconds);
    if (s == -1.0 && PyErr_Occurred()) {
        return argument_wrong("timeout");
    }
    if (isnan(s)) {
        PyErr_SetString(PyExc_ValueError, "timeout: nan is no number of seconds");
        return -1;
    }
    if (!(s > 0)) {
        /* A deadline that has passed already: the shortest one there is. */
        *ns = 1;
    } else {
        *ns = s >= 1e9 ? HWS_FOREVER : (uint64_t)ceil(s * 1e9);
    }
    return 0;
}
