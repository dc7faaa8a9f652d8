#include "support/gpu.h"

#include "support/check.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static t_gpu cu;

static const struct {
    const char *name;
    void *place;
} symbols[] = {{"cuInit", &cu.init},
               {"cuDeviceGetCount", &cu.device_count},
               {"cuDeviceGet", &cu.device},
               {"cuDevicePrimaryCtxRetain", &cu.retain},
               {"cuCtxSetCurrent", &cu.set_current},
               {"cuMemAlloc_v2", &cu.alloc},
               {"cuMemAllocManaged", &cu.alloc_managed},
               {"cuMemAllocHost_v2", &cu.alloc_host},
               {"cuMemFree_v2", &cu.release},
               {"cuMemsetD8_v2", &cu.set},
               {"cuMemsetD8Async", &cu.set_async},
               {"cuMemcpyHtoD_v2", &cu.to_device},
               {"cuMemcpyDtoH_v2", &cu.to_host},
               {"cuMemcpyDtoHAsync_v2", &cu.to_host_async},
               {"cuStreamCreate", &cu.stream},
               {"cuCtxSynchronize", &cu.finish}};

/* Whoever asks for the driver by its name gets a library that is there by that name. */
static void *soft(const char *name)
{
    const char *folder = getenv("HAWSER_SOFT_GPU");
    char path[4096];
    void *library;

    CHECK(folder != NULL);
    CHECK((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
    }
    CHECK(library != NULL);
    return library;
}

static void *driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        soft("libnvidia-ml.so.1");
        library = soft("libcuda.so.1");
    }
    return library;
}

const t_gpu *t_gpu_open(void)
{
    void *library = driver(), *context = NULL;
    int count = 0, device = 0, error;

    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);

        CHECK(address != NULL);
        memcpy(symbols[i].place, &address, sizeof address);
    }
    if ((error = cu.init(0)) != 0 || (error = cu.device_count(&count)) != 0 || count == 0) {
        SKIP("libcuda is here, but no GPU: error %d, %d devices", error, count);
    }
    CHECK_EQ(cu.device(&device, 0), 0);
    CHECK_EQ(cu.retain(&context, device), 0);
    CHECK_EQ(cu.set_current(context), 0);
    return &cu;
}
