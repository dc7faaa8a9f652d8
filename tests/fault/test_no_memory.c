/*
 * Each allocation of the library fails once, one after the other, in the course of a short life of
 * a context: it is opened, listens, connects, exchanges messages of every sort and is closed. Then
 * every n-th fails, for some n. No crash, no leak (LeakSanitizer looks), no operation without its
 * end, and codes that fit.
 *
 * Only the library's own calls are intercepted (by the linker): UCX's are left alone.
 *
 * INTERNAL
 * SHARED
 * TIMEOUT: 300
 * WRAP: malloc calloc realloc aligned_alloc strdup
 * WITH: failing.c
 */
#include "fault/failing.h"
#include "support/check.h"
#include "support/stub_cuda.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPS_MAX 64
#define BIG 300000u

/* ---- The life of a context ------------------------------------------------------------------ */

static hws_id context, workers[2], listener, queue, endpoints[2];
static int posted, finals;
static char small[16], in_small[16], big[BIG], in_big[BIG];
static int received;

/* A call may fail for want of memory, or because an earlier failure took something away. */
static int allowed(int32_t code)
{
    switch (code) {
    case HWS_E_NO_MEMORY:
    case HWS_E_NO_RESOURCE:
    case HWS_E_TOO_MANY: /* no operation is free, for whatever reason */
    case HWS_E_STALE:    /* the endpoint or worker ended meanwhile */
    case HWS_E_NOT_CONNECTED:
    case HWS_E_CONNECTION_RESET:
    case HWS_E_KEEPALIVE:
    case HWS_E_PEER_CLOSED:
    case HWS_E_TIMED_OUT: /* the connection went with a late operation, see told() */
        return 1;
    default:
        return code >= 0;
    }
}

