/*
 * The usual messages of hawser.ucp's Endpoint: without a tag of the caller's, on a connection that is
 * open. They are awaitables of this module, so an await costs what it costs elsewhere; UCX-Py's counters,
 * rules and exceptions are added where such an operation ends. Everything else, and everything that
 * fails at once, goes to the Python part: _send() and _recv(), which say what is wrong when awaited.
 */
#include "arguments.h"
#include "endpoint.h"
#include "op.h"
#include "posting.h"
#include "ucp.h"

#include <structmember.h>

/** Base of hawser.ucp.Endpoint. */
struct ucp_endpoint {
    PyObject_HEAD PyObject *endpoint; /* hawser's; null: everything goes to the Python part */
    uint64_t send_tag, recv_tag;
    unsigned long long sent, posted, received; /* messages */
    unsigned long long untaken; /* of the received: the program has yet to learn of them */
    PyObject
        *last;  /* how many are to be received before it closes; None: not known, null: the same */
    bool exact; /* a message that is shorter than its buffer is an error */
    struct op *sending; /* those that have not ended, each of which holds this */
};

PyTypeObject *ucp_type;
static PyTypeObject *array_type; /* hawser.ucp's Array, which wraps a buffer */

/* ---- What an operation adds ---- */

static bool is_short(const struct op *op)
{
    return op->receives && op->length != op->expected &&
           ((struct ucp_endpoint *)(void *)op->ucp)->exact;
}

bool ucp_failed(const struct op *op)
{
    return op->cancelled || op->status < 0 || is_short(op);
}

/* The endpoint may have to be closed now, if it is known when. */
static void look_at_count(PyObject *self, bool later)
{
    const struct ucp_endpoint *u = (struct ucp_endpoint *)(void *)self;
    PyObject *r;

    if (u->last == NULL || u->last == Py_None) {
        return;
    }
    r = PyObject_CallMethod(self, "_counted", "O", later ? Py_True : Py_False);
    callback_failed(self);
    Py_XDECREF(r);
}

static void list_sending(struct ucp_endpoint *u, struct op *op)
{
    op->sending_next = u->sending;
    op->sending_link = &u->sending;
    if (u->sending != NULL) {
        u->sending->sending_link = &op->sending_next;
    }
    u->sending = op;
}

static void unlist_sending(struct op *op)
{
    if (op->sending_link == NULL) {
        return;
    }
    *op->sending_link = op->sending_next;
    if (op->sending_next != NULL) {
        op->sending_next->sending_link = op->sending_link;
    }
    op->sending_link = NULL;
}

void ucp_told(struct op *op)
{
    struct ucp_endpoint *u = (struct ucp_endpoint *)(void *)op->ucp;

    unlist_sending(op);
    if (!op->receives || ucp_failed(op)) {
        return;
    }
    op->untaken_message = true;
    u->received++;
    u->untaken++;
    look_at_count(op->ucp, false);
}

void ucp_taken(struct op *op, bool later)
{
    struct ucp_endpoint *u = (struct ucp_endpoint *)(void *)op->ucp;

    if (!op->untaken_message) {
        return;
    }
    op->untaken_message = false;
    if (--u->untaken == 0) {
        look_at_count(op->ucp, later);
    }
}

void ucp_returned(struct op *op)
{
    struct ucp_endpoint *u = (struct ucp_endpoint *)(void *)op->ucp;

    if (op->untaken_message) { /* else it was not counted */
        op->untaken_message = false;
        u->received--;
        u->untaken--;
    }
}

PyObject *ucp_failure(struct op *op, PyObject *error)
{
    PyObject *r =
        PyObject_CallMethod(op->ucp, "_failure", "OOOKKK", error, op->receives ? Py_True : Py_False,
                            op->buffer, (unsigned long long)op->number,
                            (unsigned long long)op->length, (unsigned long long)op->expected);

    Py_DECREF(error);
    return r;
}

void ucp_drop(struct op *op)
{
    PyObject *type, *value, *traceback;

    if (op->ucp != NULL && op->untaken_message) {
        PyErr_Fetch(&type, &value, &traceback);
        ucp_taken(op, false);
        PyErr_Restore(type, value, traceback);
    }
    unlist_sending(op);
    Py_CLEAR(op->ucp);
    Py_CLEAR(op->buffer);
}

