/*
 * CUDA without a GPU: a libcuda of the tests' own (support/stub_cuda.c) says what a pointer is and records
 * the calls. UCX is the real one: it is given host memory only. TIMEOUT: 180
 */
#include "support/cases.h"
#include "support/cuda.h"
#include "support/pair.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALL UINT64_MAX

static long thread_id(void)
{
    return syscall(SYS_gettid);
}

static const char *last_text(void)
{
    static hws_error error;

    error = (hws_error){.struct_size = sizeof error};
    CHECK_OK(hws_last_error(&error));
    return error.text;
}

static int32_t register_as(hws_id context, void *base, uint32_t kind, hws_id *memory)
{
    hws_mem_opts opts = {.struct_size = sizeof opts, .memory_kind = kind};

    return hws_mem_register(context, base, 64, &opts, memory);
}

/* One message from 0 to 1 by the options. */
static void message(t_pair *pair, uint32_t kind)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .memory_kind = kind};
    uint64_t in = 0, out = 5;
    hws_id recv = 0, send = 0;

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, ALL, &opts, &recv));
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, &opts, &send));
    WAIT_OK(pair, send);
    WAIT_OK(pair, recv);
    CHECK_EQ(in, 5);
}

/* ---- The kind of a pointer ---- */

CASE(the_kind_of_registered_memory_is_found)
{
    static char plain[64], pinned[64], device[64], managed[64];
    const stub_cuda_control *cuda = t_cuda_stub();
    hws_mem_info info = {.struct_size = sizeof info};
    hws_id context = 0, memory = 0;

    cuda->pointer(pinned, 64, STUB_HOST, T_CUDA_APP);
    cuda->pointer(device, 64, STUB_DEVICE, T_CUDA_APP);
    cuda->pointer(managed, 64, STUB_MANAGED, T_CUDA_APP);
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(register_as(context, plain, HWS_MEMORY_HOST, &memory));
    CHECK_EQ(cuda->calls(), 0); /* nobody asked */
    CHECK_OK(register_as(context, plain, HWS_MEMORY_UNKNOWN, &memory));
    CHECK_OK(hws_mem_query(memory, &info));
    CHECK_EQ(info.memory_kind, HWS_MEMORY_HOST);
    CHECK_OK(register_as(context, pinned, HWS_MEMORY_UNKNOWN, &memory));
    CHECK_OK(hws_mem_query(memory, &info));
    CHECK_EQ(info.memory_kind, HWS_MEMORY_HOST);
    CHECK_CODE(register_as(context, device, HWS_MEMORY_UNKNOWN, &memory), HWS_E_BUFFER_KIND);
    CHECK(strstr(last_text(), "cannot handle CUDA memory") != NULL);
    CHECK_CODE(register_as(context, managed, HWS_MEMORY_UNKNOWN, &memory), HWS_E_BUFFER_KIND);
    CHECK(strstr(last_text(), "cannot handle managed CUDA memory") != NULL);
    /* What the caller says is not asked again. */
    CHECK_EQ(cuda->count("cuPointerGetAttributes", 0), 4);
    CHECK_CODE(register_as(context, plain, HWS_MEMORY_CUDA, &memory), HWS_E_BUFFER_KIND);
    CHECK_CODE(register_as(context, plain, 7, &memory), HWS_E_BUFFER_KIND);
    CHECK_EQ(cuda->count("cuPointerGetAttributes", 0), 4);
    CHECK_OK(hws_close_wait(context, t_patience()));
}

