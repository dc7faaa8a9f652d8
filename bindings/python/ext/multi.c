/*
 * Multi-buffer messages: many buffers in one call. A receive ends with the list of what is coming
 * (hawser._core.Segments); fetch() then moves the data into memory of the receiver's choice.
 */
#include "op.h"
#include <stdlib.h>
#include <structmember.h>

static PyTypeObject *segments_type;

/** A message that was listed and is not fetched yet. */
struct segments {
    PyObject_HEAD struct core *core;
    hws_id id;                      /* 0 once fetched or dropped */
    const hws_multi_detail *detail; /* the library's, while `id` lives */
    PyObject *lengths;
    PyObject *weak;
    bool pending;
};

/* ---- Buffers held for an operation ---- */

struct holding {
    Py_ssize_t count;
    struct memory memory[];
};

static void holding_free(PyObject *capsule)
{
    struct holding *h = PyCapsule_GetPointer(capsule, NULL);

    while (h->count > 0) {
        memory_release(&h->memory[--h->count]);
    }
    free(h);
}

/* Borrow all of `buffers`: the list for the library (malloc), and what keeps them (new). */
static PyObject *hold(PyObject *buffers, bool writable, hws_segment **segments, Py_ssize_t *count)
{
    static char nothing[1];
    PyObject *tuple = PySequence_Tuple(buffers), *capsule = NULL;
    Py_ssize_t n = tuple == NULL ? 0 : PyTuple_Size(tuple);
    struct holding *h;

    *segments = NULL;
    if (tuple == NULL) {
        argument_wrong("buffers");
        return NULL;
    }
    *segments = calloc((size_t)n + 1, sizeof **segments);
    h = calloc(1, sizeof *h + (size_t)n * sizeof h->memory[0]);
    if (*segments == NULL || h == NULL) {
        PyErr_NoMemory();
        free(h);
    } else if ((capsule = PyCapsule_New(h, NULL, holding_free)) == NULL) {
        free(h);
    }
    for (Py_ssize_t i = 0; capsule != NULL && i < n; i++) {
        struct memory *m = &h->memory[i];

        if (memory_get(PyTuple_GetItem(tuple, i), writable, m) < 0) {
            argument_wrong("buffers");
            Py_CLEAR(capsule);
            break;
        }
        h->count = i + 1;
        (*segments)[i] = (hws_segment){.base = m->length != 0 ? m->data : nothing,
                                       .length = m->length,
                                       .memory_kind = m->kind};
    }
    Py_DECREF(tuple);
    if (capsule == NULL) {
        free(*segments);
        *segments = NULL;
    }
    *count = n;
    return capsule;
}

/* Whether each buffer that a message is fetched into is in host memory; from now on as long as its segment. */
static bool host_memory(PyObject *held, const hws_multi_detail *detail)
{
    struct holding *h = PyCapsule_GetPointer(held, NULL);
    bool host = (uint64_t)h->count == detail->count;

    for (Py_ssize_t i = 0; host && i < h->count; i++) {
        host = h->memory[i].kind == HWS_MEMORY_HOST &&
               h->memory[i].length >= detail->segments[i].length;
        h->memory[i].length = detail->segments[i].length;
    }
    return host;
}

int32_t segments_return(const struct op *op)
{
    struct holding *h = PyCapsule_GetPointer(op->keep, NULL);
    hws_segment *segments = calloc((size_t)h->count + 1, sizeof *segments);
    int32_t r = HWS_E_NO_MEMORY;

    for (Py_ssize_t i = 0; segments != NULL && i < h->count; i++) {
        segments[i] = (hws_segment){.base = h->memory[i].data, .length = h->memory[i].length};
    }
    if (segments != NULL) {
        r = hws_segments_return(op->source, op->tag, segments, (uint64_t)h->count);
    }
    free(segments);
    return r;
}

/** multi_send(worker, endpoint, buffers, tag, timeout, coalesce, stream) */
PyObject *py_multi_send(PyObject *self, PyObject *args)
{
    hws_multi_opts multi = {.struct_size = sizeof multi};
    PyObject *buffers, *stream, *held;
    uint64_t endpoint, tag, ns;
    hws_segment *segments;
    hws_op_opts o;
    Py_ssize_t count;
    struct core *c;
    struct op *op;
    int32_t r;

    (void)self;
    if (parse(args, "worker:w endpoint:n buffers:o tag:n timeout:t coalesce:n stream:o", &c,
              &endpoint, &buffers, &tag, &ns, &multi.coalesce, &stream) < 0 ||
        (held = hold(buffers, false, &segments, &count)) == NULL) {
        return NULL;
    }
    if ((op = op_new(c, RESULT_NONE)) == NULL) {
        Py_DECREF(held);
        free(segments);
        return NULL;
    }
    replace(&op->keep, held);
    op_options(op, ns, HWS_OP_INLINE, 0, &o);
    if (op_stream(op, stream, &o) < 0) {
        free(segments);
        return NULL;
    }
    r = hws_multi_send(endpoint, tag, segments, (uint64_t)count, &multi, &o, &op->id);
    free(segments);
    return op_posted(op, r);
}

