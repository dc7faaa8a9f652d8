/*
 * Both sides from one call: this program again, once as the server and once as the client.
 */
#include "perf.h"
#include "perf_args.h"
#include "tool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What both sides are told. The server needs its own wait mode; the rest it would learn. */
static void common(perf_args *a, const perf_options *o)
{
    perf_args_add(a, "/proc/self/exe");
    perf_args_add(a, "perf");
    perf_args_test(a, o, false);
    perf_args_add(a, "--mode");
    perf_args_add(a, "%s", perf_mode_name(o->mode));
}

static void client_words(perf_args *a, const perf_options *o, uint16_t port, bool json)
{
    common(a, o);
    perf_args_add(a, "-p");
    perf_args_add(a, "%u", port);
    perf_args_add(a, "-R");
    perf_args_add(a, "%g", o->rank);
    if (o->final_only) {
        perf_args_add(a, "-f");
    }
    if (o->csv) {
        perf_args_add(a, "-v");
    }
    if (o->tcp) {
        perf_args_add(a, "--tcp");
    }
    if (o->raw) {
        perf_args_add(a, "--raw");
    }
    if (o->pause_us != 0) {
        perf_args_add(a, "--pause");
        perf_args_add(a, "%u", o->pause_us);
    }
    if (o->percentiles) {
        perf_args_add(a, "--percentiles");
    }
    if (json) {
        perf_args_add(a, "--json");
    }
    perf_args_add(a, "127.0.0.1");
}

static int server_start(const perf_options *o, const uint32_t *cpu, int port_fd, perf_child *child)
{
    perf_spawn how = {.cpus = cpu, .cpu_count = cpu != NULL, .pass_fd = port_fd, .quiet = true};
    perf_args words = {0};
    int code;

    common(&words, o);
    perf_args_add(&words, "-p");
    perf_args_add(&words, "%u", o->port_given ? o->port : 0);
    perf_args_add(&words, "--port-fd");
    perf_args_add(&words, "%d", port_fd);
    how.argv = words.words;
    code = words.failed ? -1 : perf_spawn_start(&how, child);
    perf_args_free(&words);
    return code;
}

/* The port that the server chose; 0 if it ended before it could say. */
static uint16_t server_port(int fd)
{
    char text[16] = "";
    size_t used = 0;
    ssize_t n;

    while (used + 1 < sizeof text && (n = read(fd, text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)n;
    }
    return (uint16_t)strtoul(text, NULL, 10);
}

static int client_run(const perf_options *o, const uint32_t *cpu, uint16_t port, bool json,
                      char **text)
{
    perf_spawn how = {
        .cpus = cpu, .cpu_count = cpu != NULL, .pass_fd = -1, .capture = text != NULL};
    perf_args words = {0};
    perf_child child;
    int code = TOOL_FAILED;

    client_words(&words, o, port, json);
    how.argv = words.words;
    if (!words.failed && perf_spawn_start(&how, &child) == 0) {
        if (text != NULL) {
            *text = perf_spawn_read(&child);
        }
        code = perf_spawn_wait(&child);
    } else {
        tool_error("perf: the client did not start");
    }
    perf_args_free(&words);
    return code;
}

int perf_self(const perf_options *o, bool json, char **text)
{
    uint32_t pair[2];
    bool pinned = perf_cpus_pair(o, pair) == 2;
    perf_child server;
    uint16_t port = 0;
    int ends[2], code = TOOL_FAILED;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        tool_error("perf: no pipe");
        return TOOL_FAILED;
    }
    code = server_start(o, pinned ? &pair[0] : NULL, ends[1], &server);
    close(ends[1]);
    if (code == 0) {
        port = server_port(ends[0]);
    }
    close(ends[0]);
    if (port == 0) {
        tool_error("perf: the server did not start");
        perf_spawn_stop(&server);
        return TOOL_FAILED;
    }
    code = client_run(o, pinned ? &pair[1] : NULL, port, json, text);
    if (code != TOOL_OK) {
        perf_spawn_stop(&server); /* it waits for a client that will not come */
        return TOOL_FAILED;
    }
    code = perf_spawn_wait(&server);
    if (code != TOOL_OK) {
        tool_error("perf: the server ended with %d", code);
        return TOOL_FAILED;
    }
    return TOOL_OK;
}
