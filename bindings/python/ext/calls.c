/* The calls that open, ask and close: plain functions over ids. */
#include "ext.h"
#include <stdlib.h>
#include <string.h>

static PyObject *checked(int32_t r)
{
    return r < 0 ? raise_last(r) : PyLong_FromLong(r);
}

static PyObject *result_id(int32_t r, hws_id id)
{
    return r < 0 ? raise_last(r) : PyLong_FromUnsignedLongLong(id);
}

static void set_item(PyObject *dict, const char *name, PyObject *v)
{
    if (v != NULL) {
        PyDict_SetItemString(dict, name, v);
        Py_DECREF(v);
    }
}

#define PUT(name) set_item(d, #name, PyLong_FromUnsignedLongLong(info.name))
#define PUT_TEXT(name) set_item(d, #name, PyUnicode_FromString(info.name))

/* library(ucx) */
static PyObject *library(PyObject *self, PyObject *args)
{
    hws_library_info info = {.struct_size = sizeof info};
    const char *ucx;
    PyObject *d;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "z:library", &ucx)) {
        return NULL;
    }
    UNLOCKED(r = hws_library_open(ucx, &info));
    if (r < 0) {
        return raise_last(r);
    }
    if ((d = PyDict_New()) == NULL) {
        return NULL;
    }
    PUT(version);
    PUT(ucx_major);
    PUT(ucx_minor);
    PUT(ucx_release);
    PUT(has_sodium);
    PUT_TEXT(ucx_path);
    PUT_TEXT(ucx_reason);
    return d;
}

/* context_open(features, flags, name, ucx, (key, value, ...), psk, isolated_max) */
static PyObject *context_open(PyObject *self, PyObject *args)
{
    unsigned long long features;
    unsigned flags, isolated_max;
    const char *name, *ucx, *psk;
    const char **config;
    Py_ssize_t psk_length, n;
    PyObject *pairs;
    hws_context_opts o = {.struct_size = sizeof o};
    hws_id id = 0;
    int32_t r = 0;

    (void)self;
    if (!PyArg_ParseTuple(args, "KIzzOz#I:context_open", &features, &flags, &name, &ucx, &pairs,
                          &psk, &psk_length, &isolated_max)) {
        return NULL;
    }
    if ((n = PyTuple_Size(pairs)) < 0) {
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
    o.flags = flags;
    o.features = features;
    o.name = name;
    o.ucx = ucx;
    o.config = config;
    o.psk = psk;
    o.psk_length = (uint64_t)psk_length;
    o.isolated_max = isolated_max;
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
ID_CALL(kind, hws_kind)
ID_CALL(accept_peer, hws_accept)
ID_CALL(reject_peer, hws_reject)
ID_CALL(signal_worker, hws_worker_signal)

/* close_wait(id, timeout_ns) */
static PyObject *close_wait(PyObject *self, PyObject *args)
{
    unsigned long long id, timeout;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "KK:close_wait", &id, &timeout)) {
        return NULL;
    }
    UNLOCKED(r = hws_close_wait(id, timeout));
    return checked(r);
}

/* listen(worker, host, port, flags, hello_timeout_ns, close_timeout_ns) */
static PyObject *listen_at(PyObject *self, PyObject *args)
{
    unsigned long long hello, closing;
    hws_listener_opts o = {.struct_size = sizeof o};
    unsigned short port;
    const char *host;
    PyObject *worker;
    struct core *c;
    unsigned flags;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "OzHIKK:listen", &worker, &host, &port, &flags, &hello, &closing) ||
        (c = core_of(worker)) == NULL) {
        return NULL;
    }
    o.flags = flags;
    o.hello_timeout_ns = hello;
    o.close_timeout_ns = closing;
    o.sink = (hws_sink){.callback = core_event, .callback_arg = c};
    o.endpoint_sink = o.sink;
    UNLOCKED(r = hws_listen(c->id, host, port, &o, &id));
    return result_id(r, id);
}

/* connect(worker, host, port, flags, close_timeout_ns, local_address, timeout_ns) -> (id, op) */
static PyObject *connect_to(PyObject *self, PyObject *args)
{
    unsigned long long closing, timeout;
    hws_endpoint_opts e = {.struct_size = sizeof e};
    const char *host, *local;
    unsigned short port;
    hws_op_opts o;
    PyObject *worker, *op;
    struct op *connecting;
    struct core *c;
    unsigned flags;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "OsHIKzK:connect", &worker, &host, &port, &flags, &closing, &local,
                          &timeout) ||
        (c = core_of(worker)) == NULL || (connecting = op_new(c, RESULT_ID)) == NULL) {
        return NULL;
    }
    e.flags = flags;
    e.close_timeout_ns = closing;
    e.local_address = local;
    e.sink = (hws_sink){.callback = core_event, .callback_arg = c};
    op_options(connecting, timeout, 0, 0, &o);
    UNLOCKED(r = hws_connect(c->id, host, port, &e, &o, &id, &connecting->id));
    if ((op = op_posted(connecting, r)) == NULL) {
        return NULL;
    }
    return Py_BuildValue("KN", (unsigned long long)id, op);
}

