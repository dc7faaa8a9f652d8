/*
 * Child processes: nothing of UCX may have been touched here before, so a fork is harmless.
 */
#include "perf.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void pin(const uint32_t *cpus, uint32_t count)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (uint32_t i = 0; i < count; i++) {
        CPU_SET(cpus[i], &set);
    }
    if (count != 0 && sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("hawser: perf: -c");
        _exit(1);
    }
}

/* In the child, between fork and exec. */
static void become(const perf_spawn *s, int output)
{
    int silence = s->quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would end a child that outlives its parent */
    pin(s->cpus, s->cpu_count);
    if (output >= 0 || silence >= 0) {
        dup2(output >= 0 ? output : silence, STDOUT_FILENO);
    }
    if (s->pass_fd >= 0) {
        fcntl(s->pass_fd, F_SETFD, 0);
    }
    for (char *const *e = s->environment; e != NULL && *e != NULL; e++) {
        putenv(*e);
    }
    execv(s->argv[0], s->argv);
    perror(s->argv[0]);
    _exit(127);
}

int perf_spawn_start(const perf_spawn *s, perf_child *child)
{
    int ends[2] = {-1, -1};

    child->pid = -1;
    child->output = -1;
    fflush(NULL);
    if (s->capture && pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    child->pid = fork();
    if (child->pid == 0) {
        become(s, ends[1]);
    }
    if (ends[1] >= 0) {
        close(ends[1]);
    }
    child->output = ends[0];
    return child->pid < 0 ? -1 : 0;
}

/* Its exit code; 128 and the signal if one ended it. */
int perf_spawn_wait(perf_child *child)
{
    int status = 0;

    if (child->output >= 0) {
        close(child->output);
        child->output = -1;
    }
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {}
    child->pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void perf_spawn_stop(perf_child *child)
{
    if (child->pid > 0) {
        kill(child->pid, SIGKILL);
        perf_spawn_wait(child);
    }
}

/* Everything it prints, until it closes its output; to be freed, null without memory. */
char *perf_spawn_read(perf_child *child)
{
    size_t size = 4096, used = 0;
    char *text = malloc(size);
    ssize_t n = 1;

    while (text != NULL && n > 0) {
        if (used + 1 == size) {
            char *bigger = realloc(text, size *= 2);

            if (bigger == NULL) {
                free(text);
                return NULL;
            }
            text = bigger;
        }
        do {
            n = read(child->output, text + used, size - used - 1);
        } while (n < 0 && errno == EINTR);
        used += n > 0 ? (size_t)n : 0;
    }
    if (text != NULL) {
        text[used] = '\0';
    }
    return text;
}

/* The CPUs of server and client: those of -c, else the first two that this process may use. */
uint32_t perf_cpus_pair(const perf_options *o, uint32_t pair[2])
{
    cpu_set_t set;
    uint32_t n = 0;

    if (o->cpu_count != 0) {
        pair[0] = o->cpus[0];
        pair[1] = o->cpus[o->cpu_count > 1 ? 1 : 0];
        return 2;
    }
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 0;
    }
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            pair[n++] = cpu;
        }
    }
    return n == 2 ? 2 : 0; /* one CPU for both: let the kernel place them */
}
