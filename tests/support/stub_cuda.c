#include "support/stub_cuda.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLS = 1 << 16, POINTERS = 64, STACK = 16, FUNCTIONS = 8 };
enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201 };
enum { ATTRIBUTE_CONTEXT = 1, ATTRIBUTE_MEMORY_TYPE = 2, ATTRIBUTE_IS_MANAGED = 8 };
enum { TYPE_HOST = 1, TYPE_DEVICE = 2 };

int cuPointerGetAttributes(unsigned count, const int *attributes, void **data, uintptr_t pointer);
int cuCtxGetCurrent(void **context);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuStreamCreate(void **stream, unsigned flags);
int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t length, void *stream);
int cuStreamSynchronize(void *stream);
int cuGetErrorName(int error, const char **name);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static int initialized, held, waiters;
static stub_call log_[CALLS]; /* the first ones: a polling thread makes very many */
static int logged;
static struct {
    const char *name;
    int count;
} totals[FUNCTIONS];
static struct {
    const char *base;
    size_t length;
    int sort;
    void *context;
} pointers[POINTERS];
static int pointer_count;
static struct {
    const char *name;
    int error;
} failures[FUNCTIONS];
static _Thread_local void *stack[STACK];
static _Thread_local int depth;

static void *current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

/* What a call is to return before it does anything. With the lock. */
static int error_of(const char *name)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        if (failures[i].name != NULL && strcmp(failures[i].name, name) == 0 &&
            failures[i].error != 0) {
            return failures[i].error;
        }
    }
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

static int *total(const char *name)
{
    int i = 0;

    while (i < FUNCTIONS - 1 && totals[i].name != NULL && strcmp(totals[i].name, name) != 0) {
        i++;
    }
    totals[i].name = name;
    return &totals[i].count;
}

static int record(const char *name, void *argument, int result)
{
    ++*total(name);
    if (logged < CALLS) {
        log_[logged++] = (stub_call){name, argument, current(), syscall(SYS_gettid), result};
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int begin(const char *name)
{
    pthread_mutex_lock(&lock);
    return error_of(name);
}

static void fill(int attribute, void *to, int found)
{
    int sort = found >= 0 ? pointers[found].sort : 0;

    if (attribute == ATTRIBUTE_MEMORY_TYPE) {
        *(unsigned *)to = sort == 0 ? 0 : sort == STUB_HOST ? TYPE_HOST : TYPE_DEVICE;
    } else if (attribute == ATTRIBUTE_IS_MANAGED) {
        *(unsigned *)to = sort == STUB_MANAGED;
    } else if (attribute == ATTRIBUTE_CONTEXT) {
        *(void **)to = found >= 0 ? pointers[found].context : NULL;
    }
}

int cuPointerGetAttributes(unsigned count, const int *attributes, void **data, uintptr_t pointer)
{
    int error = begin("cuPointerGetAttributes"), found = -1;

    for (int i = 0; i < pointer_count; i++) {
        if (pointer - (uintptr_t)pointers[i].base < pointers[i].length) {
            found = i;
        }
    }
    for (unsigned i = 0; i < count && error == SUCCESS; i++) {
        fill(attributes[i], data[i], found);
    }
    return record("cuPointerGetAttributes", (void *)pointer, error);
}

int cuCtxGetCurrent(void **context)
{
    int error = begin("cuCtxGetCurrent");

    *context = error == SUCCESS ? current() : NULL;
    return record("cuCtxGetCurrent", *context, error);
}

int cuCtxPushCurrent_v2(void *context)
{
    int error = begin("cuCtxPushCurrent_v2");

    if (error == SUCCESS && (context == NULL || depth == STACK)) {
        error = INVALID_CONTEXT;
    }
    if (error == SUCCESS) {
        stack[depth++] = context;
    }
    return record("cuCtxPushCurrent_v2", context, error);
}

int cuCtxPopCurrent_v2(void **context)
{
    int error = begin("cuCtxPopCurrent_v2");

    if (error == SUCCESS && depth == 0) {
        error = INVALID_CONTEXT;
    }
    *context = error == SUCCESS ? stack[--depth] : NULL;
    return record("cuCtxPopCurrent_v2", *context, error);
}

int cuStreamCreate(void **stream, unsigned flags)
{
    static char it;
    int error = begin("cuStreamCreate");

    (void)flags;
    *stream = &it;
    return record("cuStreamCreate", *stream, error);
}

int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t length, void *stream)
{
    int error = begin("cuMemcpyAsync");

    (void)stream;
    if (error == SUCCESS) {
        memcpy((void *)to, (const void *)from, length);
    }
    return record("cuMemcpyAsync", (void *)to, error);
}

#ifndef STUB_CUDA_WITHOUT_SYNCHRONIZE
int cuStreamSynchronize(void *stream)
{
    int error = begin("cuStreamSynchronize");

    waiters++;
    while (held) {
        pthread_cond_wait(&released, &lock);
    }
    waiters--;
    return record("cuStreamSynchronize", stream, error);
}
#endif

int cuGetErrorName(int error, const char **name)
{
    *name = error == 700   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == 999 ? "CUDA_ERROR_UNKNOWN"
                           : NULL;
    return *name != NULL ? SUCCESS : INVALID_VALUE;
}

/* ---- What the tests call ---- */

static void initialize(void)
{
    pthread_mutex_lock(&lock);
    initialized = 1;
    pthread_mutex_unlock(&lock);
}

static void pointer(const void *base, size_t length, int sort, void *context)
{
    pthread_mutex_lock(&lock);
    if (pointer_count < POINTERS) {
        pointers[pointer_count].base = base;
        pointers[pointer_count].length = length;
        pointers[pointer_count].sort = sort;
        pointers[pointer_count++].context = context;
    }
    pthread_mutex_unlock(&lock);
}

static void set_current(void *context)
{
    depth = context != NULL;
    stack[0] = context;
}

static void fail(const char *name, int error)
{
    int i = 0;

    pthread_mutex_lock(&lock);
    while (i < FUNCTIONS - 1 && failures[i].name != NULL && strcmp(failures[i].name, name) != 0) {
        i++;
    }
    failures[i].name = name;
    failures[i].error = error;
    pthread_mutex_unlock(&lock);
}

static void hold(int on)
{
    pthread_mutex_lock(&lock);
    held = on;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

static int waiting(void)
{
    int n;

    pthread_mutex_lock(&lock);
    n = waiters;
    pthread_mutex_unlock(&lock);
    return n;
}

static int calls(void)
{
    int n;

    pthread_mutex_lock(&lock);
    n = logged;
    pthread_mutex_unlock(&lock);
    return n;
}

static stub_call call(int index)
{
    stub_call c;

    pthread_mutex_lock(&lock);
    c = log_[index];
    pthread_mutex_unlock(&lock);
    return c;
}

static int count(const char *name, long thread)
{
    int n = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < logged && thread != 0; i++) {
        n += strcmp(log_[i].name, name) == 0 && log_[i].thread == thread;
    }
    n = thread == 0 ? *total(name) : n;
    pthread_mutex_unlock(&lock);
    return n;
}

const stub_cuda_control *stub_cuda(void)
{
    static const stub_cuda_control control = {initialize, pointer, set_current, current, fail,
                                              hold,       waiting, calls,       call,    count};

    return &control;
}
