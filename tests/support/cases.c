#include "support/cases.h"
#include "support/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static t_case *first, **last = &first;

void t_case_add(t_case *entry)
{
    *last = entry;
    last = &entry->next;
}

static int wanted(const t_case *entry, int argc, char **argv)
{
    int i;

    for (i = 1; i < argc; i++) {
        if (strstr(entry->name, argv[i]) != NULL) {
            return 1;
        }
    }
    return argc < 2;
}

struct running {
    const t_case *entry;
    pid_t pid; /* 0: the place is free */
    uint64_t start;
};

static struct totals {
    int passed, failed, skipped, gave_up;
} totals;

static void begin(struct running *r, const t_case *entry)
{
    *r = (struct running){.entry = entry, .start = t_now()};
    fflush(stdout);
    r->pid = fork();
    CHECK(r->pid >= 0);
    if (r->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        alarm(t_sweeping ? 90 : (unsigned)(4 * t_patience() / T_SECOND));
        entry->run();
        exit(0);
    }
}

/* Count what has become of a case; the status is waitpid()'s. */
static void count(const struct running *r, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    if (code == 0) {
        totals.passed++;
        printf("ok   %s (%llu ms)\n", r->entry->name,
               (unsigned long long)((t_now() - r->start) / T_MS));
    } else if (code == 77) {
        totals.skipped++;
    } else if (t_sweeping && code == T_GAVE_UP) {
        totals.gave_up++;
    } else {
        totals.failed++;
        printf("FAIL %s (%s%d)\n", r->entry->name, WIFSIGNALED(status) ? "signal " : "exit code ",
               WIFSIGNALED(status) ? WTERMSIG(status) : code);
    }
}

/* Wait for the end of one of those that run, if any does; its place. */
static struct running *end_one(struct running *places, int n)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);

    for (int i = 0; i < n; i++) {
        if (pid > 0 && places[i].pid == pid) {
            places[i].pid = 0;
            count(&places[i], status);
            return &places[i];
        }
    }
    CHECK(pid < 0);
    return NULL;
}

static struct running *free_place(struct running *places, int n)
{
    for (int i = 0; i < n; i++) {
        if (places[i].pid == 0) {
            return &places[i];
        }
    }
    return end_one(places, n);
}

int t_cases_run(int argc, char **argv, int at_once)
{
    enum { MOST = 8 };
    struct running places[MOST] = {0};
    const t_case *entry;

    CHECK(at_once >= 1 && at_once <= MOST);
    for (entry = first; entry != NULL; entry = entry->next) {
        if (wanted(entry, argc, argv)) {
            begin(free_place(places, at_once), entry);
        }
    }
    while (end_one(places, at_once) != NULL) {}
    printf("%d passed, %d failed, %d skipped\n", totals.passed, totals.failed, totals.skipped);
    if (t_sweeping) {
        printf("swept: %d cases went through, %d gave up, %d ended badly\n", totals.passed,
               totals.gave_up, totals.failed);
        return totals.failed > 0;
    }
    return totals.failed > 0 || totals.passed + totals.skipped == 0 ? 1
           : totals.passed == 0                                     ? 77
                                                                    : 0;
}
