/*
 * The host: which machine this is, as shared memory sees it, and how much of it is left.
 */
#ifndef HWS_CORE_HOST_H
#define HWS_CORE_HOST_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Identity of "same machine and same IPC namespace", which is what UCX compares for shared memory:
 * the kernel's boot id and the IPC namespace. Equal on both sides: UCX may use shared memory.
 * @return never 0. 1.13's UCX asks no further; another user's segments can still not be attached.
 */
uint64_t hws__host_hash(void);

/** Which network namespace of this machine the process is in; 0 if that cannot be told. */
uint32_t hws__host_network(void);

/** Bytes free in /dev/shm; UINT64_MAX if that cannot be told. */
uint64_t hws__dev_shm_free(void);

/**
 * Whether the kernel gives the System V segments of an isolated worker: some sandboxes refuse, and number and length
 * are bounded. Makes no more than that sure: others may take them.
 */
bool hws__segments_possible(void);

/** Bytes of memory this process may still take: the machine's, or its control group's if less. */
uint64_t hws__mem_available(void);

/** Raises the soft limit of descriptors to the hard one. @return the limit now in force */
int hws__fd_limit_raise(void);

/** Descriptors open in this process; -1 if that cannot be told. */
int hws__fd_count(void);

/** Whether the process may open so many more; true if that cannot be told. */
bool hws__fd_room(int count);

/**
 * How many further isolated workers may be made now.
 * @param[in]  dev_shm whether they may take room in /dev/shm: the user chose the transports
 * @param[out] why what bounds it ("descriptors", "memory", ...), a constant string; or NULL
 */
int hws__isolated_cap(bool dev_shm, const char **why);

/** What one isolated worker and its connection are taken to cost (local profile, measured). */
#define HWS__ISOLATED_FDS 16
#define HWS__ISOLATED_MEMORY (4u << 20)
#define HWS__ISOLATED_SHM (768u << 10)
#define HWS__ISOLATED_SEGMENTS 4

#endif
