/* Arguments of fast calls by name, and what is wrong with them. */
#include "arguments.h"

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
