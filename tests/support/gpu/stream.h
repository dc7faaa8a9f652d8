/*
 * Work on a GPU: it is done when somebody waits for it, not before, so that whoever reads its result without waiting
 * reads what was there.
 */
#ifndef TESTS_SUPPORT_GPU_STREAM_H
#define TESTS_SUPPORT_GPU_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gpu_stream gpu_stream;
typedef struct gpu_event gpu_event;

/** Null: no memory. */
gpu_stream *gpu_stream_open(void);
/** What it has left is done first. */
void gpu_stream_close(gpu_stream *stream);
gpu_event *gpu_event_open(void);
void gpu_event_close(gpu_event *event);

/** Work at the end of a stream; the null stream is one too. False: no memory. */
bool gpu_copy(gpu_stream *stream, uintptr_t to, uintptr_t from, size_t length);
bool gpu_fill(gpu_stream *stream, uintptr_t to, unsigned char value, size_t length);
bool gpu_mark(gpu_stream *stream, gpu_event *event);

/** Do all of a stream's work. */
void gpu_finish(gpu_stream *stream);
/** All work of all streams. */
void gpu_finish_all(void);
/** Whether the event has come; who asks again finds that it has. */
bool gpu_event_came(gpu_event *event);

#endif
