/*
 * libcuda.so.1 for machines without a GPU: what of CUDA's driver interface UCX's own transports for GPUs, Hawser and the
 * tests call. One device, its primary context, and the rules that programs break: without a current context nothing is
 * copied, memory of the device cannot be touched by a processor, and work on a stream is done when it is waited for.
 * What is not here (sharing memory between processes, virtual memory) is refused as on a GPU that lacks it.
 */
#include "support/gpu/memory.h"
#include "support/gpu/stream.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* CUDA's header is not here, which would declare them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    MAP_FAILED_ERROR = 205,
    NOT_FOUND = 500,
    NOT_READY = 600,
    NOT_SUPPORTED = 801
};

static int initialized;
static struct {
    _Atomic int retained;
} primary; /* its address is its handle */
static _Thread_local void *stack[16];
static _Thread_local int depth;

static void *current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

/* What a call that needs a context says before it does anything. */
static int ready(void)
{
    return !initialized ? NOT_INITIALIZED : current() == NULL ? INVALID_CONTEXT : SUCCESS;
}

/* ---- the device ---- */

API int cuInit(unsigned flags)
{
    initialized = 1;
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}

API int cuDriverGetVersion(int *version)
{
    *version = 12090;
    return SUCCESS;
}

API int cuDeviceGetCount(int *count)
{
    *count = 1;
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

API int cuDeviceGet(int *device, int ordinal)
{
    *device = 0;
    return !initialized ? NOT_INITIALIZED : ordinal == 0 ? SUCCESS : INVALID_DEVICE;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    enum { UNIFIED_ADDRESSING = 41, PCI_DEVICE = 34, CAPABILITY_MAJOR = 75 };

    *value = attribute == UNIFIED_ADDRESSING ? 1
             : attribute == PCI_DEVICE       ? 31
             : attribute == CAPABILITY_MAJOR ? 9
                                             : 0;
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

API int cuDeviceGetName(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "a GPU in software");
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

API int cuDeviceGetUuid(void *uuid, int device)
{
    memset(uuid, 7, 16);
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

API int cuDeviceGetUuid_v2(void *uuid, int device)
{
    return cuDeviceGetUuid(uuid, device);
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)1 << 30;
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

API int cuGetErrorName(int error, const char **name)
{
    *name = error == SUCCESS           ? "CUDA_SUCCESS"
            : error == INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
            : error == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
            : error == NOT_INITIALIZED ? "CUDA_ERROR_NOT_INITIALIZED"
            : error == NOT_SUPPORTED   ? "CUDA_ERROR_NOT_SUPPORTED"
                                       : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}

API int cuGetErrorString(int error, const char **text)
{
    return cuGetErrorName(error, text);
}

/* Of several versions of a function the second is the one in use. */
API int cuGetProcAddress_v2(const char *name, void **function, int version,
                            unsigned long long flags, int *status)
{
    char second[128];
    Dl_info self;
    void *library;

    (void)version;
    (void)flags;
    snprintf(second, sizeof second, "%s_v2", name);
    library = dladdr(&primary, &self) != 0 ? dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    *function = library != NULL ? dlsym(library, second) : NULL;
    if (*function == NULL && library != NULL) {
        *function = dlsym(library, name);
    }
    if (status != NULL) {
        *status = *function == NULL;
    }
    return *function != NULL ? SUCCESS : NOT_FOUND;
}

/* ---- contexts ---- */

API int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &primary;
    primary.retained += initialized && device == 0;
    return !initialized ? NOT_INITIALIZED : device == 0 ? SUCCESS : INVALID_DEVICE;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    primary.retained -= device == 0;
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = primary.retained > 0;
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

API int cuCtxGetCurrent(void **context)
{
    *context = current();
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

API int cuCtxSetCurrent(void *context)
{
    depth = depth == 0 ? 1 : depth;
    stack[depth - 1] = context;
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

API int cuCtxPushCurrent_v2(void *context)
{
    if (context != &primary || depth == sizeof stack / sizeof *stack) {
        return INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return SUCCESS;
}

API int cuCtxPopCurrent_v2(void **context)
{
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    depth--;
    if (context != NULL) {
        *context = stack[depth];
    }
    return SUCCESS;
}

API int cuCtxGetDevice(int *device)
{
    *device = 0;
    return ready();
}

API int cuCtxGetId(void *context, unsigned long long *id)
{
    *id = 1;
    return context == NULL ? ready() : context == &primary ? SUCCESS : INVALID_CONTEXT;
}

API int cuCtxSetFlags(unsigned flags)
{
    (void)flags;
    return ready();
}

API int cuCtxSynchronize(void)
{
    gpu_finish_all();
    return ready();
}

/* ---- memory ---- */

static int alloc(uintptr_t *pointer, size_t size, enum gpu_sort sort)
{
    int error = ready();

    if (error != SUCCESS || size == 0) {
        return error != SUCCESS ? error : INVALID_VALUE;
    }
    *pointer = gpu_alloc(size, sort);
    return *pointer != 0 ? SUCCESS : OUT_OF_MEMORY;
}

API int cuMemAlloc_v2(uintptr_t *pointer, size_t size)
{
    return alloc(pointer, size, GPU_DEVICE);
}

API int cuMemAllocManaged(uintptr_t *pointer, size_t size, unsigned flags)
{
    (void)flags;
    return alloc(pointer, size, GPU_MANAGED);
}

API int cuMemAllocHost_v2(void **pointer, size_t size)
{
    uintptr_t at = 0;
    int error = alloc(&at, size, GPU_PINNED);

    *pointer = (void *)at;
    return error;
}

API int cuMemFree_v2(uintptr_t pointer)
{
    enum gpu_sort sort = gpu_find(pointer).sort;
    int error = ready();

    if (error != SUCCESS) {
        return error;
    }
    gpu_finish_all(); /* as a GPU's does */
    if (!gpu_free(pointer)) {
        return pointer == 0 ? SUCCESS : INVALID_VALUE;
    }
    if (sort != GPU_DEVICE) {
        free((void *)pointer);
    }
    return SUCCESS;
}

API int cuMemFreeHost(void *pointer)
{
    return cuMemFree_v2((uintptr_t)pointer);
}

API int cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags)
{
    (void)flags;
    return gpu_pin(pointer, size) ? SUCCESS : OUT_OF_MEMORY;
}

API int cuMemHostUnregister(void *pointer)
{
    return gpu_free((uintptr_t)pointer) ? SUCCESS : INVALID_VALUE;
}

API int cuMemGetAddressRange_v2(uintptr_t *base, size_t *size, uintptr_t pointer)
{
    gpu_allocation a = gpu_find(pointer);

    if (base != NULL) {
        *base = a.base;
    }
    if (size != NULL) {
        *size = a.size;
    }
    return a.sort != GPU_NONE ? SUCCESS : NOT_FOUND;
}

/* How large is what the attribute is written to, and what it is for memory of CUDA's. */
static size_t attribute_of(int attribute, const gpu_allocation *a, unsigned long long *value)
{
    enum {
        CONTEXT = 1,
        MEMORY_TYPE = 2,
        SYNC_MEMOPS = 6,
        BUFFER_ID = 7,
        IS_MANAGED = 8,
        DEVICE_ORDINAL = 9,
        LEGACY_IPC = 10,
        RANGE_START = 11,
        RANGE_SIZE = 12,
        MAPPED = 13
    };
    bool there = a->sort != GPU_NONE;

    *value = 0;
    switch (attribute) {
    case CONTEXT:
        *value = there ? (uintptr_t)&primary : 0;
        return sizeof(void *);
    case MEMORY_TYPE:
        *value = !there ? 0 : a->sort == GPU_PINNED ? 1 : 2;
        return sizeof(unsigned);
    case BUFFER_ID:
        *value = a->id;
        return sizeof(unsigned long long);
    case IS_MANAGED:
        *value = a->sort == GPU_MANAGED;
        return sizeof(unsigned);
    case DEVICE_ORDINAL:
        *value = there ? 0 : (unsigned)-2;
        return sizeof(int);
    case LEGACY_IPC:
        *value = a->sort == GPU_DEVICE;
        return 1;
    case RANGE_START:
        *value = a->base;
        return sizeof(void *);
    case RANGE_SIZE:
        *value = a->size;
        return sizeof(size_t);
    case MAPPED:
        *value = there;
        return 1;
    case SYNC_MEMOPS:
        return sizeof(unsigned);
    default:
        return attribute == 14 || attribute == 17 ? 8 : 1;
    }
}

API int cuPointerGetAttributes(unsigned count, const int *attributes, void **data,
                               uintptr_t pointer)
{
    gpu_allocation a = gpu_find(pointer);

    for (unsigned i = 0; i < count && initialized; i++) {
        unsigned long long value;
        size_t size = attribute_of(attributes[i], &a, &value);

        memcpy(data[i], &value, size); /* little endian */
    }
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

API int cuPointerGetAttribute(void *data, int attribute, uintptr_t pointer)
{
    return gpu_find(pointer).sort == GPU_NONE
               ? INVALID_VALUE
               : cuPointerGetAttributes(1, &attribute, &data, pointer);
}

API int cuPointerSetAttribute(const void *value, int attribute, uintptr_t pointer)
{
    (void)value;
    (void)attribute;
    return gpu_find(pointer).sort == GPU_NONE ? INVALID_VALUE : SUCCESS;
}

API int cuMemRangeGetAttribute(void *data, size_t size, int attribute, uintptr_t pointer,
                               size_t length)
{
    (void)attribute;
    (void)length;
    memset(data, 0xff, size); /* CU_DEVICE_INVALID or the processor: never moved yet */
    return gpu_find(pointer).sort == GPU_MANAGED ? SUCCESS : INVALID_VALUE;
}

/* ---- between processes ---- */

API int cuIpcGetMemHandle(gpu_handle *handle, uintptr_t pointer)
{
    if (gpu_find(pointer).sort != GPU_DEVICE) {
        return INVALID_VALUE;
    }
    *handle = gpu_export(pointer);
    return SUCCESS;
}

API int cuIpcOpenMemHandle_v2(uintptr_t *pointer, gpu_handle handle, unsigned flags)
{
    int error = ready();

    (void)flags;
    if (error == SUCCESS && handle.process == getpid()) {
        error = INVALID_CONTEXT; /* a process does not open its own */
    }
    *pointer = error == SUCCESS ? gpu_import(&handle) : 0;
    return error != SUCCESS || *pointer != 0 ? error : MAP_FAILED_ERROR;
}

API int cuIpcCloseMemHandle(uintptr_t pointer)
{
    gpu_finish_all();
    return gpu_forget(pointer) ? SUCCESS : INVALID_VALUE;
}

API int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device == peer;
    return SUCCESS;
}

/* ---- work ---- */

API int cuStreamCreate(gpu_stream **stream, unsigned flags)
{
    int error = ready();

    (void)flags;
    *stream = error == SUCCESS ? gpu_stream_open() : NULL;
    return error != SUCCESS || *stream != NULL ? error : OUT_OF_MEMORY;
}

API int cuStreamDestroy_v2(gpu_stream *stream)
{
    gpu_stream_close(stream);
    return SUCCESS;
}

API int cuStreamSynchronize(gpu_stream *stream)
{
    gpu_finish(stream);
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

API int cuStreamAddCallback(gpu_stream *stream, void (*callback)(gpu_stream *, int, void *),
                            void *argument, unsigned flags)
{
    (void)flags;
    gpu_finish(stream);
    callback(stream, SUCCESS, argument);
    return SUCCESS;
}

API int cuEventCreate(gpu_event **event, unsigned flags)
{
    (void)flags;
    *event = gpu_event_open();
    return *event != NULL ? ready() : OUT_OF_MEMORY;
}

API int cuEventDestroy_v2(gpu_event *event)
{
    gpu_event_close(event);
    return SUCCESS;
}

API int cuEventRecord(gpu_event *event, gpu_stream *stream)
{
    return gpu_mark(stream, event) ? SUCCESS : OUT_OF_MEMORY;
}

API int cuEventQuery(gpu_event *event)
{
    return gpu_event_came(event) ? SUCCESS : NOT_READY;
}

API int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t length, gpu_stream *stream)
{
    int error = ready();

    return error != SUCCESS || gpu_copy(stream, to, from, length) ? error : OUT_OF_MEMORY;
}

API int cuMemcpy(uintptr_t to, uintptr_t from, size_t length)
{
    int error = cuMemcpyAsync(to, from, length, NULL);

    gpu_finish_all(); /* the null stream waits for the others */
    return error;
}

API int cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t length)
{
    return cuMemcpy(to, (uintptr_t)from, length);
}

API int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t length)
{
    return cuMemcpy((uintptr_t)to, from, length);
}

API int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t length, gpu_stream *stream)
{
    return cuMemcpyAsync(to, from, length, stream);
}

API int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t length, gpu_stream *stream)
{
    return cuMemcpyAsync((uintptr_t)to, from, length, stream);
}

API int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t length, gpu_stream *stream)
{
    int error = ready();

    return error != SUCCESS || gpu_fill(stream, to, value, length) ? error : OUT_OF_MEMORY;
}

API int cuMemsetD8_v2(uintptr_t to, unsigned char value, size_t length)
{
    int error = cuMemsetD8Async(to, value, length, NULL);

    gpu_finish_all();
    return error;
}

/* ---- what this GPU has not ---- */

#define LACKS(name)           \
    int name(void);           \
    API int name(void)        \
    {                         \
        return NOT_SUPPORTED; \
    }

LACKS(cuMemAddressFree)
LACKS(cuMemAddressReserve)
LACKS(cuMemCreate)
LACKS(cuMemExportToShareableHandle)
LACKS(cuMemGetAllocationGranularity)
LACKS(cuMemGetAllocationPropertiesFromHandle)
LACKS(cuMemImportFromShareableHandle)
LACKS(cuMemMap)
LACKS(cuMemPoolDestroy)
LACKS(cuMemPoolExportPointer)
LACKS(cuMemPoolExportToShareableHandle)
LACKS(cuMemPoolImportFromShareableHandle)
LACKS(cuMemPoolImportPointer)
LACKS(cuMemPoolSetAccess)
LACKS(cuMemRelease)
LACKS(cuMemRetainAllocationHandle)
LACKS(cuMemSetAccess)
LACKS(cuMemUnmap)
