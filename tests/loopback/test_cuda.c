/*
 * CUDA without a GPU: a libcuda of the tests' own (support/stub_cuda.c) says what a pointer is and records
 * the calls. UCX is the real one: it is given host memory only. TIMEOUT: 180
 */
#include "support/cases.h"
#include "support/remote.h"
#include "support/stub_cuda.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALL UINT64_MAX
#define APP ((void *)0xc0de)    /* the application's CUDA context */
#define OTHER ((void *)0x07e4)  /* another one */
#define STREAM ((void *)0x57e4) /* a stream of it */

enum { ILLEGAL_ADDRESS = 700, UNKNOWN_ERROR = 999 };

/* Take a library for libcuda; its controls, if it is the stub. */
static const stub_cuda_control *use(const char *variable)
{
    const char *path = getenv(variable);
    const stub_cuda_control *(*control)(void);
    void *address;

    CHECK(path != NULL);
    /* UCX's own CUDA must not meet the stub's pointers where there is a GPU. */
    setenv("UCX_TLS", "sysv,cma,self,tcp", 1);
    setenv("HAWSER_CUDA", path, 1);
    address = dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), "stub_cuda");
    CHECK(address != NULL);
    memcpy(&control, &address, sizeof address);
    control()->initialize();
    return control();
}

static const stub_cuda_control *stub(void)
{
    return use("HAWSER_STUB_CUDA");
}

static long thread_id(void)
{
    return syscall(SYS_gettid);
}

static hws_op_opts on_stream(void)
{
    return (hws_op_opts){
        .struct_size = sizeof(hws_op_opts), .flags = HWS_OP_STREAM, .stream = STREAM};
}

static hws_op_opts recorded_on_stream(t_record *record)
{
    hws_op_opts opts = on_stream();

    t_record_init(record);
    opts.callback = t_record_event;
    opts.callback_arg = record;
    return opts;
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
    const stub_cuda_control *cuda = stub();
    hws_mem_info info = {.struct_size = sizeof info};
    hws_id context = 0, memory = 0;

    cuda->pointer(pinned, 64, STUB_HOST, APP);
    cuda->pointer(device, 64, STUB_DEVICE, APP);
    cuda->pointer(managed, 64, STUB_MANAGED, APP);
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
    const stub_cuda_control *cuda = stub();
    hws_op_opts opts = {.struct_size = sizeof opts, .memory_kind = HWS_MEMORY_UNKNOWN};
    hws_op_opts pieces = {
        .struct_size = sizeof pieces, .memory_kind = HWS_MEMORY_UNKNOWN, .flags = HWS_OP_IOV};
    hws_iov iov[2] = {{.base = device, .length = 0}, {.base = managed, .length = 8}};
    hws_segment segment = {.base = device, .length = 8, .memory_kind = HWS_MEMORY_UNKNOWN};
    hws_id op = 0;
    t_pair pair;

    cuda->pointer(device, sizeof device, STUB_DEVICE, APP);
    cuda->pointer(managed, sizeof managed, STUB_MANAGED, APP);
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
    const stub_cuda_control *cuda = stub();
    bool threads = mode >= HWS_PROGRESS_THREAD;
    t_pair_opts opts = {.mode = mode};
    hws_id first = 0, second = 0;
    long thread = 0, me = thread_id();
    t_pair pair;
    int pushed, popped;

    cuda->pointer(pinned, sizeof pinned, STUB_HOST, APP);
    t_pair_open(&pair, &opts);
    CHECK(context_in_callback(&pair, cuda, &thread) == NULL);
    CHECK_EQ(cuda->calls(), 0);

    cuda->set_current(APP);
    CHECK_OK(register_as(pair.context, pinned[0], HWS_MEMORY_UNKNOWN, &first));
    cuda->set_current(OTHER); /* whatever the thread does later */
    /* From the next sweep on. */
    UNTIL(&pair, context_in_callback(&pair, cuda, &thread) == APP);
    CHECK_EQ(thread != me, threads);
    CHECK(cuda->get_current() == OTHER); /* restored, where it was this thread */
    CHECK(cuda->count("cuCtxPushCurrent_v2", thread) > 0);

    CHECK_OK(register_as(pair.context, pinned[1], HWS_MEMORY_UNKNOWN, &second));
    UNTIL(&pair, context_in_callback(&pair, cuda, &thread) == OTHER); /* the last one counts */
    CHECK_OK(hws_close(second));
    UNTIL(&pair, context_in_callback(&pair, cuda, &thread) == APP);
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
    const stub_cuda_control *cuda = stub();
    hws_id memory = 0;
    long thread = 0;
    t_pair pair;

    cuda->pointer(pinned, sizeof pinned, STUB_HOST, APP);
    t_pair_open(&pair, NULL);
    cuda->set_current(APP);
    CHECK_OK(register_as(pair.context, pinned, HWS_MEMORY_UNKNOWN, &memory));
    cuda->set_current(NULL);
    cuda->fail("cuCtxPushCurrent_v2", UNKNOWN_ERROR);
    CHECK(context_in_callback(&pair, cuda, &thread) == NULL);
    CHECK_EQ(cuda->count("cuCtxPushCurrent_v2", 0), 1); /* not at every sweep */
    CHECK_EQ(cuda->count("cuCtxPopCurrent_v2", 0), 0);
    CHECK_OK(hws_close(memory));
    message(&pair, HWS_MEMORY_HOST);
    t_pair_close(&pair);
}

