/*
 * Event loops. A worker is bound to a loop at the first wait there: its descriptors are readers of
 * the loop. Whoever made progress asks for one look before the loop sleeps, at which the worker is
 * armed, so a loop that sleeps is woken by whatever comes.
 */
#include "wakeup.h"
#include <stdlib.h>
#include <time.h>

static PyObject *get_running_loop; /* asyncio._get_running_loop */
static PyObject *get_trio;         /* hawser._trio.running; null before Trio is imported */
PyTypeObject *binding_type;

/** The callable that the loop calls when a descriptor is readable, or when the loop is about to sleep. */
struct reader {
    PyObject_HEAD struct core *core;
    struct binding *binding; /* null once unbound */
    /* It is called as a descriptor is readable, in a turn that was asked for, or by a timer, for deadlines. */
    enum { ON_FD, ON_TURN, ON_LATE } when;
};

/* Trio is an optional package: whoever runs it has imported it. */
void loop_find_others(void)
{
    PyObject *m;

    if (get_trio != NULL || PyDict_GetItemString(PyImport_GetModuleDict(), "trio") == NULL) {
        return;
    }
    if ((m = PyImport_ImportModule("hawser._trio")) != NULL) {
        get_trio = PyObject_GetAttrString(m, "running");
        Py_DECREF(m);
    }
    PyErr_Clear(); /* a Trio that is too old */
}

bool loop_others(void)
{
    return get_trio != NULL;
}

PyObject *running_loop(void)
{
    PyObject *loop;

    if (get_trio == NULL) {
        loop = PyObject_CallNoArgs(get_running_loop);
        if (loop != Py_None) {
            return loop;
        }
        loop_find_others();
        if (get_trio == NULL) {
            return loop;
        }
        Py_DECREF(loop);
    }
    /* A run of Trio may be the guest of an asyncio loop, so it is asked first. */
    loop = PyObject_CallNoArgs(get_trio);
    if (loop != Py_None) {
        return loop;
    }
    Py_DECREF(loop);
    return PyObject_CallNoArgs(get_running_loop);
}

/* None is an error. */
static PyObject *some_loop(PyObject *loop)
{
    if (loop == Py_None) {
        Py_DECREF(loop);
        PyErr_SetString(PyExc_RuntimeError,
                        "no running event loop: await inside one, or call wait()");
        return NULL;
    }
    return loop;
}

PyObject *py_running_loop(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return some_loop(running_loop());
}

static PyObject *make_reader(struct core *c, struct binding *b, int when)
{
    struct reader *r = PyObject_New(struct reader, binding_type);

    if (r != NULL) {
        /* A timer may be there long after the worker. */
        r->core = when == ON_LATE ? NULL : c;
        if (r->core != NULL) {
            core_ref(c);
        }
        r->binding = b;
        r->when = when;
    }
    return (PyObject *)r;
}

static void end_reader(PyObject *reader)
{
    if (reader != NULL) {
        ((struct reader *)(void *)reader)->binding = NULL;
        Py_DECREF(reader);
    }
}

void binding_drop(struct binding *b)
{
    if (--b->refs == 0) {
        free(b);
    }
}

/* It is in no list any more. */
static void close_binding(struct binding *b)
{
    PyObject *on_fd = b->on_fd, *on_turn = b->on_turn, *on_late = b->on_late;

    b->next = NULL;
    b->on_fd = b->on_turn = b->on_late = NULL;
    late_forget(b);
    end_reader(on_fd);
    end_reader(on_turn);
    end_reader(on_late);
    Py_CLEAR(b->ready);
    Py_CLEAR(b->wait);
    Py_CLEAR(b->ended);
    Py_CLEAR(b->get_loop);
    Py_CLEAR(b->loop);
    binding_drop(b);
}

/*
 * What is called of a loop is not borrowed from the binding: making the arguments may run the collector, and so any
 * Python, and another thread may unbind it meanwhile. -1 with an error set.
 */
static int called(PyObject *loop, PyObject *reader, PyObject *result)
{
    Py_XDECREF(result);
    Py_XDECREF(reader);
    Py_DECREF(loop);
    return result == NULL ? -1 : 0;
}

static int add_reader(struct binding *b, int fd)
{
    PyObject *loop = Py_XNewRef(b->loop), *on_fd = Py_XNewRef(b->on_fd);

    return loop == NULL
               ? 0
               : called(loop, on_fd, PyObject_CallMethod(loop, "add_reader", "iO", fd, on_fd));
}

/* A closed loop watches nothing and can be asked nothing. Nor is one that was unbound. */
static bool loop_closed(struct binding *b)
{
    PyObject *loop = Py_XNewRef(b->loop), *r;
    bool closed;

    if (loop == NULL) {
        return true;
    }
    r = PyObject_CallMethod(loop, "is_closed", NULL);
    closed = r == NULL || PyObject_IsTrue(r);
    Py_XDECREF(r);
    Py_DECREF(loop);
    PyErr_Clear();
    return closed;
}