/* Every call that takes a buffer: the GPU's is refused before UCX or the processor touches it. */
CASE(the_kind_of_a_buffer_is_found)
{
    static uint64_t device[8], managed[8];
    const stub_cuda_control *cuda = t_cuda_stub();
    hws_op_opts opts = {.struct_size = sizeof opts, .memory_kind = HWS_MEMORY_UNKNOWN};
    hws_op_opts pieces = {
        .struct_size = sizeof pieces, .memory_kind = HWS_MEMORY_UNKNOWN, .flags = HWS_OP_IOV};
    hws_iov iov[2] = {{.base = device, .length = 0}, {.base = managed, .length = 8}};
    hws_segment segment = {.base = device, .length = 8, .memory_kind = HWS_MEMORY_UNKNOWN};
    hws_id op = 0;
    t_pair pair;

    cuda->pointer(device, sizeof device, STUB_DEVICE, T_CUDA_APP);
    cuda->pointer(managed, sizeof managed, STUB_MANAGED, T_CUDA_APP);
    t_pair_open(&pair, NULL);
    message(&pair, HWS_MEMORY_HOST);
    CHECK_EQ(cuda->calls(), 0);
    message(&pair, HWS_MEMORY_UNKNOWN);
    CHECK_EQ(cuda->count("cuPointerGetAttributes", thread_id()), 2);
    CHECK_CODE(hws_tag_send(pair.endpoint[0], device, 8, 1, &opts, &op), HWS_E_BUFFER_KIND);
    CHECK(strstr(last_text(), "CUDA memory") != NULL);
    CHECK_CODE(hws_tag_send(pair.endpoint[0], iov, 2, 1, &pieces, &op), HWS_E_BUFFER_KIND);
    CHECK(strstr(last_text(), "managed") != NULL);
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], device, 8, 1, ALL, &opts, &op), HWS_E_BUFFER_KIND);
    CHECK_CODE(hws_am_send(pair.endpoint[0], 1, NULL, 0, device, 8, &opts, &op), HWS_E_BUFFER_KIND);
    CHECK_CODE(hws_stream_send(pair.endpoint[0], managed, 8, &opts, &op), HWS_E_BUFFER_KIND);
    CHECK_CODE(hws_stream_recv(pair.endpoint[1], device, 8, &opts, &op), HWS_E_BUFFER_KIND);
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, &segment, 1, NULL, NULL, &op),
               HWS_E_BUFFER_KIND);
    segment.memory_kind = HWS_MEMORY_CUDA_MANAGED;
    CHECK_CODE(hws_multi_send(pair.endpoint[0], 1, &segment, 1, NULL, NULL, &op),
               HWS_E_BUFFER_KIND);
    opts.memory_kind = HWS_MEMORY_CUDA;
    CHECK_CODE(hws_tag_send(pair.endpoint[0], device, 8, 1, &opts, &op), HWS_E_BUFFER_KIND);
    opts.memory_kind = 7;
    CHECK_CODE(hws_tag_send(pair.endpoint[0], device, 8, 1, &opts, &op), HWS_E_BUFFER_KIND);
    message(&pair, HWS_MEMORY_HOST); /* the connection lives */
    t_pair_close(&pair);
}

/* ---- The CUDA context of whoever makes progress ---- */

typedef struct seen_context {
    const stub_cuda_control *cuda;
    _Atomic(void *) context;
    _Atomic long thread;
    _Atomic int count;
} seen_context;

static void look_at_context(void *arg, const hws_event *event)
{
    seen_context *seen = arg;

    CHECK_OK(event->status);
    atomic_store(&seen->context, seen->cuda->get_current());
    atomic_store(&seen->thread, thread_id());
    atomic_fetch_add(&seen->count, 1);
}

/* What is current in a callback of the receiving side. */
static void *context_in_callback(t_pair *pair, const stub_cuda_control *cuda, long *thread)
{
    static seen_context seen;
    hws_op_opts opts = {
        .struct_size = sizeof opts, .callback = look_at_context, .callback_arg = &seen};
    uint64_t in = 0, out = 5;
    hws_id send = 0;

    seen.cuda = cuda;
    atomic_store(&seen.count, 0);
    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, ALL, &opts, NULL));
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(pair, send);
    UNTIL(pair, atomic_load(&seen.count) == 1);
    *thread = atomic_load(&seen.thread);
    return atomic_load(&seen.context);
}

