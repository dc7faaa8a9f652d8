/* The worker's Python object: hawser.Worker builds on it. */
#include "ext.h"
#include <fcntl.h>
#include <structmember.h>

PyTypeObject *worker_type;

struct worker {
    PyObject_HEAD struct core *core; /* null until opened */
    PyObject *weak;
};

static struct core *core_in(PyObject *self)
{
    return ((struct worker *)(void *)self)->core;
}

struct core *core_of(PyObject *worker)
{
    if (!PyObject_TypeCheck(worker, worker_type)) {
        PyErr_Format(PyExc_TypeError, "a Worker is needed, not %R", (PyObject *)Py_TYPE(worker));
        return NULL;
    }
    if (core_in(worker) == NULL) {
        PyErr_SetString(PyExc_ValueError, "the worker is not open");
        return NULL;
    }
    return core_in(worker);
}

/* An object of Python may be many buffers, each of which is a segment: memory alone bounds them. */
#define SEGMENTS (1u << 30)

/* It cannot be had after all. The library tells the core of the end, and has the reference until then. */
static void leave_open(struct core *c)
{
    c->worker = NULL;
    core_abandon(c);
}

/* _open(context, mode, flags, name, spin_ns, await_spin_ns, spares) */
static PyObject *worker_open(PyObject *self, PyObject *args)
{
    struct worker *w = (struct worker *)(void *)self;
    uint64_t context, flags, spin, await_spin;
    uint32_t mode, spares;
    const char *name;
    hws_worker_opts o = {.struct_size = sizeof o};
    struct core *c;
    hws_id id = 0;
    int32_t fd, r;

    if (parse(args, "context:n mode:u flags:n name:z spin:n spin:n spares:u", &context, &mode,
              &flags, &name, &spin, &await_spin, &spares) < 0) {
        return NULL;
    }
    core_reap();
    loop_find_others();
    if ((c = core_new(0, mode)) == NULL) {
        return NULL;
    }
    o.mode = mode;
    o.flags = flags;
    o.name = name;
    o.spin_ns = spin;
    o.spares = spares;
    o.multi_count_max = SEGMENTS;
    o.sink = (hws_sink){.callback = core_event, .callback_arg = c};
    UNLOCKED(r = hws_worker_open(context, &o, &id));
    if (r < 0) {
        raise_last(r);
        core_unref(c);
        return NULL;
    }
    c->id = id;
    c->worker = self;
    c->spin_ns = c->spin_now = await_spin < UINT32_MAX ? (uint32_t)await_spin : UINT32_MAX;
    /* A copy: loops may look at it a moment longer than the worker lives. */
    if (mode <= HWS_PROGRESS_BLOCKING &&
        ((r = hws_worker_fd(id, &fd)) < 0 || (c->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)) {
        PyObject *none = r < 0 ? raise_last(r) : PyErr_SetFromErrno(PyExc_OSError);

        leave_open(c);
        return none;
    }
    if ((c->done = op_new_done(c)) == NULL) {
        leave_open(c);
        return NULL;
    }
    core_ref(c); /* the library's: given back with the CLOSED event */
    w->core = c;
    Py_RETURN_NONE;
}

void core_closed(struct core *c)
{
    if (!c->closed) {
        c->closed = true;
        bindings_clear(c);
        core_unref(c);
    }
}

/* _closed(): the worker's last event was told. */
static PyObject *worker_closed(PyObject *self, PyObject *unused)
{
    struct core *c = core_in(self);

    (void)unused;
    if (c != NULL) {
        core_closed(c);
    }
    Py_RETURN_NONE;
}

static void worker_dealloc(PyObject *self)
{
    struct worker *w = (struct worker *)(void *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    struct core *c = w->core;
    PyObject *error, *value, *traceback;

    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&error, &value,
                &traceback); /* somebody else's, who lets go of the last reference */
    if (w->weak != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    if (c != NULL) {
        c->worker = NULL;
        bindings_clear(c);
        if (!c->closed) {
            core_abandon(c);
        }
        Py_CLEAR(c->done);
        Py_CLEAR(c->spare);
        Py_CLEAR(c->length);
        core_unref(c);
    }
    PyErr_Restore(error, value, traceback);
    free_object(self);
    Py_DECREF(type);
}

static int worker_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int worker_clear(PyObject *self)
{
    (void)self;
    return 0;
}

static PyObject *worker_progress(PyObject *self, PyObject *unused)
{
    struct core *c = core_of(self);
    int32_t r;

    (void)unused;
    if (c == NULL) {
        return NULL;
    }
    r = core_progress(c);
    core_drain(c, NULL, true, NULL);
    binding_look_again(c);
    if (callback_raise() < 0) {
        return NULL;
    }
    if (r < 0 && r != HWS_E_BUSY) {
        return raise_last(r);
    }
    return PyLong_FromLong(r < 0 ? 0 : r);
}

/* _answer(): make progress for the sake of its peers, on any thread: what it brings is told where the worker is looked
 * after. */
static PyObject *worker_answer(PyObject *self, PyObject *unused)
{
    struct core *c = core_of(self);

    (void)unused;
    if (c == NULL) {
        return NULL;
    }
    hws_worker_progress(c->id); /* if it cannot be made now, others make it */
    binding_look_again(c);
    Py_RETURN_NONE;
}

/* _wait(timeout): make progress without the GIL until something happened; signals are looked at. */
static PyObject *worker_wait(PyObject *self, PyObject *seconds)
{
    struct core *c = core_of(self);
    uint64_t timeout;
    int32_t r;

    if (c == NULL || to_timeout(seconds, &timeout) < 0) {
        return NULL;
    }
    timeout = timeout == 0 || timeout > SIGNALS_NS ? SIGNALS_NS : timeout;
    atomic_fetch_add(&c->blocked, 1);
    UNLOCKED(r = hws_worker_wait(c->id, timeout));
    atomic_fetch_sub(&c->blocked, 1);
    core_drain(c, NULL, true, NULL);
    if (callback_raise() < 0 || PyErr_CheckSignals() < 0) {
        return NULL;
    }
    if (r < 0 && r != HWS_E_STALE) {
        return raise_last(r);
    }
    return PyLong_FromLong(r);
}

/* _arm(): 0, or HWS_E_BUSY: there is work. For descriptors that others poll. */
static PyObject *worker_arm(PyObject *self, PyObject *unused)
{
    struct core *c = core_of(self);
    int32_t r;

    (void)unused;
    if (c == NULL) {
        return NULL;
    }
    r = hws_worker_arm(c->id);
    if (r < 0 && r != HWS_E_BUSY) {
        return raise_last(r);
    }
    return PyBool_FromLong(r == HWS_OK);
}

/* _watch(): the running loop looks after this worker from now on. */
static PyObject *worker_watch(PyObject *self, PyObject *unused)
{
    struct core *c = core_of(self);
    struct binding *b;

    (void)unused;
    if (c == NULL || (b = binding_running(c)) == NULL || binding_schedule(c, b) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *get_id(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(core_in(self) != NULL ? core_in(self)->id : 0);
}

static PyObject *get_fd(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(core_in(self) != NULL ? core_in(self)->fd : -1);
}

static PyObject *get_awaits(PyObject *self, void *unused)
{
    struct core *c = core_of(self);

    (void)unused;
    return c == NULL ? NULL
                     : Py_BuildValue("{sKsK}", "awaits_spun", (unsigned long long)c->spun,
                                     "awaits_slept", (unsigned long long)c->slept);
}

static PyObject *get_views(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(core_in(self) != NULL ? core_in(self)->views : 0);
}

int worker_import(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"_open", worker_open, METH_VARARGS, NULL},
        {"_closed", worker_closed, METH_NOARGS, NULL},
        {"progress", worker_progress, METH_NOARGS,
         "progress($self, /)\n--\n\nMake progress once; how much was done, 0 for nothing."},
        {"_answer", worker_answer, METH_NOARGS, NULL},
        {"_wait", worker_wait, METH_O, NULL},
        {"_arm", worker_arm, METH_NOARGS, NULL},
        {"_watch", worker_watch, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getters[] = {
        {"id", get_id, NULL, "Id of the worker.", NULL},
        {"fd", get_fd, NULL, "Descriptor of an armed worker, -1 in the thread modes.", NULL},
        {"_awaits", get_awaits, NULL, NULL, NULL},
        {"_views", get_views, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyMemberDef members[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(struct worker, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, worker_dealloc}, {Py_tp_traverse, worker_traverse},
        {Py_tp_clear, worker_clear},     {Py_tp_new, PyType_GenericNew},
        {Py_tp_methods, methods},        {Py_tp_getset, getters},
        {Py_tp_members, members},        {0, NULL}};
    static PyType_Spec spec = {"hawser._core.Worker", sizeof(struct worker), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               slots};

    worker_type = add_type(module, "Worker", &spec);
    return worker_type == NULL ? -1 : 0;
}
