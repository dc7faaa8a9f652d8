/* Memory of Python objects: buffer protocol, __cuda_array_interface__, __dlpack__. */
#include "ext.h"
#include <string.h>

static PyObject *resolve; /* hawser._memory.resolve(object, writable) */

int memory_import(void)
{
    return 0;
}

int memory_function(PyObject **function, const char *name)
{
    PyObject *module;

    if (*function != NULL) {
        return 0;
    }
    if ((module = PyImport_ImportModule("hawser._memory")) == NULL) {
        return -1;
    }
    *function = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return *function != NULL ? 0 : -1;
}

/* Objects without the buffer protocol: what they are is found out in Python. */
static int get_foreign(PyObject *object, bool writable, struct memory *m)
{
    PyObject *r, *keep;
    unsigned long long address, length;
    unsigned kind;

    if (memory_function(&resolve, "resolve") < 0) {
        return -1;
    }
    r = PyObject_CallFunctionObjArgs(resolve, object, writable ? Py_True : Py_False, NULL);
    if (r == NULL) {
        return -1;
    }
    if (!PyArg_ParseTuple(r, "KKIO", &address, &length, &kind, &keep)) {
        Py_DECREF(r);
        return -1;
    }
    m->data = (void *)(uintptr_t)address;
    m->length = length;
    m->kind = kind;
    m->owner = keep;
    Py_INCREF(keep);
    Py_DECREF(r);
    return 0;
}

/* UCX-style memory is one piece: row-major or column-major does not matter, holes do. */
static int get_any_order(PyObject *object, bool writable, struct memory *m)
{
    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return -1;
    }
    if (PyMemoryView_Check(object) && PyErr_ExceptionMatches(PyExc_ValueError)) {
        return -1; /* it was released */
    }
    PyErr_Clear();
    if (PyObject_GetBuffer(object, &m->view,
                           PyBUF_ANY_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) == 0) {
        return 0;
    }
    PyErr_Clear();
    if (writable && PyObject_GetBuffer(object, &m->view, PyBUF_ANY_CONTIGUOUS) == 0) {
        PyBuffer_Release(&m->view);
        PyErr_SetString(PyExc_BufferError, "the buffer is read-only: it cannot be received into");
    } else {
        PyErr_Clear();
        PyErr_SetString(PyExc_BufferError,
                        "the buffer is not contiguous: copy it to one piece first");
    }
    return -1;
}

/* Formats name Python objects O, but the names of fields, between colons, are anything. */
static bool names_objects(const char *format)
{
    bool in_name = false;

    for (; format != NULL && *format != '\0'; format++) {
        in_name ^= *format == ':';
        if (*format == 'O' && !in_name) {
            return true;
        }
    }
    return false;
}

/* Pointers to objects mean nothing to a peer, and what it sends in their place ends the process once it is used. */
static int refuse_objects(PyObject *object, struct memory *m)
{
    Py_buffer described;
    bool objects;

    if (m->view.itemsize < (Py_ssize_t)sizeof(PyObject *)) {
        return 0;
    }
    if (PyObject_GetBuffer(object, &described, PyBUF_FULL_RO) < 0) {
        PyErr_Clear(); /* numpy has no format for dates */
        return 0;
    }
    objects = names_objects(described.format);
    PyBuffer_Release(&described);
    if (!objects) {
        return 0;
    }
    PyBuffer_Release(&m->view);
    PyErr_SetString(PyExc_TypeError,
                    "the buffer holds Python objects, not their bytes: pickle them first");
    return -1;
}

int memory_get(PyObject *object, bool writable, struct memory *m)
{
    m->kind = HWS_MEMORY_HOST;
    m->owner = NULL;
    m->has_view = false;
    if (!PyObject_CheckBuffer(object)) {
        return get_foreign(object, writable, m);
    }
    if (PyObject_GetBuffer(object, &m->view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0 &&
        get_any_order(object, writable, m) < 0) {
        return -1;
    }
    if (refuse_objects(object, m) < 0) {
        return -1;
    }
    m->has_view = true;
    m->data = m->view.buf;
    m->length = (uint64_t)m->view.len;
    return 0;
}

void memory_release(struct memory *m)
{
    if (m->has_view) {
        m->has_view = false;
        PyBuffer_Release(&m->view);
    }
    Py_CLEAR(m->owner);
}

/*
 * Address, bytes and kind of the memory that an operation would use; with `owner` also what keeps it besides the
 * object.
 */
static PyObject *describe(PyObject *object, bool writable, bool owner)
{
    PyObject *r;
    struct memory m;

    if (memory_get(object, writable, &m) < 0) {
        argument_wrong(owner ? "buffer" : "object");
        return NULL;
    }
    r = Py_BuildValue(owner ? "KKIO" : "KKI", (unsigned long long)(uintptr_t)m.data,
                      (unsigned long long)m.length, m.kind, m.owner != NULL ? m.owner : Py_None);
    memory_release(&m);
    return r;
}

/** memory(object, writable=False) */
PyObject *py_memory(PyObject *self, PyObject *args)
{
    PyObject *object;
    int writable = 0;

    (void)self;
    return PyArg_ParseTuple(args, "O|p:memory", &object, &writable)
               ? describe(object, writable, false)
               : NULL;
}

/** hold_memory(object, writable): the same, and what must be kept besides the object; or None. */
PyObject *py_hold_memory(PyObject *self, PyObject *args)
{
    PyObject *object;
    int writable;

    (void)self;
    return PyArg_ParseTuple(args, "Op:hold_memory", &object, &writable)
               ? describe(object, writable, true)
               : NULL;
}

/** pointer(object): the address of a buffer of any shape, also with holes. */
PyObject *py_pointer(PyObject *self, PyObject *object)
{
    Py_buffer view;
    PyObject *r;

    (void)self;
    if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO) < 0) {
        return NULL;
    }
    r = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return r;
}