#define CALL(call)                                                              \
    do {                                                                        \
        int32_t code_ = (call);                                                 \
        if (!allowed(code_)) {                                                  \
            t_fail(__FILE__, __LINE__, "%s: %s", #call, hws_error_name(code_)); \
        }                                                                       \
        if (code_ < 0) {                                                        \
            return;                                                             \
        }                                                                       \
    } while (0)

static void on_final(void *arg, const hws_event *event)
{
    const hws_multi_detail *detail = event->detail;

    (void)arg;
    CHECK(event->kind < 32);
    finals++;
    if (event->kind == HWS_EVENT_MULTI_RECV && event->status == HWS_OK) {
        CHECK_OK(hws_close(detail->buffer));
    }
}

static void on_event(void *arg, const hws_event *event)
{
    (void)arg;
    if (event->kind == HWS_EVENT_ACCEPTED) {
        endpoints[1] = event->source;
    } else if (event->kind == HWS_EVENT_AM) {
        received++;
        if (event->flags & HWS_EVENT_FLAG_BUFFER) {
            int32_t code = hws_close(((const hws_am_detail *)event->detail)->buffer);

            /* What was not fetched went with its connection, if that failed meanwhile. */
            CHECK(code == HWS_OK || code == HWS_E_STALE);
        }
    }
}

static void progress(void)
{
    for (int i = 0; i < 2; i++) {
        if (workers[i] != 0) {
            (void)hws_worker_progress(workers[i]);
        }
    }
}

/* Long past any deadline: a busy machine may let a process stand still for more than a second. */
static int over(uint64_t start)
{
    return t_now() - start > 12 * T_SECOND;
}

/* A message that UCX holds ends with its connection, if the receive that it is for found no memory. */
static hws_op_opts told(void)
{
    hws_op_opts opts = {.struct_size = sizeof opts,
                        .callback = on_final,
                        .timeout_ns = 3 * T_SECOND,
                        .flags = HWS_OP_DEADLINE_ABORT};

    return opts;
}

/* Counts an operation that was accepted. */
static int32_t post(int32_t code)
{
    posted += code == HWS_OK;
    return code;
}

/* Until every operation has ended. */
static void settle(void)
{
    for (uint64_t start = t_now(); finals < posted;) {
        progress();
        CHECK(!over(start));
    }
}

static void take_queue(void)
{
    hws_event events[4];
    int32_t n;

    while ((n = hws_queue_pop(queue, events, 4, 0)) > 0) {
        for (int32_t i = 0; i < n; i++) {
            on_event(NULL, &events[i]);
        }
    }
}

static void messages(void)
{
    hws_op_opts opts = told(), rndv = told();
    hws_id op, message;

    rndv.flags |= HWS_OP_RNDV;
    /* Expected, then unexpected: small, and more than a message keeps inside. */
    CALL(post(hws_tag_recv(endpoints[1], in_small, 16, 1, UINT64_MAX, &opts, &op)));
    CALL(post(hws_tag_send(endpoints[0], small, 16, 1, &opts, &op)));
    settle();
    CALL(post(hws_tag_send(endpoints[0], small, 16, 2, &opts, &op)));
    CALL(post(hws_tag_send(endpoints[0], big, 2000, 3, &opts, &op)));
    CALL(post(hws_tag_send(endpoints[0], big, BIG, 4, &opts, &op)));
    for (uint64_t start = t_now(); t_now() - start < 5 * T_MS;) {
        progress();
    }
    if (hws_tag_probe(workers[1], 2, UINT64_MAX, NULL, &message) == HWS_OK) {
        CALL(post(hws_message_recv(message, in_small, 16, &opts, &op)));
    }
    CALL(post(hws_tag_recv(workers[1], in_big, BIG, 3, UINT64_MAX, &opts, &op)));
    CALL(post(hws_tag_recv(workers[1], in_big, BIG, 4, UINT64_MAX, &opts, &op)));
    settle();
    /* Active messages: a long header, memory of the library's, buffers. */
    CALL(post(hws_am_send(endpoints[0], 1, big, 600, small, 16, &opts, &op)));
    CALL(post(hws_am_send(endpoints[0], 1, small, 8, big, 3000, &opts, &op)));
    CALL(post(hws_am_send(endpoints[0], 2, small, 8, big, BIG, &rndv, &op)));
    CALL(post(hws_flush(endpoints[0], &opts, &op)));
    settle();
    take_queue();
    CALL(post(hws_stream_send(endpoints[0], small, 16, &opts, &op)));
    CALL(post(hws_stream_recv(endpoints[1], in_small, 16, &opts, &op)));
    settle();
}

/* Behind a stream of the tests' libcuda. */
static void behind_a_stream(void)
{
    hws_op_opts opts = told(), stream = told();
    hws_id op;

    stream.flags |= HWS_OP_STREAM;
    CALL(post(hws_tag_recv(endpoints[1], in_small, 16, 5, UINT64_MAX, &opts, &op)));
    CALL(post(hws_tag_send(endpoints[0], small, 16, 5, &stream, &op)));
    settle();
}

static void multi_buffer(void)
{
    hws_segment segments[20] = {{.base = big, .length = 100000}};
    hws_op_opts opts = told();
    hws_id op;

    for (int i = 1; i < 20; i++) {
        segments[i] = (hws_segment){.base = big, .length = 500};
    }
    /* Expected and unexpected; in one message and in parts. */
    CALL(post(hws_multi_recv(endpoints[1], 1, UINT64_MAX, NULL, &opts, &op)));
    CALL(post(hws_multi_send(endpoints[0], 1, segments + 1, 2, NULL, &opts, &op)));
    CALL(post(hws_multi_send(endpoints[0], 1, segments, 20, NULL, &opts, &op)));
    CALL(post(hws_multi_recv(workers[1], 1, UINT64_MAX, NULL, &opts, &op)));
    settle();
}

/* More than the window, and the last first. */
static void credits(void)
{
    hws_op_opts opts = told();
    hws_id op;

    for (int i = 0; i < 6; i++) {
        CALL(post(hws_tag_send(endpoints[0], small, 16, i == 5 ? 11 : 10, &opts, &op)));
    }
    CALL(post(hws_tag_recv(endpoints[1], in_small, 16, 11, UINT64_MAX, &opts, &op)));
    for (int i = 0; i < 5; i++) {
        CALL(post(hws_tag_recv(endpoints[1], in_small, 16, 10, UINT64_MAX, &opts, &op)));
    }
    settle();
}

static void tick(void *arg)
{
    (*(int *)arg)++;
}

static void until(const int *ticks, int count)
{
    for (uint64_t start = t_now(); *ticks < count;) {
        progress();
        CHECK(!over(start));
    }
}

static void tasks(void)
{
    hws_op_opts opts = told();
    int ticks = 0;
    hws_id op = 0;

    opts.timeout_ns = 0;
    CALL(post(hws_task(workers[0], tick, &ticks, 0, &opts, &op)));
    until(&ticks, 1);
    ticks = 0;
    CALL(post(hws_task(workers[0], tick, &ticks, T_MS, &opts, &op)));
    until(&ticks, 3);
    CHECK_OK(hws_cancel(op));
    settle();
}

static void live(void)
{
    const char *config[] = {"TCP_KEEPIDLE", "1s", NULL};
    hws_context_opts context_opts = {.struct_size = sizeof context_opts,
                                     .config = config,
                                     .psk = "sixteen bytes...",
                                     .psk_length = 16};
    hws_worker_opts worker_opts = {
        .struct_size = sizeof worker_opts, .sink = {.callback = on_event}, .credit_messages = 4};
    hws_queue_opts queue_opts = {.struct_size = sizeof queue_opts, .capacity = 2};
    hws_am_opts am = {.struct_size = sizeof am, .sink = {.callback = on_event}};
    hws_listener_info info = {.struct_size = sizeof info};
    hws_op_opts opts = told();
    hws_library_info library = {.struct_size = sizeof library};
    char text[64];
    uint64_t needed;
    hws_id op;

    CALL(hws_library_open(NULL, &library));
    if (!library.has_sodium) {
        context_opts.psk = NULL;
    }
    CALL(hws_context_open(&context_opts, &context));
    CALL(hws_queue_open(&queue_opts, &queue));
    for (int i = 0; i < 2; i++) {
        CALL(hws_worker_open(context, &worker_opts, &workers[i]));
    }
    CALL(hws_am_handler(workers[1], 1, &am));
    am.sink = (hws_sink){.queue = queue};
    CALL(hws_am_handler(workers[1], 2, &am));
    CALL(hws_listen(workers[1], "127.0.0.1", 0, NULL, &listener));
    CALL(hws_listener_query(listener, &info));
    CALL(post(hws_connect(workers[0], "localhost", (uint16_t)info.port, NULL, &opts, &endpoints[0],
                          &op)));
    for (uint64_t start = t_now(); finals < posted;) {
        progress();
        CHECK(!over(start));
    }
    for (uint64_t start = t_now(); endpoints[1] == 0;) {
        progress();
        if (hws_kind(endpoints[0]) < 0 || t_now() - start > 200 * T_MS) {
            return; /* it ended in an error */
        }
    }
    tasks();
    messages();
    behind_a_stream();
    multi_buffer();
    credits();
    if (hws_describe(context, text, sizeof text, &needed) == HWS_E_TOO_BIG) {
        CHECK(needed > sizeof text);
    }
}

/* One life in which allocation `n` fails; prints how many there were. */
static int child(int64_t n)
{
    uint64_t start;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    alarm((unsigned)(3 * t_patience() / T_SECOND)); /* several steps may each wait for a deadline */
    atomic_store(&failing_countdown, n);
    atomic_store(&failing_every, n < 0 ? -n : 0);
    live();
    start = t_now();
    if (context != 0) {
        CHECK_OK(hws_close(context));
        while (hws_kind(context) == HWS_KIND_CONTEXT) {
            progress();
            (void)hws_close_wait(context, T_MS);
            CHECK(!over(start));
        }
    }
    if (queue != 0) {
        take_queue();
        CHECK_OK(hws_close(queue));
    }
    CHECK_EQ(finals, posted);
    return 0;
}

static int64_t run(int64_t n)
{
    int fds[2], status = -1;
    int64_t count = -1;
    pid_t pid;

    CHECK(pipe(fds) == 0);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int code = child(n);

        count = atomic_load(&failing_seen);
        CHECK(write(fds[1], &count, sizeof count) == (ssize_t)sizeof count);
        exit(code);
    }
    CHECK(pid > 0);
    close(fds[1]);
    if (read(fds[0], &count, sizeof count) != (ssize_t)sizeof count) {
        count = -1;
    }
    close(fds[0]);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status != 0 || count < 0) {
        printf("FAIL %s %lld: %s %d\n", n < 0 ? "every" : "allocation", (long long)(n < 0 ? -n : n),
               WIFSIGNALED(status) ? "signal" : "exit code",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        return -1;
    }
    return count;
}

