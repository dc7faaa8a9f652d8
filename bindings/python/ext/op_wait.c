/*
 * Waiting for an operation. An await first makes progress itself for a bounded time; only if that
 * brings nothing does the loop wait for the worker's descriptor.
 */
#include "op.h"

/* Rounds of progress under the GIL before it is released: a microsecond or two. */
#define QUICK 48
/* Work between two looks at whether the loop is due, and how long it may wait for its turn. */
#define CREDIT 64
#define TURN_NS 1000000u

/* Progress without the GIL while that is productive or the spin lasts. */
static void spin_unlocked(struct op *op, uint32_t spin_ns)
{
    struct core *c = op->core;
    uint64_t start = now_ns(), idle = start, now;

    if (c->fd < 0) {
        /* A progress thread stands aside only for a real wait. */
        core_wait(c, op, spin_ns);
        return;
    }
    do {
        int r = core_spin(c, op, 16);

        now = now_ns();
        if (r > 0) {
            idle = now;
        }
    } while (!op_over(op) && now - idle < spin_ns && now - start < TURN_NS);
}

/* Others of this loop wait for their turn, or are just being told: do not hold them up. */
static bool loop_is_busy(const struct binding *b)
{
    if (b->telling && b->more) {
        return true;
    }
    return b->ready != NULL && PyObject_Size(b->ready) > (b->due ? 1 : 0);
}

void op_settle(struct op *op)
{
    const struct core *c = op->core;

    if (atomic_load_explicit(&c->signalled, memory_order_relaxed) != 0 ||
        atomic_load_explicit(&c->arrived, memory_order_relaxed) != NULL) {
        core_drain(op->core, NULL, false, op->handed ? NULL : op);
    }
    if (op->handed && !op->told) {
        op_tell(op, NULL);
    }
}

/* Make progress for a bounded time. -1 with an error set. */
static int spin(struct op *op)
{
    struct core *c = op->core;
    struct binding *b = binding_of_thread(c);
    uint32_t spin_now = c->spin_now;
    bool busy;

    if (b == NULL || !(b->due || b->telling)) {
        b = binding_running(c);
    }
    if (b == NULL) {
        return -1;
    }
    binding_hold(b);
    if (binding_schedule(c, b) < 0) {
        binding_drop(b);
        return -1;
    }
    busy = loop_is_busy(b);
    binding_drop(b);
    core_spin(c, op, busy ? 1 : QUICK);
    if (op->handed) {
        op_settle(op);
        return callback_raise();
    }
    if (!op_over(op) && !busy && spin_now >= 2000) {
        UNLOCKED(spin_unlocked(op, spin_now));
        c->spin_now =
            op_over(op) ? (spin_now * 2 < c->spin_ns ? spin_now * 2 : c->spin_ns) : spin_now / 2;
        c->spun++;
    }
    if (!op_over(op) && !busy && c->spin_now < c->spin_ns) {
        op->since = now_ns();
    }
    if (op->handed) {
        op_settle(op);
    }
    return callback_raise();
}

/* Whether the loop must get its turn before an operation that is done may go on. */
static bool turn_due(struct core *c)
{
    uint64_t now = now_ns();

    c->credit = CREDIT;
    if (now - c->turn < TURN_NS) {
        return false;
    }
    c->turn = now;
    return true;
}

int op_bind(struct op *op)
{
    struct binding *b;
    PyObject *before;
    int r;

    if (op->loop != NULL && op != op->core->done) {
        return 0;
    }
    b = binding_of_thread(op->core);
    if (b == NULL || !b->telling) {
        b = binding_running(op->core);
    }
    if (b == NULL) {
        return -1;
    }
    op->thread = b->thread;
    before = op->loop;
    op->loop = Py_NewRef(b->loop);
    binding_hold(b);
    r = op_over(op) ? 0 : binding_schedule(op->core, b);
    if (r == 0 && op->deadline != 0 && op->late_link == NULL && !op_over(op)) {
        r = late_watch(op, b);
    }
    binding_drop(b);
    Py_XDECREF(before);
    return r;
}

PySendResult op_send(PyObject *self, PyObject *arg, PyObject **out)
{
    struct op *op = (struct op *)(void *)self;
    struct core *c = op->core;

    (void)arg;
    if (!op_over(op) && !op->waiting && spin(op) < 0) {
        *out = NULL;
        return PYGEN_ERROR;
    }
    if (op_over(op)) {
        if (!op->told) {
            op_settle(op);
        }
        if (callback_raise() < 0) {
            *out = NULL;
            return PYGEN_ERROR;
        }
        if (!op->yielded && --c->credit == 0 && turn_due(c)) {
            op->yielded = true;
            *out = Py_None;
            Py_INCREF(Py_None);
            return PYGEN_NEXT;
        }
        op->yielded = false;
        *out = op_take(op);
        return *out == NULL ? PYGEN_ERROR : PYGEN_RETURN;
    }
    if (op_bind(op) < 0) {
        *out = NULL;
        return PYGEN_ERROR;
    }
    c->slept++;
    op->waiting = op->blocking = true;
    *out = self;
    Py_INCREF(self);
    return PYGEN_NEXT;
}

