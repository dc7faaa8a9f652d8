/* Worker addresses. */
#include "ext.h"
#include <stdlib.h>

/* What a call says that fills room of the caller's: first how much, then the bytes. */
struct packing {
    hws_id worker;
    uint32_t flags, count;
    const hws_blob_item *items; /* null: an address */
};

static int32_t pack_into(const struct packing *p, void *to, uint64_t size, uint64_t *needed)
{
    return p->items == NULL
               ? hws_worker_address(p->worker, p->flags, to, size, needed)
               : hws_blob_pack(p->worker, p->flags, p->items, p->count, to, size, needed);
}

static PyObject *packed(const struct packing *p)
{
    uint64_t needed = 0;
    PyObject *bytes;
    int32_t r;

    UNLOCKED(r = pack_into(p, NULL, 0, &needed));
    if (r < 0 && r != HWS_E_TOO_BIG) {
        return raise_last(r);
    }
    if ((bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)needed)) == NULL) {
        return NULL;
    }
    if ((r = pack_into(p, PyBytes_AsString(bytes), needed, &needed)) < 0) {
        Py_DECREF(bytes);
        return raise_last(r);
    }
    return bytes;
}

/** worker_address(worker, flags) -> bytes */
static PyObject *worker_address(PyObject *self, PyObject *args)
{
    struct packing p = {.items = NULL};
    unsigned long long worker;

    (void)self;
    if (!PyArg_ParseTuple(args, "KI:worker_address", &worker, &p.flags)) {
        return NULL;
    }
    p.worker = worker;
    return packed(&p);
}

/** blob_pack(worker, flags, ((key, bytes), ...)) -> bytes */
static PyObject *blob_pack(PyObject *self, PyObject *args)
{
    unsigned long long worker;
    uint64_t key;
    struct packing p = {.count = 0};
    hws_blob_item *items;
    PyObject *pairs, *blob;
    Py_ssize_t n, length;

    (void)self;
    if (!PyArg_ParseTuple(args, "KIO:blob_pack", &worker, &p.flags, &pairs) ||
        (n = PyTuple_Size(pairs)) < 0) {
        return NULL;
    }
    if ((items = calloc((size_t)n + 1, sizeof *items)) == NULL) {
        return PyErr_NoMemory();
    }
    p.worker = worker;
    p.items = items;
    for (p.count = 0; p.count < (uint32_t)n; p.count++) {
        PyObject *bytes;
        char *data;

        if (parse(PyTuple_GetItem(pairs, (Py_ssize_t)p.count), "items:n items:o", &key, &bytes) <
                0 ||
            PyBytes_AsStringAndSize(bytes, &data, &length) < 0) {
            free(items);
            return NULL;
        }
        items[p.count] = (hws_blob_item){key, data, (uint64_t)length};
    }
    blob = packed(&p);
    free(items);
    return blob;
}

/** address_query(bytes) -> (flags, ucx_major, ucx_minor, items, worker, text) */
static PyObject *address_query(PyObject *self, PyObject *args)
{
    hws_address_info info = {.struct_size = sizeof info};
    const char *address;
    Py_ssize_t length;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "y#:address_query", &address, &length)) {
        return NULL;
    }
    if ((r = hws_address_query(address, (uint64_t)length, &info)) < 0) {
        return raise_last(r);
    }
    return Py_BuildValue("IIIIKs", info.flags, info.ucx_major, info.ucx_minor, info.items,
                         (unsigned long long)info.worker, info.text);
}

/** blob_item(bytes, index) -> (key, bytes) */
static PyObject *blob_item(PyObject *self, PyObject *args)
{
    hws_blob_item item;
    const char *blob;
    Py_ssize_t length;
    unsigned index;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "y#I:blob_item", &blob, &length, &index)) {
        return NULL;
    }
    if ((r = hws_blob_item_get(blob, (uint64_t)length, index, &item)) < 0) {
        return raise_last(r);
    }
    return Py_BuildValue("Ky#", (unsigned long long)item.key, (const char *)item.data,
                         (Py_ssize_t)item.length);
}

/** connect_address(worker, address, flags, close_timeout_ns, timeout_ns) -> (id, op) */
static PyObject *connect_address(PyObject *self, PyObject *args)
{
    hws_endpoint_opts e = {.struct_size = sizeof e};
    PyObject *bytes, *op;
    Py_ssize_t length;
    uint64_t timeout;
    char *address;
    struct op *connecting;
    hws_op_opts o;
    struct core *c;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (parse(args, "worker:w address:o flags:u close_timeout:n timeout:n", &c, &bytes, &e.flags,
              &e.close_timeout_ns, &timeout) < 0 ||
        PyBytes_AsStringAndSize(bytes, &address, &length) < 0 ||
        (connecting = op_new(c, RESULT_ID)) == NULL) {
        return NULL;
    }
    e.sink = (hws_sink){.callback = core_event, .callback_arg = c};
    op_options(connecting, timeout, 0, 0, &o);
    Py_INCREF((PyObject *)connecting); /* another thread may tell its end before this one goes on */
    UNLOCKED(
        r = hws_connect_address(c->id, address, (uint64_t)length, &e, &o, &id, &connecting->id));
    op = op_posted(connecting, r);
    Py_DECREF((PyObject *)connecting);
    if (op == NULL) {
        return NULL;
    }
    return Py_BuildValue("KN", (unsigned long long)id, op);
}

PyMethodDef address_functions[] = {{"worker_address", worker_address, METH_VARARGS, NULL},
                                   {"connect_address", connect_address, METH_VARARGS, NULL},
                                   {"blob_pack", blob_pack, METH_VARARGS, NULL},
                                   {"blob_item", blob_item, METH_VARARGS, NULL},
                                   {"address_query", address_query, METH_VARARGS, NULL},
                                   {NULL, NULL, 0, NULL}};
