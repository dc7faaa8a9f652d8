/* What an operation of hawser.ucp adds to others: op.c calls it where `op->ucp` is set. */
#ifndef HAWSER_PYTHON_UCP_H
#define HAWSER_PYTHON_UCP_H

#include "ext.h"

extern PyTypeObject *ucp_type;
extern PyMethodDef ucp_methods[];

int ucp_import(PyObject *module);
/** Whether it ended with what is an error to UCX-Py. */
bool ucp_failed(const struct op *op);
/** UCX-Py's exception for `error` (stolen; None: the message was short), or None: it says nothing. */
PyObject *ucp_failure(struct op *op, PyObject *error);
/** It has ended: count what was received. */
void ucp_told(struct op *op);
/** Who receives goes on with the message, or never will. `later`: in the loop's next turn only. */
void ucp_taken(struct op *op, bool later);
/** What it received was given back: it does not count. */
void ucp_returned(struct op *op);
/** Forget the endpoint and the buffer. */
void ucp_drop(struct op *op);

#endif
