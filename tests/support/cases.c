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

/* The exit status of a case, as waitpid() gives it. */
static int run(const t_case *entry)
{
    int status = -1;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        alarm(t_sweeping ? 90 : (unsigned)(4 * t_patience() / T_SECOND));
        entry->run();
        exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return status;
}

int t_cases_run(int argc, char **argv)
{
    int passed = 0, failed = 0, skipped = 0, gave_up = 0;
    const t_case *entry;

    for (entry = first; entry != NULL; entry = entry->next) {
        uint64_t start = t_now();
        int status;

        if (!wanted(entry, argc, argv)) {
            continue;
        }
        status = run(entry);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            passed++;
            printf("ok   %s (%llu ms)\n", entry->name,
                   (unsigned long long)((t_now() - start) / T_MS));
        } else if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
            skipped++;
        } else if (t_sweeping && WIFEXITED(status) && WEXITSTATUS(status) == T_GAVE_UP) {
            gave_up++;
        } else {
            failed++;
            printf("FAIL %s (%s%d)\n", entry->name, WIFSIGNALED(status) ? "signal " : "exit code ",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    if (t_sweeping) {
        printf("swept: %d cases went through, %d gave up, %d ended badly\n", passed, gave_up,
               failed);
        return failed > 0;
    }
    return failed > 0 || passed + skipped == 0 ? 1 : passed == 0 ? 77 : 0;
}
