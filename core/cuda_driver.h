/*
 * What of CUDA's driver interface is called. A CUcontext, a CUstream and a CUdeviceptr are each as large as a pointer.
 */
#ifndef HWS_CORE_CUDA_DRIVER_H
#define HWS_CORE_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

struct hws__cuda_driver {
    int (*get_attributes)(unsigned count, const int *attributes, void **data, uintptr_t pointer);
    int (*current)(void **context);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*stream)(void **stream, unsigned flags);
    int (*synchronize)(void *stream);
    int (*copy)(uintptr_t to, uintptr_t from, size_t length, void *stream);
    int (*error_name)(int error, const char **name);
};

/** Usable once hws__cuda_open() has said so. */
extern struct hws__cuda_driver hws__cu;

/** CUDA's name of an error. */
const char *hws__cuda_error(int error);

#endif
