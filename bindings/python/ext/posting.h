/* Posting with one buffer: the operation is made, lent the buffer's memory, posted, and given out. */
#ifndef HAWSER_PYTHON_POSTING_H
#define HAWSER_PYTHON_POSTING_H

#include "ext.h"

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

/** As op_stream(). */
int posting_stream(struct posting *p, PyObject *stream);

/** What the call of the library returned as the awaitable, or an exception. `done`: what the event of an
 * operation that was done at once would have said; may be null. */
PyObject *posting_posted(struct posting *p, int32_t r, const hws_event *done);

#endif
