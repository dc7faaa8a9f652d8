/*
 * The program's handler for faults hears of one in a thread of the library, too.
 */
#include "support/cases.h"
#include "support/check.h"

#include <hawser.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEARD = 7 };

static void on_fault(int signal)
{
    (void)signal;
    _exit(HEARD);
}

/* The first that the library's thread calls touches memory that nobody may touch. */
static void touch(void *forbidden)
{
    *(volatile char *)forbidden = 1;
}

static void fault_in_thread(uint32_t mode)
{
    hws_context_opts context_opts = {.struct_size = sizeof(context_opts)};
    hws_worker_opts opts = {.struct_size = sizeof(opts), .mode = mode, .thread_start = touch};
    struct sigaction action = {.sa_handler = on_fault};
    hws_id context = 0, worker = 0;

    opts.thread_start_arg = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(opts.thread_start_arg != MAP_FAILED);
    CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
    CHECK_OK(hws_context_open(&context_opts, &context));
    CHECK_OK(hws_worker_open(context, &opts, &worker));
    for (;;) {
        pause();
    }
}

static void is_heard(uint32_t mode)
{
    pid_t pid = fork(); /* nothing of the library has run */
    int status = 0;

    CHECK(pid >= 0);
    if (pid == 0) {
        fault_in_thread(mode);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), HEARD);
}

CASE(of_a_thread_that_makes_progress)
{
    is_heard(HWS_PROGRESS_THREAD);
}

CASE(of_a_thread_that_polls)
{
    is_heard(HWS_PROGRESS_THREAD_POLLING);
}

CASES_MAIN
