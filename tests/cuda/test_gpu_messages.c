/*
 * Messages of every kind out of and into memory of a GPU, or of one in software: small and large, over shared memory
 * and TCP. Where UCX has no CUDA they are refused. UCX: both TIMEOUT: 240
 */
#include "support/cases.h"
#include "support/gpu.h"
#include "support/pair.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 6, MANAGED_GLOBAL = 1 };
#define ALL UINT64_MAX
#define FEATURES \
    (HWS_FEATURE_TAG | HWS_FEATURE_STREAM | HWS_FEATURE_AM | HWS_FEATURE_RMA | HWS_FEATURE_ATOMIC)

static const uint64_t sizes[SIZES] = {0, 8, 200, 8000, 70000, 1 << 20};
static const t_gpu *cu;

/* Opens; the case is skipped where this UCX has no CUDA, once that its memory is refused is seen. */
static void open_pair(t_pair *pair, uint32_t flags)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .memory_kind = HWS_MEMORY_CUDA};
    hws_library_info info = {.struct_size = sizeof info};
    uintptr_t memory = 0;
    hws_id op = 0;
    int32_t code;

    cu = t_gpu_open();
    t_pair_open(pair, &(t_pair_opts){.endpoint_flags = flags, .features = FEATURES});
    CHECK_EQ(cu->alloc(&memory, 64), 0);
    code = hws_tag_recv(pair->endpoint[1], (void *)memory, 64, 99, ALL, &opts, &op);
    CHECK_OK(hws_library_open(NULL, &info));
    if (code == HWS_E_BUFFER_KIND && info.ucx_minor == 13) {
        t_pair_close(pair);
        SKIP("this UCX has no CUDA: the GPU's memory was refused");
    }
    CHECK_OK(code);
    CHECK_OK(hws_cancel(op));
    CHECK_EQ(WAIT(pair, op).status, HWS_E_CANCELED);
    cu->release(memory);
}

/* Memory of the GPU with known contents. */
static uintptr_t on_gpu(uint64_t size, uint64_t seed)
{
    unsigned char *bytes = t_alloc(size + 1);
    uintptr_t memory = 0;

    t_fill(bytes, size, seed);
    CHECK_EQ(cu->alloc(&memory, size + 1), 0);
    CHECK_EQ(cu->set(memory, 0xee, size + 1), 0);
    if (seed != 0 && size != 0) {
        CHECK_EQ(cu->to_device(memory, bytes, size), 0);
    }
    CHECK_EQ(cu->finish(), 0);
    free(bytes);
    return memory;
}

/* It has these contents, and nothing was written behind them. */
static void check_gpu(uintptr_t memory, uint64_t size, uint64_t seed)
{
    unsigned char *seen = t_alloc(size + 1), *bytes = t_alloc(size + 1);

    t_fill(bytes, size, seed);
    CHECK_EQ(cu->to_host(seen, memory, size + 1), 0);
    CHECK(memcmp(seen, bytes, size) == 0);
    CHECK_EQ(seen[size], 0xee);
    free(seen);
    free(bytes);
}

static hws_op_opts gpu_opts(uint32_t kind)
{
    return (hws_op_opts){.struct_size = sizeof(hws_op_opts), .memory_kind = kind};
}

/* How a message is received. */
enum { POSTED_BEFORE, POSTED_AFTER, BY_WORKER, PROBED, TAKEN, WAYS };

static hws_id receive(t_pair *pair, int way, uintptr_t to, uint64_t size, const hws_op_opts *opts)
{
    hws_id op = 0, message = 0;
    hws_op_opts take = {.struct_size = sizeof take, .flags = HWS_OP_TAKE};

    if (way == POSTED_BEFORE || way == POSTED_AFTER) {
        CHECK_OK(hws_tag_recv(pair->endpoint[1], (void *)to, size, 5, ALL, opts, &op));
    } else if (way == BY_WORKER) {
        CHECK_OK(hws_tag_recv(pair->worker[1], (void *)to, size, 5, ALL, opts, &op));
    } else if (way == PROBED) {
        UNTIL(pair, hws_tag_probe(pair->endpoint[1], 5, ALL, NULL, &message) == HWS_OK);
        CHECK_OK(hws_message_recv(message, (void *)to, size, opts, &op));
    } else {
        CHECK_OK(hws_tag_recv(pair->endpoint[1], NULL, 0, 5, ALL, &take, &op));
        message = WAIT_OK(pair, op).source;
        CHECK_OK(hws_message_recv(message, (void *)to, size, opts, &op));
    }
    return op;
}