/** multi_recv(worker, source, tag, mask, timeout): an operation that ends with Segments. */
PyObject *py_multi_recv(PyObject *self, PyObject *args)
{
    hws_multi_recv_opts multi = {.struct_size = sizeof multi, .flags = HWS_MULTI_LIST};
    uint64_t source, tag, mask, ns;
    hws_op_opts o;
    hws_event done;
    struct core *c;
    struct op *op;
    int32_t r;

    (void)self;
    if (parse(args, "worker:w source:n tag:n mask:n timeout:t", &c, &source, &tag, &mask, &ns) <
            0 ||
        (op = op_new(c, RESULT_MULTI)) == NULL) {
        return NULL;
    }
    op->back = BACK_LIST;
    op_options(op, ns, HWS_OP_INLINE, 0, &o);
    o.result = &done;
    r = hws_multi_recv(source, tag, mask, &multi, &o, &op->id);
    if (r == HWS_DONE) {
        op->length = done.length;
        op->tag = done.tag;
        op->source = done.source;
        op_multi(op, &done);
    }
    return op_posted(op, r);
}

/* ---- Segments ---- */

PyObject *segments_new(struct op *op)
{
    const hws_multi_detail *detail = op->multi;
    struct segments *s;

    if (hws_kind(op->multi_id) < 0) { /* what the event named went with it */
        PyErr_SetString(PyExc_ValueError, "the worker of this message is closed");
        return NULL;
    }
    if ((s = PyObject_New(struct segments, segments_type)) == NULL) {
        return NULL;
    }
    op->multi = NULL;
    core_ref(op->core);
    s->core = op->core;
    s->id = op->multi_id;
    s->detail = detail;
    s->pending = false;
    s->weak = NULL;
    if ((s->lengths = PyTuple_New((Py_ssize_t)detail->count)) == NULL) {
        Py_DECREF((PyObject *)s);
        return NULL;
    }
    for (uint64_t i = 0; i < detail->count; i++) {
        const hws_segment *one = &detail->segments[i];

        PyTuple_SetItem(s->lengths, (Py_ssize_t)i, PyLong_FromUnsignedLongLong(one->length));
        s->pending |= one->base == NULL && one->length != 0;
    }
    return (PyObject *)s;
}

static void segments_drop(struct segments *s)
{
    hws_id id = s->id;

    s->id = 0;
    s->detail = NULL;
    if (id != 0) {
        hws_close(id);
    }
}

static struct segments *listed(PyObject *self)
{
    struct segments *s = (struct segments *)(void *)self;

    if (s->id == 0 || hws_kind(s->id) < 0) {
        PyErr_SetString(PyExc_ValueError, s->id == 0
                                              ? "the message was fetched, dropped or put back"
                                              : "the worker of this message is closed");
        return NULL;
    }
    return s;
}

static PyObject *segments_copy(PyObject *self, PyObject *unused)
{
    struct segments *s = listed(self);
    PyObject *list;

    (void)unused;
    if (s == NULL) {
        return NULL;
    }
    if (s->pending) {
        PyErr_SetString(PyExc_ValueError, "data is still at the sender: fetch it");
        return NULL;
    }
    if ((list = PyList_New(0)) == NULL) {
        return NULL;
    }
    /* Each time anew: making an object may run the collector, and so whatever ends the message. */
    for (uint64_t i = 0; listed(self) != NULL && i < s->detail->count; i++) {
        const hws_segment *one = &s->detail->segments[i];
        PyObject *copy = PyByteArray_FromStringAndSize(one->base, (Py_ssize_t)one->length);
        int failed = copy == NULL || PyList_Append(list, copy) < 0;

        Py_XDECREF(copy);
        if (failed) {
            break;
        }
    }
    if (PyErr_Occurred()) {
        Py_DECREF(list);
        return NULL;
    }
    segments_drop(s);
    return list;
}