/* ---- Streams ---- */

static void stream_is_waited_for(t_pair *pair, const stub_cuda_control *cuda)
{
    hws_op_opts opts = on_stream();
    uint64_t in = 0, out = 5, quick = 0;
    hws_id recv = 0, other = 0, send = 0;
    stub_call last = {0};

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_tag_recv(pair->endpoint[1], &quick, 8, 2, ALL, NULL, &other));
    cuda->set_current(APP);
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, &opts, &send));
    CHECK(send != 0);
    UNTIL(pair, cuda->waiting() == 1);
    /* The thread that posts and the one that makes progress are free: another message passes. */
    out = 6;
    hws_id second = 0;
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 2, NULL, &second));
    WAIT_OK(pair, second);
    WAIT_OK(pair, other);
    CHECK_EQ(quick, 6);
    CHECK_PENDING(send);
    CHECK_PENDING(recv);
    /* What the GPU writes now is what is sent. */
    out = 7;
    cuda->hold(0);
    WAIT_OK(pair, send);
    WAIT_OK(pair, recv);
    CHECK_EQ(in, 7);
    CHECK_EQ(cuda->count("cuStreamSynchronize", 0), 1);
    for (int i = 0; i < cuda->calls(); i++) {
        if (strcmp(cuda->call(i).name, "cuStreamSynchronize") == 0) {
            last = cuda->call(i);
        }
    }
    CHECK(last.argument == STREAM);
    CHECK(last.context == APP); /* the poster's */
    CHECK(last.thread != thread_id());
    CHECK_EQ(cuda->count("cuCtxPopCurrent_v2", last.thread), 1);
}

static void stream_in_mode(uint32_t mode)
{
    const stub_cuda_control *cuda = stub();
    t_pair_opts opts = {.mode = mode};
    t_pair pair;

    t_pair_open(&pair, &opts);
    stream_is_waited_for(&pair, cuda);
    t_pair_close(&pair);
}

CASE(stream_is_synchronised_before_a_send)
{
    stream_in_mode(HWS_PROGRESS_MANUAL);
}

CASE(stream_is_synchronised_with_a_progress_thread)
{
    stream_in_mode(HWS_PROGRESS_THREAD);
}

CASE(stream_is_synchronised_with_a_polling_thread)
{
    stream_in_mode(HWS_PROGRESS_THREAD_POLLING);
}

/* Sends of each sort; each reads `out` when it starts. */
enum { TAG, SYNC, IOV, AM, BYTES, MULTI, LARGE, SORTS };

static char big[2][200000];

