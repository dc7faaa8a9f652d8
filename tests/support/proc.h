/*
 * What the kernel says about this process.
 */
#ifndef TESTS_SUPPORT_PROC_H
#define TESTS_SUPPORT_PROC_H

#include <stdint.h>
#include <sys/types.h>

uint64_t t_fd_count(void);
/* As a limit it leaves no descriptor, whatever lies above. */
uint64_t t_fd_lowest_free(void);
/* The soft limit RLIMIT_*, the hard one at most; what it is now. */
uint64_t t_limit(int what, uint64_t value);
uint64_t t_map_count(void);
uint64_t t_rss_kib(void);
uint64_t t_thread_count(void);
/* CPU time of the whole process. */
uint64_t t_cpu_ns(void);
/* MemAvailable, in bytes. */
uint64_t t_memory_available(void);
/*
 * System V segments that one of these processes made and nobody has attached, and files of UCX in /dev/shm, whoever's.
 */
uint64_t t_segments_left(const pid_t *makers, int count);

#endif
