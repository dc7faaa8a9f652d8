#include "conformance.h"
#include "support/check.h"

#include <ffi.h>
#include <stdlib.h>
#include <string.h>

#define ARGS 16
/* Room for any structure, for a tail behind it, and for any memory argument. */
#define ROOM 4096

union value {
    uint64_t u64;
    uint32_t u32;
    int32_t i32;
    uint16_t u16;
    void *pointer;
};

struct arguments {
    ffi_type *types[ARGS];
    union value values[ARGS];
    void *places[ARGS];
    _Alignas(16) char room[ARGS][ROOM];
};

static int strays;

int stray_callbacks(void)
{
    return strays;
}

/* Whatever its type: it must not be called. */
static void stray_callback(void)
{
    strays++;
}

json_t *named(json_t *array, const char *name)
{
    size_t i;
    json_t *item;

    json_array_foreach(array, i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0) {
            return item;
        }
    }
    return NULL;
}

static json_t *load(const char *path)
{
    char whole[4096];
    json_error_t error;
    json_t *json;

    snprintf(whole, sizeof(whole), "%s/%s", getenv("HAWSER_SOURCE_DIR"), path);
    json = json_load_file(whole, 0, &error);
    if (json == NULL) {
        t_fail(__FILE__, __LINE__, "%s:%d: %s", whole, error.line, error.text);
    }
    return json;
}

json_t *load_abi(void)
{
    return load("abi/abi.json");
}

json_t *load_vectors(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "abi/vectors/%s.json", name);
    return load(path);
}

static const char *text_of(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text == NULL ? "" : text;
}

static ffi_type *type_of(json_t *type)
{
    static const struct {
        const char *name;
        ffi_type *type;
    } numbers[] = {{"hws_id", &ffi_type_uint64},   {"uint64_t", &ffi_type_uint64},
                   {"uint32_t", &ffi_type_uint32}, {"int32_t", &ffi_type_sint32},
                   {"uint16_t", &ffi_type_uint16}, {NULL, NULL}};

    if (json_integer_value(json_object_get(type, "pointers")) == 0) {
        for (size_t i = 0; numbers[i].name != NULL; i++) {
            if (strcmp(numbers[i].name, text_of(type, "base")) == 0) {
                return numbers[i].type;
            }
        }
    }
    return &ffi_type_pointer;
}

static hws_id id_of(const world *w, json_t *abi, const char *which)
{
    int is_stale = strncmp(which, "stale ", 6) == 0;
    const hws_id *ids = is_stale ? w->stale : w->living;
    json_t *kind;

    if (strcmp(which, "zero") == 0) {
        return 0;
    }
    if (strcmp(which, "random") == 0) {
        return (UINT64_C(1) << 53) - 1;
    }
    kind = named(json_object_get(abi, "kinds"), is_stale ? which + 6 : which);
    CHECK(kind != NULL);
    CHECK(ids[json_integer_value(json_object_get(kind, "value"))] != 0);
    return ids[json_integer_value(json_object_get(kind, "value"))];
}

/* A sized structure, all zero, whose size is right or wrong in one of the ways of the vectors. */
static void *sized(json_t *abi, char room[ROOM], const char *name, const char *how)
{
    json_t *s = named(json_object_get(abi, "structs"), name);
    uint32_t size;

    CHECK(s != NULL);
    size = (uint32_t)json_integer_value(json_object_get(s, "size"));
    CHECK(size + 8 <= ROOM);
    if (strcmp(how, "tail") == 0) {
        room[size + 7] = 1;
        size += 8;
    } else if (strcmp(how, "zero") == 0) {
        size = 0;
    } else if (strcmp(how, "huge") == 0) {
        size = 65537;
    } else {
        CHECK(strcmp(how, "known") == 0);
    }
    memcpy(room, &size, sizeof(size));
    return room;
}

static void set_argument(const world *w, json_t *abi, json_t *given, union value *value,
                         char room[ROOM])
{
    const char *key = json_object_iter_key(json_object_iter(given));

    value->u64 = 0;
    if (strcmp(key, "id") == 0) {
        value->u64 = id_of(w, abi, text_of(given, "id"));
    } else if (strcmp(key, "number") == 0) {
        value->u64 = (uint64_t)json_integer_value(json_object_get(given, "number"));
    } else if (strcmp(key, "text") == 0) {
        value->pointer = (void *)json_string_value(json_object_get(given, "text"));
    } else if (strcmp(key, "options") == 0 || strcmp(key, "info") == 0) {
        value->pointer = sized(abi, room, text_of(given, key), text_of(given, "size"));
    } else if (strcmp(key, "callback") == 0) {
        void (*function)(void) = stray_callback;
        memcpy(&value->pointer, &function, sizeof(function));
    } else if (strcmp(key, "memory") == 0 || strcmp(key, "fill") == 0 ||
               strcmp(key, "records") == 0 || strcmp(key, "ids") == 0) {
        value->pointer = room;
    } else {
        CHECK(strcmp(key, "null") == 0 || strcmp(key, "user") == 0);
    }
}

int32_t call_vector(const world *w, json_t *abi, json_t *vector)
{
    static struct arguments a;
    const char *name = text_of(vector, "function");
    json_t *function = named(json_object_get(abi, "functions"), name);
    json_t *args = json_object_get(function, "args"), *given = json_object_get(vector, "args");
    void *address = find_function(name);
    unsigned count = (unsigned)json_array_size(args);
    ffi_cif cif;
    ffi_arg returned = 0;

    CHECK(function != NULL && address != NULL && count <= ARGS && count == json_array_size(given));
    memset(&a, 0, sizeof(a));
    for (unsigned i = 0; i < count; i++) {
        a.types[i] = type_of(json_object_get(json_array_get(args, i), "type"));
        a.places[i] = &a.values[i];
        set_argument(w, abi, json_array_get(given, i), &a.values[i], a.room[i]);
    }
    CHECK(ffi_prep_cif(&cif, FFI_DEFAULT_ABI, count, &ffi_type_sint32, a.types) == FFI_OK);
    ffi_call(&cif, FFI_FN(address), &returned, a.places);
    return (int32_t)returned;
}
