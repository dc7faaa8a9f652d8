/* The calls that open, ask and close: plain functions over ids. */
#include "ext.h"
#include <stdlib.h>
#include <string.h>

static PyObject *checked(int32_t r)
{
    return r < 0 ? raise_last(r) : PyLong_FromLong(r);
}

PyObject *result_id(int32_t r, hws_id id)
{
    return r < 0 ? raise_last(r) : PyLong_FromUnsignedLongLong(id);
}

/* context_open(features, flags, name, ucx, (key, value, ...), psk, isolated_max) */
static PyObject *context_open(PyObject *self, PyObject *args)
{
    const char **config;
    char *psk = NULL;
    Py_ssize_t psk_length = 0, n;
    PyObject *pairs, *key;
    hws_context_opts o = {.struct_size = sizeof o};
    hws_id id = 0;
    int32_t r = 0;

    (void)self;
    if (parse(args, "features:n flags:u name:z ucx:z config:o psk:o isolated_max:u", &o.features,
              &o.flags, &o.name, &o.ucx, &pairs, &key, &o.isolated_max) < 0 ||
        (key != Py_None && PyBytes_AsStringAndSize(key, &psk, &psk_length) < 0) ||
        (n = PyTuple_Size(pairs)) < 0) {
        return NULL;
    }
    if ((config = calloc((size_t)n + 1, sizeof *config)) == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if ((config[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pairs, i), NULL)) == NULL) {
            free(config);
            return NULL;
        }
    }
    o.config = config;
    o.psk = psk;
    o.psk_length = (uint64_t)psk_length;
    UNLOCKED(r = hws_context_open(&o, &id));
    free(config);
    return result_id(r, id);
}

#define ID_CALL(name, call)                                  \
    static PyObject *name(PyObject *self, PyObject *id)      \
    {                                                        \
        uint64_t n;                                          \
        (void)self;                                          \
        return to_u64(id, &n) < 0 ? NULL : checked(call(n)); \
    }
ID_CALL(close_id, hws_close)
ID_CALL(abort_id, hws_abort)
ID_CALL(cancel_id, hws_cancel)
ID_CALL(message_return, hws_message_return)
ID_CALL(kind, hws_kind)
ID_CALL(accept_peer, hws_accept)
ID_CALL(reject_peer, hws_reject)
ID_CALL(signal_worker, hws_worker_signal)

/* close_wait(id, timeout_ns) */
static PyObject *close_wait(PyObject *self, PyObject *args)
{
    unsigned long long id, timeout;
    bool closing = false;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "KK:close_wait", &id, &timeout)) {
        return NULL;
    }
    do {
        uint64_t slice = timeout < SIGNALS_NS ? timeout : SIGNALS_NS;

        UNLOCKED(r = hws_close_wait(id, slice));
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
        if (closing && r == HWS_E_STALE) {
            r = HWS_OK; /* gone since the last look */
        }
        closing = true;
        timeout -= slice;
    } while (r == HWS_E_TIMED_OUT && timeout != 0);
    return checked(r);
}

/* listen(worker, host, port, flags, hello_timeout_ns, close_timeout_ns) */
static PyObject *listen_at(PyObject *self, PyObject *args)
{
    hws_listener_opts o = {.struct_size = sizeof o};
    const char *host;
    struct core *c;
    uint16_t port;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (parse(args, "worker:w host:z port:h flags:u hello_timeout:n close_timeout:n", &c, &host,
              &port, &o.flags, &o.hello_timeout_ns, &o.close_timeout_ns) < 0) {
        return NULL;
    }
    o.sink = (hws_sink){.callback = core_event, .callback_arg = c};
    o.endpoint_sink = o.sink;
    UNLOCKED(r = hws_listen(c->id, host, port, &o, &id));
    return result_id(r, id);
}

