/*
 * A program may end at any time: exit() while the library's own threads are inside UCX, in the middle of
 * making UCX workers, of traffic, of closing. UCX's destructors run then, and must not run beside them.
 *
 * TIMEOUT: 300
 */
#include "support/check.h"
#include "support/pair.h"
#include "support/spawn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define AM_PING 1

static t_pair pair;
static _Atomic int exit_in_callback, ending, ended;
static int32_t at_exit;

/* Each message is answered by the next, for ever. */
static void on_ping(void *arg, const hws_event *event)
{
    static char data[4096];
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_DETACHED};
    const hws_am_detail *detail = event->detail;

    (void)arg;
    if (exit_in_callback) {
        exit(0);
    }
    if (event->status == HWS_OK) {
        (void)hws_am_send(detail->endpoint, AM_PING, NULL, 0, data, sizeof data, &opts, NULL);
    }
}

static void open_pair(uint32_t mode, uint32_t flags, uint32_t spares)
{
    hws_worker_opts worker = {.struct_size = sizeof worker, .spares = spares};
    t_pair_opts opts = {.mode = mode, .endpoint_flags = flags, .worker = {&worker, &worker}};

    t_pair_open(&pair, &opts);
}

static void start_traffic(void)
{
    static char big[8 << 20];
    hws_am_opts am = {.struct_size = sizeof am, .sink = {.callback = on_ping}};
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_DETACHED};

    for (int side = 0; side < 2; side++) {
        CHECK_OK(hws_am_handler(pair.worker[side], AM_PING, &am));
    }
    for (int i = 0; i < 8; i++) {
        CHECK(hws_am_send(pair.endpoint[0], AM_PING, NULL, 0, big, 64, &opts, NULL) >= 0);
        CHECK(hws_am_send(pair.endpoint[0], AM_PING, NULL, 0, big, sizeof big, &opts, NULL) >= 0);
    }
}

static void spares(void)
{
    open_pair(HWS_PROGRESS_THREAD, 0, 64);
}

static void spares_manual(void)
{
    open_pair(HWS_PROGRESS_MANUAL, 0, 64);
}

static void traffic_shm(void)
{
    open_pair(HWS_PROGRESS_THREAD, 0, 1);
    start_traffic();
}

static void traffic_tcp(void)
{
    open_pair(HWS_PROGRESS_THREAD_POLLING, HWS_ENDPOINT_TCP_ONLY, 1);
    start_traffic();
}

static void *progress(void *arg)
{
    for (;;) {
        (void)hws_worker_wait(*(hws_id *)arg, T_SECOND);
    }
    return NULL;
}

/* Threads of the program's own that make progress. */
static void traffic_waits(void)
{
    pthread_t thread;

    open_pair(HWS_PROGRESS_MANUAL, 0, 1);
    start_traffic();
    for (int side = 0; side < 2; side++) {
        CHECK_EQ(pthread_create(&thread, NULL, progress, &pair.worker[side]), 0);
    }
}

static void closing(void)
{
    open_pair(HWS_PROGRESS_THREAD, 0, 8);
    start_traffic();
    t_sleep(30 * T_MS);
    CHECK_OK(hws_close(pair.context));
}

static void in_callback(void)
{
    traffic_shm();
    exit_in_callback = 1;
    t_sleep(T_SECOND);
}

