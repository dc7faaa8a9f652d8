#include "ucx_tls.h"

#include <stdio.h>
#include <string.h>

/* Memory that both processes map. */
static const char *const shared[] = {"sysv", "posix", "mm", "sm", "shm", "xpmem"};
/* What goes with it: copies between processes, within one, of a GPU. */
static const char *const beside[] = {"self", "cma", "knem", "cuda", "gdr_copy", "rocm", "ze"};

/* Whether a transport's name, without what may follow after a colon, begins with (or is) one of them. */
static bool among(const char *name, size_t length, const char *const *names, size_t count,
                  bool begins)
{
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(names[i]);

        if (length >= n && (begins || length == n) && memcmp(name, names[i], n) == 0) {
            return true;
        }
    }
    return false;
}
#define AMONG(name, length, names, begins) \
    among(name, length, names, sizeof(names) / sizeof((names)[0]), begins)

/* One more of a list. `used` is not less than `size` when it does not fit. */
static void append(char *out, size_t size, size_t *used, const char *at, size_t length)
{
    *used += (size_t)snprintf(out + *used, size - *used, "%s%.*s", *used != 0 ? "," : "",
                              (int)length, at);
}

bool hws__tls_without_network(const char *tls, char *out, size_t size)
{
    bool found = false;
    size_t used = 0;

    out[0] = '\0';
    if (strcmp(tls, "all") == 0) {
        return snprintf(out, size, "^tcp") < (int)size;
    }
    if (tls[0] == '^') {
        return snprintf(out, size, "%s,tcp", tls) < (int)size;
    }
    for (const char *at = tls; *at != '\0'; at += *at == ',') {
        size_t length = strcspn(at, ","), name = strcspn(at, ",:");
        bool maps = AMONG(at, name, shared, false);

        if (maps || AMONG(at, name, beside, true)) {
            append(out, size, &used, at, length);
            found |= maps;
        }
        if (used >= size) {
            return false;
        }
        at += length;
    }
    return found;
}

bool hws__tls_names(const char *tls, const char *name)
{
    bool excludes = tls[0] == '^';

    if (strcmp(tls, "all") == 0) {
        return true;
    }
    for (const char *at = tls + excludes; *at != '\0'; at += *at == ',') {
        if (among(at, strcspn(at, ",:"), &name, 1, false)) {
            return !excludes;
        }
        at += strcspn(at, ",");
    }
    return excludes;
}

/* What a list has besides tcp; false if that is nothing, or too long. */
static bool without_tcp(const char *list, char *out, size_t size)
{
    size_t used = 0;

    for (const char *at = list; *at != '\0' && used < size; at += *at == ',') {
        size_t length = strcspn(at, ",");

        if (length != 3 || memcmp(at, "tcp", 3) != 0) {
            append(out, size, &used, at, length);
        }
        at += length;
    }
    return used != 0 && used < size;
}

/* Whether all of a list stays within the machine: what is not known here may be a network. */
static bool is_local(const char *list)
{
    bool local = true;

    for (const char *at = list; *at != '\0' && local; at += *at == ',') {
        size_t length = strcspn(at, ","), name = strcspn(at, ",:");

        local = length == 0 || AMONG(at, name, shared, false) || AMONG(at, name, beside, true);
        at += length;
    }
    return local;
}

bool hws__tls_with_tcp(const char *tls, char *out, size_t size)
{
    if (tls[0] != '^') {
        return tls[0] != '\0' && is_local(tls) && snprintf(out, size, "%s,tcp", tls) < (int)size;
    }
    if (strcmp(tls, "^tcp") == 0) {
        return snprintf(out, size, "all") < (int)size;
    }
    out[0] = '^';
    return without_tcp(tls + 1, out + 1, size - 1) && strlen(out) < strlen(tls);
}
