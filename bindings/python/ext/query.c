/* The calls that ask: records of the library as dicts. */
#include "ext.h"
#include <stddef.h>
#include <stdlib.h>

/* A field of a record. */
struct field {
    const char *name; /* null: the end */
    size_t offset;
    char type;
};

/* clang-format off */
#define TYPE_OF(x) \
    _Generic((x), uint32_t: 'I', uint64_t: 'K', int32_t: 'i', char *: 's', const char *: 'z')
#define FIELD(record, name) {#name, offsetof(record, name), TYPE_OF(((record *)0)->name)}
/* clang-format on */

static PyObject *as_object(const void *at, char type)
{
    switch (type) {
    case 'I':
        return PyLong_FromUnsignedLong(*(const uint32_t *)at);
    case 'K':
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case 'i':
        return PyLong_FromLong(*(const int32_t *)at);
    case 's':
        return from_text(at);
    default:
        return *(const char *const *)at == NULL ? Py_NewRef(Py_None)
                                                : from_text(*(const char *const *)at);
    }
}

static PyObject *as_dict(const void *record, const struct field *fields)
{
    PyObject *dict = PyDict_New();

    for (const struct field *f = fields; dict != NULL && f->name != NULL; f++) {
        PyObject *v = as_object((const char *)record + f->offset, f->type);

        if (v == NULL || PyDict_SetItemString(dict, f->name, v) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(v);
    }
    return dict;
}

static const struct field library_fields[] = {
    FIELD(hws_library_info, version),    FIELD(hws_library_info, ucx_major),
    FIELD(hws_library_info, ucx_minor),  FIELD(hws_library_info, ucx_release),
    FIELD(hws_library_info, has_sodium), FIELD(hws_library_info, ucx_path),
    FIELD(hws_library_info, ucx_reason), {NULL, 0, 0}};

/** library(ucx) */
static PyObject *library(PyObject *self, PyObject *args)
{
    hws_library_info info = {.struct_size = sizeof info};
    const char *ucx;
    int32_t r;

    (void)self;
    if (parse(args, "ucx:z", &ucx) < 0) {
        return NULL;
    }
    UNLOCKED(r = hws_library_open(ucx, &info));
    return r < 0 ? raise_last(r) : as_dict(&info, library_fields);
}

/* name(id): ask for a record. */
#define QUERY(name, record, call, fields)                      \
    static PyObject *name(PyObject *self, PyObject *id)        \
    {                                                          \
        record info = {.struct_size = sizeof info};            \
        uint64_t n;                                            \
        int32_t r;                                             \
        (void)self;                                            \
        if (to_u64(id, &n) < 0) {                              \
            return NULL;                                       \
        }                                                      \
        r = call(n, &info);                                    \
        return r < 0 ? raise_last(r) : as_dict(&info, fields); \
    }

static const struct field endpoint_fields[] = {
    FIELD(hws_endpoint_info, state),          FIELD(hws_endpoint_info, isolated),
    FIELD(hws_endpoint_info, reason),         FIELD(hws_endpoint_info, transports),
    FIELD(hws_endpoint_info, status),         FIELD(hws_endpoint_info, peer_pid),
    FIELD(hws_endpoint_info, peer_host),      FIELD(hws_endpoint_info, sent),
    FIELD(hws_endpoint_info, received),       FIELD(hws_endpoint_info, bytes_sent),
    FIELD(hws_endpoint_info, bytes_received), FIELD(hws_endpoint_info, local_address),
    FIELD(hws_endpoint_info, peer_address),   FIELD(hws_endpoint_info, lanes),
    FIELD(hws_endpoint_info, reason_text),    {NULL, 0, 0}};

QUERY(endpoint_query, hws_endpoint_info, hws_endpoint_query, endpoint_fields)

static const struct field listener_fields[] = {FIELD(hws_listener_info, port),
                                               FIELD(hws_listener_info, address),
                                               FIELD(hws_listener_info, requests),
                                               FIELD(hws_listener_info, accepted),
                                               FIELD(hws_listener_info, rejected),
                                               FIELD(hws_listener_info, redirected),
                                               FIELD(hws_listener_info, strangers),
                                               FIELD(hws_listener_info, bad_auth),
                                               {NULL, 0, 0}};

QUERY(listener_query, hws_listener_info, hws_listener_query, listener_fields)

static const struct field stats_fields[] = {FIELD(hws_stats, endpoints),
                                            FIELD(hws_stats, isolated),
                                            FIELD(hws_stats, spares),
                                            FIELD(hws_stats, isolated_cap),
                                            FIELD(hws_stats, isolated_total),
                                            FIELD(hws_stats, fallbacks),
                                            FIELD(hws_stats, redials),
                                            FIELD(hws_stats, lane_violations),
                                            FIELD(hws_stats, ops_inline),
                                            FIELD(hws_stats, ops_posted),
                                            FIELD(hws_stats, ops_submitted),
                                            FIELD(hws_stats, ops_pending),
                                            FIELD(hws_stats, events),
                                            FIELD(hws_stats, queue_overflows),
                                            FIELD(hws_stats, wakeups),
                                            FIELD(hws_stats, safety_wakeups),
                                            FIELD(hws_stats, signals),
                                            FIELD(hws_stats, unexpected),
                                            FIELD(hws_stats, unexpected_bytes),
                                            FIELD(hws_stats, am_dropped),
                                            FIELD(hws_stats, failures),
                                            FIELD(hws_stats, credit_waits),
                                            {NULL, 0, 0}};

QUERY(stats, hws_stats, hws_stats_get, stats_fields)

/** describe(id) */
static PyObject *describe(PyObject *self, PyObject *id)
{
    uint64_t n, needed = 0;
    PyObject *text;
    char *room;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    r = hws_describe(n, NULL, 0, &needed);
    if (r < 0 && r != HWS_E_TOO_BIG) {
        return raise_last(r);
    }
    /* Some room: the description may have grown meanwhile. */
    needed += 1024;
    if ((room = malloc(needed)) == NULL) {
        return PyErr_NoMemory();
    }
    r = hws_describe(n, room, needed, NULL);
    text = r < 0 && r != HWS_E_TOO_BIG ? raise_last(r) : from_text(room);
    free(room);
    return text;
}

/** am_header_max(worker) */
static PyObject *am_header_max(PyObject *self, PyObject *id)
{
    uint64_t n, out = 0;
    int32_t r;

    (void)self;
    if (to_u64(id, &n) < 0) {
        return NULL;
    }
    r = hws_am_header_max(n, &out);
    return result_id(r, out);
}

PyMethodDef query_functions[] = {{"library", library, METH_VARARGS, NULL},
                                 {"endpoint_query", endpoint_query, METH_O, NULL},
                                 {"listener_query", listener_query, METH_O, NULL},
                                 {"stats", stats, METH_O, NULL},
                                 {"describe", describe, METH_O, NULL},
                                 {"am_header_max", am_header_max, METH_O, NULL},
                                 {NULL, NULL, 0, NULL}};