static void one_way(t_pair *pair, int way, uint64_t size, bool from_gpu, uint32_t kind)
{
    hws_op_opts out = gpu_opts(from_gpu ? kind : HWS_MEMORY_HOST), in = gpu_opts(kind);
    uintptr_t from = on_gpu(size, 3), to = on_gpu(size, 0);
    unsigned char *host = t_alloc(size + 1);
    hws_id send = 0, recv = 0;

    t_fill(host, size, 3);
    if (way == POSTED_BEFORE) {
        recv = receive(pair, way, to, size, &in);
    }
    CHECK_OK(hws_tag_send(pair->endpoint[0], from_gpu ? (void *)from : host, size, 5, &out, &send));
    if (way == POSTED_AFTER) {
        t_pair_idle(pair, 2 * T_MS);
    }
    if (way != POSTED_BEFORE) {
        recv = receive(pair, way, to, size, &in);
    }
    CHECK_EQ(WAIT_OK(pair, recv).length, size);
    WAIT_OK(pair, send);
    check_gpu(to, size, 3);
    cu->release(from);
    cu->release(to);
    free(host);
}

CASE_BOTH(tagged)
{
    t_pair pair;

    open_pair(&pair, flags);
    for (int i = 0; i < SIZES; i++) {
        for (int way = 0; way < WAYS; way++) {
            one_way(&pair, way, sizes[i], true, HWS_MEMORY_CUDA);
            one_way(&pair, way, sizes[i], false, HWS_MEMORY_CUDA);
            one_way(&pair, way, sizes[i], true, HWS_MEMORY_UNKNOWN);
        }
    }
    t_pair_close(&pair);
}

/* More than travel one by one share messages of UCX, and wait together. */
CASE_BOTH(a_burst)
{
    enum { COUNT = 200 };
    hws_op_opts opts = gpu_opts(HWS_MEMORY_CUDA);
    uintptr_t to[COUNT];
    hws_id op[COUNT];
    uint64_t value[COUNT];
    t_pair pair;

    open_pair(&pair, flags);
    for (uint64_t i = 0; i < COUNT; i++) {
        hws_id send = 0;

        value[i] = 1000 + i;
        CHECK_OK(hws_tag_send(pair.endpoint[0], &value[i], 8, i, NULL, &send));
        op[i] = send;
    }
    for (int i = 0; i < COUNT; i++) {
        WAIT_OK(&pair, op[i]);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        to[i] = on_gpu(8, 0);
        CHECK_OK(hws_tag_recv(pair.endpoint[1], (void *)to[i], 8, i, ALL, &opts, &op[i]));
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t seen = 0;

        CHECK_EQ(WAIT_OK(&pair, op[i]).length, 8);
        CHECK_EQ(cu->to_host(&seen, to[i], 8), 0);
        CHECK_EQ(seen, value[i]);
        cu->release(to[i]);
    }
    t_pair_close(&pair);
}

CASE_BOTH(into_pieces)
{
    hws_op_opts in = gpu_opts(HWS_MEMORY_CUDA);
    unsigned char host[1200];
    hws_iov pieces[3];
    uintptr_t to;
    hws_id send = 0, recv = 0;
    t_pair pair;

    open_pair(&pair, flags);
    to = on_gpu(1200, 0);
    t_fill(host, sizeof host, 3);
    pieces[0] = (hws_iov){(void *)to, 400};
    pieces[1] = (hws_iov){NULL, 0};
    pieces[2] = (hws_iov){(void *)(to + 400), 800};
    in.flags = HWS_OP_IOV;
    CHECK_OK(hws_tag_recv(pair.endpoint[1], pieces, 3, 5, ALL, &in, &recv));
    CHECK_OK(hws_tag_send(pair.endpoint[0], host, sizeof host, 5, NULL, &send));
    CHECK_EQ(WAIT_OK(&pair, recv).length, 1200);
    WAIT_OK(&pair, send);
    check_gpu(to, 1200, 3);
    cu->release(to);
    t_pair_close(&pair);
}

CASE_BOTH(too_long_for_its_receive)
{
    hws_op_opts in = gpu_opts(HWS_MEMORY_CUDA);
    unsigned char host[400];
    hws_id send = 0, recv = 0;
    uintptr_t to;
    t_pair pair;

    open_pair(&pair, flags);
    to = on_gpu(100, 0);
    t_fill(host, sizeof host, 3);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], (void *)to, 100, 5, ALL, &in, &recv));
    CHECK_OK(hws_tag_send(pair.endpoint[0], host, sizeof host, 5, NULL, &send));
    CHECK_EQ(WAIT(&pair, recv).status, HWS_E_TRUNCATED);
    WAIT_OK(&pair, send);
    check_gpu(to, 100, 3);
    cu->release(to);
    t_pair_close(&pair);
}

