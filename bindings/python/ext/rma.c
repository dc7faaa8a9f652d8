/* Registered memory, remote keys, put, get and atomics. */
#include "ext.h"
#include <stdlib.h>

/** mem_register(context, address, length, kind) */
static PyObject *mem_register(PyObject *self, PyObject *args)
{
    unsigned long long context, address, length;
    hws_mem_opts o = {.struct_size = sizeof o};
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "KKKI:mem_register", &context, &address, &length, &o.memory_kind)) {
        return NULL;
    }
    UNLOCKED(r = hws_mem_register(context, (void *)(uintptr_t)address, length, &o, &id));
    return result_id(r, id);
}

/** mem_alloc(context, length) */
static PyObject *mem_alloc(PyObject *self, PyObject *args)
{
    uint64_t context, length;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (parse(args, "context:n length:n", &context, &length) < 0) {
        return NULL;
    }
    UNLOCKED(r = hws_mem_alloc(context, length, NULL, &id));
    return result_id(r, id);
}

/** mem_query(memory) -> (address, length, kind) */
static PyObject *mem_query(PyObject *self, PyObject *id)
{
    hws_mem_info info = {.struct_size = sizeof info};
    uint64_t n;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    if ((r = hws_mem_query(n, &info)) < 0) {
        return raise_last(r);
    }
    return Py_BuildValue("KKI", (unsigned long long)(uintptr_t)info.base,
                         (unsigned long long)info.length, info.memory_kind);
}

/** rkey_pack(memory, flags) -> bytes */
static PyObject *rkey_pack(PyObject *self, PyObject *args)
{
    unsigned long long memory;
    uint64_t needed = 0;
    PyObject *packed;
    unsigned flags;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "KI:rkey_pack", &memory, &flags)) {
        return NULL;
    }
    r = hws_rkey_pack(memory, flags, NULL, 0, &needed);
    if (r < 0 && r != HWS_E_TOO_BIG) {
        return raise_last(r);
    }
    if ((packed = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)needed)) == NULL) {
        return NULL;
    }
    if ((r = hws_rkey_pack(memory, flags, PyBytes_AsString(packed), needed, &needed)) < 0) {
        Py_DECREF(packed);
        return raise_last(r);
    }
    return packed;
}

/** rkey_unpack(endpoint, packed, flags) */
static PyObject *rkey_unpack(PyObject *self, PyObject *args)
{
    unsigned long long endpoint;
    const char *packed;
    Py_ssize_t length;
    unsigned flags;
    hws_id id = 0;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "Ky#I:rkey_unpack", &endpoint, &packed, &length, &flags)) {
        return NULL;
    }
    r = hws_rkey_unpack(endpoint, packed, (uint64_t)length, flags, &id);
    return result_id(r, id);
}

/** rkey_query(rkey) -> (base, length, kind, endpoint, direct) */
static PyObject *rkey_query(PyObject *self, PyObject *id)
{
    hws_rkey_info info = {.struct_size = sizeof info};
    uint64_t n;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    if ((r = hws_rkey_query(n, &info)) < 0) {
        return raise_last(r);
    }
    return Py_BuildValue("KKIKI", (unsigned long long)info.base, (unsigned long long)info.length,
                         info.memory_kind, (unsigned long long)info.endpoint, info.direct);
}

/* An operation that holds `buffer`, described by m, and its options; `stream` may be null. Null: an
 * exception is set. */
static struct op *begin(struct core *c, PyObject *buffer, bool writable, uint64_t ns,
                        PyObject *stream, struct memory *m, hws_op_opts *o)
{
    struct op *op;

    if (memory_get(buffer, writable, m) < 0) {
        argument_wrong("buffer");
        return NULL;
    }
    if ((op = op_new(c, RESULT_NONE)) == NULL) {
        memory_release(m);
        return NULL;
    }
    op_take_memory(op, m);
    op_options(op, ns, HWS_OP_INLINE, m->kind, o);
    return op_stream(op, stream, o) < 0 ? NULL : op;
}

/* put(worker, rkey, address, buffer, timeout, stream), get(...): move a whole buffer. */
static PyObject *move(PyObject *args, bool get)
{
    PyObject *buffer, *stream = NULL;
    uint64_t rkey, address, ns;
    struct memory m;
    struct core *c;
    struct op *op;
    hws_op_opts o;
    int32_t r;

    if (parse(args,
              get ? "worker:w rkey:n offset:n buffer:o timeout:t"
                  : "worker:w rkey:n offset:n buffer:o timeout:t stream:o",
              &c, &rkey, &address, &buffer, &ns, &stream) < 0 ||
        (op = begin(c, buffer, get, ns, stream, &m, &o)) == NULL) {
        return NULL;
    }
    r = get ? hws_get(rkey, address, m.data, m.length, &o, &op->id)
            : hws_put(rkey, address, m.data, m.length, &o, &op->id);
    return op_posted(op, r);
}

