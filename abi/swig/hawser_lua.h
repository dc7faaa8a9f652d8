/*
 * What the typemaps of the Lua module call. A Lua value lives as long as it is an argument on the stack; what an
 * operation needs for longer is kept in the registry until its final event.
 */
#ifndef HAWSER_SWIG_LUA_H
#define HAWSER_SWIG_LUA_H

#include "swig_fields.h"
#include <stdlib.h>
#include <string.h>

/* Memory that can be written, for what arrives: hawser.buffer(size). */
#define BUFFER "hawser.buffer"

static int new_buffer(lua_State *L)
{
    lua_Integer size = luaL_checkinteger(L, 1);

    luaL_argcheck(L, size >= 0, 1, "a size");
    memset(lua_newuserdatauv(L, (size_t)size, 0), 0, (size_t)size);
    luaL_setmetatable(L, BUFFER);
    return 1;
}

static int buffer_length(lua_State *L)
{
    luaL_checkudata(L, 1, BUFFER);
    lua_pushinteger(L, (lua_Integer)lua_rawlen(L, 1));
    return 1;
}

/* buffer:string(first, last): as string.sub(), the whole without arguments. */
static int buffer_string(lua_State *L)
{
    const char *data = luaL_checkudata(L, 1, BUFFER);
    lua_Integer size = (lua_Integer)lua_rawlen(L, 1);
    lua_Integer first = luaL_optinteger(L, 2, 1), last = luaL_optinteger(L, 3, -1);

    first = first < 0 ? size + first + 1 : first;
    last = last < 0 ? size + last + 1 : last;
    first = first < 1 ? 1 : first;
    last = last > size ? size : last;
    lua_pushlstring(L, data + (first <= last ? first - 1 : 0),
                    first <= last ? (size_t)(last - first + 1) : 0);
    return 1;
}

/* buffer:set(text, at): copies a string into it, from position `at` (1) on. */
static int buffer_set(lua_State *L)
{
    char *data = luaL_checkudata(L, 1, BUFFER);
    size_t size = lua_rawlen(L, 1), length;
    const char *text = luaL_checklstring(L, 2, &length);
    lua_Integer at = luaL_optinteger(L, 3, 1);

    luaL_argcheck(L, at >= 1 && (size_t)at - 1 <= size && length <= size - ((size_t)at - 1), 2,
                  "does not fit");
    memcpy(data + at - 1, text, length);
    return 0;
}

static void make_buffer_class(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"string", buffer_string}, {"sub", buffer_string}, {"set", buffer_set}, {NULL, NULL}};

    luaL_newmetatable(L, BUFFER);
    lua_pushcfunction(L, buffer_length);
    lua_setfield(L, -2, "__len");
    lua_pushcfunction(L, buffer_string);
    lua_setfield(L, -2, "__tostring");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

/* nil, "NAME: text", code. */
static int push_error(lua_State *L, int32_t code)
{
    hws_error last = {.struct_size = sizeof last};

    hws_last_error(&last);
    lua_pushnil(L);
    lua_pushfstring(L, "%s: %s", hws_error_name(code),
                    last.code == code ? last.text : hws_error_text(code));
    lua_pushinteger(L, code);
    return 3;
}

/* An integer of any 64 bits, or of a range. Pushes a message and returns -1 where it is none. */
static int get_number(lua_State *L, int at, const char *name, lua_Integer min, lua_Integer max,
                      lua_Integer *to)
{
    int is_integer = 0;

    *to = lua_tointegerx(L, at, &is_integer);
    if (!is_integer || lua_type(L, at) != LUA_TNUMBER) {
        lua_pushfstring(L, "%s is an integer, not a %s", name, luaL_typename(L, at));
        return -1;
    }
    if (min <= max && (*to < min || *to > max)) {
        lua_pushfstring(L, "%s is %I to %I, not %I", name, (LUAI_UACINT)min, (LUAI_UACINT)max,
                        (LUAI_UACINT)*to);
        return -1;
    }
    return 0;
}
#define ANY_INTEGER 1, 0 /* the range that get_number() takes for none */