static void current_in_mode(uint32_t mode)
{
    static char pinned[2][64];
    const stub_cuda_control *cuda = t_cuda_stub();
    bool threads = mode >= HWS_PROGRESS_THREAD;
    t_pair_opts opts = {.mode = mode};
    hws_id first = 0, second = 0;
    long thread = 0, me = thread_id();
    t_pair pair;
    int pushed, popped;

    cuda->pointer(pinned, sizeof pinned, STUB_HOST, T_CUDA_APP);
    t_pair_open(&pair, &opts);
    CHECK(context_in_callback(&pair, cuda, &thread) == NULL);
    CHECK_EQ(cuda->calls(), 0);

    cuda->set_current(T_CUDA_APP);
    CHECK_OK(register_as(pair.context, pinned[0], HWS_MEMORY_UNKNOWN, &first));
    cuda->set_current(T_CUDA_OTHER); /* whatever the thread does later */
    /* From the next sweep on. */
    UNTIL(&pair, context_in_callback(&pair, cuda, &thread) == T_CUDA_APP);
    CHECK_EQ(thread != me, threads);
    CHECK(cuda->get_current() == T_CUDA_OTHER); /* restored, where it was this thread */
    CHECK(cuda->count("cuCtxPushCurrent_v2", thread) > 0);

    CHECK_OK(register_as(pair.context, pinned[1], HWS_MEMORY_UNKNOWN, &second));
    UNTIL(&pair,
          context_in_callback(&pair, cuda, &thread) == T_CUDA_OTHER); /* the last one counts */
    CHECK_OK(hws_close(second));
    UNTIL(&pair, context_in_callback(&pair, cuda, &thread) == T_CUDA_APP);
    CHECK_OK(hws_close(first));
    cuda->set_current(NULL);
    UNTIL(&pair, context_in_callback(&pair, cuda, &thread) == NULL);
    t_pair_close(&pair);
    pushed = cuda->count("cuCtxPushCurrent_v2", 0);
    popped = cuda->count("cuCtxPopCurrent_v2", 0);
    CHECK_EQ(pushed, popped);
}

CASE(context_is_current_on_the_progress_thread)
{
    current_in_mode(HWS_PROGRESS_THREAD);
}

CASE(context_is_current_on_the_polling_thread)
{
    current_in_mode(HWS_PROGRESS_THREAD_POLLING);
}

CASE(context_is_current_for_who_makes_progress_by_hand)
{
    current_in_mode(HWS_PROGRESS_MANUAL);
}

CASE(context_is_current_for_a_poller)
{
    current_in_mode(HWS_PROGRESS_BLOCKING);
}

CASE(a_context_that_cuda_refuses_is_given_up)
{
    static char pinned[64];
    const stub_cuda_control *cuda = t_cuda_stub();
    hws_id memory = 0;
    long thread = 0;
    t_pair pair;

    cuda->pointer(pinned, sizeof pinned, STUB_HOST, T_CUDA_APP);
    t_pair_open(&pair, NULL);
    cuda->set_current(T_CUDA_APP);
    CHECK_OK(register_as(pair.context, pinned, HWS_MEMORY_UNKNOWN, &memory));
    cuda->set_current(NULL);
    cuda->fail("cuCtxPushCurrent_v2", T_CUDA_UNKNOWN_ERROR);
    CHECK(context_in_callback(&pair, cuda, &thread) == NULL);
    CHECK_EQ(cuda->count("cuCtxPushCurrent_v2", 0), 1); /* not at every sweep */
    CHECK_EQ(cuda->count("cuCtxPopCurrent_v2", 0), 0);
    CHECK_OK(hws_close(memory));
    message(&pair, HWS_MEMORY_HOST);
    t_pair_close(&pair);
}

/* ---- What ends such a send early, and what fails ---- */

