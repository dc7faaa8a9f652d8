/*
 * What an operation brought goes back if whoever awaits it is interrupted before it goes on: a task that is cancelled
 * in the turn of the loop in which its message came would lose it otherwise.
 */
#include "op.h"
#include "ucp.h"

/* From the buffer, which is the operation's until its result is taken. */
static int32_t return_data(struct op *op)
{
    hws_id source = op->source != 0 ? op->source : op->core->id;

    switch (op->back) {
    case BACK_TAG:
        return hws_tag_return(source, op->data, op->length, op->tag);
    case BACK_STREAM:
        return hws_stream_return(source, op->data, op->length);
    case BACK_LIST:
        return list_return(op);
    case BACK_SEGMENTS:
        return segments_return(op);
    default:
        return HWS_OK;
    }
}

/* What Python ended it with, to the function that takes it. */
static int return_result(struct op *op)
{
    PyObject *untaken = op->untaken, *r;

    op->untaken = NULL;
    r = PyObject_CallFunctionObjArgs(untaken, op->keep, NULL);
    Py_DECREF(untaken);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

/* UCX-Py's own error, that of a short message. */
static bool failed_here(const struct op *op)
{
    return op->ucp != NULL && !op->cancelled && ucp_failed(op);
}

int op_return(struct op *op, bool own)
{
    int32_t r = HWS_OK;

    if (op->status < 0 || !atomic_load_explicit(&op->ended, memory_order_acquire) ||
        (own && failed_here(op))) {
        return 0;
    }
    if (op->untaken != NULL && op->result == RESULT_KEEP) {
        return return_result(op);
    }
    if (op->back != BACK_NONE) {
        r = return_data(op);
        op->back = BACK_NONE;
        if (op->ucp != NULL && r == HWS_OK) {
            ucp_returned(op);
        }
        if (op->told) {
            op_give_back(op);
        }
    } else if (op->result == RESULT_MESSAGE) {
        r = hws_message_return(op->source);
        op->result = RESULT_ID;
    }
    if (r == HWS_E_NO_MEMORY) { /* the other codes: nobody can receive it any more */
        raise_last(r);
        return -1;
    }
    return 0;
}

int op_interrupt(struct op *op, bool own)
{
    return op_stop(op) || op->cancelled ? 0 : op_return(op, own);
}
