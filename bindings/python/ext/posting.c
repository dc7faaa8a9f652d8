#include "posting.h"

/* Memory of the object for the operation. The usual objects come first: they are asked for a view, or kept, only if
 * the operation goes on. */
static int lend(struct posting *p, PyObject *buffer, bool writable)
{
    struct op *op = p->op;
    struct memory m;

    p->lend = NULL;
    p->opts.memory_kind = HWS_MEMORY_HOST;
    if (!writable && usual_memory(buffer, &p->data, &p->length)) {
        p->lend = buffer;
        return 0;
    }
    if (PyByteArray_CheckExact(buffer) &&
        PyObject_GetBuffer(buffer, &op->view, PyBUF_WRITABLE) == 0) {
        op->has_view = true;
        p->data = op->view.buf;
        p->length = (uint64_t)op->view.len;
        return 0;
    }
    if (memory_get(buffer, writable, &m) < 0) {
        return argument_wrong("buffer");
    }
    op_take_memory(op, &m);
    p->data = m.data;
    p->length = m.length;
    p->opts.memory_kind = m.kind;
    return 0;
}

int posting_prepare(struct posting *p, struct core *c, PyObject *buffer, bool writable,
                    enum result result, PyObject *timeout, uint32_t flags)
{
    uint64_t ns = 0;

    if ((timeout != NULL && timeout != Py_None && to_timeout(timeout, &ns) < 0) ||
        (p->op = op_new(c, result)) == NULL) {
        return -1;
    }
    op_options(p->op, ns, flags, HWS_MEMORY_HOST, &p->opts);
    if (lend(p, buffer, writable) < 0) {
        Py_DECREF((PyObject *)p->op);
        return -1;
    }
    return 0;
}

void posting_returns(struct posting *p, enum back back)
{
    if (p->opts.memory_kind == HWS_MEMORY_HOST) {
        p->op->back = (uint8_t)back;
        p->op->data = p->data;
    }
}

void posting_lend(struct op *op, PyObject *buffer)
{
    if (PyBytes_CheckExact(buffer)) {
        op->keep = Py_NewRef(buffer);
    } else if (PyObject_GetBuffer(buffer, &op->view, PyBUF_SIMPLE) == 0) {
        op->has_view = true;
    } else {
        PyErr_WriteUnraisable(buffer);
    }
}

int posting_stream(struct posting *p, PyObject *stream)
{
    if (stream != NULL && stream != Py_None && p->lend != NULL) {
        posting_lend(p->op, p->lend); /* what the stream is asked is Python */
        p->lend = NULL;
    }
    return op_stream(p->op, stream, &p->opts);
}

PyObject *posting_posted(struct posting *p, int32_t r, const hws_event *done)
{
    struct op *op = p->op;

    if (r == HWS_DONE && done != NULL) {
        op->status = done->status;
        op->length = done->length;
        op->tag = done->tag;
        op->source = done->source;
    } else if (r == HWS_OK && p->lend != NULL) {
        posting_lend(op, p->lend);
    }
    return op_posted(op, r);
}
