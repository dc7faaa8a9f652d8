/* Sending and receiving: the calls whose cost counts. */
#include "endpoint.h"
#include "arguments.h"
#include "posting.h"

static PyObject *zero;

static struct endpoint *opened(PyObject *self)
{
    struct endpoint *e = (struct endpoint *)(void *)self;

    if (e->core == NULL) {
        PyErr_SetString(PyExc_ValueError, "the endpoint is not open");
        return NULL;
    }
    return e;
}

/* ---- Tagged messages ---- */

/* The operation for the next usual send. Null with an error set. */
static struct op *spare_of(struct core *c)
{
    if (c->spare == NULL && (c->spare = op_new(c, RESULT_NONE)) != NULL) {
        op_options(c->spare, 0, HWS_OP_INLINE, HWS_MEMORY_HOST, &c->sending);
    }
    return c->spare;
}

/* A send of the usual objects, with nothing but a tag: most of them need no operation, which waits for the one that does.
 * False: it is none. */
static inline bool send_usual(struct endpoint *e, PyObject *const *args, Py_ssize_t n,
                              PyObject **out)
{
    struct core *c = e->core;
    uint64_t tag = 0, length;
    struct op *op;
    void *data;
    int32_t r;

    /* A number that is no int runs Python, which may change the size of a bytearray. */
    if (n < 1 || n > 2 || (n == 2 && !PyLong_Check(args[1])) ||
        !usual_memory(args[0], &data, &length)) {
        return false;
    }
    *out = NULL;
    if ((n == 2 && argument_number(args[1], &tag, "tag") < 0) || (op = spare_of(c)) == NULL) {
        return true;
    }
    r = hws_tag_send(e->id, data, length, tag, &c->sending, &op->id);
    if (r == HWS_DONE) {
        *out = Py_NewRef((PyObject *)c->done);
    } else if (r < 0) {
        *out = ends_here() ? NULL : raise_last(r);
    } else {
        c->spare = NULL;
        posting_lend(op, args[0]);
        *out = op_posted(op, r);
    }
    return true;
}

PyObject *endpoint_send(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    static struct signature signature = {
        "send", 5, 1, {"buffer", "tag", "timeout", "sync", "stream"}, {NULL}, {NULL}};
    struct endpoint *e = opened(self);
    uint32_t sync = 0;
    struct posting p;
    PyObject *a[5];
    uint64_t tag = 0;
    PyObject *sent;
    int32_t r;

    if (e != NULL && kwnames == NULL && send_usual(e, args, n, &sent)) {
        return sent;
    }
    if (e == NULL || arguments(&signature, args, n, kwnames, a) < 0 ||
        argument_number(a[1], &tag, "tag") < 0 || argument_flag(a[3], 1, &sync) < 0 ||
        posting_prepare(&p, e->core, a[0], false, RESULT_NONE, a[2], HWS_OP_INLINE) < 0 ||
        posting_stream(&p, a[4]) < 0) {
        return NULL;
    }
    r = (sync ? hws_tag_send_sync : hws_tag_send)(e->id, p.data, p.length, tag, &p.opts, &p.op->id);
    return posting_posted(&p, r, NULL);
}

/* The arguments of a receive by tag. */
static struct signature receiving = {"recv", 4,     0, {"buffer", "tag", "mask", "timeout"},
                                     {NULL}, {NULL}};

static PyObject *receive(struct core *c, hws_id source, PyObject *const *a)
{
    uint64_t tag = 0, mask = UINT64_MAX;
    struct posting p;
    hws_event done;
    int32_t r;

    if (argument_number(a[1], &tag, "tag") < 0 || argument_number(a[2], &mask, "mask") < 0 ||
        posting_prepare(&p, c, a[0], true, RESULT_LENGTH, a[3], HWS_OP_INLINE) < 0) {
        return NULL;
    }
    posting_returns(&p, BACK_TAG);
    p.opts.result = &done;
    r = hws_tag_recv(source, p.data, p.length, tag, mask, &p.opts, &p.op->id);
    return posting_posted(&p, r, &done);
}

