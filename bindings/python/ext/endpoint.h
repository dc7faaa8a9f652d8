/* An endpoint's Python object, awaitable and blocking. */
#ifndef HAWSER_PYTHON_ENDPOINT_H
#define HAWSER_PYTHON_ENDPOINT_H

#include "ext.h"

struct endpoint {
    PyObject_HEAD struct core *core; /* null until opened */
    hws_id id;
    PyObject *worker, *weak;
};

#define ENDPOINT_CALL(name) \
    PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
ENDPOINT_CALL(endpoint_send);
ENDPOINT_CALL(endpoint_recv);
ENDPOINT_CALL(endpoint_stream_send);
ENDPOINT_CALL(endpoint_stream_recv);
ENDPOINT_CALL(endpoint_am_send);

int endpoint_calls_import(PyObject *module);

#endif
