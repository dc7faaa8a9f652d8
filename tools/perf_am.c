/*
 * Arriving active messages. Each lane has the active-message id of its number, so that several
 * threads of one worker keep their messages apart. Small messages are only counted: their data was
 * delivered. Large ones (rendezvous) are fetched into the lane's buffer first, as ucx_perftest
 * does it.
 */
#include "perf.h"

#define BATCH 32

static void count_one(perf_lane *l)
{
    /* No read-modify-write: whoever makes progress is the only one that counts. */
    uint64_t n = atomic_load_explicit(&l->arrived, memory_order_relaxed);

    atomic_store_explicit(&l->arrived, n + 1, memory_order_relaxed);
}

static void fetched(perf_lane *l, hws_id buffer, int32_t status)
{
    if (status < 0) {
        l->status = status;
    }
    hws_close(buffer);
    count_one(l);
}

/* Fetch the data of a message that was only told of. */
static void fetch(perf_lane *l, hws_id buffer)
{
    hws_op_opts opts = l->fetch_opts;
    hws_id op;
    int32_t r;

    opts.user = buffer;
    r = hws_am_recv(buffer, l->receive, l->receive_length, &opts, &op);
    if (r != HWS_OK) {
        fetched(l, buffer, r);
    }
}

static void on_event(perf_lane *l, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;

    if (event->kind == HWS_EVENT_AM_RECV) {
        fetched(l, event->user, event->status);
    } else if (event->kind == HWS_EVENT_TAG_RECV) {
        atomic_store(&l->gone, event->status);
    } else if (event->kind == HWS_EVENT_AM && event->status < 0) {
        l->status = event->status;
    } else if (event->kind == HWS_EVENT_AM && (event->flags & HWS_EVENT_FLAG_RNDV) != 0) {
        fetch(l, detail->buffer);
    } else if (event->kind == HWS_EVENT_AM) {
        if ((event->flags & HWS_EVENT_FLAG_BUFFER) != 0) {
            hws_close(detail->buffer);
        }
        count_one(l);
    }
}

static void on_callback(void *arg, const hws_event *event)
{
    on_event(arg, event);
}

/* Wait on the lane's queue and count what came. */
int32_t perf_am_queue_wait(perf_lane *l)
{
    hws_event events[BATCH];
    int32_t n = hws_queue_pop(l->queue, events, BATCH, HWS_FOREVER);

    for (int32_t i = 0; i < n; i++) {
        on_event(l, &events[i]);
    }
    return n;
}

/* Alone on the worker, a callback is all that is needed. Where another thread may make progress, a
 * check of a counter before going to sleep could miss what that thread just delivered. */
static bool needs_queue(const perf_lane *l)
{
    return l->params->threads > 1 || l->options->mode >= HWS_PROGRESS_THREAD;
}

int32_t perf_am_open(perf_lane *l)
{
    hws_am_opts opts = {.struct_size = sizeof opts, .flags = HWS_AM_DEFER};

    l->fetch_opts = (hws_op_opts){.struct_size = sizeof(hws_op_opts), .flags = HWS_OP_INLINE};
    l->fetch_opts.flags |= l->params->iov & PERF_IOV_RECEIVE ? HWS_OP_IOV : 0;
    if (needs_queue(l)) {
        int32_t r = hws_queue_open(NULL, &l->queue);

        if (r < 0) {
            return r;
        }
        opts.sink.queue = l->fetch_opts.queue = l->queue;
    } else {
        opts.sink.callback = l->fetch_opts.callback = on_callback;
        opts.sink.callback_arg = l->fetch_opts.callback_arg = l;
    }
    return hws_am_handler(l->worker, l->index, &opts);
}
