/*
 * Copies from and to memory of a GPU, by a stream of the library's own: on the driver's default stream they would wait
 * for the program's kernels, and every connection of the worker with them.
 */
#include "context.h"
#include "cuda.h"
#include "cuda_driver.h"
#include "error.h"
#include <pthread.h>
#include <stdlib.h>

#define NON_BLOCKING 1 /* CU_STREAM_NON_BLOCKING */

/** The stream of each CUDA context. They live as long as that: who ends it does not tell. */
struct stream {
    struct stream *next;
    void *cuda, *stream;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams;

/* Of the current context; a new one if the last, `stale`, is of no use any more. CUDA's error. */
static int find_stream(void *stale, void **out)
{
    struct stream *s;
    void *cuda = NULL;
    int error = hws__cu.current(&cuda);

    *out = NULL;
    pthread_mutex_lock(&lock);
    for (s = streams; s != NULL && s->cuda != cuda; s = s->next) {}
    if (s == NULL && (s = calloc(1, sizeof *s)) != NULL) {
        *s = (struct stream){streams, cuda, NULL};
        streams = s;
    }
    if (s != NULL && error == 0 && s->stream == stale) {
        error = hws__cu.stream(&s->stream, NON_BLOCKING);
    }
    if (s != NULL && error == 0) {
        *out = s->stream; /* without memory for it: the default one */
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* In the current context. CUDA's error. */
static int copy(void *to, const void *from, uint64_t length)
{
    void *stream;
    int error = find_stream(NULL, &stream);

    if (error == 0 && (error = hws__cu.copy((uintptr_t)to, (uintptr_t)from, length, stream)) != 0 &&
        find_stream(stream, &stream) == 0) {
        /* Perhaps the context is another one in the place of one that ended. */
        error = hws__cu.copy((uintptr_t)to, (uintptr_t)from, length, stream);
    }
    return error == 0 ? hws__cu.synchronize(stream) : error;
}

int32_t hws__cuda_copy(struct hws__context *c, void *to, const void *from, uint64_t length)
{
    int32_t r = hws__cuda_open(0);
    bool pushed;
    int error;

    if (r < 0) {
        return r;
    }
    pushed = hws__cuda_enter(c);
    error = copy(to, from, length);
    hws__cuda_pop(pushed);
    return error == 0 ? HWS_OK
                      : hws__fail(HWS_E_CUDA, 0, "a copy from or to memory of a GPU: %s (%d)",
                                  hws__cuda_error(error), error);
}