/* UCX lets managed memory be the host's where no GPU has touched it yet: what is asked is that the bytes come. */
CASE_BOTH(managed)
{
    hws_op_opts opts = gpu_opts(HWS_MEMORY_CUDA_MANAGED);
    t_pair pair;

    open_pair(&pair, flags);
    for (int i = 1; i < SIZES; i++) {
        uintptr_t from = 0, to = 0;
        hws_id send = 0, recv = 0;

        CHECK_EQ(cu->alloc_managed(&from, sizes[i], MANAGED_GLOBAL), 0);
        CHECK_EQ(cu->alloc_managed(&to, sizes[i], MANAGED_GLOBAL), 0);
        t_fill((void *)from, sizes[i], 7);
        memset((void *)to, 0, sizes[i]);
        CHECK_OK(hws_tag_recv(pair.endpoint[1], (void *)to, sizes[i], 5, ALL, &opts, &recv));
        CHECK_OK(hws_tag_send(pair.endpoint[0], (void *)from, sizes[i], 5, &opts, &send));
        WAIT_OK(&pair, recv);
        WAIT_OK(&pair, send);
        CHECK(memcmp((void *)from, (void *)to, sizes[i]) == 0);
        cu->release(from);
        cu->release(to);
    }
    t_pair_close(&pair);
}

/* ---- active messages, streams, many segments ---- */

typedef struct arrived {
    uintptr_t memory;
    uint64_t length;
    int count, freed;
    int32_t status;
} arrived;

static void *take_gpu(void *arg, uint64_t length, uint32_t kind)
{
    arrived *a = arg;

    CHECK_EQ(kind, HWS_MEMORY_CUDA);
    a->memory = on_gpu(length, 0);
    return (void *)a->memory;
}

static void keep_gpu(void *arg, void *memory, uint64_t length)
{
    arrived *a = arg;

    (void)length;
    CHECK(memory == (void *)a->memory);
    a->freed++;
}

static void on_am(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    arrived *a = arg;

    a->status = event->status;
    a->length = event->length;
    CHECK(event->status < 0 || event->length == 0 || detail->data == (void *)a->memory);
    a->count++;
}

CASE_BOTH(active_messages)
{
    arrived a = {0};
    hws_am_opts handler = {.struct_size = sizeof handler,
                           .memory_kind = HWS_MEMORY_CUDA,
                           .alloc = take_gpu,
                           .free = keep_gpu,
                           .alloc_arg = &a,
                           .sink = {.callback = on_am, .callback_arg = &a}};
    hws_op_opts opts = gpu_opts(HWS_MEMORY_CUDA);
    hws_am_opts nowhere = {.struct_size = sizeof nowhere,
                           .memory_kind = HWS_MEMORY_CUDA,
                           .sink = {.callback = on_am, .callback_arg = &a}};
    t_pair pair;

    open_pair(&pair, flags);
    CHECK_CODE(hws_am_handler(pair.worker[1], 3, &nowhere), HWS_E_INVALID);
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &handler));
    for (int i = 1; i < SIZES; i++) {
        uintptr_t from = on_gpu(sizes[i], 3);
        hws_id op = 0;

        a.count = a.freed = 0;
        CHECK_OK(hws_am_send(pair.endpoint[0], 3, "head", 4, (void *)from, sizes[i], &opts, &op));
        UNTIL(&pair, a.count == 1);
        WAIT_OK(&pair, op);
        CHECK_OK(a.status);
        CHECK_EQ(a.length, sizes[i]);
        UNTIL(&pair, a.freed == 1);
        check_gpu(a.memory, sizes[i], 3);
        cu->release(a.memory);
        cu->release(from);
    }
    t_pair_close(&pair);
}

CASE_BOTH(streams)
{
    hws_op_opts opts = gpu_opts(HWS_MEMORY_CUDA);
    t_pair pair;

    opts.flags = HWS_OP_WAIT_ALL;
    open_pair(&pair, flags);
    for (int i = 1; i < SIZES; i++) {
        uintptr_t from = on_gpu(sizes[i], 3), to = on_gpu(sizes[i], 0);
        hws_op_opts out = gpu_opts(HWS_MEMORY_CUDA);
        hws_id send = 0, recv = 0;

        CHECK_OK(hws_stream_send(pair.endpoint[0], (void *)from, sizes[i], &out, &send));
        CHECK_OK(hws_stream_recv(pair.endpoint[1], (void *)to, sizes[i], &opts, &recv));
        CHECK_EQ(WAIT_OK(&pair, recv).length, sizes[i]);
        WAIT_OK(&pair, send);
        check_gpu(to, sizes[i], 3);
        cu->release(from);
        cu->release(to);
    }
    t_pair_close(&pair);
}

