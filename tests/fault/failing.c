#include "fault/failing.h"
#include "support/check.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

_Atomic int64_t failing_countdown, failing_every, failing_seen;

static int fails(void)
{
    int64_t number = atomic_fetch_add(&failing_seen, 1) + 1;

    if (failing_every != 0 && number % failing_every == 0) {
        errno = ENOMEM;
        return 1;
    }
    if (atomic_fetch_sub(&failing_countdown, 1) == 1) {
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

/* A program that is swept: its environment says which ones fail. */
__attribute__((constructor)) static void begin(void)
{
    failing_every = (int64_t)t_env("HAWSER_FAIL_EVERY", 0);
    if (failing_every != 0) {
        t_sweeping = 1;
    }
}
