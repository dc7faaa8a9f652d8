#include "support/gpu/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALLOCATIONS = 4096, ALIGN = 512 };
#define ARENA (1ull << 30)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *device, *reachable; /* the same pages */
static gpu_allocation allocations[ALLOCATIONS];
static int count;
static unsigned long long last_id;

static void map(void)
{
    int fd = memfd_create("gpu", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)ARENA) != 0) {
        abort();
    }
    reachable = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    device = mmap(NULL, ARENA, PROT_NONE, MAP_SHARED, fd, 0);
    close(fd);
    if (reachable == MAP_FAILED || device == MAP_FAILED) {
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

void *gpu_reach(uintptr_t address)
{
    return in_arena(address) ? reachable + (address - (uintptr_t)device) : (void *)address;
}
