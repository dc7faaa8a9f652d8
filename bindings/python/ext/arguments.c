/* Arguments of calls, by position and by name, and what is wrong with them. */
#include "arguments.h"

#include <stdarg.h>
#include <string.h>

/* Names in calls are interned, or one caller's constant: nearly always the very object is found. */
static int find(struct signature *s, PyObject *name)
{
    for (int i = 0; i < s->count; i++) {
        if (name == s->interned[i] || name == s->alias[i]) {
            return i;
        }
    }
    for (int i = 0; i < s->count; i++) {
        if (PyUnicode_CompareWithASCIIString(name, s->names[i]) == 0) {
            replace(&s->alias[i], Py_NewRef(name));
            return i;
        }
    }
    return -1;
}

static int intern(struct signature *s)
{
    for (int i = 0; i < s->count; i++) {
        if (s->interned[i] == NULL &&
            (s->interned[i] = PyUnicode_InternFromString(s->names[i])) == NULL) {
            return -1;
        }
    }
    return 0;
}

int arguments_named(struct signature *s, PyObject *const *args, Py_ssize_t given, PyObject *kwnames,
                    PyObject **out)
{
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_Size(kwnames);

    if (given > s->count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments", s->function, s->count);
        return -1;
    }
    if (intern(s) < 0) {
        return -1;
    }
    for (int i = 0; i < s->count; i++) {
        out[i] = i < given ? args[i] : NULL;
    }
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GetItem(kwnames, k);
        int i = find(s, name);

        if (i < 0 || out[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected or repeated argument %R",
                         s->function, name);
            return -1;
        }
        out[i] = args[given + k];
    }
    for (int i = 0; i < s->needed; i++) {
        if (out[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() needs the argument %s", s->function, s->names[i]);
            return -1;
        }
    }
    return 0;
}

/* What Python's own conversions raise; others are a program's, and say what they say. */
static bool names_no_argument(PyObject *type)
{
    return type == PyExc_TypeError || type == PyExc_ValueError || type == PyExc_OverflowError ||
           type == PyExc_BufferError;
}

int argument_wrong(const char *name)
{
    PyObject *type, *value, *traceback, *text;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (type == NULL || !names_no_argument(type)) {
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    text = PyUnicode_FromFormat("%s: %S", name, value);
    /* With no exception set: what the traceback holds may run Python as it goes. */
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    if (text != NULL) {
        PyErr_SetObject(type, text);
        Py_DECREF(text);
    }
    Py_DECREF(type);
    return -1;
}

static int to_port(PyObject *o, uint16_t *out)
{
    int overflow;
    long port = PyLong_AsLongAndOverflow(o, &overflow);

    if (port == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (overflow != 0 || port < 0 || port > UINT16_MAX) {
        raise_code(HWS_E_INVALID, "a port is a number from 0 to 65535");
        return -1;
    }
    *out = (uint16_t)port;
    return 0;
}

static int to_u32(PyObject *o, uint32_t *out)
{
    uint64_t n;

    if (to_u64(o, &n) < 0) {
        return -1;
    }
    if (n > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%R is more than %lu", o, (unsigned long)UINT32_MAX);
        return -1;
    }
    *out = (uint32_t)n;
    return 0;
}

static int to_clipped(PyObject *o, Py_ssize_t *out)
{
    *out = PyNumber_AsSsize_t(o, NULL);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

/* The library's texts end at a null. */
static int to_text(PyObject *o, const char **out)
{
    Py_ssize_t length;

    if (!PyUnicode_Check(o)) {
        PyErr_Format(PyExc_TypeError, "a str is needed, not %R", (PyObject *)Py_TYPE(o));
        return -1;
    }
    if ((*out = PyUnicode_AsUTF8AndSize(o, &length)) == NULL) {
        return -1;
    }
    if (strlen(*out) != (size_t)length) {
        PyErr_SetString(PyExc_ValueError, "embedded null character");
        return -1;
    }
    return 0;
}

static int to_truth(PyObject *o, int *out)
{
    *out = PyObject_IsTrue(o);
    return *out < 0 ? -1 : 0;
}

static int parse_one(PyObject *o, char kind, void *out)
{
    switch (kind) {
    case 'o':
        *(PyObject **)out = o;
        return 0;
    case 'w':
        return (*(struct core **)out = core_of(o)) == NULL ? -1 : 0;
    case 'n':
        return to_u64(o, out);
    case 'u':
        return to_u32(o, out);
    case 'i':
        return to_clipped(o, out);
    case 'h':
        return to_port(o, out);
    case 'z':
        if (o == Py_None) {
            *(const char **)out = NULL;
            return 0;
        }
        return to_text(o, out);
    case 's':
        return to_text(o, out);
    case 't':
        return to_timeout(o, out);
    default:
        return to_truth(o, out);
    }
}

/* What is wrong with the argument whose "name:kind" begins here; null: it is missing. */
static int wrong(const char *entry, PyObject *given)
{
    char name[32];

    PyOS_snprintf(name, sizeof name, "%.*s", (int)strcspn(entry, ":"), entry);
    if (given != NULL) {
        return argument_wrong(name);
    }
    PyErr_Format(PyExc_TypeError, "the argument %s is missing", name);
    return -1;
}

int parse(PyObject *args, const char *list, ...)
{
    Py_ssize_t given = PyTuple_Size(args), i = 0;
    va_list out;
    int r = 0;

    va_start(out, list);
    while (r == 0 && *list != 0) {
        const char *kind = strchr(list, ':') + 1;
        PyObject *o = i < given ? PyTuple_GetItem(args, i++) : NULL;

        if (o == NULL || parse_one(o, *kind, va_arg(out, void *)) < 0) {
            r = wrong(list, o);
        }
        list = kind + 1 + strspn(kind + 1, " ");
    }
    va_end(out);
    return r;
}
