#include "quiet_thread.h"
#include "error.h"
#include <signal.h>

int hws__quiet_thread(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* a thread begins with its creator's */
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
