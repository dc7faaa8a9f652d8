/*
 * Parts of an operation: op.c makes and ends it, op_future.c tells those who wait, op_wait.c waits, op_result.c says what
 * it came to, op_type.c is the type.
 */
#ifndef HAWSER_PYTHON_OP_H
#define HAWSER_PYTHON_OP_H

#include "ext.h"

/** Give back its buffer and what it kept for it. */
static inline void op_give_back(struct op *op)
{
    if (op->has_view) {
        op->has_view = false;
        PyBuffer_Release(&op->view);
    }
    if (op->result < RESULT_KEEP) {
        Py_CLEAR(op->keep);
    }
    Py_CLEAR(op->owner);
}

/* op.c */
void op_dealloc(PyObject *self);

/* op_result.c */
/** Its exception; None for success. */
PyObject *op_failure(struct op *op);
/** Its result, or null with its exception raised. */
PyObject *op_value(struct op *op);
/** The same for who goes on with it: there is nothing to return any more. */
PyObject *op_take(struct op *op);

/** Whether nobody needs to wait any more. */
static inline bool op_over(const struct op *op)
{
    return op->cancelled || atomic_load_explicit(&op->ended, memory_order_acquire);
}

/** Keep the multi-buffer message that an event brings. */
static inline void op_multi(struct op *op, const hws_event *event)
{
    op->multi = event->detail;
    op->multi_id = op->multi->buffer;
}

/** Tell what has ended in the progress that was made for this operation. */
void op_settle(struct op *op);

/* op_future.c */
int op_future_import(void);
void op_call_waiters(struct op *op, struct binding *direct);
/** Nobody waits any more; the buffer stays held until the final event. False if it has ended. */
bool op_stop(struct op *op);
extern PyObject *op_cancelled_error;
PyObject *op_throw(PyObject *self, PyObject *arg);
PyObject *op_close(PyObject *self, PyObject *arg);
PyObject *op_done(PyObject *self, PyObject *arg);
PyObject *op_cancelled(PyObject *self, PyObject *arg);
PyObject *op_result(PyObject *self, PyObject *arg);
PyObject *op_exception(PyObject *self, PyObject *arg);
PyObject *op_on_end(PyObject *self, PyObject *arg);
PyObject *op_remove_done_callback(PyObject *self, PyObject *arg);
PyObject *op_get_loop(PyObject *self, void *unused);
PyObject *op_cancel(PyObject *self, PyObject *args, PyObject *kwargs);
/** The CancelledError of a cancelled one, with what cancel() was given. */
PyObject *op_cancelled_exception(PyObject *self, PyObject *unused);
PyObject *op_cancel_message(PyObject *self, void *unused);
PyObject *op_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *kwnames);

/* late.c */
/** Whether its deadline has passed, and the library had time to end it. */
bool late_is(const struct op *op);
/** Nobody waits any more, because of its deadline. False if it has ended. */
bool late_stop(struct op *op);
/** It is waited for on this loop: have that one mind its deadline. -1 with an error set. */
int late_watch(struct op *op, struct binding *b);
void late_unlink(struct op *op);

/* op_return.c */
/** What it brought is the next one's, if it has ended well and nobody took its result. -1 with an error set.
 * `own`: UCX-Py's error of a message that is too short has been told, or may be. */
int op_return(struct op *op, bool own);
/** Who awaits it goes on without it: it is stopped, or returned. -1 with an error set. `own` as above. */
int op_interrupt(struct op *op, bool own);

/* op_wait.c */
/** The running loop is the one where it is waited for. -1 with an error set. */
int op_bind(struct op *op);
PyObject *op_await(PyObject *self);
PySendResult op_send(PyObject *self, PyObject *arg, PyObject **out);
PyObject *op_next(PyObject *self);
PyObject *op_send_method(PyObject *self, PyObject *arg);
PyObject *op_wait(PyObject *self, PyObject *args, PyObject *kwargs);

#endif
