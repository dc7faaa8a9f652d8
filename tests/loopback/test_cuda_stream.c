/*
 * Operations that wait for a CUDA stream, without a GPU: the libcuda is the tests' own (support/stub_cuda.c), UCX the
 * real one, with host memory. TIMEOUT: 180
 */
#include "support/cases.h"
#include "support/cuda.h"
#include "support/remote.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALL UINT64_MAX

static long thread_id(void)
{
    return syscall(SYS_gettid);
}

static void stream_is_waited_for(t_pair *pair, const stub_cuda_control *cuda)
{
    hws_op_opts opts = t_cuda_on_stream();
    uint64_t in = 0, out = 5, quick = 0;
    hws_id recv = 0, other = 0, send = 0;
    stub_call last = {0};

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_tag_recv(pair->endpoint[1], &quick, 8, 2, ALL, NULL, &other));
    cuda->set_current(T_CUDA_APP);
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
    CHECK(last.argument == T_CUDA_STREAM);
    CHECK(last.context == T_CUDA_APP); /* the poster's */
    CHECK(last.thread != thread_id());
    CHECK_EQ(cuda->count("cuCtxPopCurrent_v2", last.thread), 1);
}

static void stream_in_mode(uint32_t mode)
{
    const stub_cuda_control *cuda = t_cuda_stub();
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
    hws_op_opts opts = t_cuda_on_stream();
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
    const stub_cuda_control *cuda = t_cuda_stub();
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
    hws_op_opts opts = t_cuda_on_stream();
    uint64_t out = 1;
    hws_transfer transfer = {.kind = HWS_EVENT_PUT,
                             .rkey = remote->rkey,
                             .address = remote->address + 16,
                             .buffer = &out,
                             .length = 8};
    hws_id op = 0, plan = 0, flush = 0;

    cuda = t_cuda_stub();
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

CASES_MAIN
