/* Sending and receiving: the calls whose cost counts. hawser.Endpoint builds on this. */
#include "ext.h"
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

PyTypeObject *endpoint_type;

struct endpoint {
    PyObject_HEAD struct core *core; /* null until opened */
    hws_id id;
    PyObject *worker, *weak;
};

static struct endpoint *opened(PyObject *self)
{
    struct endpoint *e = (struct endpoint *)(void *)self;

    if (e->core == NULL) {
        PyErr_SetString(PyExc_ValueError, "the endpoint is not open");
        return NULL;
    }
    return e;
}

/* ---- Arguments: positional and by name, without the cost of a tuple and a dictionary ---- */

/* Put the arguments of a fast call into `out` (borrowed). The names are interned by the caller. */
static int arguments(const char *function, PyObject *const *args, Py_ssize_t given,
                     PyObject *kwnames, const char *const *names, int count, int needed,
                     PyObject **out)
{
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_Size(kwnames);

    if (given > count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments", function, count);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        out[i] = i < given ? args[i] : NULL;
    }
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GetItem(kwnames, k);
        int i = 0;

        while (i < count && PyUnicode_CompareWithASCIIString(name, names[i]) != 0) {
            i++;
        }
        if (i == count || out[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected or repeated argument %R",
                         function, name);
            return -1;
        }
        out[i] = args[given + k];
    }
    if (needed > 0 && out[needed - 1] == NULL) {
        PyErr_Format(PyExc_TypeError, "%s() needs the argument %s", function, names[needed - 1]);
        return -1;
    }
    return 0;
}

static int number(PyObject *o, uint64_t *out)
{
    return o == NULL || o == Py_None ? 0 : to_u64(o, out);
}

static int truth(PyObject *o, uint32_t flag, uint32_t *flags)
{
    int t = o == NULL || o == Py_None ? 0 : PyObject_IsTrue(o);

    *flags |= t > 0 ? flag : 0;
    return t < 0 ? -1 : 0;
}

/* A posting under way: the operation and the options. */
struct posting {
    struct op *op;
    hws_op_opts opts;
    struct memory memory;
};

static int prepare(struct posting *p, struct core *c, PyObject *buffer, bool writable,
                   enum result result, PyObject *timeout, uint32_t flags)
{
    uint64_t ns = 0;

    if (timeout != NULL && to_timeout(timeout, &ns) < 0) {
        return -1;
    }
    if (memory_get(buffer, writable, &p->memory) < 0) {
        return -1;
    }
    if ((p->op = op_new(c, result)) == NULL) {
        memory_release(&p->memory);
        return -1;
    }
    op_take_memory(p->op, &p->memory);
    op_options(p->op, ns, flags, p->memory.kind, &p->opts);
    return 0;
}

/* Done at once: what the event would have said. */
static PyObject *posted(struct posting *p, int32_t r, const hws_event *done)
{
    if (r == HWS_DONE && done != NULL) {
        p->op->status = done->status;
        p->op->length = done->length;
        p->op->tag = done->tag;
        p->op->source = done->source;
    }
    return op_posted(p->op, r);
}

/* ---- Tagged messages ---- */

static PyObject *endpoint_send(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *kwnames)
{
    static const char *const names[] = {"buffer", "tag", "timeout", "sync"};
    struct endpoint *e = opened(self);
    uint32_t sync = 0;
    struct posting p;
    PyObject *a[4];
    uint64_t tag = 0;
    int32_t r;

    if (e == NULL || arguments("send", args, n, kwnames, names, 4, 1, a) < 0 ||
        number(a[1], &tag) < 0 || truth(a[3], 1, &sync) < 0 ||
        prepare(&p, e->core, a[0], false, RESULT_NONE, a[2], HWS_OP_INLINE) < 0) {
        return NULL;
    }
    r = (sync ? hws_tag_send_sync : hws_tag_send)(e->id, p.memory.data, p.memory.length, tag,
                                                  &p.opts, &p.op->id);
    return posted(&p, r, NULL);
}

static PyObject *receive(struct core *c, hws_id source, PyObject *const *args, Py_ssize_t n,
                         PyObject *kwnames)
{
    static const char *const names[] = {"buffer", "tag", "mask", "timeout"};
    uint64_t tag = 0, mask = UINT64_MAX;
    struct posting p;
    PyObject *a[4];
    hws_event done;
    int32_t r;

    if (arguments("recv", args, n, kwnames, names, 4, 1, a) < 0 || number(a[1], &tag) < 0 ||
        number(a[2], &mask) < 0 ||
        prepare(&p, c, a[0], true, RESULT_LENGTH, a[3], HWS_OP_INLINE) < 0) {
        return NULL;
    }
    p.opts.result = &done;
    r = hws_tag_recv(source, p.memory.data, p.memory.length, tag, mask, &p.opts, &p.op->id);
    return posted(&p, r, &done);
}

