/*
 * Fork: in the child every call says so and touches nothing; the parent goes on as if nothing
 * had happened, whatever its progress mode.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[64];

static void no_task(void *arg)
{
    t_fail(__FILE__, __LINE__, "a task ran in a forked child (%p)", arg);
}

#define KIND_BIT(kind) (1u << (kind))
#define ANY_KIND 0xffffffffu
#define CALL(name, kinds, expression)     \
    static int32_t call_##name(hws_id id) \
    {                                     \
        return (expression);              \
    }
#include "support/calls.h"
#undef CALL

static const struct {
    const char *name;
    uint32_t kinds;
    int32_t (*run)(hws_id id);
} calls[] = {
#define CALL(name, kinds, expression) {#name, (kinds), call_##name},
#include "support/calls.h"
#undef CALL
};

/* Runs in the child: 0, or the line that is wrong. */
static int child(const t_pair *pair, hws_id op, hws_id queue)
{
    hws_id ids[] = {pair->context,
                    pair->worker[1],
                    pair->listener,
                    pair->endpoint[0],
                    pair->endpoint[1],
                    op,
                    queue,
                    0,
                    12345};
    hws_library_info info = {.struct_size = sizeof(info)};
    hws_id out = 0;

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        for (size_t j = 0; j < sizeof(ids) / sizeof(ids[0]); j++) {
            int32_t code = calls[i].run(ids[j]);
            if (code != HWS_E_FORKED) {
                fprintf(stderr, "%s gave %d %s\n", calls[i].name, code, hws_error_name(code));
                return __LINE__;
            }
        }
    }
    if (hws_context_open(NULL, &out) != HWS_E_FORKED ||
        hws_queue_open(NULL, &out) != HWS_E_FORKED ||
        hws_library_open(NULL, &info) != HWS_E_FORKED ||
        hws_wait_many(&op, 1, HWS_WAIT_ALL, 0, NULL) != HWS_E_FORKED || out != 0) {
        return __LINE__;
    }
    /* What needs no state works: a child can say what is wrong. */
    if (hws_version() == 0 || strcmp(hws_error_name(HWS_E_FORKED), "FORKED") != 0) {
        return __LINE__;
    }
    return 0;
}

static void exchange(t_pair *pair)
{
    uint64_t in = 0, out = 3;
    hws_id recv = 0, send = 0;

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, UINT64_MAX, NULL, &recv));
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(pair, send);
    WAIT_OK(pair, recv);
    CHECK_EQ(in, 3);
}

static void forked(uint32_t mode, uint32_t flags)
{
    t_pair_opts opts = {.mode = mode, .endpoint_flags = flags};
    t_pair pair;
    hws_id op = 0, queue = 0;
    uint64_t in = 0;

    t_pair_open(&pair, &opts);
    CHECK_OK(hws_queue_open(NULL, &queue));
    exchange(&pair);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 9, UINT64_MAX, NULL, &op));
    for (int i = 0; i < 5; i++) {
        int status = -1;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            _exit(child(&pair, op, queue) == 0 ? 0 : 1);
        }
        exchange(&pair);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
        exchange(&pair);
    }
    CHECK_PENDING(op);
    CHECK_OK(t_endpoint_info(pair.endpoint[0]).status);
    CHECK_OK(t_endpoint_info(pair.endpoint[1]).status);
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASE(manual_shm)
{
    forked(HWS_PROGRESS_MANUAL, 0);
}

CASE(manual_tcp)
{
    forked(HWS_PROGRESS_MANUAL, HWS_ENDPOINT_TCP_ONLY);
}

CASE(thread)
{
    forked(HWS_PROGRESS_THREAD, 0);
}

CASE(polling_thread)
{
    forked(HWS_PROGRESS_THREAD_POLLING, 0);
}

CASE(blocking)
{
    forked(HWS_PROGRESS_BLOCKING, 0);
}

static void use_in_a_child(void)
{
    int status = -1;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        t_pair pair;
        t_pair_open(&pair, NULL);
        exchange(&pair);
        t_pair_close(&pair);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}

/* A process that never used the library may fork and use it in the child. */
CASE(before_the_first_use)
{
    use_in_a_child();
}

/* So may one that has loaded UCX, as a program that asks for its version; children and parent use it then. */
CASE(after_loading)
{
    hws_library_info info = {.struct_size = sizeof info};
    t_pair pair;

    CHECK_OK(hws_library_open(NULL, &info));
    use_in_a_child();
    use_in_a_child();
    t_pair_open(&pair, NULL);
    exchange(&pair);
    t_pair_close(&pair);
}

/* The descriptors that the library shows are closed by exec. */
CASE(descriptors_end_with_exec)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING};
    t_pair pair;
    hws_id queue = 0;
    int32_t fd = -1;

    t_pair_open(&pair, &opts);
    CHECK_OK(hws_worker_fd(pair.worker[0], &fd));
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_OK(hws_queue_open(NULL, &queue));
    CHECK_OK(hws_queue_fd(queue, &fd));
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASES_MAIN
