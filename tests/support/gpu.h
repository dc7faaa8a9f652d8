/*
 * A GPU for a test: the machine's own, or where it has none the one in software (support/gpu), on which UCX's own
 * transports for GPUs run too.
 */
#ifndef TESTS_SUPPORT_GPU_H
#define TESTS_SUPPORT_GPU_H

#include <stddef.h>
#include <stdint.h>

/* What of CUDA's driver interface the tests themselves need; every call gives 0 or CUDA's error. */
typedef struct t_gpu {
    int (*init)(unsigned flags);
    int (*device_count)(int *count);
    int (*device)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*alloc)(uintptr_t *pointer, size_t size);
    int (*alloc_managed)(uintptr_t *pointer, size_t size, unsigned flags);
    int (*alloc_host)(void **pointer, size_t size);
    int (*release)(uintptr_t pointer);
    int (*set)(uintptr_t pointer, unsigned char value, size_t size);
    int (*set_async)(uintptr_t pointer, unsigned char value, size_t size, void *stream);
    int (*to_device)(uintptr_t to, const void *from, size_t size);
    int (*to_host)(void *to, uintptr_t from, size_t size);
    int (*to_host_async)(void *to, uintptr_t from, size_t size, void *stream);
    int (*stream)(void **stream, unsigned flags);
    int (*finish)(void);
} t_gpu;

/* Its primary context is current. Before the first call of the library. */
const t_gpu *t_gpu_open(void);

#endif