/* The memory of a string or a buffer; nil is none. */
static int get_memory(lua_State *L, int at, int writable, void **data, uint64_t *length)
{
    size_t n = 0;

    *data = NULL;
    if (luaL_testudata(L, at, BUFFER) != NULL) {
        *data = lua_touserdata(L, at);
        n = lua_rawlen(L, at);
    } else if (!writable && lua_type(L, at) == LUA_TSTRING) {
        *data = (void *)lua_tolstring(L, at, &n);
    } else if (!lua_isnoneornil(L, at)) {
        lua_pushfstring(L, "a %s is expected, not a %s", writable ? "buffer" : "string or buffer",
                        luaL_typename(L, at));
        return -1;
    }
    *length = n;
    return 0;
}

/* Memory that lives until the call returns: an anonymous value on the stack. */
static void *stack_memory(lua_State *L, size_t size)
{
    luaL_checkstack(L, 4, NULL);
    return memset(lua_newuserdatauv(L, size, 0), 0, size);
}

/* Texts of a list, a null behind them. The list holds the strings. */
static int get_strings(lua_State *L, int at, const char *const **to)
{
    size_t n = lua_rawlen(L, at);
    const char **texts = stack_memory(L, (n + 1) * sizeof *texts);

    for (size_t i = 0; i < n; i++) {
        if (lua_rawgeti(L, at, (lua_Integer)i + 1) != LUA_TSTRING) {
            lua_pushliteral(L, "key, value, ... are strings");
            return -1;
        }
        texts[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    *to = texts;
    return 0;
}

static int get_words(lua_State *L, int at, const uint64_t **to, uint32_t *count)
{
    size_t n = lua_rawlen(L, at);
    uint64_t *words = stack_memory(L, (n + 1) * sizeof *words);

    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, at, (lua_Integer)i + 1);
        if (get_number(L, -1, "a word of a mask", ANY_INTEGER, (lua_Integer *)&words[i]) != 0) {
            return -1;
        }
        lua_pop(L, 1);
    }
    *to = words;
    *count = (uint32_t)n;
    return 0;
}

static int get_record(lua_State *L, int at, const struct fields *fields, void *to);

/* The value at the top of the stack into a field; whatever it leaves above the value is popped by nobody. */
static int get_field(lua_State *L, int at, const struct field *f, char *to)
{
    void *field = to + f->offset;
    lua_Integer n = 0;
    int failed;

    switch (f->kind) {
    case FIELD_U16:
        failed = get_number(L, at, f->name, 0, UINT16_MAX, &n);
        *(uint16_t *)field = (uint16_t)n;
        return failed;
    case FIELD_U32:
        failed = get_number(L, at, f->name, 0, UINT32_MAX, &n);
        *(uint32_t *)field = (uint32_t)n;
        return failed;
    case FIELD_I32:
        failed = get_number(L, at, f->name, INT32_MIN, INT32_MAX, &n);
        *(int32_t *)field = (int32_t)n;
        return failed;
    case FIELD_U64:
    case FIELD_ADDRESS:
        return get_number(L, at, f->name, ANY_INTEGER, field);
    case FIELD_TEXT:
        if (lua_type(L, at) != LUA_TSTRING) {
            lua_pushfstring(L, "%s is a string", f->name);
            return -1;
        }
        *(const char **)field = lua_tostring(L, at);
        return 0;
    case FIELD_STRINGS:
        return get_strings(L, at, field);
    case FIELD_WORDS:
        return get_words(L, at, field, (uint32_t *)(to + f->extra));
    case FIELD_BYTES:
        return get_memory(L, at, 0, field, (uint64_t *)(to + f->extra));
    case FIELD_RECORD:
        return get_record(L, at, f->sub, field);
    default:
        lua_pushfstring(L, "%s cannot be set here", f->name);
        return -1;
    }
}

