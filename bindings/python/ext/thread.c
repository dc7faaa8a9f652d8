/* Threads of the extension's own. */
#include "ext.h"
#include <pthread.h>
#include <signal.h>

/* Signals are the program's threads'. Not those of a fault: blocked they would end the process past faulthandler. */
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t others;

    sigfillset(&others);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        sigdelset(&others, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &others, before);
}

bool thread_start(void *(*fn)(void *), void *arg)
{
    sigset_t before;
    pthread_attr_t attr;
    pthread_t thread;
    bool started;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    block_signals(&before); /* a thread begins with its creator's */
    started = pthread_create(&thread, &attr, fn, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return started;
}