/* endpoint_query(id) */
static PyObject *endpoint_query(PyObject *self, PyObject *id)
{
    hws_endpoint_info info = {.struct_size = sizeof info};
    PyObject *d;
    uint64_t n;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    if ((r = hws_endpoint_query(n, &info)) < 0) {
        return raise_last(r);
    }
    if ((d = PyDict_New()) == NULL) {
        return NULL;
    }
    PUT(state);
    PUT(isolated);
    PUT(reason);
    PUT(transports);
    set_item(d, "status", PyLong_FromLong(info.status));
    PUT(peer_pid);
    PUT(peer_host);
    PUT(sent);
    PUT(received);
    PUT(bytes_sent);
    PUT(bytes_received);
    PUT_TEXT(local_address);
    PUT_TEXT(peer_address);
    PUT_TEXT(lanes);
    PUT_TEXT(reason_text);
    return d;
}

/* listener_query(id) */
static PyObject *listener_query(PyObject *self, PyObject *id)
{
    hws_listener_info info = {.struct_size = sizeof info};
    PyObject *d;
    uint64_t n;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    if ((r = hws_listener_query(n, &info)) < 0) {
        return raise_last(r);
    }
    if ((d = PyDict_New()) == NULL) {
        return NULL;
    }
    PUT(port);
    PUT_TEXT(address);
    PUT(requests);
    PUT(accepted);
    PUT(rejected);
    PUT(redirected);
    PUT(strangers);
    PUT(bad_auth);
    return d;
}

/* stats(id) */
static PyObject *stats(PyObject *self, PyObject *id)
{
    hws_stats info = {.struct_size = sizeof info};
    PyObject *d;
    uint64_t n;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    if ((r = hws_stats_get(n, &info)) < 0) {
        return raise_last(r);
    }
    if ((d = PyDict_New()) == NULL) {
        return NULL;
    }
    PUT(endpoints);
    PUT(isolated);
    PUT(spares);
    PUT(isolated_cap);
    PUT(isolated_total);
    PUT(fallbacks);
    PUT(redials);
    PUT(lane_violations);
    PUT(ops_inline);
    PUT(ops_posted);
    PUT(ops_submitted);
    PUT(ops_pending);
    PUT(events);
    PUT(queue_overflows);
    PUT(wakeups);
    PUT(safety_wakeups);
    PUT(signals);
    PUT(unexpected);
    PUT(unexpected_bytes);
    PUT(am_dropped);
    PUT(failures);
    PUT(credit_waits);
    return d;
}

/* describe(id) */
static PyObject *describe(PyObject *self, PyObject *id)
{
    uint64_t n, needed = 0;
    PyObject *text;
    char *room;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    r = hws_describe(n, NULL, 0, &needed);
    if (r < 0 && r != HWS_E_TOO_BIG) {
        return raise_last(r);
    }
    /* Some room: the description may have grown meanwhile. */
    needed += 1024;
    if ((room = malloc(needed)) == NULL) {
        return PyErr_NoMemory();
    }
    r = hws_describe(n, room, needed, NULL);
    text = r < 0 && r != HWS_E_TOO_BIG ? raise_last(r) : PyUnicode_FromString(room);
    free(room);
    return text;
}

/* am_handler(worker, id, flags, on) */
static PyObject *am_handler(PyObject *self, PyObject *args)
{
    hws_am_opts o = {.struct_size = sizeof o};
    unsigned am_id, flags;
    PyObject *worker;
    struct core *c;
    int on;

    (void)self;
    if (!PyArg_ParseTuple(args, "OIIp:am_handler", &worker, &am_id, &flags, &on) ||
        (c = core_of(worker)) == NULL) {
        return NULL;
    }
    o.flags = flags | HWS_AM_BUFFER;
    if (on) {
        o.sink = (hws_sink){.callback = core_event, .callback_arg = c};
    }
    return checked(hws_am_handler(c->id, am_id, on ? &o : NULL));
}

static PyObject *am_header_max(PyObject *self, PyObject *id)
{
    uint64_t n, out = 0;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    r = hws_am_header_max(n, &out);
    return result_id(r, out);
}

PyMethodDef functions[] = {{"library", library, METH_VARARGS, NULL},
                           {"context_open", context_open, METH_VARARGS, NULL},
                           {"close", close_id, METH_O, NULL},
                           {"close_wait", close_wait, METH_VARARGS, NULL},
                           {"abort", abort_id, METH_O, NULL},
                           {"cancel", cancel_id, METH_O, NULL},
                           {"kind", kind, METH_O, NULL},
                           {"accept", accept_peer, METH_O, NULL},
                           {"reject", reject_peer, METH_O, NULL},
                           {"signal", signal_worker, METH_O, NULL},
                           {"listen", listen_at, METH_VARARGS, NULL},
                           {"connect", connect_to, METH_VARARGS, NULL},
                           {"endpoint_query", endpoint_query, METH_O, NULL},
                           {"listener_query", listener_query, METH_O, NULL},
                           {"stats", stats, METH_O, NULL},
                           {"describe", describe, METH_O, NULL},
                           {"am_handler", am_handler, METH_VARARGS, NULL},
                           {"am_header_max", am_header_max, METH_O, NULL},
                           {"memory", py_memory, METH_VARARGS,
                            "memory(object, writable=False)\n--\n\n"
                            "Address, bytes and kind of the memory that an operation would use."},
                           {"pointer", py_pointer, METH_O, NULL},
                           {"operation", py_operation, METH_O, NULL},
                           {"multi_send", py_multi_send, METH_VARARGS, NULL},
                           {"multi_recv", py_multi_recv, METH_VARARGS, NULL},
                           {NULL, NULL, 0, NULL}};