static void concerns(struct op *op, PyObject *self, PyObject *buffer, bool receives,
                     unsigned long long number, uint64_t expected)
{
    op->ucp = Py_NewRef(self);
    op->buffer = Py_NewRef(buffer);
    op->receives = receives;
    op->untaken_message = false;
    op->sending_link = NULL;
    op->number = number;
    op->expected = expected;
}

/* ---- The calls ---- */

/* The coroutine of the Python part. */
static PyObject *slowly(PyObject *self, const char *method, PyObject *const *a)
{
    PyErr_Clear();
    return PyObject_CallMethod(self, method, "OOO", a[0], a[1] != NULL ? a[1] : Py_None,
                               a[2] != NULL ? a[2] : Py_False);
}

/* The endpoint, if a message may go this way. `buffer`: without its wrapping; a reference. */
static struct endpoint *usual(struct ucp_endpoint *u, PyObject *const *a, PyObject **buffer)
{
    struct endpoint *e = (struct endpoint *)(void *)u->endpoint;

    /* To receive into None is an error here; hawser's own recv() gives the memory then. */
    if (e == NULL || e->core == NULL || a[0] == Py_None || (a[1] != NULL && a[1] != Py_None) ||
        (a[2] != NULL && a[2] != Py_False)) {
        return NULL;
    }
    *buffer =
        Py_TYPE(a[0]) == array_type ? PyObject_GetAttrString(a[0], "source") : Py_NewRef(a[0]);
    return *buffer == NULL ? NULL : e;
}

/* Post it; null without an exception of its own: not on this way. */
static PyObject *post(struct ucp_endpoint *u, struct endpoint *e, PyObject *buffer, bool receives)
{
    unsigned long long *count = receives ? &u->posted : &u->sent;
    struct posting p;
    hws_event done;
    int32_t r;

    if (posting_prepare(&p, e->core, buffer, receives, RESULT_UCP, NULL, HWS_OP_INLINE) < 0) {
        return NULL;
    }
    concerns(p.op, (PyObject *)u, buffer, receives, *count, p.length);
    if (receives) {
        posting_returns(&p, BACK_TAG);
        p.opts.result = &done;
        r = hws_tag_recv(e->id, p.data, p.length, u->recv_tag, UINT64_MAX, &p.opts, &p.op->id);
    } else {
        r = hws_tag_send(e->id, p.data, p.length, u->send_tag, &p.opts, &p.op->id);
    }
    if (r < 0) {
        Py_DECREF((PyObject *)p.op);
        return NULL;
    }
    ++*count;
    if (r == HWS_OK && !receives) {
        list_sending(u, p.op);
    }
    return posting_posted(&p, r, receives ? &done : NULL);
}

static PyObject *send_or_receive(PyObject *self, PyObject *const *a, bool receives)
{
    struct ucp_endpoint *u = (struct ucp_endpoint *)(void *)self;
    PyObject *buffer = NULL, *r = NULL;
    struct endpoint *e = usual(u, a, &buffer);

    if (e != NULL) {
        Py_INCREF((PyObject *)e); /* the buffer may be asked by Python, which may close it */
        r = post(u, e, buffer, receives);
        Py_DECREF((PyObject *)e);
    }
    Py_XDECREF(buffer);
    return r != NULL ? r : slowly(self, receives ? "_recv" : "_send", a);
}

static ENDPOINT_CALL(ucp_send)
{
    static struct signature signature = {"send", 3,     1, {"buffer", "tag", "force_tag"},
                                         {NULL}, {NULL}};
    PyObject *a[3];

    return arguments(&signature, args, n, kwnames, a) < 0 ? NULL : send_or_receive(self, a, false);
}

static ENDPOINT_CALL(ucp_recv)
{
    static struct signature signature = {"recv", 3,     1, {"buffer", "tag", "force_tag"},
                                         {NULL}, {NULL}};
    PyObject *a[3];

    return arguments(&signature, args, n, kwnames, a) < 0 ? NULL : send_or_receive(self, a, true);
}

/* _bind(endpoint, send_tag, recv_tag, exact): messages of these tags may go this way. */
static PyObject *ucp_bind(PyObject *self, PyObject *args)
{
    struct ucp_endpoint *u = (struct ucp_endpoint *)(void *)self;
    unsigned long long send_tag, recv_tag;
    PyObject *endpoint;
    int exact;

    if (!PyArg_ParseTuple(args, "O!KKp:_bind", endpoint_type, &endpoint, &send_tag, &recv_tag,
                          &exact)) {
        return NULL;
    }
    u->send_tag = send_tag;
    u->recv_tag = recv_tag;
    u->exact = exact != 0;
    replace(&u->endpoint, Py_NewRef(endpoint));
    Py_RETURN_NONE;
}