static hws_segment segment(uintptr_t base, uint64_t length, uint32_t kind)
{
    return (hws_segment){.base = (void *)base, .length = length, .memory_kind = kind};
}

/* One of the host and one of the GPU; both are received into the GPU's. */
CASE_BOTH(many_segments)
{
    hws_multi_recv_opts list_only = {.struct_size = sizeof list_only, .flags = HWS_MULTI_LIST};
    unsigned char host[300];
    t_pair pair;

    open_pair(&pair, flags);
    t_fill(host, sizeof host, 4);
    for (int i = 1; i < SIZES; i++) {
        uintptr_t from = on_gpu(sizes[i], 3), to = on_gpu(sizes[i], 0), small = on_gpu(300, 0);
        hws_segment out[2] = {segment((uintptr_t)host, sizeof host, HWS_MEMORY_HOST),
                              segment(from, sizes[i], HWS_MEMORY_CUDA)};
        hws_segment in[2] = {segment(small, 300, HWS_MEMORY_UNKNOWN),
                             segment(to, sizes[i], HWS_MEMORY_CUDA)};
        const hws_multi_detail *detail;
        hws_id send = 0, recv = 0, fetch = 0;

        CHECK_OK(hws_multi_send(pair.endpoint[0], 9, out, 2, NULL, NULL, &send));
        CHECK_OK(hws_multi_recv(pair.endpoint[1], 9, ALL, &list_only, NULL, &recv));
        detail = WAIT_OK(&pair, recv).detail;
        CHECK_EQ(detail->count, 2);
        CHECK_EQ(detail->segments[1].memory_kind, HWS_MEMORY_CUDA);
        CHECK_OK(hws_multi_fetch(detail->buffer, in, 2, NULL, &fetch));
        WAIT_OK(&pair, fetch);
        WAIT_OK(&pair, send);
        check_gpu(small, 300, 4);
        check_gpu(to, sizes[i], 3);
        cu->release(from);
        cu->release(to);
        cu->release(small);
    }
    t_pair_close(&pair);
}

/* ---- remote memory ---- */

static hws_id key_of(t_pair *pair, hws_id memory)
{
    unsigned char packed[1024];
    uint64_t needed = 0;
    hws_id key = 0;

    CHECK_OK(hws_rkey_pack(memory, 0, packed, sizeof packed, &needed));
    CHECK_OK(hws_rkey_unpack(pair->endpoint[0], packed, needed, 0, &key));
    return key;
}

CASE_BOTH(remote_memory)
{
    hws_mem_opts reg = {.struct_size = sizeof reg, .memory_kind = HWS_MEMORY_CUDA};
    hws_op_opts opts = gpu_opts(HWS_MEMORY_CUDA);
    t_pair pair;

    open_pair(&pair, flags);
    for (int i = 1; i < SIZES; i++) {
        uintptr_t there = on_gpu(sizes[i], 3), from = on_gpu(sizes[i], 5), to = on_gpu(sizes[i], 0);
        unsigned char *host = t_alloc(sizes[i]), *expected = t_alloc(sizes[i]);
        hws_id memory = 0, key, op = 0;

        CHECK_OK(hws_mem_register(pair.context, (void *)there, sizes[i], &reg, &memory));
        key = key_of(&pair, memory);
        CHECK_OK(hws_get(key, there, (void *)to, sizes[i], &opts, &op));
        WAIT_OK(&pair, op);
        check_gpu(to, sizes[i], 3);
        CHECK_OK(hws_put(key, there, (void *)from, sizes[i], &opts, &op));
        WAIT_OK(&pair, op);
        CHECK_OK(hws_flush(pair.endpoint[0], NULL, &op));
        WAIT_OK(&pair, op);
        check_gpu(there, sizes[i], 5);
        CHECK_OK(hws_get(key, there, host, sizes[i], NULL, &op));
        WAIT_OK(&pair, op);
        t_fill(expected, sizes[i], 5);
        CHECK(memcmp(host, expected, sizes[i]) == 0);
        CHECK_CODE(hws_atomic(key, there, HWS_ATOMIC_ADD, 8, 1, 0, NULL, NULL, &op),
                   HWS_E_BUFFER_KIND);
        CHECK_OK(hws_close(key));
        CHECK_OK(hws_close(memory));
        cu->release(there);
        cu->release(from);
        cu->release(to);
        free(host);
        free(expected);
    }
    t_pair_close(&pair);
}

CASES_MAIN
