#include "support/gpu/stream.h"
#include "support/gpu/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct work {
    struct work *next;
    gpu_event *event; /* of a mark, else null */
    uintptr_t to, from;
    size_t length;
    int value; /* of a fill, else -1 */
} work;

struct gpu_stream {
    gpu_stream *next;
    work *first, **end;
};

struct gpu_event {
    gpu_stream *stream; /* where it is to come; null: it has */
    int asked;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gpu_stream null_stream = {NULL, NULL, &null_stream.first};
static gpu_stream *streams = &null_stream;

static gpu_stream *of(gpu_stream *stream)
{
    /* 1 and 2 are the null stream by other names, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD. */
    return (uintptr_t)stream <= 2 ? &null_stream : stream;
}

/* With the lock. */
static void run(gpu_stream *stream)
{
    work *w;

    while ((w = stream->first) != NULL) {
        stream->first = w->next;
        if (w->event != NULL) {
            w->event->stream = NULL;
        } else if (w->value >= 0) {
            memset(gpu_reach(w->to), w->value, w->length);
        } else {
            memmove(gpu_reach(w->to), gpu_reach(w->from), w->length);
        }
        free(w);
    }
    stream->end = &stream->first;
}

static bool add(gpu_stream *stream, work item)
{
    work *w = malloc(sizeof *w);

    if (w == NULL) {
        return false;
    }
    *w = item;
    pthread_mutex_lock(&lock);
    stream = of(stream);
    if (w->event != NULL) {
        w->event->stream = stream;
        w->event->asked = 0;
    }
    *stream->end = w;
    stream->end = &w->next;
    pthread_mutex_unlock(&lock);
    return true;
}

gpu_stream *gpu_stream_open(void)
{
    gpu_stream *stream = calloc(1, sizeof *stream);

    if (stream != NULL) {
        stream->end = &stream->first;
        pthread_mutex_lock(&lock);
        stream->next = null_stream.next;
        null_stream.next = stream;
        pthread_mutex_unlock(&lock);
    }
    return stream;
}

void gpu_stream_close(gpu_stream *stream)
{
    pthread_mutex_lock(&lock);
    run(stream);
    for (gpu_stream *s = streams; s != NULL; s = s->next) {
        if (s->next == stream) {
            s->next = stream->next;
        }
    }
    pthread_mutex_unlock(&lock);
    free(stream);
}

gpu_event *gpu_event_open(void)
{
    return calloc(1, sizeof(gpu_event));
}

void gpu_event_close(gpu_event *event)
{
    pthread_mutex_lock(&lock);
    if (event->stream != NULL) {
        run(event->stream);
    }
    pthread_mutex_unlock(&lock);
    free(event);
}

bool gpu_copy(gpu_stream *stream, uintptr_t to, uintptr_t from, size_t length)
{
    return add(stream, (work){.to = to, .from = from, .length = length, .value = -1});
}

bool gpu_fill(gpu_stream *stream, uintptr_t to, unsigned char value, size_t length)
{
    return add(stream, (work){.to = to, .length = length, .value = value});
}

bool gpu_mark(gpu_stream *stream, gpu_event *event)
{
    return add(stream, (work){.event = event});
}

void gpu_finish(gpu_stream *stream)
{
    pthread_mutex_lock(&lock);
    run(of(stream));
    pthread_mutex_unlock(&lock);
}

void gpu_finish_all(void)
{
    pthread_mutex_lock(&lock);
    for (gpu_stream *s = streams; s != NULL; s = s->next) {
        run(s);
    }
    pthread_mutex_unlock(&lock);
}

bool gpu_event_came(gpu_event *event)
{
    bool came;

    pthread_mutex_lock(&lock);
    if (event->stream != NULL && event->asked++ != 0) {
        run(event->stream);
    }
    came = event->stream == NULL;
    pthread_mutex_unlock(&lock);
    return came;
}