static int32_t send_sort(t_pair *pair, int sort, uint64_t *out, const hws_op_opts *opts, hws_id *op)
{
    hws_op_opts pieces = *opts;
    hws_iov iov[2] = {{out, 4}, {(char *)out + 4, 4}};
    hws_segment segment = {.base = out, .length = 8};
    hws_id to = pair->endpoint[0];

    switch (sort) {
    case TAG:
        return hws_tag_send(to, out, 8, 1, opts, op);
    case SYNC:
        return hws_tag_send_sync(to, out, 8, 1, opts, op);
    case IOV:
        pieces.flags |= HWS_OP_IOV;
        return hws_tag_send(to, iov, 2, 1, &pieces, op);
    case AM:
        return hws_am_send(to, 100, "head", 4, out, 8, opts, op);
    case BYTES:
        return hws_stream_send(to, out, 8, opts, op);
    case MULTI:
        return hws_multi_send(to, 1, &segment, 1, NULL, opts, op);
    default:
        return hws_tag_send(to, big[0], sizeof big[0], 1, opts, op);
    }
}

typedef struct arrived {
    uint64_t value;
    int count;
} arrived;

static void on_am(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    arrived *a = arg;

    CHECK_EQ(detail->header_length, 4);
    CHECK(memcmp(detail->header, "head", 4) == 0);
    memcpy(&a->value, detail->data, 8);
    a->count++;
}

static hws_id receive_sort(t_pair *pair, int sort, uint64_t *in)
{
    hws_op_opts all = {.struct_size = sizeof all, .flags = HWS_OP_WAIT_ALL};
    hws_id from = pair->endpoint[1], op = 0;

    if (sort == BYTES) {
        CHECK_OK(hws_stream_recv(from, in, 8, &all, &op));
    } else if (sort == MULTI) {
        CHECK_OK(hws_multi_recv(from, 1, ALL, NULL, NULL, &op));
    } else if (sort == LARGE) {
        CHECK_OK(hws_tag_recv(from, big[1], sizeof big[1], 1, ALL, NULL, &op));
    } else if (sort != AM) {
        CHECK_OK(hws_tag_recv(from, in, 8, 1, ALL, NULL, &op));
    }
    return op;
}

/* One send of a sort while the stream is held, with what is in the options besides. */
static void one_sort(t_pair *pair, const stub_cuda_control *cuda, int sort, arrived *am)
{
    hws_op_opts opts = on_stream();
    hws_timing timing = {0};
    uint64_t in = 0, out = 1;
    hws_id recv = receive_sort(pair, sort, &in), send = 0, flush = 0;
    hws_event event;

    opts.flags |= HWS_OP_INLINE | (sort == TAG ? HWS_OP_TIMED : 0);
    opts.timing = sort == TAG ? &timing : NULL;
    memset(big[0], 1, sizeof big[0]);
    cuda->hold(1);
    CHECK_OK(send_sort(pair, sort, &out, &opts, &send));
    CHECK_OK(hws_flush(pair->endpoint[0], NULL, &flush));
    UNTIL(pair, cuda->waiting() == 1);
    t_pair_idle(pair, 5 * T_MS);
    CHECK_PENDING(send);
    CHECK_PENDING(flush); /* it is about this send too */
    out = 7 + (uint64_t)sort;
    memset(big[0], 7, sizeof big[0]);
    am->count = 0;
    cuda->hold(0);
    WAIT_OK(pair, send);
    CHECK_EQ(timing.posted_ns != 0, sort == TAG);
    if (sort == AM) {
        UNTIL(pair, am->count == 1);
        in = am->value;
    } else {
        event = WAIT_OK(pair, recv);
        if (sort == MULTI) {
            const hws_multi_detail *detail = event.detail;

            memcpy(&in, detail->segments[0].base, 8);
            CHECK_OK(hws_close(detail->buffer));
        }
    }
    CHECK_EQ(sort == LARGE ? (uint64_t)big[1][199999] : in, sort == LARGE ? 7 : out);
    WAIT_OK(pair, flush);
}

CASE(every_send_waits_for_its_stream)
{
    const stub_cuda_control *cuda = stub();
    arrived am = {0, 0};
    hws_am_opts handler = {.struct_size = sizeof handler,
                           .sink = {.callback = on_am, .callback_arg = &am}};
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_am_handler(pair.worker[1], 100, &handler));
    for (int sort = TAG; sort < SORTS; sort++) {
        one_sort(&pair, cuda, sort, &am);
    }
    CHECK_EQ(cuda->count("cuStreamSynchronize", 0), SORTS);
    t_pair_close(&pair);
}