/* A structure from a table: keys are names of fields, what is not named is zero. */
static int get_record(lua_State *L, int at, const struct fields *fields, void *to)
{
    clear_record(fields, to);
    if (!lua_istable(L, at)) {
        lua_pushfstring(L, "%s is a table, or nil", fields->name);
        return -1;
    }
    at = lua_absindex(L, at);
    lua_pushnil(L);
    while (lua_next(L, at) != 0) {
        luaL_checkstack(L, 16, NULL);
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "(no name)";
        const struct field *f = settable_field(fields, name);
        int value = lua_gettop(L);

        if (f == NULL) {
            lua_pushfstring(L, "%s has no field %s here", fields->name, name);
            return -1;
        }
        if (get_field(L, value, f, to) != 0) {
            return -1;
        }
        /* Temporary memory stays on the stack, below the key that lua_next() goes on from. */
        lua_pushvalue(L, value - 1);
    }
    return 0;
}

/* Structures from a list of tables, which holds their strings. */
static int get_records(lua_State *L, int at, const struct fields *fields, void **to,
                       uint64_t *count)
{
    char *records;

    if (!lua_istable(L, at)) {
        lua_pushliteral(L, "a list of tables is expected");
        return -1;
    }
    *count = lua_rawlen(L, at);
    *to = records = stack_memory(L, ((size_t)*count + 1) * fields->size);
    for (uint64_t i = 0; i < *count; i++) {
        luaL_checkstack(L, 8, NULL);
        lua_rawgeti(L, at, (lua_Integer)i + 1);
        if (get_record(L, -1, fields, records + i * fields->size) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Options of a call. Those of an operation get a place for the event of an inline completion. */
static int get_options(lua_State *L, int at, const struct fields *fields, void *to)
{
    if (get_record(L, at, fields, to) != 0) {
        return -1;
    }
    place_result(fields, to);
    return 0;
}

static int check_flags(lua_State *L, const hws_op_opts *opts, int has_buffer)
{
    const char *reason = refused_flags(opts, has_buffer);

    if (reason != NULL) {
        lua_pushstring(L, reason);
    }
    return reason == NULL ? 0 : -1;
}

static void push_record(lua_State *L, const struct fields *fields, const void *from);

/* Memory of the library is copied: it ends when its buffer is closed, and no value here could know. */
static void push_bytes(lua_State *L, const void *data, uint64_t length)
{
    if (data == NULL) {
        lua_pushnil(L);
    } else {
        lua_pushlstring(L, data, (size_t)length);
    }
}

static void push_detail(lua_State *L, const hws_event *event)
{
    if (event->detail != NULL && event->status < 0) {
        lua_pushstring(L, event->detail);
        return;
    }
    for (const struct detail *d = details; event->detail != NULL && d->fields != NULL; d++) {
        if (d->kind == event->kind) {
            push_record(L, d->fields, event->detail);
            return;
        }
    }
    lua_pushnil(L);
}

static void push_records(lua_State *L, const struct fields *fields, const char *from,
                         uint64_t count)
{
    lua_createtable(L, (int)count, 0);
    for (uint64_t i = 0; i < count; i++) {
        push_record(L, fields, from + i * fields->size);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

static void push_list(lua_State *L, const uint64_t *from, size_t count)
{
    lua_createtable(L, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_pushinteger(L, (lua_Integer)from[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

static void push_field(lua_State *L, const struct field *f, const char *from)
{
    const void *at = from + f->offset;

    switch (f->kind) {
    case FIELD_U16:
        lua_pushinteger(L, *(const uint16_t *)at);
        break;
    case FIELD_U32:
        lua_pushinteger(L, *(const uint32_t *)at);
        break;
    case FIELD_I32:
        lua_pushinteger(L, *(const int32_t *)at);
        break;
    case FIELD_U64:
    case FIELD_ADDRESS:
        lua_pushinteger(L, *(const lua_Integer *)at);
        break;
    case FIELD_TEXT:
        lua_pushstring(L, *(const char *const *)at);
        break;
    case FIELD_CHARS:
        lua_pushlstring(L, at, strnlen(at, f->extra));
        break;
    case FIELD_LIST:
        push_list(L, at, f->extra);
        break;
    case FIELD_BYTES:
        push_bytes(L, *(const void *const *)at, *(const uint64_t *)(from + f->extra));
        break;
    case FIELD_SEGMENT:
        push_bytes(L, readable_segment((const void *)from),
                   ((const hws_segment *)(const void *)from)->length);
        break;
    case FIELD_RECORD:
        push_record(L, f->sub, at);
        break;
    case FIELD_RECORDS:
        push_records(L, f->sub, *(const char *const *)at, *(const uint64_t *)(from + f->extra));
        break;
    case FIELD_DETAIL:
        push_detail(L, (const hws_event *)(const void *)from);
        break;
    default:
        lua_pushnil(L);
    }
}

/* A structure as a table. */
static void push_record(lua_State *L, const struct fields *fields, const void *from)
{
    luaL_checkstack(L, 8, NULL);
    lua_newtable(L);
    for (const struct field *f = fields->all; f->name != NULL; f++) {
        push_field(L, f, from);
        lua_setfield(L, -2, f->name);
    }
}

/* Keeps the value at a place of the stack until the operation has ended, or the object is gone. */
static void pin(lua_State *L, uint64_t id, int at)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, BUFFER "s in use");
    lua_pushvalue(L, at);
    lua_rawseti(L, -2, (lua_Integer)id);
    lua_pop(L, 1);
}

static void unpin_op(lua_State *L, uint64_t op)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, BUFFER "s in use");
    lua_pushnil(L);
    lua_rawseti(L, -2, (lua_Integer)op);
    lua_pop(L, 1);
}

/* Gives back what was kept for registered memories that are gone. */
static void unpin_objects(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, BUFFER "s in use");
    lua_pushnil(L);
    while (lua_next(L, -2) != 0) {
        uint64_t id = (uint64_t)lua_tointeger(L, -2);
        lua_pop(L, 1);
        if (id >> 49 != HWS_KIND_OP && hws_kind(id) == HWS_E_STALE) {
            lua_pushvalue(L, -1);
            lua_pushnil(L);
            lua_rawset(L, -4);
        }
    }
    lua_pop(L, 1);
}

/* An event as a table; the final event of an operation gives its memory back. */
static void push_event(lua_State *L, const hws_event *event)
{
    if (event->op != 0 && event->kind < 32) {
        unpin_op(L, event->op);
    }
    push_record(L, &fields_of_hws_event, event);
}

static void push_events(lua_State *L, const hws_event *events, uint64_t count)
{
    lua_createtable(L, (int)count, 0);
    for (uint64_t i = 0; i < count; i++) {
        push_event(L, &events[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

/* The second result of a function that posts: the operation's id, or the event of one that is done already. */
static void push_posted(lua_State *L, int32_t status, hws_id op)
{
    if (status == HWS_DONE) {
        push_record(L, &fields_of_hws_event, &inline_event);
    } else {
        lua_pushinteger(L, (lua_Integer)op);
    }
}

static int get_ids(lua_State *L, int at, hws_id **ids, uint32_t *count)
{
    const uint64_t *words;

    if (!lua_istable(L, at)) {
        lua_pushliteral(L, "a list of ids is expected");
        return -1;
    }
    if (get_words(L, at, &words, count) != 0) {
        return -1;
    }
    *ids = (hws_id *)words;
    return 0;
}

static void push_ids(lua_State *L, const hws_id *ids, uint32_t count)
{
    lua_createtable(L, (int)count, 0);
    for (uint32_t i = 0; i < count; i++) {
        lua_pushinteger(L, (lua_Integer)ids[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

/* Segments from a list of strings and buffers, which holds them. */
static int get_segments(lua_State *L, int at, int writable, hws_segment **segments, uint64_t *count)
{
    if (!lua_istable(L, at)) {
        lua_pushliteral(L, "a list of strings or buffers is expected");
        return -1;
    }
    *count = lua_rawlen(L, at);
    *segments = stack_memory(L, ((size_t)*count + 1) * sizeof **segments);
    for (uint64_t i = 0; i < *count; i++) {
        lua_rawgeti(L, at, (lua_Integer)i + 1);
        if (get_memory(L, -1, writable, &(*segments)[i].base, &(*segments)[i].length) != 0) {
            return -1;
        }
        lua_pop(L, 1);
    }
    return 0;
}

#endif
