/* How the fields of a structure look to a SWIG module; the tables are generated (swig_fields.h). */
#ifndef HAWSER_SWIG_FIELDS_H
#define HAWSER_SWIG_FIELDS_H

#include <hawser.h>
#include <stddef.h>
#include <string.h>

enum field_kind {
    FIELD_U16,
    FIELD_U32,
    FIELD_I32,
    FIELD_U64,
    FIELD_TEXT,    /* const char *, nullable */
    FIELD_CHARS,   /* char [extra] */
    FIELD_LIST,    /* uint64_t [extra] */
    FIELD_STRINGS, /* key, value, ..., null */
    FIELD_BYTES,   /* memory; extra: offset of its uint64_t length */
    FIELD_WORDS,   /* uint64_t array; extra: offset of its uint32_t count */
    FIELD_RECORD,  /* a structure inside */
    FIELD_RECORDS, /* structures elsewhere; extra: offset of their uint64_t count */
    FIELD_ADDRESS, /* a pointer as a number */
    FIELD_SEGMENT, /* hws_segment.base */
    FIELD_DETAIL,  /* hws_event.detail */
    FIELD_RESULT,  /* hws_op_opts.result: the module's own */
};

struct fields;

struct field {
    const char *name; /* null after the last */
    enum field_kind kind;
    size_t offset;
    size_t extra;
    const struct fields *sub;
};

struct fields {
    const char *name;
    size_t size;
    int sized; /* starts with struct_size */
    const struct field *all;
};

/* All zero, with its size set. */
static void clear_record(const struct fields *fields, void *record)
{
    memset(record, 0, fields->size);
    if (fields->sized) {
        *(uint32_t *)record = (uint32_t)fields->size;
    }
}

/* The field of that name that a program may set. The size is that of the memory behind the structure, which is ours. */
static const struct field *settable_field(const struct fields *fields, const char *name)
{
    const struct field *f = fields->all;

    while (f->name != NULL && strcmp(f->name, name) != 0) {
        f++;
    }
    return f->name == NULL || strcmp(name, "struct_size") == 0 ? NULL : f;
}

/* What the detail of an event points to. */
struct detail {
    uint32_t kind;
    const struct fields *fields;
};

/* The memory of a segment, if it is here and this processor can read it. */
static const void *readable_segment(const hws_segment *s)
{
    return s->memory_kind == HWS_MEMORY_HOST ? s->base : NULL;
}

/* Where an operation that completes at once leaves its event: read by the same thread, right after the call. */
static _Thread_local hws_event inline_event;

/* Options of an operation get that place. */
static void place_result(const struct fields *fields, void *options)
{
    for (const struct field *f = fields->all; f->name != NULL; f++) {
        if (f->kind == FIELD_RESULT) {
            memset(&inline_event, 0, sizeof inline_event);
            *(hws_event **)((char *)options + f->offset) = &inline_event;
        }
    }
}

/* Why an operation is not offered with these flags, or null: they need memory that outlives the call untold. */
static const char *refused_flags(const hws_op_opts *opts, int has_buffer)
{
    const uint32_t refused = HWS_OP_IOV | HWS_OP_DETACHED;

    return opts != NULL && has_buffer && (opts->flags & refused) != 0
               ? "OP_IOV and OP_DETACHED are not available here: nobody would keep the memory"
               : NULL;
}

#endif