static PyObject *endpoint_recv(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *kwnames)
{
    struct endpoint *e = opened(self);

    return e == NULL ? NULL : receive(e->core, e->id, args, n, kwnames);
}

/** tag_recv(worker, buffer, tag, mask, timeout): from any endpoint of a worker. */
static PyObject *worker_recv(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    struct core *c = n < 1 ? NULL : core_of(args[0]);

    (void)self;
    return c == NULL ? NULL : receive(c, c->id, args + 1, n - 1, kwnames);
}

/** take(worker, source, tag, mask, timeout): an operation that ends with a message; its source is
 * the message's id. */
static PyObject *take(PyObject *self, PyObject *args)
{
    unsigned long long source, tag, mask;
    PyObject *worker, *timeout;
    hws_op_opts o;
    struct core *c;
    struct op *op;
    hws_event done;
    uint64_t ns;
    int32_t r;

    (void)self;
    if (!PyArg_ParseTuple(args, "OKKKO:take", &worker, &source, &tag, &mask, &timeout) ||
        (c = core_of(worker)) == NULL || to_timeout(timeout, &ns) < 0 ||
        (op = op_new(c, RESULT_ID)) == NULL) {
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
    unsigned long long source, tag, mask;
    hws_message_info info = {.struct_size = sizeof info};
    hws_id message = 0;
    int take, r;

    (void)self;
    if (!PyArg_ParseTuple(args, "KKKp:probe", &source, &tag, &mask, &take)) {
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
    unsigned long long message;
    PyObject *worker, *buffer, *timeout;
    struct posting p;
    struct core *c;
    hws_event done;

    (void)self;
    if (!PyArg_ParseTuple(args, "OKOO:message_recv", &worker, &message, &buffer, &timeout) ||
        (c = core_of(worker)) == NULL ||
        prepare(&p, c, buffer, true, RESULT_LENGTH, timeout, HWS_OP_INLINE) < 0) {
        return NULL;
    }
    p.opts.result = &done;
    return posted(&p, hws_message_recv(message, p.memory.data, p.memory.length, &p.opts, &p.op->id),
                  &done);
}

/* ---- Streams ---- */

static PyObject *stream_send(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    static const char *const names[] = {"buffer", "timeout"};
    struct endpoint *e = opened(self);
    struct posting p;
    PyObject *a[2];

    if (e == NULL || arguments("stream_send", args, n, kwnames, names, 2, 1, a) < 0 ||
        prepare(&p, e->core, a[0], false, RESULT_NONE, a[1], HWS_OP_INLINE) < 0) {
        return NULL;
    }
    return posted(&p, hws_stream_send(e->id, p.memory.data, p.memory.length, &p.opts, &p.op->id),
                  NULL);
}

static PyObject *stream_recv(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    static const char *const names[] = {"buffer", "exactly", "timeout"};
    struct endpoint *e = opened(self);
    uint32_t flags = HWS_OP_INLINE;
    struct posting p;
    PyObject *a[3];
    hws_event done;

    if (e == NULL || arguments("stream_recv", args, n, kwnames, names, 3, 1, a) < 0 ||
        truth(a[1], HWS_OP_WAIT_ALL, &flags) < 0 ||
        prepare(&p, e->core, a[0], true, RESULT_LENGTH, a[2], flags) < 0) {
        return NULL;
    }
    p.opts.result = &done;
    return posted(&p, hws_stream_recv(e->id, p.memory.data, p.memory.length, &p.opts, &p.op->id),
                  &done);
}

/* ---- Active messages ---- */

static PyObject *am_send(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    static const char *const names[] = {"buffer", "id", "header", "timeout", "eager", "rndv"};
    struct endpoint *e = opened(self);
    uint32_t flags = HWS_OP_INLINE;
    struct memory header = {.data = NULL};
    uint64_t am_id = 0;
    struct posting p;
    PyObject *a[6];
    int32_t r;

    if (e == NULL || arguments("send_am", args, n, kwnames, names, 6, 1, a) < 0 ||
        number(a[1], &am_id) < 0 || truth(a[4], HWS_OP_EAGER, &flags) < 0 ||
        truth(a[5], HWS_OP_RNDV, &flags) < 0) {
        return NULL;
    }
    if (a[2] != NULL && a[2] != Py_None && memory_get(a[2], false, &header) < 0) {
        return NULL;
    }
    if (prepare(&p, e->core, a[0], false, RESULT_NONE, a[3], flags) < 0) {
        memory_release(&header);
        return NULL;
    }
    r = hws_am_send(e->id, am_id > UINT32_MAX ? UINT32_MAX : (uint32_t)am_id, header.data,
                    header.length, p.memory.data, p.memory.length, &p.opts, &p.op->id);
    memory_release(&header);
    return posted(&p, r, NULL);
}

/* ---- Flush, and the object itself ---- */

/** flush(worker, source, timeout) */
static PyObject *flush(PyObject *self, PyObject *args)
{
    unsigned long long source;
    PyObject *worker, *timeout;
    hws_op_opts o;
    struct core *c;
    struct op *op;
    uint64_t ns;

    (void)self;
    if (!PyArg_ParseTuple(args, "OKO:flush", &worker, &source, &timeout) ||
        (c = core_of(worker)) == NULL || to_timeout(timeout, &ns) < 0 ||
        (op = op_new(c, RESULT_NONE)) == NULL) {
        return NULL;
    }
    op_options(op, ns, HWS_OP_INLINE, 0, &o);
    return op_posted(op, hws_flush(source, &o, &op->id));
}

/* _attach(worker, id) */
static PyObject *endpoint_attach(PyObject *self, PyObject *args)
{
    struct endpoint *e = (struct endpoint *)(void *)self;
    unsigned long long id;
    PyObject *worker;
    struct core *c;

    if (!PyArg_ParseTuple(args, "OK:_attach", &worker, &id) || (c = core_of(worker)) == NULL) {
        return NULL;
    }
    if (e->core == NULL) {
        core_ref(c);
        e->core = c;
        Py_INCREF(worker);
        e->worker = worker;
    }
    e->id = id;
    Py_RETURN_NONE;
}

static void endpoint_dealloc(PyObject *self)
{
    struct endpoint *e = (struct endpoint *)(void *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

    PyObject_GC_UnTrack(self);
    if (e->weak != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    Py_CLEAR(e->worker);
    if (e->core != NULL) {
        core_unref(e->core);
    }
    free_object(self);
    Py_DECREF(type);
}

static int endpoint_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct endpoint *)(void *)self)->worker);
    return 0;
}

