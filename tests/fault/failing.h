/*
 * Allocations that fail. The linker puts these functions in the place of the C library's, for all of the
 * program but the UCX that it loads (WRAP: malloc calloc realloc aligned_alloc strdup).
 */
#ifndef TESTS_FAULT_FAILING_H
#define TESTS_FAULT_FAILING_H

#include <stdint.h>

extern _Atomic int64_t failing_countdown; /* the allocation that fails; below 1: none */
extern _Atomic int64_t failing_every;     /* one of so many fails; 0: none; HAWSER_FAIL_EVERY */
extern _Atomic int64_t failing_seen;      /* how many there were */

#endif
