#include "support/cuda.h"

#include "support/check.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

const stub_cuda_control *t_cuda_use(const char *variable)
{
    const char *path = getenv(variable);
    const stub_cuda_control *(*control)(void);
    void *address;

    CHECK(path != NULL);
    /* UCX's own CUDA must not meet the stub's pointers where there is a GPU. */
    setenv("UCX_TLS", "sysv,cma,self,tcp", 1);
    setenv("HAWSER_CUDA", path, 1);
    address = dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), "stub_cuda");
    CHECK(address != NULL);
    memcpy(&control, &address, sizeof address);
    control()->initialize();
    return control();
}

const stub_cuda_control *t_cuda_stub(void)
{
    return t_cuda_use("HAWSER_STUB_CUDA");
}

hws_op_opts t_cuda_on_stream(void)
{
    return (hws_op_opts){
        .struct_size = sizeof(hws_op_opts), .flags = HWS_OP_STREAM, .stream = T_CUDA_STREAM};
}