static int endpoint_clear(PyObject *self)
{
    Py_CLEAR(((struct endpoint *)(void *)self)->worker);
    return 0;
}

static PyObject *get_id(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((struct endpoint *)(void *)self)->id);
}

static PyObject *get_worker(PyObject *self, void *unused)
{
    PyObject *w = ((struct endpoint *)(void *)self)->worker;

    (void)unused;
    w = w != NULL ? w : Py_None;
    Py_INCREF(w);
    return w;
}

#define FAST METH_FASTCALL | METH_KEYWORDS
#define FN(f) (PyCFunction)(void (*)(void))(f)

PyMethodDef posting_functions[] = {
    {"tag_recv", FN(worker_recv), FAST, NULL}, {"probe", probe, METH_VARARGS, NULL},
    {"take", take, METH_VARARGS, NULL},        {"message_recv", message_recv, METH_VARARGS, NULL},
    {"flush", flush, METH_VARARGS, NULL},      {NULL, NULL, 0, NULL}};

int endpoint_import(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"send", FN(endpoint_send), FAST,
         "send($self, /, buffer, tag=0, timeout=None, sync=False)\n--\n\n"
         "Send a tagged message. Done means that the buffer can be used again; with `sync`, that\n"
         "the peer has matched it with a receive."},
        {"_recv", FN(endpoint_recv), FAST, NULL},
        {"stream_send", FN(stream_send), FAST,
         "stream_send($self, /, buffer, timeout=None)\n--\n\nSend bytes on the stream."},
        {"_stream_recv", FN(stream_recv), FAST, NULL},
        {"send_am", FN(am_send), FAST,
         "send_am($self, /, buffer, id=0, header=None, timeout=None, eager=False, rndv=False)\n"
         "--\n\nSend an active message; the header is copied."},
        {"_attach", endpoint_attach, METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getters[] = {{"id", get_id, NULL, "Id of the endpoint.", NULL},
                                    {"worker", get_worker, NULL, "Its worker.", NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};
    static PyMemberDef members[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(struct endpoint, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, endpoint_dealloc}, {Py_tp_traverse, endpoint_traverse},
        {Py_tp_clear, endpoint_clear},     {Py_tp_new, PyType_GenericNew},
        {Py_tp_methods, methods},          {Py_tp_getset, getters},
        {Py_tp_members, members},          {0, NULL}};
    static PyType_Spec spec = {"hawser._core.Endpoint", sizeof(struct endpoint), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               slots};

    if ((endpoint_type = add_type(module, "Endpoint", &spec)) == NULL) {
        return -1;
    }
    return PyModule_AddFunctions(module, posting_functions);
}
