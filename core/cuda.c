#include "cuda.h"
#include "context.h"
#include "cuda_driver.h"
#include "error.h"
#include "log.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic bool hws__cuda_used;

/* Of CUDA's driver interface, whose numbers never change. */
#define CUDA_NOT_INITIALIZED 3
#define POINTER_CONTEXT 1
#define POINTER_MEMORY_TYPE 2
#define POINTER_IS_MANAGED 8
#define MEMORY_TYPE_DEVICE 2
#define MEMORY_TYPE_ARRAY 3

struct hws__cuda_driver hws__cu;

static const struct {
    const char *name;
    void *place;
} symbols[] = {{"cuPointerGetAttributes", &hws__cu.get_attributes},
               {"cuCtxGetCurrent", &hws__cu.current},
               {"cuCtxPushCurrent_v2", &hws__cu.push},
               {"cuCtxPopCurrent_v2", &hws__cu.pop},
               {"cuStreamSynchronize", &hws__cu.synchronize},
               {"cuStreamCreate", &hws__cu.stream},
               {"cuMemcpyAsync", &hws__cu.copy},
               {"cuGetErrorName", &hws__cu.error_name}};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum { ABSENT, BROKEN, READY } state;
static char problem[160]; /* why it is not READY */

/* The library is never closed: CUDA does not bear it. */
static void load(void)
{
    const char *path = getenv("HAWSER_CUDA");
    void *library;

    path = path != NULL && path[0] != '\0' ? path : "libcuda.so.1";
    if ((library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == NULL) {
        snprintf(problem, sizeof problem, "no CUDA: %s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);

        if (address == NULL) {
            snprintf(problem, sizeof problem, "%s has no function %s", path, symbols[i].name);
            state = BROKEN;
            return;
        }
        memcpy(symbols[i].place, &address, sizeof address);
    }
    state = READY;
}

int32_t hws__cuda_open(hws_id id)
{
    pthread_once(&once, load);
    return state == READY ? HWS_OK : hws__fail(HWS_E_CUDA, id, "%s", problem);
}

const char *hws__cuda_error(int error)
{
    const char *name = NULL;

    return hws__cu.error_name(error, &name) == 0 && name != NULL ? name : "unknown error";
}

int32_t hws__cuda_kind(hws_id id, const void *pointer, uint32_t *kind, bool *known)
{
    static const int attributes[] = {POINTER_MEMORY_TYPE, POINTER_IS_MANAGED, POINTER_CONTEXT};
    unsigned type = 0;
    unsigned managed = 0; /* CUDA writes a whole number, or one byte of it */
    void *context = NULL;
    void *data[] = {&type, &managed, &context};
    int error;

    *known = false;
    pthread_once(&once, load);
    if (state == ABSENT) {
        return HWS_OK;
    }
    if (state == BROKEN) {
        return hws__cuda_open(id);
    }
    error = hws__cu.get_attributes(3, attributes, data, (uintptr_t)pointer);
    if (error != 0 && error != CUDA_NOT_INITIALIZED) {
        return hws__fail(HWS_E_CUDA, id, "cuPointerGetAttributes: %s (%d)", hws__cuda_error(error),
                         error);
    }
    *known = error == 0 && (type != 0 || context != NULL);
    *kind = !*known                                                   ? HWS_MEMORY_HOST
            : managed != 0                                            ? HWS_MEMORY_CUDA_MANAGED
            : type == MEMORY_TYPE_DEVICE || type == MEMORY_TYPE_ARRAY ? HWS_MEMORY_CUDA
                                                                      : HWS_MEMORY_HOST;
    return HWS_OK;
}

bool hws__cuda_can(const struct hws__context *c, uint32_t kind)
{
    return kind == HWS_MEMORY_HOST || kind == HWS_MEMORY_UNKNOWN ||
           (kind <= HWS_MEMORY_CUDA_MANAGED && (c->memory_types >> kind & 1) != 0);
}

int32_t hws__cuda_usable(const struct hws__context *c, hws_id id, uint32_t kind)
{
    if (hws__cuda_can(c, kind)) {
        return HWS_OK;
    }
    if (kind > HWS_MEMORY_CUDA_MANAGED) {
        return hws__fail(HWS_E_BUFFER_KIND, id, "memory kind %u", kind);
    }
    return hws__fail(HWS_E_BUFFER_KIND, id, "this UCX, as configured, cannot handle %s memory",
                     kind == HWS_MEMORY_CUDA ? "CUDA" : "managed CUDA");
}

int32_t hws__cuda_check(const struct hws__context *c, hws_id id, const void *buffer, uint32_t *kind)
{
    bool known;
    int32_t r = HWS_OK;

    if (*kind == HWS_MEMORY_UNKNOWN) {
        r = hws__cuda_kind(id, buffer, kind, &known);
    }
    return r < 0 ? r : hws__cuda_usable(c, id, *kind);
}

void *hws__cuda_current(void)
{
    void *context = NULL;

    pthread_once(&once, load);
    return state == READY && hws__cu.current(&context) == 0 ? context : NULL;
}

void hws__cuda_adopt(struct hws__context *c, void *cuda, bool replace)
{
    void *none = NULL;

    if (cuda == NULL) {
        return;
    }
    if (replace) {
        atomic_store(&c->cuda, cuda);
    } else {
        atomic_compare_exchange_strong(&c->cuda, &none, cuda);
    }
    atomic_store(&hws__cuda_used, true);
}

/* 1: it was pushed, 0: no need, negative: CUDA refuses. */
static int push(void *cuda)
{
    void *now = NULL;
    int error;

    if (cuda == NULL || (hws__cu.current(&now) == 0 && now == cuda)) {
        return 0;
    }
    if ((error = hws__cu.push(cuda)) != 0) {
        hws__log(HWS_LOG_ERROR, "cuCtxPushCurrent: %s (%d)", hws__cuda_error(error), error);
        return -1;
    }
    return 1;
}

bool hws__cuda_push(void *cuda)
{
    return push(cuda) == 1;
}

void hws__cuda_pop(bool pushed)
{
    void *was;

    if (pushed) {
        hws__cu.pop(&was);
    }
}

bool hws__cuda_enter(struct hws__context *c)
{
    void *cuda = atomic_load_explicit(&c->cuda, memory_order_acquire);
    int r = push(cuda);

    if (r < 0) {
        /* It is gone, perhaps; trying again at each sweep would only fill the log. */
        atomic_compare_exchange_strong(&c->cuda, &cuda, NULL);
    }
    return r == 1;
}

int32_t hws__cuda_synchronize(void *cuda, void *stream, const char **text)
{
    bool pushed = hws__cuda_push(cuda);
    int error = hws__cu.synchronize(stream);
    char line[128];

    hws__cuda_pop(pushed);
    if (error == 0) {
        return HWS_OK;
    }
    snprintf(line, sizeof line, "cuStreamSynchronize: %s (%d)", hws__cuda_error(error), error);
    *text = hws__text_keep(line, hws_error_text(HWS_E_CUDA));
    return HWS_E_CUDA;
}