/* The very first one is of the library itself; what it fails is there for the next call. */
static void first_call(void)
{
    hws_id any = 0;

    atomic_store(&failing_countdown, 1);
    CHECK_CODE(hws_queue_open(NULL, &any), HWS_E_NO_MEMORY);
    CHECK_OK(hws_queue_open(NULL, &any));
    CHECK_OK(hws_close(any));
    exit(0);
}

static void ignored(void *arg, const hws_event *event)
{
    (void)arg;
    (void)event;
}

/* A handler needs something in each UCX worker that plain UCX peers reach, too: without it, none would be called. */
static void raw_handler(void)
{
    hws_am_opts handler = {.struct_size = sizeof handler, .sink = {.callback = ignored}};
    uint64_t needed = 0;
    hws_id worker = 0;

    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, NULL, &worker));
    CHECK_OK(hws_worker_address(worker, HWS_ADDRESS_PLAIN, NULL, 0, &needed));
    for (int64_t n = 1; n <= 2; n++) {
        atomic_store(&failing_countdown, n);
        CHECK_CODE(hws_am_handler(worker, 3, &handler), HWS_E_NO_MEMORY);
    }
    CHECK_OK(hws_am_handler(worker, 3, &handler));
    CHECK_OK(hws_close_wait(context, t_patience()));
    exit(0);
}

