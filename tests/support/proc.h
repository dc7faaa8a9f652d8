/*
 * What the kernel says about this process.
 */
#ifndef TESTS_SUPPORT_PROC_H
#define TESTS_SUPPORT_PROC_H

#include <stdint.h>

uint64_t t_fd_count(void);
uint64_t t_map_count(void);
uint64_t t_rss_kib(void);
uint64_t t_thread_count(void);
/* CPU time of the whole process. */
uint64_t t_cpu_ns(void);
/* MemAvailable, in bytes. */
uint64_t t_memory_available(void);
/* How many shared-memory files of UCX, of all processes, /dev/shm holds. */
uint64_t t_shm_segments(void);

#endif
