/*
 * The types of endpoints: calls that give operations (hawser.Endpoint builds on this), and the same
 * calls that block (hawser.sync.Endpoint).
 */
#include "endpoint.h"
#include "ucp.h"
#include <structmember.h>

PyTypeObject *endpoint_type;
static PyTypeObject *sync_type;

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

/* ---- The blocking calls: post, and wait without an awaitable that Python sees ---- */

#define BLOCKING(name, call)                              \
    static ENDPOINT_CALL(name)                            \
    {                                                     \
        return op_block(call(self, args, n, kwnames), 0); \
    }
BLOCKING(sync_send, endpoint_send)
BLOCKING(sync_stream_send, endpoint_stream_send)
BLOCKING(sync_stream_recv, endpoint_stream_recv)
BLOCKING(sync_am_send, endpoint_am_send)

/* Without a buffer _recv_sized() has blocked already. */
static ENDPOINT_CALL(sync_recv)
{
    PyObject *r = endpoint_recv(self, args, n, kwnames);

    return r != NULL && Py_TYPE(r) == op_type ? op_block(r, 0) : r;
}

#define FAST METH_FASTCALL | METH_KEYWORDS
#define FN(f) (PyCFunction)(void (*)(void))(f)

/* The blocking calls take and tell the same. The signatures are read by inspect.signature(), which computes nothing. */
#define SEND_DOC                                                                                  \
    "send($self, /, buffer, tag=0, timeout=None, sync=False, stream=None)\n--\n\n"                \
    "Send a tagged message. Done means that the buffer can be used again; with `sync`, that\n"    \
    "the peer has matched it with a receive. With a CUDA `stream` (of CuPy, PyTorch, Numba, or\n" \
    "its number) it leaves once that stream's work is done."
#define RECV_DOC                                                                            \
    "recv($self, /, buffer=None, tag=0, mask=18446744073709551615, timeout=None)\n--\n\n"   \
    "Receive a tagged message.\n\n"                                                         \
    "With a writable buffer: into it; gives the length in bytes. A longer message raises\n" \
    "TruncatedError. Without: gives a bytearray of the right size."
#define STREAM_SEND_DOC                                                \
    "stream_send($self, /, buffer, timeout=None, stream=None)\n--\n\n" \
    "Send bytes on the stream; `stream` is a CUDA stream, as for send()."
#define STREAM_RECV_DOC                                                                        \
    "stream_recv($self, /, buffer, exactly=True, timeout=None)\n--\n\n"                        \
    "Receive bytes of the stream into a writable buffer: all of it, or at least one byte if\n" \
    "not `exactly`; gives their number."
#define SEND_AM_DOC                                                                         \
    "send_am($self, /, buffer, id=0, header=None, timeout=None, eager=False, rndv=False,\n" \
    "        stream=None)\n--\n\n"                                                          \
    "Send an active message; the header is copied. `stream` is a CUDA stream, as for send()."

static PyMethodDef methods[] = {{"send", FN(endpoint_send), FAST, SEND_DOC},
                                {"recv", FN(endpoint_recv), FAST, RECV_DOC},
                                {"_recv", FN(endpoint_recv), FAST, NULL},
                                {"stream_send", FN(endpoint_stream_send), FAST, STREAM_SEND_DOC},
                                {"stream_recv", FN(endpoint_stream_recv), FAST, STREAM_RECV_DOC},
                                {"send_am", FN(endpoint_am_send), FAST, SEND_AM_DOC},
                                {"_attach", endpoint_attach, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static PyMethodDef sync_methods[] = {{"send", FN(sync_send), FAST, SEND_DOC},
                                     {"recv", FN(sync_recv), FAST, RECV_DOC},
                                     {"stream_send", FN(sync_stream_send), FAST, STREAM_SEND_DOC},
                                     {"stream_recv", FN(sync_stream_recv), FAST, STREAM_RECV_DOC},
                                     {"send_am", FN(sync_am_send), FAST, SEND_AM_DOC},
                                     {"_attach", endpoint_attach, METH_VARARGS, NULL},
                                     {NULL, NULL, 0, NULL}};

/** own(type): a class decorator that gives a subclass of an endpoint's type the calls as its own. The
 * interpreter calls a method of C directly only on objects of the very type that it was defined for. */
static PyObject *own(PyObject *self, PyObject *type)
{
    PyMethodDef *m;

    (void)self;
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "a subclass of one of the endpoints is needed");
        return NULL;
    }
    if (PyType_IsSubtype((PyTypeObject *)(void *)type, endpoint_type)) {
        m = methods;
    } else if (PyType_IsSubtype((PyTypeObject *)(void *)type, sync_type)) {
        m = sync_methods;
    } else if (PyType_IsSubtype((PyTypeObject *)(void *)type, ucp_type)) {
        m = ucp_methods;
    } else {
        PyErr_SetString(PyExc_TypeError, "a subclass of one of the endpoints is needed");
        return NULL;
    }
    for (; m->ml_name != NULL; m++) {
        PyObject *method = PyDescr_NewMethod((PyTypeObject *)(void *)type, m);

        if (method == NULL || PyObject_SetAttrString(type, m->ml_name, method) < 0) {
            Py_XDECREF(method);
            return NULL;
        }
        Py_DECREF(method);
    }
    return Py_NewRef(type);
}

static PyTypeObject *make_type(PyObject *module, const char *name, const char *full,
                               PyMethodDef *calls)
{
    static PyGetSetDef getters[] = {{"id", get_id, NULL, "Id of the endpoint.", NULL},
                                    {"worker", get_worker, NULL, "Its worker.", NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};
    static PyMemberDef members[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(struct endpoint, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL}};
    PyType_Slot slots[] = {{Py_tp_dealloc, endpoint_dealloc},
                           {Py_tp_traverse, endpoint_traverse},
                           {Py_tp_clear, endpoint_clear},
                           {Py_tp_new, PyType_GenericNew},
                           {Py_tp_methods, calls},
                           {Py_tp_getset, getters},
                           {Py_tp_members, members},
                           {0, NULL}};
    PyType_Spec spec = {full, sizeof(struct endpoint), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

    return add_type(module, name, &spec);
}

int endpoint_import(PyObject *module)
{
    static PyMethodDef functions_here[] = {{"own", own, METH_O, NULL}, {NULL, NULL, 0, NULL}};

    endpoint_type = make_type(module, "Endpoint", "hawser._core.Endpoint", methods);
    sync_type = make_type(module, "SyncEndpoint", "hawser._core.SyncEndpoint", sync_methods);
    if (endpoint_type == NULL || sync_type == NULL ||
        PyModule_AddFunctions(module, functions_here) < 0) {
        return -1;
    }
    return endpoint_calls_import(module);
}