static bool unlink_binding(struct core *c, const struct binding *b)
{
    struct binding **p = &c->bindings;

    while (*p != NULL && *p != b) {
        p = &(*p)->next;
    }
    if (*p == NULL) {
        return false;
    }
    *p = b->next;
    return true;
}

/* `here`: on the loop's thread. */
static void remove_reader(PyObject *loop, int fd, bool here)
{
    PyObject *remove = PyObject_GetAttrString(loop, "remove_reader"), *r = NULL;

    if (remove != NULL) {
        r = here ? PyObject_CallFunction(remove, "i", fd)
                 : PyObject_CallMethod(loop, "call_soon_threadsafe", "Oi", remove, fd);
        Py_DECREF(remove);
    }
    Py_XDECREF(r);
    PyErr_Clear();
}

void bindings_clear(struct core *c)
{
    struct binding *b;

    relay_stop(c);
    while ((b = c->bindings) != NULL) {
        c->bindings = b->next;
        /* After a fork the loop's set of descriptors is the parent's still. */
        if (c->pid == getpid() && !loop_closed(b)) {
            bool here = b->thread == PyThread_get_thread_ident();
            int fds[2] = {b->direct, c->wakefd};

            for (int i = 0; i < 2; i++) {
                if (fds[i] >= 0) {
                    remove_reader(b->loop, fds[i], here);
                }
            }
        }
        close_binding(b);
    }
}

/* Closed loops keep nothing alive: their bindings go when the next one is made. */
static void drop_closed(struct core *c)
{
    struct binding *b = c->bindings, *next;

    for (b = b != NULL ? binding_hold(b) : NULL; b != NULL; b = next) {
        bool closed = loop_closed(b);

        next = b->next != NULL ? binding_hold(b->next) : NULL;
        if (closed && unlink_binding(c, b)) {
            close_binding(b);
        }
        binding_drop(b);
    }
}

struct binding *binding_of_thread(struct core *c)
{
    struct binding *b = c->bindings;
    unsigned long thread;

    if (b == NULL) {
        return NULL;
    }
    thread = PyThread_get_thread_ident();
    while (b != NULL && b->thread != thread) {
        b = b->next;
    }
    return b;
}

bool binding_is_of(const struct core *c, const struct binding *b)
{
    const struct binding *own = c->bindings;

    while (own != NULL && own != b) {
        own = own->next;
    }
    return own != NULL;
}

static int watch(const struct core *c, struct binding *b)
{
    if (b->direct >= 0 && add_reader(b, b->direct) < 0) {
        return -1;
    }
    return add_reader(b, c->wakefd);
}

static struct binding *bind_loop(struct core *c, PyObject *loop)
{
    struct binding *b;

    drop_closed(c);
    if ((b = calloc(1, sizeof *b)) == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    b->refs = 1;
    b->on_fd = make_reader(c, b, ON_FD);
    b->on_turn = make_reader(c, b, ON_TURN);
    b->on_late = make_reader(c, b, ON_LATE);
    if (b->on_fd == NULL || b->on_turn == NULL || b->on_late == NULL) {
        close_binding(b);
        return NULL;
    }
    b->loop = loop;
    Py_INCREF(loop);
    b->thread = PyThread_get_thread_ident();
    b->ready = PyObject_GetAttrString(loop, "_ready");
    if (b->ready == NULL || PyObject_Size(b->ready) < 0) {
        PyErr_Clear();
        Py_CLEAR(b->ready);
    }
    if ((b->wait = PyObject_GetAttrString(loop, "hawser_wait")) == NULL) {
        PyErr_Clear();
        b->ended = wakeup_future(loop);
    }
    if (relay_share(c, b) < 0 || watch(c, b) < 0) {
        close_binding(b);
        return NULL;
    }
    b->next = c->bindings;
    c->bindings = b;
    return b;
}

struct binding *binding_running(struct core *c)
{
    PyObject *loop = some_loop(running_loop());
    struct binding *b;

