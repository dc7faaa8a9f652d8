/*
 * A libcuda for tests: a library of its own, opened like the real one by HAWSER_CUDA, that believes what
 * a test tells it about pointers, keeps a stack of contexts for each thread, and records the calls.
 */
#ifndef TESTS_SUPPORT_STUB_CUDA_H
#define TESTS_SUPPORT_STUB_CUDA_H

#include <stddef.h>
#include <stdint.h>

enum { STUB_HOST = 1, STUB_DEVICE = 2, STUB_MANAGED = 4 };

/** One call, in the order in which they returned; the first 65536 are kept. */
typedef struct stub_call {
    const char *name;
    void *argument; /* the pointer, context or stream */
    void *context;  /* current on the thread */
    long thread;
    int result;
} stub_call;

/** What a test can do with it; from stub_cuda(). */
typedef struct stub_cuda_control {
    /** As cuInit(): before, every call fails as CUDA's do. */
    void (*initialize)(void);
    /** From now on this memory is of that sort, allocated in `context`. */
    void (*pointer)(const void *base, size_t length, int sort, void *context);
    /** As the application's own cuCtxSetCurrent() and cuCtxGetCurrent(); not recorded. */
    void (*set_current)(void *context);
    void *(*get_current)(void);
    /** From now on the named function returns this; 0: it works again. */
    void (*fail)(const char *name, int error);
    /** Streams are at work until they are let go. */
    void (*hold)(int held);
    /** How many threads wait for a stream. */
    int (*waiting)(void);
    int (*calls)(void);
    stub_call (*call)(int index);
    /** How often a function was called; by a thread, if that is not 0, among the calls that are kept. */
    int (*count)(const char *name, long thread);
} stub_cuda_control;

const stub_cuda_control *stub_cuda(void);

#endif