CASE_REMOTE(puts_wait_for_their_stream)
{
    const stub_cuda_control *cuda;
    hws_op_opts opts = on_stream();
    uint64_t out = 1;
    hws_transfer transfer = {.kind = HWS_EVENT_PUT,
                             .rkey = remote->rkey,
                             .address = remote->address + 16,
                             .buffer = &out,
                             .length = 8};
    hws_id op = 0, plan = 0, flush = 0;

    cuda = stub();
    CHECK_OK(hws_plan_open(pair->endpoint[user], &transfer, 1, &plan));
    memset(remote->base, 0, 32);
    for (int i = 0; i < 3; i++) {
        uint64_t there = 0;

        cuda->hold(1);
        out = 1;
        CHECK_OK(i == 0 ? hws_put(remote->rkey, remote->address, &out, 8, &opts, &op)
                 : i == 1
                     ? hws_put_notify(remote->rkey, remote->address + 8, &out, 8, 9, &opts, &op)
                     : hws_plan_post(plan, &opts, &op));
        UNTIL(pair, cuda->waiting() == 1);
        t_pair_idle(pair, 5 * T_MS);
        CHECK_PENDING(op);
        memcpy(&there, remote->base + 8 * i, 8);
        CHECK_EQ(there, 0);
        out = 7 + (uint64_t)i;
        cuda->hold(0);
        WAIT_OK(pair, op);
        CHECK_OK(hws_flush(pair->endpoint[user], NULL, &flush));
        WAIT_OK(pair, flush);
        memcpy(&there, remote->base + 8 * i, 8);
        CHECK_EQ(there, 7 + i);
    }
    CHECK_OK(hws_close(plan));
}

/* ---- What ends such a send early, and what fails ---- */

CASE(cancel_and_deadline_end_a_send_that_waits)
{
    const stub_cuda_control *cuda = stub();
    uint64_t in = 0, out = 5;
    hws_id recv = 0, op = 0;
    t_record record;
    hws_op_opts opts = recorded_on_stream(&record);
    t_seen seen;
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &recv));
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_OK(hws_cancel(op));
    UNTIL(&pair, t_record_count(&record) == 1);
    seen = t_record_at(&record, 0);
    CHECK_CODE(seen.event.status, HWS_E_CANCELED);
    opts.timeout_ns = T_MS;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, t_record_count(&record) == 2);
    seen = t_record_at(&record, 1);
    CHECK_CODE(seen.event.status, HWS_E_TIMED_OUT);
    cuda->hold(0);
    UNTIL(&pair, cuda->count("cuStreamSynchronize", 0) == 2);
    t_pair_idle(&pair, 5 * T_MS);
    CHECK_EQ(t_record_count(&record), 2); /* one final event each */
    CHECK_PENDING(recv);                  /* and nothing was sent */
    t_pair_close(&pair);
    t_record_free(&record);
}

/* A close flushes, so it waits for the stream; an abort does not. */
static void closed_while_waiting(bool abort)
{
    const stub_cuda_control *cuda = stub();
    uint64_t in = 0, out = 5, bytes = 0;
    hws_id recv = 0, stream = 0, op = 0;
    t_record record;
    hws_op_opts opts = recorded_on_stream(&record);
    t_pair pair;

    t_pair_open(&pair, &(t_pair_opts){.close_timeout_ns = t_patience()});
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_stream_recv(pair.endpoint[1], &bytes, 8, NULL, &stream));
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    CHECK_OK(hws_stream_send(pair.endpoint[0], &out, 8, &opts, &op));
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_OK(abort ? hws_abort(pair.endpoint[0]) : hws_close(pair.endpoint[0]));
    if (abort) {
        UNTIL(&pair, t_record_count(&record) == 2);
    } else {
        t_pair_idle(&pair, 5 * T_MS);
        CHECK_EQ(t_record_count(&record), 0);
    }
    cuda->hold(0);
    UNTIL(&pair, t_record_count(&record) == 2);
    for (uint32_t i = 0; i < 2; i++) {
        t_seen seen = t_record_at(&record, i);

        CHECK_CODE(seen.event.status, abort ? HWS_E_CANCELED : HWS_OK);
    }
    if (!abort) {
        WAIT_OK(&pair, recv);
        WAIT_OK(&pair, stream);
        CHECK_EQ(in, 5);
        CHECK_EQ(bytes, 5);
    }
    UNTIL(&pair, cuda->count("cuStreamSynchronize", 0) == 2);
    UNTIL(&pair, hws_kind(pair.endpoint[0]) < 0);
    t_pair_close(&pair);
    CHECK_EQ(t_record_count(&record), 2);
    t_record_free(&record);
}

