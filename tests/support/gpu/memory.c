#include "support/gpu/memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALLOCATIONS = 4096, IMPORTS = 1024, ALIGN = 512 };
#define ARENA (1ull << 30)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *device, *reachable; /* the same pages */
static int arena_fd;
static struct import {
    char *device, *reachable;
    size_t offset, size; /* of the exporter's arena; mapped from its start */
} imports[IMPORTS];
static int import_count;
static gpu_allocation allocations[ALLOCATIONS];
static int count;
static unsigned long long last_id;

/* A file's first bytes, twice. */
static bool map_twice(int fd, size_t size, char **at_device, char **at_processor)
{
    *at_processor = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *at_device = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
    return *at_processor != MAP_FAILED && *at_device != MAP_FAILED;
}

static void map(void)
{
    arena_fd = memfd_create("gpu", MFD_CLOEXEC);
    if (arena_fd < 0 || ftruncate(arena_fd, (off_t)ARENA) != 0 ||
        !map_twice(arena_fd, ARENA, &device, &reachable)) {
        abort();
    }
}

static bool in_arena(uintptr_t address)
{
    return device != NULL && address - (uintptr_t)device < ARENA;
}

/* The lowest place of the arena where so much is free; 0: none. With the lock. */
static uintptr_t place(size_t size)
{
    uintptr_t at = (uintptr_t)device;

    for (int i = 0; i < count; i++) {
        const gpu_allocation *a = &allocations[i];

        if (a->sort == GPU_DEVICE && at < a->base + a->size && a->base < at + size) {
            at = (a->base + a->size + ALIGN - 1) / ALIGN * ALIGN;
            i = -1; /* another one may be there */
        }
    }
    return at + size <= (uintptr_t)device + ARENA ? at : 0;
}

static bool keep(uintptr_t base, size_t size, enum gpu_sort sort)
{
    if (base == 0 || count == ALLOCATIONS) {
        return false;
    }
    allocations[count++] = (gpu_allocation){base, size, sort, ++last_id};
    return true;
}

uintptr_t gpu_alloc(size_t size, enum gpu_sort sort)
{
    uintptr_t base;

    pthread_once(&once, map);
    pthread_mutex_lock(&lock);
    base = sort == GPU_DEVICE ? place(size)
                              : (uintptr_t)aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    base = keep(base, size, sort) ? base : 0;
    pthread_mutex_unlock(&lock);
    return base;
}

bool gpu_pin(void *base, size_t size)
{
    bool kept;

    pthread_mutex_lock(&lock);
    kept = keep((uintptr_t)base, size, GPU_PINNED);
    pthread_mutex_unlock(&lock);
    return kept;
}

bool gpu_free(uintptr_t base)
{
    gpu_allocation found = {0};

    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        if (allocations[i].base == base) {
            found = allocations[i];
            allocations[i] = allocations[--count];
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return found.sort != GPU_NONE;
}

gpu_allocation gpu_find(uintptr_t address)
{
    gpu_allocation found = {0};

    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        if (address - allocations[i].base < allocations[i].size) {
            found = allocations[i];
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

gpu_handle gpu_export(uintptr_t base)
{
    gpu_allocation a = gpu_find(base);

    return (gpu_handle){
        .process = getpid(), .fd = arena_fd, .offset = a.base - (uintptr_t)device, .size = a.size};
}

uintptr_t gpu_import(const gpu_handle *handle)
{
    struct import i = {NULL, NULL, handle->offset, handle->size};
    char path[64];
    bool mapped;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->process, handle->fd);
    if ((fd = open(path, O_RDWR | O_CLOEXEC)) < 0) {
        return 0;
    }
    mapped = map_twice(fd, i.offset + i.size, &i.device, &i.reachable);
    close(fd);
    if (!mapped || import_count == IMPORTS) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    imports[import_count++] = i;
    mapped = keep((uintptr_t)i.device + i.offset, i.size, GPU_IMPORTED);
    pthread_mutex_unlock(&lock);
    return mapped ? (uintptr_t)i.device + i.offset : 0;
}

bool gpu_forget(uintptr_t base)
{
    struct import found = {0};

    if (gpu_find(base).sort != GPU_IMPORTED || !gpu_free(base)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < import_count; i++) {
        if ((uintptr_t)imports[i].device + imports[i].offset == base) {
            found = imports[i];
            imports[i] = imports[--import_count];
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    munmap(found.device, found.offset + found.size);
    munmap(found.reachable, found.offset + found.size);
    return true;
}

void *gpu_reach(uintptr_t address)
{
    void *at = in_arena(address) ? reachable + (address - (uintptr_t)device) : (void *)address;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < import_count; i++) {
        const struct import *m = &imports[i];

        if (address - (uintptr_t)m->device < m->offset + m->size) {
            at = m->reachable + (address - (uintptr_t)m->device);
        }
    }
    pthread_mutex_unlock(&lock);
    return at;
}
