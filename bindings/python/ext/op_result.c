/* What an operation gives: its result, or its exception. */
#include "op.h"
#include "ucp.h"

/* Of one that the library ended, or is to: hawser's own exception. */
static PyObject *failure_of_library(const struct op *op, int32_t status, const char *text)
{
    PyObject *r, *e;

    if (status >= 0) {
        Py_RETURN_NONE;
    }
    e = make_error(status, text);
    if (e != NULL) {
        r = PyLong_FromUnsignedLongLong(op->length);
        if (r == NULL || PyObject_SetAttrString(e, "length", r) < 0) {
            PyErr_Clear();
        }
        Py_XDECREF(r);
    }
    return e;
}

PyObject *op_failure(struct op *op)
{
    PyObject *e;

    if (op->late) {
        return failure_of_library(
            op, HWS_E_TIMED_OUT,
            "the deadline passed; the buffer is in use until UCX gives it back");
    }
    if (op->cancelled) {
        return op_cancelled_exception((PyObject *)op, NULL);
    }
    e = failure_of_library(op, op->status, op->text);
    return e != NULL && op->ucp != NULL && ucp_failed(op) ? ucp_failure(op, e) : e;
}

/* Raise its exception. */
static PyObject *raise_failure(struct op *op)
{
    PyObject *e = op_failure(op);

    if (e == Py_None) {
        return e;
    }
    if (e != NULL) {
        if (!ends_here()) {
            PyErr_SetObject((PyObject *)Py_TYPE(e), e);
        }
        Py_DECREF(e);
    }
    return NULL;
}

/* Messages of one worker are as long as the one before, as a rule: its number is kept. */
static PyObject *length_object(struct core *c, uint64_t length)
{
    if (c->worker == NULL) { /* nobody would free it */
        return PyLong_FromUnsignedLongLong(length);
    }
    if (c->length == NULL || c->length_was != length) {
        Py_XDECREF(c->length);
        c->length = PyLong_FromUnsignedLongLong(length);
        c->length_was = length;
    }
    return Py_XNewRef(c->length);
}

PyObject *op_value(struct op *op)
{
    if (op->cancelled || op->status < 0 || (op->ucp != NULL && ucp_failed(op))) {
        return raise_failure(op);
    }
    switch (op->result) {
    case RESULT_LENGTH:
        return length_object(op->core, op->length);
    case RESULT_UCP:
        Py_RETURN_TRUE;
    case RESULT_ID:
    case RESULT_MESSAGE:
        return PyLong_FromUnsignedLongLong(op->source);
    case RESULT_TAG:
        return PyLong_FromUnsignedLongLong(op->tag);
    case RESULT_KEEP:
        Py_INCREF(op->keep);
        return op->keep;
    case RESULT_MULTI:
        if ((op->keep = segments_new(op)) == NULL) {
            return NULL;
        }
        op->result = RESULT_KEEP;
        Py_INCREF(op->keep);
        return op->keep;
    case RESULT_CALL:
        return PyObject_CallFunctionObjArgs(op->keep, (PyObject *)op, NULL);
    default:
        Py_RETURN_NONE;
    }
}

static __attribute__((noinline)) PyObject *take_other(struct op *op)
{
    PyObject *value = op_value(op);

    if (op->result == RESULT_MESSAGE) {
        op->result = RESULT_ID;
    }
    if (op->back != BACK_NONE && op->told) { /* a cancelled one may still bring its message */
        op->back = BACK_NONE;
        op_give_back(op);
    }
    if (op->untaken != NULL) {
        Py_CLEAR(op->untaken);
    }
    if (op->ucp != NULL && value != NULL) {
        ucp_taken(op, false);
        if (op->told) { /* a coroutine that has returned holds nothing either */
            ucp_drop(op);
        }
    }
    return value;
}

PyObject *op_take(struct op *op)
{
    PyObject *length;

    /* The usual receive: most of what an await costs after its message has come is here. */
    if (op->result != RESULT_LENGTH || op->status < 0 || !op->told || op->cancelled ||
        op->ucp != NULL) {
        return take_other(op);
    }
    length = length_object(op->core, op->length);
    op->back = BACK_NONE;
    op_give_back(op);
    return length;
}
