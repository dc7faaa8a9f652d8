/*
 * On a GPU, or one in software: the kind of its memory, messages from it to it by a progress thread or behind a stream.
 * Where UCX has no CUDA, that its memory is refused. UCX: both TIMEOUT: 180
 */
#include "support/cases.h"
#include "support/gpu.h"
#include "support/pair.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 20, MANAGED_GLOBAL = 1 };

static const t_gpu *cu;

/* Register; 0 where this UCX has no CUDA. */
static int registered(hws_id context, uintptr_t memory, uint32_t kind)
{
    hws_mem_opts opts = {.struct_size = sizeof opts, .memory_kind = HWS_MEMORY_UNKNOWN};
    hws_mem_info info = {.struct_size = sizeof info};
    hws_id id = 0;
    int32_t code = hws_mem_register(context, (void *)memory, SIZE, &opts, &id);

    if (code == HWS_E_BUFFER_KIND) {
        return 0;
    }
    CHECK_OK(code);
    CHECK_OK(hws_mem_query(id, &info));
    CHECK_EQ(info.memory_kind, kind);
    return 1;
}

CASE(kinds_are_found)
{
    uintptr_t device = 0, managed = 0;
    void *pinned = NULL, *plain = t_alloc(SIZE);
    hws_id context = 0;

    cu = t_gpu_open();
    CHECK_EQ(cu->alloc(&device, SIZE), 0);
    CHECK_EQ(cu->alloc_managed(&managed, SIZE, MANAGED_GLOBAL), 0);
    CHECK_EQ(cu->alloc_host(&pinned, SIZE), 0);
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_EQ(registered(context, (uintptr_t)plain, HWS_MEMORY_HOST), 1);
    CHECK_EQ(registered(context, (uintptr_t)pinned, HWS_MEMORY_HOST), 1);
    registered(context, device, HWS_MEMORY_CUDA);
    registered(context, managed, HWS_MEMORY_CUDA_MANAGED);
    CHECK_OK(hws_close_wait(context, t_patience()));
    free(plain);
}

typedef struct deferred {
    hws_id buffer;
    int count;
} deferred;

static void on_am(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    deferred *d = arg;

    CHECK(event->flags & HWS_EVENT_FLAG_RNDV);
    d->buffer = detail->buffer;
    d->count++;
}

/* From one piece of the GPU's memory to another; `stream`: that is still being written. */
static void through_the_gpu(uint32_t mode, int with_stream)
{
    hws_op_opts send = {.struct_size = sizeof send, .memory_kind = HWS_MEMORY_UNKNOWN};
    hws_op_opts recv = {.struct_size = sizeof recv, .memory_kind = HWS_MEMORY_CUDA};
    unsigned char *seen = t_alloc(SIZE);
    uintptr_t from = 0, to = 0;
    deferred d = {0, 0};
    hws_am_opts handler = {.struct_size = sizeof handler,
                           .flags = HWS_AM_DEFER,
                           .sink = {.callback = on_am, .callback_arg = &d}};
    t_pair_opts opts = {.mode = mode};
    hws_id op = 0, fetch = 0;
    t_pair pair;

    cu = t_gpu_open();
    CHECK_EQ(cu->alloc(&from, SIZE), 0);
    CHECK_EQ(cu->alloc(&to, SIZE), 0);
    CHECK_EQ(cu->set(from, 3, SIZE), 0);
    CHECK_EQ(cu->set(to, 0, SIZE), 0);
    CHECK_EQ(cu->finish(), 0);
    t_pair_open(&pair, &opts);
    if (!registered(pair.context, from, HWS_MEMORY_CUDA)) {
        CHECK_CODE(hws_am_send(pair.endpoint[0], 1, NULL, 0, (void *)from, SIZE, &send, &op),
                   HWS_E_BUFFER_KIND);
        t_pair_close(&pair);
        SKIP("this UCX has no CUDA: the GPU's memory was refused");
    }
    CHECK_OK(hws_am_handler(pair.worker[1], 1, &handler));
    if (with_stream) {
        CHECK_EQ(cu->stream(&send.stream, 1), 0);
        for (int i = 0; i <= 200; i++) {
            CHECK_EQ(cu->set_async(from, (unsigned char)i, SIZE, send.stream), 0);
        }
        send.flags |= HWS_OP_STREAM;
    }
    CHECK_OK(hws_am_send(pair.endpoint[0], 1, NULL, 0, (void *)from, SIZE, &send, &op));
    UNTIL(&pair, d.count == 1);
    CHECK_OK(hws_am_recv(d.buffer, (void *)to, SIZE, &recv, &fetch));
    WAIT_OK(&pair, fetch);
    WAIT_OK(&pair, op);
    CHECK_EQ(cu->to_host(seen, to, SIZE), 0);
    for (int i = 0; i < SIZE; i++) {
        CHECK_EQ(seen[i], with_stream ? 200 : 3);
    }
    t_pair_close(&pair);
    cu->release(from);
    cu->release(to);
    free(seen);
}

CASE(from_gpu_to_gpu)
{
    through_the_gpu(HWS_PROGRESS_MANUAL, 0);
}

CASE(from_gpu_to_gpu_with_a_progress_thread)
{
    through_the_gpu(HWS_PROGRESS_THREAD, 0);
}

CASE(from_gpu_to_gpu_behind_a_stream)
{
    through_the_gpu(HWS_PROGRESS_MANUAL, 1);
}

/* Works with every UCX: the stream fills memory of the host. */
CASE(from_pinned_memory_behind_a_stream)
{
    hws_op_opts opts = {
        .struct_size = sizeof opts, .flags = HWS_OP_STREAM, .memory_kind = HWS_MEMORY_UNKNOWN};
    unsigned char *in = t_alloc(SIZE);
    void *pinned = NULL;
    uintptr_t device = 0;
    hws_id recv = 0, send = 0;
    t_pair pair;

    cu = t_gpu_open();
    CHECK_EQ(cu->alloc(&device, SIZE), 0);
    CHECK_EQ(cu->alloc_host(&pinned, SIZE), 0);
    memset(pinned, 0, SIZE);
    CHECK_EQ(cu->stream(&opts.stream, 1), 0);
    t_pair_open(&pair, NULL);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], in, SIZE, 1, UINT64_MAX, NULL, &recv));
    for (int i = 0; i <= 200; i++) {
        CHECK_EQ(cu->set_async(device, (unsigned char)i, SIZE, opts.stream), 0);
        CHECK_EQ(cu->to_host_async(pinned, device, SIZE, opts.stream), 0);
    }
    CHECK_OK(hws_tag_send(pair.endpoint[0], pinned, SIZE, 1, &opts, &send));
    WAIT_OK(&pair, send);
    WAIT_OK(&pair, recv);
    for (int i = 0; i < SIZE; i++) {
        CHECK_EQ(in[i], 200);
    }
    t_pair_close(&pair);
    cu->release(device);
    free(in);
}

CASES_MAIN
