/*
 * A process whose address was handed out has no descriptor left: who dials it is told by the deadline, goes on, and
 * gets through once there is room, or hears that the socket is lost. UCX would accept on a thread of its own until
 * accept() fails, reset who came by then, and end the process that dialled. TIMEOUT: 120
 *
 * SHARED
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/proc.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIALS 8
#define ROUNDS 3

struct address {
    uint64_t length;
    unsigned char bytes[8192];
};

static int32_t dial(hws_id worker, const struct address *to)
{
    hws_op_opts deadline = {.struct_size = sizeof deadline, .timeout_ns = T_SECOND / 4};
    hws_id endpoint = 0, op = 0;
    hws_event event = {0};

    CHECK_OK(hws_connect_address(worker, to->bytes, to->length, NULL, &deadline, &endpoint, &op));
    CHECK_OK(hws_wait(op, t_patience(), &event));
    return event.status;
}

/* Dials while the owner has nothing left, says so, and dials until it is let in, if it is to be. */
static void dialler(int from_owner, int to_owner, bool let_in)
{
    hws_id context = 0, worker = 0;
    struct address owner;
    int failed = 0;
    uint64_t start;

    CHECK_EQ(read(from_owner, &owner, sizeof owner), (ssize_t)sizeof owner);
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, NULL, &worker));
    for (int i = 0; i < DIALS; i++) {
        failed += dial(worker, &owner) < 0;
    }
    printf("%d of %d dials failed\n", failed, DIALS);
    fflush(stdout);
    CHECK(failed > 0);
    CHECK_EQ(write(to_owner, "r", 1), 1);
    start = t_now();
    while (dial(worker, &owner) < 0 && let_in) {
        t_check_patience(__FILE__, __LINE__, start, "a dial that is let in");
    }
    _exit(0);
}

static void run(uint64_t left)
{
    /* UCX accepts until there is none: the second look finds no descriptor, and the socket is closed for ever. */
    bool let_in = left > 1;
    hws_worker_opts opts = {.struct_size = sizeof opts, .mode = HWS_PROGRESS_THREAD};
    hws_id context = 0, worker = 0;
    struct address mine = {0};
    int there[2], back[2], status;
    char room = 0;
    pid_t pid;

    CHECK_EQ(pipe(there), 0);
    CHECK_EQ(pipe(back), 0);
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        close(back[0]);
        dialler(there[0], back[1], let_in);
    }
    close(back[1]);
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, &opts, &worker));
    CHECK_OK(
        hws_worker_address(worker, HWS_ADDRESS_HELLO, mine.bytes, sizeof mine.bytes, &mine.length));
    t_limit(RLIMIT_NOFILE, t_fd_lowest_free() + left);
    CHECK_EQ(write(there[1], &mine, sizeof mine), (ssize_t)sizeof mine);
    CHECK_EQ(read(back[0], &room, 1), 1); /* 0 if it has ended */
    t_limit(RLIMIT_NOFILE, UINT64_MAX);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_OK(hws_close_wait(context, t_patience()));
    close(there[0]);
    close(there[1]);
    close(back[0]);
}

/* Each in a process of its own: who forks must not have used UCX. */
static void run_apart(uint64_t left)
{
    for (int i = 0; i < ROUNDS; i++) {
        int status;
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0) {
            run(left);
            fflush(stdout);
            _exit(0);
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
    }
}

CASE(an_owner_with_one_descriptor)
{
    run_apart(1);
}

CASE(an_owner_with_two_descriptors)
{
    run_apart(2);
}

CASE(an_owner_with_a_few)
{
    run_apart(6);
}

CASES_MAIN
