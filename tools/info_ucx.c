/*
 * What UCX says of itself: its configure line, and the transports of a context.
 */
#include "info.h"
#include "perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A flag is on where `on` is in the configure line; or, with `off`, unless that one is. */
static const struct {
    const char *name, *meaning, *on, *off;
} known[INFO_FLAGS] = {
    {"parameter checks", "every call checks its arguments: slower", NULL, "--disable-params-check"},
    {"assertions", "misuse aborts the process: slower", NULL, "--disable-assertions"},
    {"debug data", "more is recorded: slower", NULL, "--disable-debug"},
    {"logging", "UCX can be asked for debug and trace lines", NULL, "--disable-logging"},
    {"threads", "several threads may use one context", "--enable-mt", NULL},
    {"verbs", "InfiniBand and RoCE", "--with-verbs", NULL},
    {"cuda", "GPU memory", "--with-cuda", NULL},
};

/* The output of `ucx_info -v` of the UCX in a folder, to be freed; null where it has none. */
static char *ucx_info(const char *folder)
{
    static const char *const ways[] = {"../bin", "../../bin"};
    char program[600], path[600], option[] = "-v", *text = NULL;
    char *const argv[] = {program, option, NULL}, *const env[] = {path, NULL};
    perf_spawn how = {.argv = argv, .environment = env, .pass_fd = -1, .capture = true};
    perf_child child;

    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", folder); /* or it may take the system's UCX */
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] && text == NULL; i++) {
        int n = snprintf(program, sizeof program, "%s/%s/ucx_info", folder, ways[i]);

        if (n < (int)sizeof program && access(program, X_OK) == 0 &&
            perf_spawn_start(&how, &child) == 0) {
            text = perf_spawn_read(&child);
            perf_spawn_wait(&child);
        }
    }
    return text;
}

void info_flags(info_facts *facts)
{
    char *text = ucx_info(facts->library.ucx_path), version[32];
    const char *line = text != NULL ? strstr(text, "Configured with:") : NULL;
    const hws_library_info *l = &facts->library;

    snprintf(version, sizeof version, "%u.%u.%u", l->ucx_major, l->ucx_minor, l->ucx_release);
    facts->flags_known = line != NULL && strstr(text, version) != NULL;
    for (int i = 0; i < INFO_FLAGS && facts->flags_known; i++) {
        facts->flags[i] = (info_flag){.name = known[i].name, .meaning = known[i].meaning};
        facts->flags[i].on = known[i].on != NULL ? strstr(line, known[i].on) != NULL
                                                 : strstr(line, known[i].off) == NULL;
    }
    free(text);
}

static info_transport *transport(info_facts *facts, const char *name)
{
    for (uint32_t i = 0; i < facts->transport_count; i++) {
        if (strcmp(facts->transports[i].name, name) == 0) {
            return &facts->transports[i];
        }
    }
    if (facts->transport_count == INFO_TRANSPORTS_MAX) {
        return NULL;
    }
    info_transport *t = &facts->transports[facts->transport_count++];

    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

/* Lines as "#      resource 1  :  md 1  dev 1  flags -- tcp/lo". */
void info_transports(info_facts *facts, const char *description)
{
    const char *at = description;

    for (; (at = strstr(at, "resource ")) != NULL; at++) {
        char name[32], device[64];
        info_transport *t;
        size_t used;

        if (sscanf(at, "resource %*u : md %*u dev %*u flags %*s %31[^/\n]/%63[^\n ]", name,
                   device) != 2 ||
            (t = transport(facts, name)) == NULL) {
            continue;
        }
        used = strlen(t->devices);
        snprintf(t->devices + used, sizeof t->devices - used, "%s%s", used != 0 ? ", " : "",
                 device);
    }
}