CASE(a_close_waits_for_the_stream)
{
    closed_while_waiting(false);
}

CASE(an_abort_ends_a_send_that_waits)
{
    closed_while_waiting(true);
}

/* The peer goes while the stream is at work: the send ends with the connection, once. */
static void peer_gone_while_waiting(bool abort)
{
    const stub_cuda_control *cuda = stub();
    uint64_t out = 5;
    hws_id op = 0;
    t_record record;
    hws_op_opts opts = recorded_on_stream(&record);
    t_pair pair;

    t_pair_open(&pair, NULL);
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_OK(abort ? hws_abort(pair.endpoint[1]) : hws_close(pair.endpoint[1]));
    UNTIL(&pair, t_record_count(&record) == 1);
    CHECK(t_record_at(&record, 0).event.status < 0);
    CHECK_OK(hws_close(pair.endpoint[0]));
    UNTIL(&pair, hws_kind(pair.endpoint[0]) < 0); /* it waits for no stream */
    CHECK_EQ(cuda->waiting(), 1);
    cuda->hold(0);
    t_pair_close(&pair);
    CHECK_EQ(t_record_count(&record), 1);
    t_record_free(&record);
}

CASE(a_peer_that_closes_ends_a_send_that_waits)
{
    peer_gone_while_waiting(false);
}

CASE(a_peer_that_fails_ends_a_send_that_waits)
{
    peer_gone_while_waiting(true);
}

static void send_behind_a_stream(void *arg, const hws_event *event)
{
    static uint64_t out = 6;
    hws_op_opts opts = on_stream();
    t_pair *pair = arg;

    CHECK_OK(event->status);
    opts.flags |= HWS_OP_DETACHED;
    CHECK_OK(hws_tag_send(pair->endpoint[1], &out, 8, 2, &opts, NULL));
}

/* Posting does not block: not in a callback either, on the thread that makes progress. */
CASE(a_callback_sends_behind_a_stream)
{
    const stub_cuda_control *cuda = stub();
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD};
    uint64_t in = 0, answer = 0, out = 5;
    hws_op_opts then = {.struct_size = sizeof then, .callback = send_behind_a_stream};
    hws_id recv = 0, send = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    then.callback_arg = &pair;
    CHECK_OK(hws_tag_recv(pair.endpoint[0], &answer, 8, 2, ALL, NULL, &recv));
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, &then, NULL));
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(&pair, send);
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_PENDING(recv);
    cuda->hold(0);
    WAIT_OK(&pair, recv);
    CHECK_EQ(answer, 6);
    t_pair_close(&pair);
}

/* Closing everything waits too, and ends each operation once. */
CASE(a_context_is_closed_while_a_stream_is_at_work)
{
    const stub_cuda_control *cuda = stub();
    uint64_t out = 5;
    hws_id op = 0;
    t_record record;
    hws_op_opts opts = recorded_on_stream(&record);
    t_pair pair;

    t_pair_open(&pair, &(t_pair_opts){.mode = HWS_PROGRESS_THREAD});
    cuda->hold(1);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, cuda->waiting() == 1);
    CHECK_OK(hws_close(pair.context));
    CHECK_CODE(hws_close_wait(pair.context, 5 * T_MS), HWS_E_TIMED_OUT);
    cuda->hold(0);
    t_pair_close(&pair);
    CHECK_EQ(t_record_count(&record), 1);
    t_record_free(&record);
}