static PyObject *segments_fetch(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"buffers", "timeout", NULL};
    PyObject *buffers, *seconds = Py_None, *held;
    hws_segment *segments;
    struct segments *s;
    hws_op_opts o;
    hws_event done;
    Py_ssize_t count;
    struct op *op;
    uint64_t ns;
    int32_t r;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:fetch", names, &buffers, &seconds) ||
        (s = listed(self)) == NULL || to_timeout(seconds, &ns) < 0 ||
        (held = hold(buffers, true, &segments, &count)) == NULL) {
        return NULL;
    }
    /* Again: what gave the buffers is Python, and may have ended the message. */
    if (listed(self) == NULL || (op = op_new(s->core, RESULT_NONE)) == NULL) {
        Py_DECREF(held);
        free(segments);
        return NULL;
    }
    op->back = host_memory(held, s->detail) ? BACK_SEGMENTS : BACK_NONE;
    replace(&op->keep, held);
    op_options(op, ns, HWS_OP_INLINE, 0, &o);
    o.result = &done;
    r = hws_multi_fetch(s->id, segments, (uint64_t)count, &o, &op->id);
    if (r >= 0) {
        s->id = 0;
        s->detail = NULL;
    }
    free(segments);
    if (r == HWS_DONE) {
        op->status = done.status;
        op->length = done.length;
        op->tag = done.tag;
        op->source = done.source;
    }
    return op_posted(op, r);
}

static PyObject *segments_drop_method(PyObject *self, PyObject *unused)
{
    (void)unused;
    segments_drop((struct segments *)(void *)self);
    Py_RETURN_NONE;
}

int32_t list_return(struct op *op)
{
    struct segments *s;
    hws_id id;

    if (op->multi != NULL) {
        op->multi = NULL;
        return hws_multi_return(op->multi_id);
    }
    if (op->keep == NULL || Py_TYPE(op->keep) != segments_type) {
        return HWS_OK;
    }
    s = (struct segments *)(void *)op->keep;
    id = s->id;
    s->id = 0;
    s->detail = NULL;
    return id != 0 ? hws_multi_return(id) : HWS_OK;
}

static PyObject *segments_put_back(PyObject *self, PyObject *unused)
{
    struct segments *s = listed(self);
    int32_t r;

    (void)unused;
    if (s == NULL) {
        return NULL;
    }
    r = hws_multi_return(s->id);
    s->id = 0;
    s->detail = NULL;
    if (r < 0) {
        return raise_last(r);
    }
    Py_RETURN_NONE;
}

static PyObject *segments_repr(PyObject *self)
{
    struct segments *s = (struct segments *)(void *)self;

    return PyUnicode_FromFormat("<hawser.Segments of %zd buffers%s>", PyTuple_Size(s->lengths),
                                s->pending ? ", pending" : "");
}

static PyObject *get_lengths(PyObject *self, void *unused)
{
    PyObject *lengths = ((struct segments *)(void *)self)->lengths;

    (void)unused;
    Py_INCREF(lengths);
    return lengths;
}

static PyObject *get_pending(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct segments *)(void *)self)->pending);
}

static PyObject *get_kinds(PyObject *self, void *unused)
{
    struct segments *s = listed(self);
    PyObject *kinds = NULL;

    (void)unused;
    if (s == NULL || (kinds = PyTuple_New(PyTuple_Size(s->lengths))) == NULL ||
        listed(self) == NULL) { /* again: the collector may have run */
        Py_XDECREF(kinds);
        return NULL;
    }
    for (uint64_t i = 0; i < s->detail->count; i++) {
        PyTuple_SetItem(kinds, (Py_ssize_t)i,
                        PyLong_FromUnsignedLong(s->detail->segments[i].memory_kind));
    }
    return kinds;
}

static void segments_dealloc(PyObject *self)
{
    struct segments *s = (struct segments *)(void *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (s->weak != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    segments_drop(s);
    core_unref(s->core);
    Py_XDECREF(s->lengths);
    PyObject_Free(self);
    Py_DECREF(type);
}

int multi_import(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"copy", segments_copy, METH_NOARGS,
         "copy($self, /)\n--\n\n"
         "The data as bytearrays, if all of it is here (not `pending`); releases the message."},
        {"fetch", (PyCFunction)(void (*)(void))segments_fetch, METH_VARARGS | METH_KEYWORDS,
         "fetch($self, /, buffers, timeout=None)\n--\n\n"
         "Move the data into writable buffers, one for each segment and none shorter."},
        {"put_back", segments_put_back, METH_NOARGS,
         "put_back($self, /)\n--\n\n"
         "Give the message back: the next receive that matches gets it."},
        {"drop", segments_drop_method, METH_NOARGS,
         "drop($self, /)\n--\n\nThrow the message away."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef members[] = {
        {"lengths", get_lengths, NULL, "Bytes of each segment.", NULL},
        {"kinds", get_kinds, NULL, "Kind of memory of each segment, at the sender.", NULL},
        {"pending", get_pending, NULL, "True if some of the data is still at the sender.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyMemberDef fields[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(struct segments, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, segments_dealloc},
                                  {Py_tp_members, fields},
                                  {Py_tp_repr, segments_repr},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, members},
                                  {Py_tp_doc, "The list of a multi-buffer message: fetch() it."},
                                  {0, NULL}};
    static PyType_Spec spec = {"hawser._core.Segments", sizeof(struct segments), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

    segments_type = add_type(module, "Segments", &spec);
    return segments_type == NULL ? -1 : 0;
}
