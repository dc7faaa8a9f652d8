#include "quiet_thread.h"
#include "error.h"
#include <signal.h>

/*
 * The signals of the program, which are its threads' to take. Not those that a fault of the thread itself raises: the
 * system ends a process that blocks them at once, past the handlers that would say where it was.
 */
static void signals_of_others(sigset_t *set)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

    sigfillset(set);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        sigdelset(set, faults[i]);
    }
}

int hws__quiet_thread(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    sigset_t others, old;
    int err;

    signals_of_others(&others);
    pthread_sigmask(SIG_SETMASK, &others, &old); /* a thread begins with its creator's */
    err = pthread_create(out, attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return err;
}

static void *nothing(void *arg)
{
    return arg;
}

int32_t hws__thread_room(hws_id source)
{
    pthread_t thread;

    return hws__quiet_thread(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0
               ? HWS_OK
               : hws__fail(HWS_E_NO_RESOURCE, source, "the system gives this process no thread");
}
