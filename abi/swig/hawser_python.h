/* What the typemaps of the Python module call. Stable ABI of Python 3.11; every function holds the GIL. */
#ifndef HAWSER_SWIG_PYTHON_H
#define HAWSER_SWIG_PYTHON_H

#include "swig_fields.h"
#include <stdlib.h>
#include <string.h>

/* Id of an operation, or of a registered memory -> list of what must live until it has ended. */
static PyObject *op_pins, *object_pins;

/* Raises the exception of a code, with the details of the last error if that is what failed. */
static void raise_code(int32_t code)
{
    static PyObject *from_code;
    hws_error last = {.struct_size = sizeof last};
    PyObject *module, *error;

    hws_last_error(&last);
    if (from_code == NULL) {
        module = PyImport_ImportModule("hawser._errors");
        if (module == NULL) {
            return;
        }
        from_code = PyObject_GetAttrString(module, "from_code");
        Py_DECREF(module);
        if (from_code == NULL) {
            return;
        }
    }
    if (last.code == code) {
        error = PyObject_CallFunction(from_code, "isiiK", (int)code, last.text, (int)last.ucx_status,
                                      (int)last.sys_errno, (unsigned long long)last.id);
    } else {
        error = PyObject_CallFunction(from_code, "i", (int)code);
    }
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
}

/* Adds one more result: the first replaces None, the second makes a tuple. Steals both. */
static PyObject *add_result(PyObject *result, PyObject *more)
{
    PyObject *tuple;
    Py_ssize_t n;

    if (result == NULL || more == NULL) {
        Py_XDECREF(result);
        Py_XDECREF(more);
        return NULL;
    }
    if (result == Py_None) {
        Py_DECREF(result);
        return more;
    }
    if (!PyTuple_Check(result)) {
        tuple = Py_BuildValue("(NN)", result, more);
        return tuple;
    }
    n = PyTuple_Size(result);
    tuple = PyTuple_New(n + 1);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyTuple_SetItem(tuple, i, Py_NewRef(PyTuple_GetItem(result, i)));
    }
    Py_DECREF(result);
    if (tuple == NULL) {
        Py_DECREF(more);
        return NULL;
    }
    PyTuple_SetItem(tuple, n, more);
    return tuple;
}