    if (loop == NULL) {
        return NULL;
    }
    for (b = c->bindings; b != NULL && b->loop != loop; b = b->next) {}
    if (b == NULL) {
        b = bind_loop(c, loop);
    }
    if (b != NULL) {
        b->thread = PyThread_get_thread_ident();
    }
    Py_DECREF(loop);
    return b;
}

int binding_schedule(struct core *c, struct binding *b)
{
    PyObject *loop = b->loop, *on_turn = b->on_turn;

    (void)c;
    if (b->due || loop == NULL) {
        return 0;
    }
    b->due = true;
    Py_INCREF(loop);
    Py_INCREF(on_turn);
    return called(loop, on_turn, PyObject_CallMethod(loop, "call_soon", "O", on_turn));
}

int binding_call_later(struct binding *b, double seconds)
{
    PyObject *loop = Py_XNewRef(b->loop), *on_late = Py_XNewRef(b->on_late);

    return loop == NULL ? 0
                        : called(loop, on_late,
                                 PyObject_CallMethod(loop, "call_later", "dO", seconds, on_late));
}

/* Progress outside of a loop's turn leaves the worker unarmed: whoever sleeps on it looks again. */
void binding_look_again(struct core *c)
{
    struct binding *b = binding_of_thread(c);

    if (b == NULL) {
        if (c->bindings != NULL) {
            hws_worker_signal(c->id);
        }
        return;
    }
    binding_hold(b);
    if (!b->due && !loop_closed(b) && binding_schedule(c, b) < 0) {
        b->due = false;
        PyErr_Clear();
    }
    binding_drop(b);
}

/* Work that goes on is done for so long before other callbacks of the loop get their turn. */
#define TURN_NS 200000u
/* When there is work but none can be done for so long, the peer does not run: it may be waiting for
 * this very CPU. A short sleep gives it away, and has the scheduler prefer us afterwards. */
#define STALL_NS 40000u
#define NAP_NS 10000

/* None, or what ended a callback and is to end the loop's run. */
static PyObject *told_what(void)
{
    if (callback_raise() < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The loop is about to sleep, or a descriptor is readable. */
static PyObject *look_after(struct reader *reader, struct binding *b)
{
    struct core *c = reader->core;
    uint64_t start = 0, idle = 0, now;
    int r, told;

    b->due = false;
    c->turn = now_ns();
    for (;;) {
        r = core_progress(c);
        b->telling = true;
        told = core_drain(c, b->nests ? NULL : b, false, NULL);
        if (reader->binding == NULL || c->closed) {
            return told_what(); /* a callback closed the worker, or another thread */
        }
        b->telling = false;
        if (told != 0 || c->fd < 0 || r < 0) {
            break;
        }
        if (r == 0 && (r = hws_worker_arm(c->id)) != HWS_E_BUSY) {
            Py_RETURN_NONE; /* armed: the loop may sleep */
        }
        now = now_ns();
        if (r != HWS_E_BUSY || start == 0) {
            idle = now;
        } else if (now - idle > STALL_NS) {
            UNLOCKED(nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL));
            break;
        }
        if (start == 0) {
            start = now;
        } else if (now - start > TURN_NS) {
            break;
        }
    }
    /* In the thread modes there is nothing to arm; else look once more after the others' turn. */
    if (c->fd >= 0 && (r >= 0 || r == HWS_E_BUSY) && binding_schedule(c, b) < 0) {
        return NULL;
    }
    return told_what();
}

/*
 * The loop runs inside of a callback of itself, as nest_asyncio has it. If that is the descriptors' handle, it cannot be
 * entered again before it has ended: they get another one. Tasks are no longer called by it, but scheduled, since any of
 * them may run the loop.
 */
static int look_nested(struct core *c, struct binding *b)
{
    b->nests = true;
    return watch(c, b);
}

static PyObject *look_at_late(struct binding *b)
{
    return late_look(b) < 0 ? NULL : told_what();
}

static PyObject *reader_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct reader *reader = (struct reader *)(void *)self;
    struct binding *b = reader->binding;
    PyObject *r;

    (void)args;
    (void)kwargs;
    /* Once in each round of the loop: whoever was woken before the next messages were sent comes before those
     * who wait for them. */
    if (b == NULL || (b->due && reader->when == ON_FD)) {
        Py_RETURN_NONE;
    }
    binding_hold(b);
    if (b->telling && reader->when == ON_TURN && look_nested(reader->core, b) < 0) {
        r = NULL;
    } else {
        r = reader->when == ON_LATE ? look_at_late(b) : look_after(reader, b);
    }
    binding_drop(b);
    return r;
}

static void reader_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct core *c = ((struct reader *)(void *)self)->core;

    if (c != NULL) {
        core_unref(c);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

int loop_import(void)
{
    static PyType_Slot slots[] = {{Py_tp_call, reader_call},
                                  {Py_tp_dealloc, reader_dealloc},
                                  {Py_tp_doc, "Looks after a worker on behalf of an event loop."},
                                  {0, NULL}};
    static PyType_Spec spec = {"hawser._core.Reader", sizeof(struct reader), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    PyObject *m = PyImport_ImportModule("asyncio");

    if (m == NULL) {
        return -1;
    }
    get_running_loop = PyObject_GetAttrString(m, "_get_running_loop");
    wakeup_import(m);
    Py_DECREF(m);
    binding_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return get_running_loop == NULL || binding_type == NULL ? -1 : 0;
}