static void stop_iteration(PyObject *result)
{
    PyObject *e;

    if (result != Py_None) {
        e = PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, NULL);
        if (e != NULL) {
            PyErr_SetObject(PyExc_StopIteration, e);
            Py_DECREF(e);
        }
    }
    Py_DECREF(result);
}

PyObject *op_next(PyObject *self)
{
    PyObject *result = NULL;

    switch (op_send(self, Py_None, &result)) {
    case PYGEN_NEXT:
        return result;
    case PYGEN_RETURN:
        stop_iteration(result);
        return NULL;
    default:
        return NULL;
    }
}

PyObject *op_send_method(PyObject *self, PyObject *arg)
{
    PyObject *r = op_next(self);

    (void)arg;
    if (r == NULL && !PyErr_Occurred()) {
        PyErr_SetNone(PyExc_StopIteration);
    }
    return r;
}

/* The running loop, if it waits in a way of its own; null without an error for the others. */
static struct binding *binding_of_its_own(struct op *op)
{
    struct binding *b = binding_of_thread(op->core);

    if (b == NULL || loop_others()) {
        b = binding_running(op->core);
    }
    if (b == NULL) {
        PyErr_Clear(); /* the first step says it */
    }
    return b == NULL || b->wait == NULL ? NULL : b;
}

/* What a task iterates over where the loop does not know futures: what is done needs no loop. */
static PyObject *await_by(struct binding *b, struct op *op)
{
    PyObject *wait = b->wait, *coroutine, *r = NULL;

    Py_INCREF(wait);
    if (!op_over(op) && spin(op) < 0) {
        Py_DECREF(wait);
        return NULL;
    }
    if (op_over(op) && !op->cancelled && (--op->core->credit != 0 || !turn_due(op->core))) {
        op->yielded = true;
        Py_INCREF((PyObject *)op);
        r = (PyObject *)op;
    } else if ((coroutine = PyObject_CallFunctionObjArgs(wait, (PyObject *)op, NULL)) != NULL) {
        r = PyObject_CallMethod(coroutine, "__await__", NULL);
        Py_DECREF(coroutine);
    }
    Py_DECREF(wait);
    return r;
}

PyObject *op_await(PyObject *self)
{
    struct op *op = (struct op *)(void *)self;
    struct binding *b;

    if ((!op_over(op) || loop_others()) && (b = binding_of_its_own(op)) != NULL) {
        return await_by(b, op);
    }
    Py_INCREF(self);
    return self;
}
/* ---- Blocking ---- */

/* Stop waiting because of an error, which stays set. */
static void interrupt_raising(struct op *op)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    if (op_interrupt(op, false) < 0) {
        PyErr_WriteUnraisable((PyObject *)op);
    }
    PyErr_Restore(type, value, traceback);
}

/* Sleep and make progress until it has ended. -1 with an error set. */
static int block(struct op *op, uint64_t timeout)
{
    struct core *c = op->core;
    uint64_t end = timeout != 0 && timeout != HWS_FOREVER ? now_ns() + timeout : 0;

    while (!op_over(op)) {
        uint64_t now = end == 0 ? 0 : now_ns(), slice = SIGNALS_NS;

        if (end != 0 && now >= end) {
            PyErr_SetString(PyExc_TimeoutError, "the operation goes on");
            return -1;
        }
        if (end != 0 && end - now < slice) {
            slice = end - now;
        }
        if (late_is(op) && late_stop(op)) {
            break;
        }
        atomic_fetch_add(&c->blocked, 1);
        if (!op_over(op)) {
            UNLOCKED(core_wait(c, op, slice));
        }
        atomic_fetch_sub(&c->blocked, 1);
        op_settle(op);
        if (callback_raise() < 0 || PyErr_CheckSignals() < 0) {
            interrupt_raising(op);
            return -1;
        }
    }
    return 0;
}

PyObject *op_block(PyObject *self, uint64_t timeout_ns)
{
    struct op *op = (struct op *)(void *)self;
    PyObject *r = NULL;

    if (op == NULL) {
        return NULL;
    }
    if (!op_over(op)) {
        core_spin(op->core, op, QUICK);
        op_settle(op);
        if (op->core->bindings != NULL) {
            binding_look_again(op->core);
        }
        if (callback_raise() < 0) {
            interrupt_raising(op);
            Py_DECREF(self);
            return NULL;
        }
    }
    if (op_over(op) || block(op, timeout_ns) == 0) {
        if (!op->told && !op->cancelled) {
            op_settle(op);
        }
        if (callback_raise() == 0) {
            r = op_take(op);
        } else {
            interrupt_raising(op);
        }
    }
    Py_DECREF(self);
    return r;
}

/** wait(timeout=None): block until the operation has ended; other threads run meanwhile. */
PyObject *op_wait(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"timeout", NULL};
    PyObject *seconds = Py_None;
    uint64_t timeout;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:wait", names, &seconds) ||
        to_timeout(seconds, &timeout) < 0) {
        return NULL;
    }
    Py_INCREF(self);
    return op_block(self, timeout);
}
