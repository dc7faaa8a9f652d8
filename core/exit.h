/*
 * The end of the process. exit() runs the destructors of UCX while the other threads go on, and a thread
 * inside UCX then finds its tables gone. So before them every worker is taken for good, and the threads
 * that make and destroy what belongs to no worker yet, or no more, are waited for and stopped.
 */
#ifndef HWS_CORE_EXIT_H
#define HWS_CORE_EXIT_H

/**
 * Around calls of UCX that need no ownership of a worker: they begin no more once the process ends. Any thread,
 * nestable, without a lock that another thread may hold across it.
 */
void hws__ucx_begin(void);
void hws__ucx_end(void);

/**
 * Around fork(): none of these calls is under way, so that the child does not get UCX's tables half changed: its own
 * end runs UCX's destructors. The second in parent and child.
 */
void hws__fork_begin(void);
void hws__fork_end(void);

/** UCX was there before this library, so its destructors may come first: do not wait for this library's own. */
void hws__exit_before_libraries(void);

#endif