static void in_a_child(void (*what)(void))
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        what();
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

/* The tests' libcuda in the place of the real one. */
static void use_stub(void)
{
    const char *path = getenv("HAWSER_STUB_CUDA");
    const stub_cuda_control *(*control)(void);
    void *address;

    CHECK(path != NULL);
    setenv("HAWSER_CUDA", path, 1);
    address = dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), "stub_cuda");
    CHECK(address != NULL);
    memcpy(&control, &address, sizeof address);
    control()->initialize();
}

int main(int argc, char **argv)
{
    int64_t total, failed = 0, n;

    use_stub();

    if (argc == 2) { /* one allocation, for a debugger */
        int code = child(atoll(argv[1]));

        printf("%lld allocations, %d operations\n", (long long)atomic_load(&failing_seen), posted);
        return code;
    }
    in_a_child(first_call);
    in_a_child(raw_handler);
    total = run(0);
    CHECK(total > 20);
    /* How many there are varies a little with the threads. */
    for (n = 1; n <= total + 5 && failed < 10; n++) {
        failed += run(n) < 0;
    }
    printf("%lld allocations, each failed once: %lld bad ends\n", (long long)total,
           (long long)failed);
    for (n = 2; n <= total && failed < 10; n += n / 8 + 1) {
        failed += run(-n) < 0;
    }
    printf("every n-th failed: %lld bad ends in all\n", (long long)failed);
    return failed != 0;
}