static void forked(void)
{
    int status = -1;
    pid_t pid;

    open_pair(HWS_PROGRESS_THREAD, 0, 24);
    start_traffic();
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

/* Calls that belong to no worker. */
static void *allocate(void *arg)
{
    hws_id memory;

    (void)arg;
    CHECK_EQ(prctl(PR_SET_NAME, "user-memory", 0, 0, 0), 0);
    for (;;) {
        if (hws_mem_alloc(pair.context, 1 << 20, NULL, &memory) == HWS_OK) {
            (void)hws_close(memory);
        }
    }
    return NULL;
}

static void memory(void)
{
    pthread_t thread;

    open_pair(HWS_PROGRESS_THREAD, 0, 1);
    CHECK_EQ(pthread_create(&thread, NULL, allocate, NULL), 0);
}

static void close_all(void)
{
    ending = 0; /* the end proper comes later */
    at_exit = hws_close(pair.context);
    at_exit = at_exit == HWS_OK ? hws_close_wait(pair.context, t_patience()) : at_exit;
    if (at_exit != HWS_OK && at_exit != HWS_E_STALE) {
        fprintf(stderr, "closing at exit gave %s\n", hws_error_name(at_exit));
        _exit(1);
    }
}

/* A handler of the program's may close. */
static void close_at_exit(void)
{
    CHECK_EQ(atexit(close_all), 0);
    spares();
}

static const struct {
    const char *name;
    void (*begin)(void);
    unsigned spread_ms; /* the end comes up to so long after the beginning */
    int rounds;
    int preload; /* UCX is there before the library */
} ways[] = {
    {"spares", spares, 80, 10, 0},
    {"spares_manual", spares_manual, 80, 10, 0},
    {"traffic_shm", traffic_shm, 10, 10, 0},
    {"traffic_tcp", traffic_tcp, 10, 10, 0},
    {"traffic_waits", traffic_waits, 10, 10, 0},
    {"closing", closing, 10, 10, 0},
    {"in_callback", in_callback, 1, 5, 0},
    {"forked", forked, 40, 10, 0},
    {"memory", memory, 20, 10, 0},
    {"close_at_exit", close_at_exit, 60, 5, 0},
    {"ucx_first", spares, 80, 10, 1},
};
#define WAYS (sizeof ways / sizeof ways[0])

/*
 * UCX's calls of the system by the thread that makes and destroys UCX workers, and by one of the program's: slow once
 * the program ends, so that the end comes in the middle of one. It must be out of UCX when UCX's destructors have run.
 */
static void meet_the_end(const char *thread)
{
    char name[16] = "";

    if (!ending || prctl(PR_GET_NAME, name, 0, 0, 0) != 0 || strcmp(name, thread) != 0) {
        return;
    }
    t_sleep(T_MS);
    if (ended) {
        fprintf(stderr, "a thread is inside UCX after its end\n");
        _exit(1);
    }
}

/* These stand in for libc's. */
__attribute__((visibility("default"))) int epoll_ctl(int epfd, int op, int fd,
                                                     struct epoll_event *event)
{
    meet_the_end("hawser-bg");
    return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
}

__attribute__((visibility("default"))) int close(int fd)
{
    meet_the_end("hawser-bg");
    return (int)syscall(SYS_close, fd);
}

/* By which UCX fills memory; the library's own threads wake others by it, outside UCX. */
__attribute__((visibility("default"))) ssize_t write(int fd, const void *data, size_t length)
{
    meet_the_end("user-memory");
    return syscall(SYS_write, fd, data, length);
}

static void last_destructor(void)
{
    ended = 1;
    t_sleep(30 * T_MS);
}

/* Where UCX was there before the library, its destructors come before the library's: only the program's come first. */
__attribute__((destructor)) static void program_ends(void)
{
    if (ending && getenv("LD_PRELOAD") != NULL) {
        last_destructor();
    }
}

/* A library that is loaded after UCX ends after it. */
static void watch_the_end(void)
{
    void *module = dlopen(getenv("HAWSER_STUB_LATE"), RTLD_NOW);
    void *address = module != NULL ? dlsym(module, "stub_late") : NULL;
    void (*set)(void (*fn)(void));

    CHECK(address != NULL);
    memcpy(&set, &address, sizeof set);
    set(last_destructor);
}

static int child(const char *name, uint64_t delay_ns)
{
    t_child_begin();
    for (size_t i = 0; i < WAYS; i++) {
        if (strcmp(name, ways[i].name) == 0) {
            ways[i].begin();
        }
    }
    watch_the_end();
    t_sleep(delay_ns);
    ending = 1;
    exit(0);
}

static void preload_ucx(void)
{
    const char *dir = getenv("HAWSER_UCX");
    char path[4096];

    snprintf(path, sizeof path, "%s%slibucp.so.0", dir[0] == '/' ? dir : "",
             dir[0] == '/' ? "/" : "");
    CHECK_EQ(setenv("LD_PRELOAD", path, 1), 0);
}

/* How many of the rounds ended badly. */
static int repeat(size_t way)
{
    uint64_t random = way + 1;
    char delay[32];
    const char *const args[] = {"child", ways[way].name, delay, NULL};
    int bad = 0;

    if (ways[way].preload) {
        preload_ucx();
    }
    for (int i = 0; i < ways[way].rounds; i++) {
        uint64_t start = t_now();
        t_child c;
        int status;

        snprintf(delay, sizeof delay, "%llu",
                 (unsigned long long)(t_random(&random) % (ways[way].spread_ms * T_MS)));
        t_spawn(&c, args);
        status = t_join(&c);
        if (status != 0) {
            printf("  exit %s ns after the beginning: status %d\n", delay, status);
        }
        if (t_now() - start > t_patience()) {
            printf("  exit %s ns after the beginning: took too long\n", delay);
            bad++;
        }
        bad += status != 0;
    }
    unsetenv("LD_PRELOAD");
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;

    if (t_sanitized()) {
        puts(
            "SKIP: what a process leaves open at its end is a leak to the address sanitizer, and both sanitizers have calls of "
            "the system of their own in the place of this test's");
        return 77;
    }
    if (argc == 4 && strcmp(argv[1], "child") == 0) {
        return child(argv[2], strtoull(argv[3], NULL, 10));
    }
    for (size_t way = 0; way < WAYS; way++) {
        if (argc < 2 || strcmp(argv[1], ways[way].name) == 0) {
            uint64_t start = t_now();
            int failed = repeat(way);

            printf("%s %s: %d of %d ended badly (%llu ms)\n", failed ? "FAIL" : "ok  ",
                   ways[way].name, failed, ways[way].rounds,
                   (unsigned long long)((t_now() - start) / T_MS));
            bad += failed;
        }
    }
    return bad != 0;
}