/** put_notify(worker, rkey, address, buffer, value, timeout, stream): put, then tell the peer `value`. */
static PyObject *put_notify(PyObject *self, PyObject *args)
{
    uint64_t rkey, address, value, ns;
    PyObject *buffer, *stream;
    struct memory m;
    struct core *c;
    struct op *op;
    hws_op_opts o;

    (void)self;
    if (parse(args, "worker:w rkey:n offset:n buffer:o value:n timeout:t stream:o", &c, &rkey,
              &address, &buffer, &value, &ns, &stream) < 0 ||
        (op = begin(c, buffer, false, ns, stream, &m, &o)) == NULL) {
        return NULL;
    }
    return op_posted(op, hws_put_notify(rkey, address, m.data, m.length, value, &o, &op->id));
}

/** rkey_ptr(rkey, address) -> the address in this process */
static PyObject *rkey_ptr(PyObject *self, PyObject *args)
{
    uint64_t rkey, address;
    void *here = NULL;
    int32_t r;

    (void)self;
    if (parse(args, "rkey:n offset:n", &rkey, &address) < 0) {
        return NULL;
    }
    r = hws_rkey_ptr(rkey, address, &here);
    return result_id(r, (hws_id)(uintptr_t)here);
}

/** rkey_compare(a, b) -> 0 if they reach the same memory, else an order */
static PyObject *rkey_compare(PyObject *self, PyObject *args)
{
    unsigned long long a, b;
    int32_t order = 0, r;

    (void)self;
    if (!PyArg_ParseTuple(args, "KK:rkey_compare", &a, &b)) {
        return NULL;
    }
    r = hws_rkey_compare(a, b, &order);
    return r < 0 ? raise_last(r) : PyLong_FromLong(order);
}

/** mem_advise(memory, offset, length, advice) */
static PyObject *mem_advise(PyObject *self, PyObject *args)
{
    uint64_t memory, offset, length;
    uint32_t advice;
    int32_t r;

    (void)self;
    if (parse(args, "memory:n offset:n length:n advice:u", &memory, &offset, &length, &advice) <
        0) {
        return NULL;
    }
    UNLOCKED(r = hws_mem_advise(memory, offset, length, advice));
    return r < 0 ? raise_last(r) : PyLong_FromLong(r);
}

static PyObject *put(PyObject *self, PyObject *args)
{
    (void)self;
    return move(args, false);
}

static PyObject *get(PyObject *self, PyObject *args)
{
    (void)self;
    return move(args, true);
}

/** atomic(worker, rkey, address, action, size, value, compare, timeout): its tag is the old value. */
static PyObject *atomic(PyObject *self, PyObject *args)
{
    uint64_t rkey, address, value, compare, ns;
    uint32_t action, size;
    struct core *c;
    struct op *op;
    hws_op_opts o;

    (void)self;
    if (parse(args, "worker:w rkey:n offset:n action:u size:u value:n compare:n timeout:t", &c,
              &rkey, &address, &action, &size, &value, &compare, &ns) < 0 ||
        (op = op_new(c, RESULT_TAG)) == NULL) {
        return NULL;
    }
    op_options(op, ns, 0, 0, &o);
    return op_posted(op,
                     hws_atomic(rkey, address, action, size, value, compare, NULL, &o, &op->id));
}

/** fence(source) */
static PyObject *fence(PyObject *self, PyObject *id)
{
    uint64_t n;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    r = hws_fence(n);
    return r < 0 ? raise_last(r) : PyLong_FromLong(r);
}

PyMethodDef rma_functions[] = {{"mem_register", mem_register, METH_VARARGS, NULL},
                               {"mem_alloc", mem_alloc, METH_VARARGS, NULL},
                               {"mem_query", mem_query, METH_O, NULL},
                               {"rkey_pack", rkey_pack, METH_VARARGS, NULL},
                               {"rkey_unpack", rkey_unpack, METH_VARARGS, NULL},
                               {"rkey_query", rkey_query, METH_O, NULL},
                               {"put", put, METH_VARARGS, NULL},
                               {"get", get, METH_VARARGS, NULL},
                               {"put_notify", put_notify, METH_VARARGS, NULL},
                               {"rkey_ptr", rkey_ptr, METH_VARARGS, NULL},
                               {"rkey_compare", rkey_compare, METH_VARARGS, NULL},
                               {"mem_advise", mem_advise, METH_VARARGS, NULL},
                               {"atomic", atomic, METH_VARARGS, NULL},
                               {"fence", fence, METH_O, NULL},
                               {NULL, NULL, 0, NULL}};
