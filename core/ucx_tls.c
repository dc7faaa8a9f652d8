#include "ucx_tls.h"

#include <stdio.h>
#include <string.h>

/* Memory that both processes map. */
static const char *const shared[] = {"sysv", "posix", "mm", "sm", "shm", "xpmem"};
/* What goes with it: copies between processes, within one, of a GPU. */
static const char *const beside[] = {"self", "cma", "knem", "cuda", "gdr_copy", "rocm", "ze"};

/* Messages to other hosts. */
static const char *const networks[] = {"all", "tcp", "rc", "ud", "dc", "ib", "srd", "gga"};

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
            used += (size_t)snprintf(out + used, size - used, "%s%.*s", used != 0 ? "," : "",
                                     (int)length, at);
            found |= maps;
        }
        if (used >= size) {
            return false;
        }
        at += length;
    }
    return found;
}

/* What a list has besides tcp. */
static bool has_others(const char *list, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (const char *at = list; *at != '\0'; at += *at == ',') {
        size_t length = strcspn(at, ",");

        if (length != 3 || memcmp(at, "tcp", 3) != 0) {
            used += (size_t)snprintf(out + used, size - used, "%s%.*s", used != 0 ? "," : "",
                                     (int)length, at);
        }
        if (used >= size) {
            return false;
        }
        at += length;
    }
    return used != 0;
}

/* Whether one of a list's names is a network's. */
static bool has_network(const char *list)
{
    bool found = false;

    for (const char *at = list; *at != '\0' && !found; at += *at == ',') {
        found = AMONG(at, strcspn(at, ",_:"), networks, false);
        at += strcspn(at, ",");
    }
    return found;
}

bool hws__tls_with_tcp(const char *tls, char *out, size_t size)
{
    if (tls[0] != '^') {
        return !has_network(tls) && snprintf(out, size, "%s,tcp", tls) < (int)size;
    }
    if (strstr(tls, "tcp") == NULL || size < sizeof "^all") {
        return false;
    }
    out[0] = '^';
    if (!has_others(tls + 1, out + 1, size - 1)) {
        return snprintf(out, size, "all") < (int)size;
    }
    return strlen(out) < strlen(tls);
}
