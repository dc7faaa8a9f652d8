/*
 * Runs ucx_perftest of the very UCX that Hawser uses, under the same conditions: error handling on,
 * shared memory allowed under it, or TCP only.
 */
#include "perf.h"
#include "perf_args.h"
#include "tool.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The programs of a wheel lie in ../bin of its libraries, those of a system in ../../bin. */
int perf_raw_find(perf_raw *raw, const char *folder)
{
    static const char *const ways[] = {"../bin", "../../bin"};

    snprintf(raw->folder, sizeof raw->folder, "%s", folder);
    raw->loaded[0] = '\0';
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        int n = snprintf(raw->program, sizeof raw->program, "%s/%s/ucx_perftest", folder, ways[i]);

        if (n > 0 && (size_t)n < sizeof raw->program && access(raw->program, X_OK) == 0) {
            return 0;
        }
    }
    tool_error("perf: no ucx_perftest for the UCX in %s (Debian: package ucx-utils)", folder);
    return -1;
}

/* A TCP port that nobody uses now. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        address.sin_port = 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return ntohs(address.sin_port);
}

/* Does somebody listen on the port? A connection to find out would be taken for the client. */
static bool listening_in(const char *table, uint16_t port)
{
    FILE *file = fopen(table, "re");
    char line[256];
    bool found = false;

    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        unsigned local, state;

        found = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &local, &state) == 2 &&
                local == port && state == 0x0a;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static bool await_listener(uint16_t port)
{
    for (int i = 0; i < 5000; i++) {
        if (listening_in("/proc/net/tcp", port) || listening_in("/proc/net/tcp6", port)) {
            return true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

/* Which libucp does the process run on? The programs of a wheel take the system's libraries unless
 * they are led to their own, and a comparison of two versions would say nothing. */
static void look_at_maps(perf_raw *raw, int pid)
{
    char path[64], line[1024];
    FILE *file;

    raw->loaded[0] = '\0';
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *name = strchr(line, '/');

        if (name != NULL && strstr(name, "/libucp.so") != NULL) {
            name[strcspn(name, "\n")] = '\0';
            snprintf(raw->loaded, sizeof raw->loaded, "%s", name);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static bool same_library(const perf_raw *raw)
{
    char expected[600], *real;
    bool same;

    snprintf(expected, sizeof expected, "%s/libucp.so.0", raw->folder);
    real = realpath(expected, NULL);
    same = real != NULL && strcmp(real, raw->loaded) == 0;
    free(real);
    return same;
}

/* The last line of figures in what ucx_perftest -f -v printed. */
static int parse(const char *text, perf_result *r)
{
    const char *at = text, *last = NULL;
    double v[8];
    int n;

    for (; at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL) {
        if (sscanf(at, " %lf,%lf", &v[0], &v[1]) == 2) {
            last = at;
        }
    }
    *r = (perf_result){0};
    if (last == NULL) {
        return -1;
    }
    n = sscanf(last, " %lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5],
               &v[6], &v[7]);
    r->iterations = (uint64_t)v[0];
    r->percentile = v[1];
    r->latency_overall = n == 8 ? v[3] : v[1];
    r->bandwidth_overall = (n == 8 ? v[5] : v[2]) * 1024 * 1024;
    r->rate_overall = n == 8 ? v[7] : v[3]; /* of several threads: latency, bandwidth, rate */
    r->latency_average = r->latency_overall;
    r->bandwidth_average = r->bandwidth_overall;
    r->rate_average = r->rate_overall;
    return n == 8 || n == 4 ? 0 : -1;
}

static void words(perf_args *a, const perf_raw *raw, const perf_options *o, double rank,
                  uint16_t port)
{
    perf_args_add(a, "%s", raw->program);
    perf_args_test(a, o, true);
    /* UCX's newer protocols have no atomics in shared memory under peer error handling; ours have it. */
    if (!perf_atomic(perf_tests[o->params.test].api)) {
        perf_args_add(a, "-e");
    }
    perf_args_add(a, "-f");
    perf_args_add(a, "-v");
    perf_args_add(a, "-R");
    perf_args_add(a, "%g", rank);
    perf_args_add(a, "-p");
    perf_args_add(a, "%u", port);
}

static void environment(perf_args *a, const perf_raw *raw, const perf_options *o)
{
    perf_args_add(a, "LD_LIBRARY_PATH=%s", raw->folder);
    perf_args_add(a, "UCX_WARN_UNUSED_ENV_VARS=n");
    if (o->tcp) {
        perf_args_add(a, "UCX_TLS=tcp");
    } else { /* the first is for newer versions, the second for 1.13 */
        perf_args_add(a, "UCX_SYSV_ERROR_HANDLING=y");
        perf_args_add(a, "UCX_MM_ERROR_HANDLING=y");
    }
}

/* Run the client beside a server that listens. */
static int client(perf_spawn *how, perf_args *a, perf_result *out)
{
    perf_child child;
    char *text;
    int code;

    perf_args_add(a, "127.0.0.1");
    how->argv = a->words;
    how->capture = true;
    how->quiet = false;
    if (a->failed || perf_spawn_start(how, &child) != 0) {
        return -1;
    }
    text = perf_spawn_read(&child);
    code = perf_spawn_wait(&child);
    if (code == 0 && (text == NULL || parse(text, out) != 0)) {
        tool_error("perf: no figures in the output of ucx_perftest: %s", text ? text : "");
        code = -1;
    }
    free(text);
    return code;
}

static int run(perf_raw *raw, perf_spawn *how, perf_args *a, const uint32_t *cpus, uint16_t port,
               perf_result *out)
{
    perf_child server;
    int code = -1;

    how->cpus = &cpus[0];
    how->argv = a->words;
    how->quiet = true;
    if (a->failed || perf_spawn_start(how, &server) != 0) {
        return -1;
    }
    if (await_listener(port)) {
        look_at_maps(raw, server.pid);
        how->cpus = &cpus[1];
        code = client(how, a, out);
    }
    if (code == 0) {
        perf_spawn_wait(&server);
    } else {
        perf_spawn_stop(&server);
    }
    return code;
}

int perf_raw_run(perf_raw *raw, const perf_options *o, double rank, perf_result *out)
{
    uint32_t pair[2] = {0, 0};
    perf_spawn how = {.cpu_count = perf_cpus_pair(o, pair) == 2, .pass_fd = -1};
    perf_args a = {0}, env = {0};
    uint16_t port = free_port();
    int code;

    words(&a, raw, o, rank, port);
    environment(&env, raw, o);
    how.environment = env.words;
    code = env.failed ? -1 : run(raw, &how, &a, pair, port, out);
    perf_args_free(&a);
    perf_args_free(&env);
    if (code != 0) {
        tool_error("perf: ucx_perftest failed (%s)", raw->program);
    } else if (!same_library(raw)) {
        tool_error("perf: ucx_perftest ran on %s, not on the UCX in %s", raw->loaded, raw->folder);
        code = -1;
    }
    return code;
}
