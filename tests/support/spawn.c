#include "support/spawn.h"
#include "support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX 32

extern char **environ;

/* The parent, as a child sees it. */
static t_child parent = {.in = STDOUT_FILENO, .out = STDIN_FILENO};

void t_spawn(t_child *child, const char *const *args)
{
    posix_spawn_file_actions_t actions;
    char *argv[ARGS_MAX] = {NULL};
    char path[4096];
    int in[2], out[2], i;
    ssize_t length;

    signal(SIGPIPE, SIG_IGN);
    length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    CHECK(length > 0);
    path[length] = '\0';
    argv[0] = path;
    for (i = 0; args[i] != NULL; i++) {
        CHECK(i + 2 < ARGS_MAX);
        argv[i + 1] = (char *)(uintptr_t)args[i];
    }
    CHECK_EQ(pipe2(in, O_CLOEXEC), 0);
    CHECK_EQ(pipe2(out, O_CLOEXEC), 0);
    CHECK_EQ(posix_spawn_file_actions_init(&actions), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO), 0);
    memset(child, 0, sizeof(*child));
    CHECK_EQ(posix_spawn(&child->pid, path, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    child->in = in[1];
    child->out = out[0];
}

void t_child_begin(void)
{
    signal(SIGPIPE, SIG_IGN);
    CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), 0);
    if (getppid() == 1) {
        _exit(1);
    }
}

void t_say(t_child *child, const char *format, ...)
{
    char line[16384];
    size_t done = 0;
    va_list args;
    int length;

    child = child == NULL ? &parent : child;
    va_start(args, format);
    length = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    CHECK(length >= 0 && (size_t)length < sizeof(line) - 1);
    line[length++] = '\n';
    while (done < (size_t)length) {
        ssize_t written = write(child->in, line + done, (size_t)length - done);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return; /* the other side is gone: who waits for it will tell */
        }
        done += (size_t)written;
    }
}

int t_hear_for(t_child *child, char *line, size_t size, uint64_t timeout_ns)
{
    uint64_t end = t_now() + timeout_ns;

    child = child == NULL ? &parent : child;
    for (;;) {
        char *newline = memchr(child->buffer, '\n', child->filled);
        struct pollfd ready = {.fd = child->out, .events = POLLIN};
        uint64_t now = t_now();
        ssize_t length;

        if (newline != NULL) {
            size_t used = (size_t)(newline - child->buffer) + 1;
            CHECK(used <= size);
            *newline = '\0';
            memcpy(line, child->buffer, used);
            child->filled -= used;
            memmove(child->buffer, child->buffer + used, child->filled);
            return 1;
        }
        if (poll(&ready, 1, now >= end ? 0 : (int)((end - now) / T_MS) + 1) <= 0) {
            if (t_now() >= end) {
                return 0;
            }
            continue;
        }
        CHECK(child->filled < sizeof(child->buffer));
        length =
            read(child->out, child->buffer + child->filled, sizeof(child->buffer) - child->filled);
        if (length == 0 || (length < 0 && errno != EINTR)) {
            return -1;
        }
        child->filled += length > 0 ? (size_t)length : 0;
    }
}

void t_hear(t_child *child, char *line, size_t size)
{
    int heard = t_hear_for(child, line, size, 2 * t_patience());

    if (heard == 0) {
        t_fail(__FILE__, __LINE__, "process %d said nothing in time", child ? child->pid : 0);
    } else if (heard < 0) {
        t_fail(__FILE__, __LINE__, "process %d ended without another word (status %d)",
               child ? child->pid : 0, child ? t_join(child) : 0);
    }
}

void t_hear_exactly(const char *file, int line, t_child *child, const char *expected)
{
    char heard[1024];

    t_hear(child, heard, sizeof(heard));
    t_check_str(file, line, "what the other process said", heard, expected);
}

void t_kill(t_child *child, int signal_number)
{
    CHECK(child->pid > 0);
    CHECK_EQ(kill(child->pid, signal_number), 0);
}

int t_join(t_child *child)
{
    int status = 0;

    if (child->pid > 0) {
        while (waitpid(child->pid, &status, 0) < 0) {
            CHECK_EQ(errno, EINTR);
        }
        child->status = WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
        child->pid = 0;
        close(child->in);
        close(child->out);
    }
    return child->status;
}
