/* Plans: lists of puts and gets that are prepared once and posted often. */
#include "ext.h"
#include <stdlib.h>

static int read_transfer(PyObject *tuple, hws_transfer *t)
{
    uint64_t buffer;

    if (parse(tuple, "way:u rkey:n offset:n buffer:n length:n kind:u memory:n", &t->kind, &t->rkey,
              &t->address, &buffer, &t->length, &t->memory_kind, &t->memory) < 0) {
        return -1;
    }
    t->buffer = (void *)(uintptr_t)buffer;
    return 0;
}

/** plan_open(endpoint, ((event kind, rkey, address, buffer, length, memory kind, memory), ...)) */
static PyObject *plan_open(PyObject *self, PyObject *args)
{
    unsigned long long endpoint;
    hws_transfer *transfers;
    PyObject *tuples;
    Py_ssize_t n;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "KO:plan_open", &endpoint, &tuples) ||
        (n = PyTuple_Size(tuples)) < 0) {
        return NULL;
    }
    if ((transfers = calloc((size_t)n + 1, sizeof *transfers)) == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (read_transfer(PyTuple_GetItem(tuples, i), &transfers[i]) < 0) {
            free(transfers);
            return NULL;
        }
    }
    r = hws_plan_open(endpoint, transfers, (uint64_t)n, &id);
    free(transfers);
    return result_id(r, id);
}

/** plan_post(worker, plan, keep, timeout, stream): all transfers; `keep` lives until they have ended. */
static PyObject *plan_post(PyObject *self, PyObject *args)
{
    PyObject *keep, *stream;
    uint64_t plan, ns;
    hws_event done;
    hws_op_opts o;
    struct core *c;
    struct op *op;
    int32_t r;

    (void)self;
    if (parse(args, "worker:w plan:n keep:o timeout:t stream:o", &c, &plan, &keep, &ns, &stream) <
            0 ||
        (op = op_new(c, RESULT_LENGTH)) == NULL) {
        return NULL;
    }
    Py_INCREF(keep);
    replace(&op->keep, keep);
    op_options(op, ns, HWS_OP_INLINE, 0, &o);
    if (op_stream(op, stream, &o) < 0) {
        return NULL;
    }
    o.result = &done;
    r = hws_plan_post(plan, &o, &op->id);
    if (r == HWS_DONE) {
        op->length = done.length;
    }
    return op_posted(op, r);
}

PyMethodDef plan_functions[] = {{"plan_open", plan_open, METH_VARARGS, NULL},
                                {"plan_post", plan_post, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