/* Without a buffer the Python part makes one of the right size: _recv_sized(tag, mask, timeout). */
static PyObject *receive_sized(PyObject *self, PyObject *const *a)
{
    PyObject *mask = a[2] != NULL ? Py_NewRef(a[2]) : PyLong_FromUnsignedLongLong(UINT64_MAX);
    PyObject *r = mask == NULL
                      ? NULL
                      : PyObject_CallMethod(self, "_recv_sized", "OOO", a[1] != NULL ? a[1] : zero,
                                            mask, a[3] != NULL ? a[3] : Py_None);

    Py_XDECREF(mask);
    return r;
}

PyObject *endpoint_recv(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    struct endpoint *e = opened(self);
    PyObject *a[4];

    if (e == NULL || arguments(&receiving, args, n, kwnames, a) < 0) {
        return NULL;
    }
    return a[0] == NULL || a[0] == Py_None ? receive_sized(self, a) : receive(e->core, e->id, a);
}

/** tag_recv(worker, buffer, tag, mask, timeout): from any endpoint of a worker. */
static PyObject *worker_recv(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    struct core *c = n < 1 ? NULL : core_of(args[0]);
    PyObject *a[4];

    (void)self;
    if (c == NULL || arguments(&receiving, args + 1, n - 1, kwnames, a) < 0) {
        return NULL;
    }
    return receive(c, c->id, a);
}

/** take(worker, source, tag, mask, timeout): an operation that ends with a message; its source is
 * the message's id. */
static PyObject *take(PyObject *self, PyObject *args)
{
    uint64_t source, tag, mask, ns;
    hws_op_opts o;
    struct core *c;
    struct op *op;
    hws_event done;
    int32_t r;

    (void)self;
    if (parse(args, "worker:w source:n tag:n mask:n timeout:t", &c, &source, &tag, &mask, &ns) <
            0 ||
        (op = op_new(c, RESULT_MESSAGE)) == NULL) {
        return NULL;
    }
    op_options(op, ns, HWS_OP_INLINE | HWS_OP_TAKE, 0, &o);
    o.result = &done;
    r = hws_tag_recv(source, NULL, 0, tag, mask, &o, &op->id);
    if (r == HWS_DONE) {
        op->length = done.length;
        op->tag = done.tag;
        op->source = done.source;
    }
    return op_posted(op, r);
}

/** probe(source, tag, mask, take) -> None or (length, tag, endpoint, flags, message). */
static PyObject *probe(PyObject *self, PyObject *args)
{
    hws_message_info info = {.struct_size = sizeof info};
    uint64_t source, tag, mask;
    hws_id message = 0;
    int take, r;

    (void)self;
    if (parse(args, "source:n tag:n mask:n take:p", &source, &tag, &mask, &take) < 0) {
        return NULL;
    }
    r = hws_tag_probe(source, tag, mask, &info, take ? &message : NULL);
    if (r == HWS_E_NOT_FOUND) {
        Py_RETURN_NONE;
    }
    if (r < 0) {
        return raise_last(r);
    }
    return Py_BuildValue("KKKIK", (unsigned long long)info.length, (unsigned long long)info.tag,
                         (unsigned long long)info.endpoint, info.flags,
                         (unsigned long long)message);
}

/** message_recv(worker, message, buffer, timeout) */
static PyObject *message_recv(PyObject *self, PyObject *args)
{
    PyObject *buffer, *timeout;
    struct posting p;
    struct core *c;
    hws_event done;
    hws_id message;

    (void)self;
    if (parse(args, "worker:w message:n buffer:o timeout:o", &c, &message, &buffer, &timeout) < 0 ||
        posting_prepare(&p, c, buffer, true, RESULT_LENGTH, timeout, HWS_OP_INLINE) < 0) {
        return NULL;
    }
    posting_returns(&p, BACK_TAG);
    p.opts.result = &done;
    return posting_posted(&p, hws_message_recv(message, p.data, p.length, &p.opts, &p.op->id),
                          &done);
}

/* ---- Streams ---- */

PyObject *endpoint_stream_send(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *kwnames)
{
    static struct signature signature = {"stream_send", 3,     1, {"buffer", "timeout", "stream"},
                                         {NULL},        {NULL}};
    struct endpoint *e = opened(self);
    struct posting p;
    PyObject *a[3];

    if (e == NULL || arguments(&signature, args, n, kwnames, a) < 0 ||
        posting_prepare(&p, e->core, a[0], false, RESULT_NONE, a[1], HWS_OP_INLINE) < 0 ||
        posting_stream(&p, a[2]) < 0) {
        return NULL;
    }
    return posting_posted(&p, hws_stream_send(e->id, p.data, p.length, &p.opts, &p.op->id), NULL);
}

