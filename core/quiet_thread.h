/*
 * A thread of the library's own.
 */
#ifndef HWS_CORE_QUIET_THREAD_H
#define HWS_CORE_QUIET_THREAD_H

#include <hawser.h>
#include <pthread.h>

/** pthread_create() of one that takes none of the program's signals but those of its own faults. 0 or an errno. */
int hws__quiet_thread(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);

/**
 * Whether the system gives this process a thread just now. UCX aborts where it cannot start its own, for the first of
 * its contexts or workers that needs one. 0 or HWS_E_NO_RESOURCE, of `source`.
 */
int32_t hws__thread_room(hws_id source);

#endif
