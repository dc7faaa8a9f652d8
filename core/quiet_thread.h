/*
 * A thread of the library's own.
 */
#ifndef HWS_CORE_QUIET_THREAD_H
#define HWS_CORE_QUIET_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/** pthread_create() of one that takes none of the program's signals. 0 or an errno. */
int hws__quiet_thread(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);

/** Whether the system gives this process a thread just now. */
bool hws__thread_room(void);

#endif
