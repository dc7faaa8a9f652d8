/*
 * Memory of a GPU that is none: a file in memory, mapped twice. At the addresses that the driver hands out a processor
 * cannot touch it (SIGSEGV), as it cannot touch a GPU's; the driver copies through the other mapping.
 */
#ifndef TESTS_SUPPORT_GPU_MEMORY_H
#define TESTS_SUPPORT_GPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gpu_sort { GPU_NONE, GPU_DEVICE, GPU_MANAGED, GPU_PINNED, GPU_IMPORTED };

typedef struct gpu_allocation {
    uintptr_t base;
    size_t size;
    enum gpu_sort sort;
    unsigned long long id; /* never used twice */
} gpu_allocation;

/** 0: no room. */
uintptr_t gpu_alloc(size_t size, enum gpu_sort sort);
/** False: nothing begins there. */
bool gpu_free(uintptr_t base);
/** Memory of the host that was registered; a copy of it is no other memory. */
bool gpu_pin(void *base, size_t size);
/** What holds this address; `sort` is GPU_NONE if nothing does. */
gpu_allocation gpu_find(uintptr_t address);
/** What another process maps it by: 64 bytes. */
typedef struct gpu_handle {
    int process, fd;
    size_t offset, size;
    char zero[40];
} gpu_handle;
gpu_handle gpu_export(uintptr_t base);
/** Memory of another process at an address here; 0: it cannot be had. */
uintptr_t gpu_import(const gpu_handle *handle);
/** Unmap it. False: nothing was imported there. */
bool gpu_forget(uintptr_t base);
/** Where a processor can read and write what is at `address`. */
void *gpu_reach(uintptr_t address);

#endif