/* The memory of a bytes-like object. *held keeps the object exported: it can be neither moved nor resized. */
static int get_memory(PyObject *from, int writable, void **data, uint64_t *length, PyObject **held)
{
    Py_buffer view;

    *held = PyMemoryView_FromObject(from);
    if (*held == NULL) {
        return -1;
    }
    if (PyObject_GetBuffer(*held, &view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
        return -1;
    }
    *data = view.buf;
    *length = (uint64_t)view.len;
    PyBuffer_Release(&view);
    return 0;
}

/* Keeps an object in *held, a list that is made when it is needed. */
static int hold(PyObject **held, PyObject *object)
{
    if (*held == NULL) {
        *held = PyList_New(0);
    }
    return *held == NULL ? -1 : PyList_Append(*held, object);
}

/* Memory that lives as long as *held. */
static void *hold_memory(PyObject **held, size_t size)
{
    PyObject *bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    void *memory = NULL;

    if (bytes != NULL && hold(held, bytes) == 0) {
        memory = PyByteArray_AsString(bytes);
        memset(memory, 0, size);
    }
    Py_XDECREF(bytes);
    return memory;
}

static int get_number(PyObject *from, const char *name, uint64_t max, uint64_t *to)
{
    PyObject *index = PyNumber_Index(from);

    *to = index == NULL ? 0 : PyLong_AsUnsignedLongLong(index);
    Py_XDECREF(index);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (*to > max) {
        PyErr_Format(PyExc_OverflowError, "%s is at most %llu", name, (unsigned long long)max);
        return -1;
    }
    return 0;
}

/* Texts of a list, or the keys and values of a dict; a null behind them. */
static int get_strings(PyObject *from, const char *const **to, PyObject **held)
{
    PyObject *items = PyDict_Check(from) ? PyDict_Items(from) : PySequence_List(from);
    Py_ssize_t n = items == NULL ? -1 : PyList_Size(items);
    int pairs = PyDict_Check(from);
    const char **texts;

    if (n < 0 || hold(held, items) != 0 ||
        (texts = hold_memory(held, (size_t)(n * (pairs + 1) + 1) * sizeof *texts)) == NULL) {
        Py_XDECREF(items);
        return -1;
    }
    Py_DECREF(items);
    for (Py_ssize_t i = 0; i < n * (pairs + 1); i++) {
        PyObject *item = PyList_GetItem(items, pairs ? i / 2 : i);
        texts[i] = PyUnicode_AsUTF8AndSize(pairs ? PyTuple_GetItem(item, i % 2) : item, NULL);
        if (texts[i] == NULL) {
            return -1;
        }
    }
    *to = texts;
    return 0;
}

static int get_words(PyObject *from, const uint64_t **to, uint32_t *count, PyObject **held)
{
    PyObject *items = PySequence_List(from);
    Py_ssize_t n = items == NULL ? -1 : PyList_Size(items);
    uint64_t *words = n < 0 ? NULL : hold_memory(held, (size_t)(n + 1) * sizeof *words);
    int failed = words == NULL;

    for (Py_ssize_t i = 0; !failed && i < n; i++) {
        failed = get_number(PyList_GetItem(items, i), "a word of a mask", UINT64_MAX, &words[i]);
    }
    Py_XDECREF(items);
    *to = words;
    *count = (uint32_t)n;
    return failed ? -1 : 0;
}

static int get_record(PyObject *from, const struct fields *fields, void *to, PyObject **held);

static int get_field(PyObject *from, const struct field *f, char *to, PyObject **held)
{
    void *at = to + f->offset;
    PyObject *view = NULL;
    uint64_t n = 0;
    long signed_n;
    int failed;

    switch (f->kind) {
    case FIELD_U16:
        failed = get_number(from, f->name, UINT16_MAX, &n);
        *(uint16_t *)at = (uint16_t)n;
        return failed;
    case FIELD_U32:
        failed = get_number(from, f->name, UINT32_MAX, &n);
        *(uint32_t *)at = (uint32_t)n;
        return failed;
    case FIELD_I32:
        signed_n = PyLong_AsLong(from);
        *(int32_t *)at = (int32_t)signed_n;
        return PyErr_Occurred() ? -1 : 0;
    case FIELD_U64:
        return get_number(from, f->name, UINT64_MAX, at);
    case FIELD_ADDRESS:
        failed = get_number(from, f->name, UINT64_MAX, &n);
        *(void **)at = (void *)(uintptr_t)n;
        return failed;
    case FIELD_TEXT:
        *(const char **)at = from == Py_None ? NULL : PyUnicode_AsUTF8AndSize(from, NULL);
        return PyErr_Occurred() || hold(held, from) != 0 ? -1 : 0;
    case FIELD_STRINGS:
        return get_strings(from, at, held);
    case FIELD_WORDS:
        return get_words(from, at, (uint32_t *)(to + f->extra), held);
    case FIELD_BYTES:
        failed = get_memory(from, 0, at, (uint64_t *)(to + f->extra), &view);
        failed = failed || hold(held, view) != 0;
        Py_XDECREF(view);
        return failed ? -1 : 0;
    case FIELD_RECORD:
        return get_record(from, f->sub, at, held);
    default:
        PyErr_Format(PyExc_TypeError, "%s cannot be set here", f->name);
        return -1;
    }
}

/* A structure from a dict: keys are names of fields, what is not named is zero. */
static int get_record(PyObject *from, const struct fields *fields, void *to, PyObject **held)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    clear_record(fields, to);
    if (!PyDict_Check(from)) {
        PyErr_Format(PyExc_TypeError, "%s is given as a dict, or None", fields->name);
        return -1;
    }
    while (PyDict_Next(from, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        const struct field *f = name == NULL ? NULL : settable_field(fields, name);
        if (name == NULL) {
            return -1;
        }
        if (f == NULL) {
            PyErr_Format(PyExc_TypeError, "%s has no field %s here", fields->name, name);
            return -1;
        }
        if (get_field(value, f, to, held) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Structures from a list of dicts. */
static int get_records(PyObject *from, const struct fields *fields, void **to, uint64_t *count, PyObject **held)
{
    PyObject *items = PySequence_List(from);
    Py_ssize_t n = items == NULL ? -1 : PyList_Size(items);
    char *records = n < 0 ? NULL : hold_memory(held, (size_t)(n + 1) * fields->size);
    int failed = records == NULL;

    for (Py_ssize_t i = 0; !failed && i < n; i++) {
        failed = get_record(PyList_GetItem(items, i), fields, records + (size_t)i * fields->size, held);
    }
    Py_XDECREF(items);
    *to = records;
    *count = (uint64_t)n;
    return failed ? -1 : 0;
}

/* Options of a call. Those of an operation get a place for the event of an inline completion. */
static int get_options(PyObject *from, const struct fields *fields, void *to, PyObject **held)
{
    if (get_record(from, fields, to, held) != 0) {
        return -1;
    }
    place_result(fields, to);
    return 0;
}

static int check_flags(const hws_op_opts *opts, int has_buffer)
{
    const char *reason = refused_flags(opts, has_buffer);

    if (reason != NULL) {
        PyErr_SetString(PyExc_ValueError, reason);
    }
    return reason == NULL ? 0 : -1;
}

static PyObject *make_record(const struct fields *fields, const void *from);

/* Memory of the library is copied: it ends when its buffer is closed, and no object here could know. */
static PyObject *make_bytes(const void *data, uint64_t length)
{
    return data == NULL ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(data, (Py_ssize_t)length);
}

static PyObject *make_detail(const hws_event *event)
{
    if (event->detail == NULL) {
        return Py_NewRef(Py_None);
    }
    if (event->status < 0) {
        return PyUnicode_DecodeUTF8(event->detail, (Py_ssize_t)strlen(event->detail), "replace");
    }
    for (const struct detail *d = details; d->fields != NULL; d++) {
        if (d->kind == event->kind) {
            return make_record(d->fields, event->detail);
        }
    }
    return Py_NewRef(Py_None);
}

static PyObject *make_records(const struct fields *fields, const char *from, uint64_t count)
{
    PyObject *list = PyList_New(0);

    for (uint64_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = make_record(fields, from + i * fields->size);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *make_list(const uint64_t *from, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *n = PyLong_FromUnsignedLongLong(from[i]);

        if (n == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, n);
        }
    }
    return list;
}

static PyObject *make_field(const struct field *f, const char *from)
{
    const void *at = from + f->offset;

    switch (f->kind) {
    case FIELD_U16:
        return PyLong_FromUnsignedLong(*(const uint16_t *)at);
    case FIELD_U32:
        return PyLong_FromUnsignedLong(*(const uint32_t *)at);
    case FIELD_I32:
        return PyLong_FromLong(*(const int32_t *)at);
    case FIELD_U64:
    case FIELD_ADDRESS:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case FIELD_TEXT:
        at = *(const char *const *)at;
        return at == NULL ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8(at, (Py_ssize_t)strlen(at), "replace");
    case FIELD_CHARS:
        return PyUnicode_DecodeUTF8(at, (Py_ssize_t)strnlen(at, f->extra), "replace");
    case FIELD_LIST:
        return make_list(at, f->extra);
    case FIELD_BYTES:
        return make_bytes(*(const void *const *)at, *(const uint64_t *)(from + f->extra));
    case FIELD_SEGMENT:
        return make_bytes(readable_segment((const void *)from), ((const hws_segment *)(const void *)from)->length);
    case FIELD_RECORD:
        return make_record(f->sub, at);
    case FIELD_RECORDS:
        return make_records(f->sub, *(const char *const *)at, *(const uint64_t *)(from + f->extra));
    case FIELD_DETAIL:
        return make_detail((const hws_event *)from);
    default:
        return Py_NewRef(Py_None);
    }
}

/* A structure as a dict. */
static PyObject *make_record(const struct fields *fields, const void *from)
{
    PyObject *dict = PyDict_New();

    for (const struct field *f = fields->all; dict != NULL && f->name != NULL; f++) {
        PyObject *value = make_field(f, from);
        if (value == NULL || PyDict_SetItemString(dict, f->name, value) != 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    return dict;
}

/* Keeps memory until the operation has ended, or the object is gone. */
static int pin(uint64_t id, PyObject *held)
{
    PyObject **dict = id >> 49 == HWS_KIND_OP ? &op_pins : &object_pins;
    PyObject *key = NULL, *list;
    int failed = 1;

    if (held == NULL) {
        return 0;
    }
    if ((*dict == NULL && (*dict = PyDict_New()) == NULL) || (key = PyLong_FromUnsignedLongLong(id)) == NULL) {
        return -1;
    }
    list = PyDict_GetItemWithError(*dict, key);
    if (list != NULL) {
        failed = PyList_Append(list, held) != 0;
    } else if (!PyErr_Occurred() && (list = Py_BuildValue("[O]", held)) != NULL) {
        failed = PyDict_SetItem(*dict, key, list) != 0;
        Py_DECREF(list);
    }
    Py_DECREF(key);
    return failed ? -1 : 0;
}

static void unpin_op(uint64_t op)
{
    PyObject *key = op_pins == NULL ? NULL : PyLong_FromUnsignedLongLong(op);

    if (key != NULL && PyDict_Contains(op_pins, key) == 1) {
        PyDict_DelItem(op_pins, key);
    }
    Py_XDECREF(key);
}

/* Gives back what was kept for objects that are gone. */
static void unpin_objects(void)
{
    PyObject *keys = object_pins == NULL ? NULL : PyDict_Keys(object_pins);

    for (Py_ssize_t i = 0; keys != NULL && i < PyList_Size(keys); i++) {
        PyObject *key = PyList_GetItem(keys, i);
        if (hws_kind(PyLong_AsUnsignedLongLong(key)) == HWS_E_STALE) {
            PyDict_DelItem(object_pins, key);
        }
    }
    Py_XDECREF(keys);
}

/* An event as a dict; the final event of an operation gives its memory back. */
static PyObject *make_event(const hws_event *event)
{
    if (event->op != 0 && event->kind < 32) {
        unpin_op(event->op);
    }
    return make_record(&fields_of_hws_event, event);
}

static PyObject *make_events(const hws_event *events, uint64_t count)
{
    PyObject *list = PyList_New(0);

    for (uint64_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = make_event(&events[i]);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

/* The second result of a function that posts: the operation's id, or the event of one that is done already. */
static PyObject *posted(PyObject *result, int32_t status, hws_id op)
{
    return add_result(result, status == HWS_DONE ? make_record(&fields_of_hws_event, &inline_event)
                                                 : PyLong_FromUnsignedLongLong(op));
}

static int get_ids(PyObject *from, hws_id **ids, uint32_t *count)
{
    PyObject *items = PySequence_List(from);
    Py_ssize_t n = items == NULL ? -1 : PyList_Size(items);
    int failed = n < 0 || n > INT32_MAX || (*ids = calloc((size_t)n + 1, sizeof **ids)) == NULL;

    for (Py_ssize_t i = 0; !failed && i < n; i++) {
        failed = get_number(PyList_GetItem(items, i), "an id", UINT64_MAX, &(*ids)[i]);
    }
    Py_XDECREF(items);
    *count = (uint32_t)n;
    return failed ? -1 : 0;
}

static PyObject *make_ids(const hws_id *ids, uint32_t count)
{
    PyObject *list = PyList_New(count);

    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyList_SetItem(list, i, PyLong_FromUnsignedLongLong(ids[i]));
    }
    return list;
}

/* Segments from a list of bytes-like objects. */
static int get_segments(PyObject *from, int writable, hws_segment **segments, uint64_t *count, PyObject **held)
{
    PyObject *items = PySequence_List(from);
    Py_ssize_t n = items == NULL ? -1 : PyList_Size(items);
    int failed = n < 0 || (*segments = hold_memory(held, (size_t)(n + 1) * sizeof **segments)) == NULL;

    for (Py_ssize_t i = 0; !failed && i < n; i++) {
        PyObject *view = NULL;
        failed = get_memory(PyList_GetItem(items, i), writable, &(*segments)[i].base, &(*segments)[i].length, &view) != 0 ||
                 hold(held, view) != 0;
        Py_XDECREF(view);
    }
    Py_XDECREF(items);
    *count = (uint64_t)n;
    return failed ? -1 : 0;
}

#endif