/* _unbind(): none may any more. */
static PyObject *ucp_unbind(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_CLEAR(((struct ucp_endpoint *)(void *)self)->endpoint);
    Py_RETURN_NONE;
}

/* _sends(): the ids of those that have not ended. */
static PyObject *ucp_sends(PyObject *self, PyObject *unused)
{
    const struct ucp_endpoint *u = (struct ucp_endpoint *)(void *)self;
    PyObject *list = PyList_New(0), *id;

    (void)unused;
    for (const struct op *op = u->sending; op != NULL && list != NULL; op = op->sending_next) {
        id = PyLong_FromUnsignedLongLong(op->id);
        if (id == NULL || PyList_Append(list, id) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(id);
    }
    return list;
}

/* ---- The type ---- */

static void ucp_dealloc(PyObject *self)
{
    struct ucp_endpoint *u = (struct ucp_endpoint *)(void *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

    PyObject_GC_UnTrack(self);
    Py_CLEAR(u->endpoint);
    Py_CLEAR(u->last);
    free_object(self);
    Py_DECREF(type);
}

static int ucp_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct ucp_endpoint *)(void *)self)->endpoint);
    return 0;
}

static int ucp_clear(PyObject *self)
{
    Py_CLEAR(((struct ucp_endpoint *)(void *)self)->endpoint);
    return 0;
}

#define FAST METH_FASTCALL | METH_KEYWORDS
#define FN(f) (PyCFunction)(void (*)(void))(f)

PyMethodDef ucp_methods[] = {
    {"send", FN(ucp_send), FAST,
     "send($self, /, buffer, tag=None, force_tag=False)\n--\n\n"
     "Send a buffer.\n\n"
     "tag: anything hashable that the receiver names too; with force_tag an int that is used as it\n"
     "is. Raises UCXCloseError, UCXConnectionReset, UCXError."},
    {"recv", FN(ucp_recv), FAST,
     "recv($self, /, buffer, tag=None, force_tag=False)\n--\n\n"
     "Receive into a writable buffer of the message's size.\n\n"
     "Raises UCXMsgTruncated if the message is shorter, UCXError if it is longer, UCXCanceled if the\n"
     "endpoint is closed meanwhile."},
    {"_bind", ucp_bind, METH_VARARGS, NULL},
    {"_unbind", ucp_unbind, METH_NOARGS, NULL},
    {"_sends", ucp_sends, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

/* array_class(type): the class that wraps buffers. */
static PyObject *array_class(PyObject *self, PyObject *type)
{
    (void)self;
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "a class is needed");
        return NULL;
    }
    array_type = (PyTypeObject *)(void *)Py_NewRef(type);
    return Py_NewRef(type);
}

int ucp_import(PyObject *module)
{
#define COUNT(name, member)                                               \
    {                                                                     \
        name, T_ULONGLONG, offsetof(struct ucp_endpoint, member), 0, NULL \
    }
    static PyMethodDef functions_here[] = {{"array_class", array_class, METH_O, NULL},
                                           {NULL, NULL, 0, NULL}};
    static PyMemberDef members[] = {
        COUNT("_send_count", sent),
        COUNT("_recv_count", posted),
        COUNT("_finished_recv_count", received),
        COUNT("_untaken_count", untaken),
        {"_close_after_n_recv", T_OBJECT, offsetof(struct ucp_endpoint, last), 0, NULL},
        {NULL, 0, 0, 0, NULL}};
    PyType_Slot slots[] = {{Py_tp_dealloc, ucp_dealloc},
                           {Py_tp_traverse, ucp_traverse},
                           {Py_tp_clear, ucp_clear},
                           {Py_tp_new, PyType_GenericNew},
                           {Py_tp_methods, ucp_methods},
                           {Py_tp_members, members},
                           {0, NULL}};
    PyType_Spec spec = {"hawser._core.UcpEndpoint", sizeof(struct ucp_endpoint), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

    ucp_type = add_type(module, "UcpEndpoint", &spec);
    return ucp_type == NULL ? -1 : PyModule_AddFunctions(module, functions_here);
}
