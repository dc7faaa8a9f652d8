/* What those who wait on an event loop are called with. */
#ifndef HAWSER_PYTHON_WAKEUP_H
#define HAWSER_PYTHON_WAKEUP_H

#include "ext.h"

void wakeup_import(PyObject *asyncio);
/** A future of this loop that has ended, for tasks to be woken with; null, without an error, if it cannot be made. */
PyObject *wakeup_future(PyObject *loop);
/** What `callback` is called with when `op` ends without an error: borrowed. */
PyObject *wakeup_argument(const struct binding *b, PyObject *callback, struct op *op);

#endif