CASE(a_failing_stream_ends_its_send)
{
    const stub_cuda_control *cuda = stub();
    hws_op_opts opts = on_stream();
    hws_queue_opts queue_opts = {.struct_size = sizeof queue_opts};
    uint64_t in = 0, out = 5;
    hws_id recv = 0, op = 0, queue = 0;
    hws_event event = {0};
    t_record record;
    t_seen seen;
    t_pair pair;

    t_record_init(&record);
    t_pair_open(&pair, NULL);
    CHECK_OK(hws_queue_open(&queue_opts, &queue));
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, NULL, &recv));
    cuda->fail("cuStreamSynchronize", ILLEGAL_ADDRESS);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    event = WAIT(&pair, op);
    CHECK_CODE(event.status, HWS_E_CUDA);
    CHECK_STR(event.detail, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    CHECK_CODE(hws_wait(op, 0, &event), HWS_E_STALE);

    opts.queue = queue;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, hws_queue_pop(queue, &event, 1, 0) == 1);
    CHECK_CODE(event.status, HWS_E_CUDA);
    CHECK_STR(event.detail, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    CHECK(event.op == op);

    opts.callback = t_record_event;
    opts.callback_arg = &record;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op));
    UNTIL(&pair, t_record_count(&record) == 1);
    seen = t_record_at(&record, 0);
    CHECK_CODE(seen.event.status, HWS_E_CUDA);
    CHECK_STR(seen.text, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)");

    t_pair_idle(&pair, 5 * T_MS);
    CHECK_EQ(hws_queue_pop(queue, &event, 1, 0), 0);
    CHECK_EQ(t_record_count(&record), 1);
    CHECK_PENDING(recv);
    cuda->fail("cuStreamSynchronize", 0);
    opts = on_stream();
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op)); /* the connection lives */
    WAIT_OK(&pair, op);
    WAIT_OK(&pair, recv);
    CHECK_EQ(in, 5);
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
    t_record_free(&record);
}

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
    hws_op_opts opts = on_stream();
    uint64_t in = 0;
    hws_id op = 0;
    t_pair pair;

    stub();
    t_pair_open(&pair, NULL);
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], &in, 8, 1, ALL, &opts, &op), HWS_E_INVALID);
    CHECK_CODE(hws_flush(pair.endpoint[0], &opts, &op), HWS_E_INVALID);
    opts.stream = (void *)2;
    refused(&pair, &opts, HWS_E_INVALID, "CU_STREAM_PER_THREAD");
    opts = (hws_op_opts){.struct_size = sizeof opts, .stream = STREAM};
    uint64_t out = 5;
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, &opts, &op)); /* without the flag */
    WAIT_OK(&pair, op);
    t_pair_close(&pair);
}

CASE(without_libcuda_streams_are_refused_and_all_memory_is_the_hosts)
{
    hws_op_opts opts = on_stream();
    t_pair pair;

    setenv("HAWSER_CUDA", "/nonexistent/libcuda.so.1", 1);
    t_pair_open(&pair, NULL);
    refused(&pair, &opts, HWS_E_CUDA, "no CUDA: ");
    message(&pair, HWS_MEMORY_UNKNOWN);
    t_pair_close(&pair);
}

CASE(a_libcuda_that_lacks_a_function_is_refused)
{
    hws_op_opts opts = on_stream();
    char memory[64];
    hws_id id = 0;
    t_pair pair;

    use("HAWSER_STUB_CUDA_INCOMPLETE");
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
    const stub_cuda_control *cuda = stub();
    hws_op_opts opts = {.struct_size = sizeof opts, .memory_kind = HWS_MEMORY_UNKNOWN};
    char memory[64];
    hws_id id = 0;
    t_pair pair;

    t_pair_open(&pair, NULL);
    cuda->fail("cuPointerGetAttributes", UNKNOWN_ERROR);
    refused(&pair, &opts, HWS_E_CUDA, "cuPointerGetAttributes: CUDA_ERROR_UNKNOWN (999)");
    CHECK_CODE(register_as(pair.context, memory, HWS_MEMORY_UNKNOWN, &id), HWS_E_CUDA);
    /* Nobody uses CUDA: CUDA_ERROR_NOT_INITIALIZED. */
    cuda->fail("cuPointerGetAttributes", 3);
    message(&pair, HWS_MEMORY_UNKNOWN);
    t_pair_close(&pair);
}

CASES_MAIN
