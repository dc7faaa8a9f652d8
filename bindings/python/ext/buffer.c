/* Memory of the library as a Python buffer; it goes back when the object is gone. */
#include "ext.h"
#include <structmember.h>

PyTypeObject *buffer_type;

struct buffer {
    PyObject_HEAD struct core *core;
    hws_id id;
    void *data;
    Py_ssize_t length;
    PyObject *weak;
    bool rndv;
};

PyObject *buffer_new(struct core *c, hws_id id, const void *data, uint64_t length)
{
    struct buffer *b = PyObject_New(struct buffer, buffer_type);

    if (b == NULL) {
        hws_close(id);
        return NULL;
    }
    core_ref(c);
    b->core = c;
    b->weak = NULL;
    b->id = id;
    b->data = (void *)(uintptr_t)data;
    b->length = (Py_ssize_t)length;
    b->rndv = data == NULL && length != 0;
    return (PyObject *)b;
}

static void buffer_dealloc(PyObject *self)
{
    struct buffer *b = (struct buffer *)(void *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (b->weak != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    hws_close(b->id);
    core_unref(b->core);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Not where the worker is closed, nor where it is just being dropped, with the memory. */
static bool worker_lives(const struct buffer *b)
{
    return hws_kind(b->id) >= 0 && b->core->worker != NULL && Py_REFCNT(b->core->worker) > 0;
}

/* A view holds the worker: if that is dropped unclosed, its memory goes. The buffer itself does not, for it may lie in
 * the worker. */
static int buffer_get(PyObject *self, Py_buffer *view, int flags)
{
    struct buffer *b = (struct buffer *)(void *)self;
    static char nothing[1];

    if (b->rndv) {
        PyErr_SetString(PyExc_BufferError, "the data is still at the sender: fetch it first");
        return -1;
    }
    if (!worker_lives(b)) {
        PyErr_SetString(PyExc_BufferError, "the worker of this buffer is closed");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, b->length != 0 ? b->data : nothing, b->length, 0, flags) <
        0) {
        return -1;
    }
    Py_INCREF(b->core->worker);
    b->core->views++;
    return 0;
}

static void buffer_let_go(PyObject *self, Py_buffer *view)
{
    struct core *c = ((struct buffer *)(void *)self)->core;

    (void)view;
    c->views--;
    Py_DECREF(c->worker);
}

static Py_ssize_t buffer_length(PyObject *self)
{
    return ((struct buffer *)(void *)self)->length;
}

static PyObject *buffer_repr(PyObject *self)
{
    struct buffer *b = (struct buffer *)(void *)self;

    return PyUnicode_FromFormat("<hawser.Buffer of %zd bytes%s>", b->length,
                                b->rndv ? ", pending" : "");
}

static PyObject *get_id(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((struct buffer *)(void *)self)->id);
}

static PyObject *get_rndv(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct buffer *)(void *)self)->rndv);
}

/** fetch(buffer, timeout=None): fetch data that is still at the sender. */
static PyObject *buffer_fetch(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"buffer", "timeout", NULL};
    struct buffer *b = (struct buffer *)(void *)self;
    PyObject *into, *seconds = Py_None;
    struct memory m;
    uint64_t timeout;
    hws_op_opts o;
    struct op *op;
    int32_t r;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:fetch", names, &into, &seconds) ||
        to_timeout(seconds, &timeout) < 0) {
        return NULL;
    }
    if (memory_get(into, true, &m) < 0) {
        argument_wrong("buffer");
        return NULL;
    }
    if ((op = op_new(b->core, RESULT_KEEP)) == NULL) {
        memory_release(&m);
        return NULL;
    }
    op_take_memory(op, &m);
    op->owner = op->keep;
    op->keep = Py_NewRef(into);
    op_options(op, timeout, 0, m.kind, &o);
    r = hws_am_recv(b->id, m.data, m.length, &o, &op->id);
    return op_posted(op, r);
}

/** taken(): the sender may send as much again. */
static PyObject *buffer_taken(PyObject *self, PyObject *unused)
{
    (void)unused;
    hws_buffer_taken(((struct buffer *)(void *)self)->id); /* it may be closed with its worker */
    Py_RETURN_NONE;
}

int buffer_import(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"fetch", (PyCFunction)(void (*)(void))buffer_fetch, METH_VARARGS | METH_KEYWORDS,
         "fetch($self, /, buffer, timeout=None)\n--\n\n"
         "Fetch data that is still at the sender into a writable buffer; gives that buffer."},
        {"_taken", buffer_taken, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef members[] = {
        {"id", get_id, NULL, "Id of the buffer.", NULL},
        {"pending", get_rndv, NULL, "True while the data is still at the sender.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyMemberDef fields[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(struct buffer, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, buffer_dealloc},
                                  {Py_tp_members, fields},
                                  {Py_tp_repr, buffer_repr},
                                  {Py_bf_getbuffer, buffer_get},
                                  {Py_bf_releasebuffer, buffer_let_go},
                                  {Py_sq_length, buffer_length},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, members},
                                  {Py_tp_doc, "Received data in memory of the library."},
                                  {0, NULL}};
    static PyType_Spec spec = {"hawser._core.Buffer", sizeof(struct buffer), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

    buffer_type = add_type(module, "Buffer", &spec);
    return buffer_type == NULL ? -1 : 0;
}