/* What cannot begin is refused by the call; nothing is told of it besides. */
static void refused(t_pair *pair, const hws_op_opts *how, int32_t code, const char *text)
{
    hws_op_opts opts = *how;
    uint64_t out = 5;
    t_record record;

    t_record_init(&record);
    opts.callback = t_record_event;
    opts.callback_arg = &record;
    CHECK_CODE(hws_tag_send(pair->endpoint[0], &out, 8, 1, &opts, NULL), code);
    CHECK(strstr(last_text(), text) != NULL);
    t_pair_idle(pair, 2 * T_MS);
    CHECK_EQ(t_record_count(&record), 0);
    t_record_free(&record);
}

CASE(mistakes_are_refused)
{
    hws_op_opts opts = t_cuda_on_stream();
    uint64_t in = 0;
    hws_id op = 0;
    t_pair pair;

    t_cuda_stub();
    t_pair_open(&pair, NULL);
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, &opts, &op), HWS_E_INVALID);
    CHECK_CODE(hws_flush(pair.endpoint[0], &opts, &op), HWS_E_INVALID);
    opts.stream = (void *)2;
    refused(&pair, &opts, HWS_E_INVALID, "CU_STREAM_PER_THREAD");
    opts = (hws_op_opts){.struct_size = sizeof opts, .stream = T_CUDA_STREAM};
    uint64_t out = 5;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op)); /* without the flag */
    WAIT_OK(&pair, op);
    t_pair_close(&pair);
}

CASE(without_libcuda_streams_are_refused_and_all_memory_is_the_hosts)
{
    hws_op_opts opts = t_cuda_on_stream();
    t_pair pair;

    setenv("HAWSER_CUDA", "/nonexistent/libcuda.so.1", 1);
    t_pair_open(&pair, NULL);
    refused(&pair, &opts, HWS_E_CUDA, "no CUDA: ");
    message(&pair, HWS_MEMORY_UNKNOWN);
    t_pair_close(&pair);
}

CASE(a_libcuda_that_lacks_a_function_is_refused)
{
    hws_op_opts opts = t_cuda_on_stream();
    char memory[64];
    hws_id id = 0;
    t_pair pair;

    t_cuda_use("HAWSER_STUB_CUDA_INCOMPLETE");
    t_pair_open(&pair, NULL);
    refused(&pair, &opts, HWS_E_CUDA, "has no function cuStreamSynchronize");
    opts = (hws_op_opts){.struct_size = sizeof opts, .memory_kind = HWS_MEMORY_UNKNOWN};
    refused(&pair, &opts, HWS_E_CUDA, "has no function cuStreamSynchronize");
    CHECK_CODE(register_as(pair.context, memory, HWS_MEMORY_UNKNOWN, &id), HWS_E_CUDA);
    message(&pair, HWS_MEMORY_HOST);
    t_pair_close(&pair);
}

CASE(a_pointer_that_cuda_cannot_tell_is_refused)
{
    const stub_cuda_control *cuda = t_cuda_stub();
    hws_op_opts opts = {.struct_size = sizeof opts, .memory_kind = HWS_MEMORY_UNKNOWN};
    char memory[64];
    hws_id id = 0;
    t_pair pair;

    t_pair_open(&pair, NULL);
    cuda->fail("cuPointerGetAttributes", T_CUDA_UNKNOWN_ERROR);
    refused(&pair, &opts, HWS_E_CUDA, "cuPointerGetAttributes: CUDA_ERROR_UNKNOWN (999)");
    CHECK_CODE(register_as(pair.context, memory, HWS_MEMORY_UNKNOWN, &id), HWS_E_CUDA);
    /* Nobody uses CUDA: CUDA_ERROR_NOT_INITIALIZED. */
    cuda->fail("cuPointerGetAttributes", 3);
    message(&pair, HWS_MEMORY_UNKNOWN);
    t_pair_close(&pair);
}

CASES_MAIN
