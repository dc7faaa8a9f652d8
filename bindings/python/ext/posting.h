/* Posting with one buffer: the operation is made, lent the buffer's memory, posted, and given out. */
#ifndef HAWSER_PYTHON_POSTING_H
#define HAWSER_PYTHON_POSTING_H

#include "ext.h"

/** The object's memory if it is bytes, or a bytearray that can't change its size as long as the GIL is held. */
static inline bool usual_memory(PyObject *buffer, void **data, uint64_t *length)
{
    if (PyBytes_CheckExact(buffer)) {
        *data = PyBytes_AsString(buffer);
        *length = (uint64_t)PyBytes_Size(buffer);
        return true;
    }
    if (PyByteArray_CheckExact(buffer)) {
        *data = PyByteArray_AsString(buffer);
        *length = (uint64_t)PyByteArray_Size(buffer);
        return true;
    }
    return false;
}

/** A posting under way. */
struct posting {
    struct op *op;
    hws_op_opts opts;
    void *data;
    uint64_t length;
    PyObject *lend; /* a bytearray that must not change its size if the operation goes on */
};

/** -1 with an error set. `timeout` may be null. */
int posting_prepare(struct posting *p, struct core *c, PyObject *buffer, bool writable,
                    enum result result, PyObject *timeout, uint32_t flags);

/** What it brings into host memory can be returned. */
void posting_returns(struct posting *p, enum back back);

/** The object lends its memory to an operation that goes on: usual_memory() had it. The GIL was held since. */
void posting_lend(struct op *op, PyObject *buffer);

/** As op_stream(). */
int posting_stream(struct posting *p, PyObject *stream);

/** What the call of the library returned as the awaitable, or an exception. `done`: what the event of an
 * operation that was done at once would have said; may be null. */
PyObject *posting_posted(struct posting *p, int32_t r, const hws_event *done);

#endif
