/* Arguments of fast calls: by position and by name, without the cost of a tuple and a dictionary. */
#ifndef HAWSER_PYTHON_ARGUMENTS_H
#define HAWSER_PYTHON_ARGUMENTS_H

#include "ext.h"

#define ARGUMENTS_MAX 7

/** The signature of a function: its parameters, the first `needed` of them without a default. */
struct signature {
    const char *function;
    int count, needed;
    const char *names[ARGUMENTS_MAX];
    PyObject *interned[ARGUMENTS_MAX]; /* made at the first call by name */
    PyObject *alias[ARGUMENTS_MAX];    /* a name that was given by another object: asyncio's are */
};

/** Put the arguments into `out` (borrowed; null: not given). -1 with an error set. */
int arguments_named(struct signature *s, PyObject *const *args, Py_ssize_t given, PyObject *kwnames,
                    PyObject **out);

static inline int arguments(struct signature *s, PyObject *const *args, Py_ssize_t given,
                            PyObject *kwnames, PyObject **out)
{
    if (kwnames != NULL || given > s->count || given < s->needed) {
        return arguments_named(s, args, given, kwnames, out);
    }
    for (int i = 0; i < s->count; i++) {
        out[i] = i < given ? args[i] : NULL;
    }
    return 0;
}

/** A number, which keeps its value if none was given. */
static inline int argument_number(PyObject *o, uint64_t *out, const char *name)
{
    return o == NULL || o == Py_None || to_u64(o, out) == 0 ? 0 : argument_wrong(name);
}

/** Set the flag if the argument is true. */
static inline int argument_flag(PyObject *o, uint32_t flag, uint32_t *flags)
{
    int t;

    if (o == NULL || o == Py_None || o == Py_False) {
        return 0;
    }
    t = o == Py_True ? 1 : PyObject_IsTrue(o);
    *flags |= t > 0 ? flag : 0;
    return t < 0 ? -1 : 0;
}

#endif
