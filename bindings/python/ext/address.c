/* Worker addresses. */
#include "ext.h"

/** worker_address(worker, flags) -> bytes */
static PyObject *worker_address(PyObject *self, PyObject *args)
{
    unsigned long long worker;
    uint64_t needed = 0;
    PyObject *address;
    unsigned flags;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "KI:worker_address", &worker, &flags)) {
        return NULL;
    }
    UNLOCKED(r = hws_worker_address(worker, flags, NULL, 0, &needed));
    if (r < 0 && r != HWS_E_TOO_BIG) {
        return raise_last(r);
    }
    if ((address = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)needed)) == NULL) {
        return NULL;
    }
    if ((r = hws_worker_address(worker, flags, PyBytes_AsString(address), needed, &needed)) < 0) {
        Py_DECREF(address);
        return raise_last(r);
    }
    return address;
}

/** connect_address(worker, address, flags, close_timeout_ns, timeout_ns) -> (id, op) */
static PyObject *connect_address(PyObject *self, PyObject *args)
{
    unsigned long long closing, timeout;
    hws_endpoint_opts e = {.struct_size = sizeof e};
    const char *address;
    Py_ssize_t length;
    PyObject *worker, *op;
    struct op *connecting;
    hws_op_opts o;
    struct core *c;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "Oy#IKK:connect_address", &worker, &address, &length, &e.flags,
                          &closing, &timeout) ||
        (c = core_of(worker)) == NULL || (connecting = op_new(c, RESULT_ID)) == NULL) {
        return NULL;
    }
    e.close_timeout_ns = closing;
    e.sink = (hws_sink){.callback = core_event, .callback_arg = c};
    op_options(connecting, timeout, 0, 0, &o);
    UNLOCKED(
        r = hws_connect_address(c->id, address, (uint64_t)length, &e, &o, &id, &connecting->id));
    if ((op = op_posted(connecting, r)) == NULL) {
        return NULL;
    }
    return Py_BuildValue("KN", (unsigned long long)id, op);
}

PyMethodDef address_functions[] = {{"worker_address", worker_address, METH_VARARGS, NULL},
                                   {"connect_address", connect_address, METH_VARARGS, NULL},
                                   {NULL, NULL, 0, NULL}};