/* connect(worker, host, port, flags, close_timeout_ns, local_address, timeout_ns) -> (id, op) */
static PyObject *connect_to(PyObject *self, PyObject *args)
{
    hws_endpoint_opts e = {.struct_size = sizeof e};
    struct op *connecting;
    uint64_t timeout;
    const char *host;
    struct core *c;
    hws_op_opts o;
    uint16_t port;
    PyObject *op;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (parse(args, "worker:w host:s port:h flags:u close_timeout:n local_address:z timeout:n", &c,
              &host, &port, &e.flags, &e.close_timeout_ns, &e.local_address, &timeout) < 0 ||
        (connecting = op_new(c, RESULT_ID)) == NULL) {
        return NULL;
    }
    e.sink = (hws_sink){.callback = core_event, .callback_arg = c};
    op_options(connecting, timeout, 0, 0, &o);
    Py_INCREF((PyObject *)connecting); /* another thread may tell its end before this one goes on */
    UNLOCKED(r = hws_connect(c->id, host, port, &e, &o, &id, &connecting->id));
    op = op_posted(connecting, r);
    Py_DECREF((PyObject *)connecting);
    if (op == NULL) {
        return NULL;
    }
    return Py_BuildValue("KN", (unsigned long long)id, op);
}

/* am_handler(worker, id, flags, on) */
static PyObject *am_handler(PyObject *self, PyObject *args)
{
    hws_am_opts o = {.struct_size = sizeof o};
    struct core *c;
    Py_ssize_t am_id;
    int on;

    (void)self;
    if (parse(args, "worker:w id:i flags:u on:p", &c, &am_id, &o.flags, &on) < 0) {
        return NULL;
    }
    o.flags |= HWS_AM_HOLD; /* until a handler or recv_am() has it: core.c, _worker.py */
    if (on) {
        o.sink = (hws_sink){.callback = core_event, .callback_arg = c};
    }
    return checked(hws_am_handler(
        c->id, am_id >= 0 && am_id <= UINT32_MAX ? (uint32_t)am_id : UINT32_MAX, on ? &o : NULL));
}

/* buffer(worker, length) */
static PyObject *buffer_alloc(PyObject *self, PyObject *args)
{
    Py_ssize_t length;
    struct core *c;
    void *data = NULL;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (parse(args, "worker:w length:i", &c, &length) < 0) {
        return NULL;
    }
    if (length < 0) {
        PyErr_SetString(PyExc_ValueError, "a negative length");
        return NULL;
    }
    UNLOCKED(r = hws_buffer_alloc(c->id, (uint64_t)length, &data, &id));
    return r < 0 ? raise_last(r) : buffer_new(c, id, data, (uint64_t)length);
}

PyMethodDef functions[] = {{"context_open", context_open, METH_VARARGS, NULL},
                           {"close", close_id, METH_O, NULL},
                           {"close_wait", close_wait, METH_VARARGS, NULL},
                           {"abort", abort_id, METH_O, NULL},
                           {"cancel", cancel_id, METH_O, NULL},
                           {"message_return", message_return, METH_O, NULL},
                           {"kind", kind, METH_O, NULL},
                           {"accept", accept_peer, METH_O, NULL},
                           {"reject", reject_peer, METH_O, NULL},
                           {"signal", signal_worker, METH_O, NULL},
                           {"listen", listen_at, METH_VARARGS, NULL},
                           {"connect", connect_to, METH_VARARGS, NULL},
                           {"am_handler", am_handler, METH_VARARGS, NULL},
                           {"buffer", buffer_alloc, METH_VARARGS, NULL},
                           {"hold_memory", py_hold_memory, METH_VARARGS, NULL},
                           {"memory", py_memory, METH_VARARGS,
                            "memory(object, writable=False)\n--\n\n"
                            "Address, bytes and kind of the memory that an operation would use."},
                           {"pointer", py_pointer, METH_O, NULL},
                           {"operation", py_operation, METH_VARARGS, NULL},
                           {"ends", py_ends, METH_NOARGS, NULL},
                           {"running_loop", py_running_loop, METH_NOARGS, NULL},
                           {"multi_send", py_multi_send, METH_VARARGS, NULL},
                           {"multi_recv", py_multi_recv, METH_VARARGS, NULL},
                           {NULL, NULL, 0, NULL}};