PyObject *endpoint_stream_recv(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *kwnames)
{
    static struct signature signature = {"stream_recv", 3,     1, {"buffer", "exactly", "timeout"},
                                         {NULL},        {NULL}};
    struct endpoint *e = opened(self);
    uint32_t flags = HWS_OP_INLINE;
    struct posting p;
    PyObject *a[3];
    hws_event done;

    if (e == NULL || arguments(&signature, args, n, kwnames, a) < 0 ||
        argument_flag(a[1] != NULL ? a[1] : Py_True, HWS_OP_WAIT_ALL, &flags) < 0 ||
        posting_prepare(&p, e->core, a[0], true, RESULT_LENGTH, a[2], flags) < 0) {
        return NULL;
    }
    posting_returns(&p, BACK_STREAM);
    p.opts.result = &done;
    return posting_posted(&p, hws_stream_recv(e->id, p.data, p.length, &p.opts, &p.op->id), &done);
}

/* ---- Active messages ---- */

/* Letting go of it may run Python: after the buffer is held, and without the error of the call. */
static void give_header_back(struct memory *header)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    memory_release(header);
    PyErr_Restore(type, value, traceback);
}

PyObject *endpoint_am_send(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    static struct signature signature = {
        "send_am", 7,     1, {"buffer", "id", "header", "timeout", "eager", "rndv", "stream"},
        {NULL},    {NULL}};
    struct endpoint *e = opened(self);
    uint32_t flags = HWS_OP_INLINE;
    struct memory header = {.data = NULL};
    uint64_t am_id = 0;
    struct posting p;
    PyObject *a[7], *op;
    int32_t r;

    if (e == NULL || arguments(&signature, args, n, kwnames, a) < 0 ||
        argument_number(a[1], &am_id, "id") < 0 || argument_flag(a[4], HWS_OP_EAGER, &flags) < 0 ||
        argument_flag(a[5], HWS_OP_RNDV, &flags) < 0) {
        return NULL;
    }
    if (a[2] != NULL && a[2] != Py_None && memory_get(a[2], false, &header) < 0) {
        argument_wrong("header");
        return NULL;
    }
    if (posting_prepare(&p, e->core, a[0], false, RESULT_NONE, a[3], flags) < 0 ||
        posting_stream(&p, a[6]) < 0) {
        give_header_back(&header);
        return NULL;
    }
    r = hws_am_send(e->id, am_id > UINT32_MAX ? UINT32_MAX : (uint32_t)am_id, header.data,
                    header.length, p.data, p.length, &p.opts, &p.op->id);
    op = posting_posted(&p, r, NULL);
    give_header_back(&header);
    return op;
}

/* ---- Flush ---- */

/** flush(worker, source, timeout) */
static PyObject *flush(PyObject *self, PyObject *args)
{
    uint64_t source, ns;
    hws_op_opts o;
    struct core *c;
    struct op *op;

    (void)self;
    if (parse(args, "worker:w source:n timeout:t", &c, &source, &ns) < 0 ||
        (op = op_new(c, RESULT_NONE)) == NULL) {
        return NULL;
    }
    op_options(op, ns, HWS_OP_INLINE, 0, &o);
    return op_posted(op, hws_flush(source, &o, &op->id));
}

#define FAST METH_FASTCALL | METH_KEYWORDS
#define FN(f) (PyCFunction)(void (*)(void))(f)

static PyMethodDef posting_functions[] = {
    {"tag_recv", FN(worker_recv), FAST, NULL}, {"probe", probe, METH_VARARGS, NULL},
    {"take", take, METH_VARARGS, NULL},        {"message_recv", message_recv, METH_VARARGS, NULL},
    {"flush", flush, METH_VARARGS, NULL},      {NULL, NULL, 0, NULL}};

int endpoint_calls_import(PyObject *module)
{
    zero = PyLong_FromLong(0);
    return zero == NULL ? -1 : PyModule_AddFunctions(module, posting_functions);
}
