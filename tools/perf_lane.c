#include "perf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
#define HUGE_PAGE (2u << 20)
#define TAG UINT64_C(0x4857500000000000)
#define TAG_WATCH UINT64_C(0x4857500500000000)

uint64_t perf_message_bytes(const perf_params *p)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < p->size_count; i++) {
        bytes += p->sizes[i];
    }
    return bytes;
}

/* What one iteration moves: a plan moves its list. */
uint64_t perf_iteration_bytes(const perf_params *p)
{
    return perf_message_bytes(p) * (perf_tests[p->test].api == PERF_PLAN ? p->window : 1);
}

/* Whole pages, large ones for messages that fill them: half a large one is no faster, and less even. */
static void *pages(uint64_t length)
{
    uint64_t page = length >= HUGE_PAGE ? HUGE_PAGE : PAGE, size = (length / page + 1) * page;
    void *at = aligned_alloc(page, size);

    if (at != NULL) {
        if (page == HUGE_PAGE) {
            madvise(at, size, MADV_HUGEPAGE); /* a wish */
        }
        memset(at, 0x5a, size); /* the pages exist before the clock starts */
    }
    return at;
}

/* Memory for one direction: a page-aligned block, in pieces if the layout is iov. */
static int buffer_open(perf_lane *l, bool iov, void **buffer, uint64_t *length, void *keep[2])
{
    const perf_params *p = l->params;
    hws_iov *pieces;
    char *at;

    at = keep[0] = pages(l->bytes);
    if (at == NULL) {
        return -1;
    }
    *buffer = at;
    *length = l->bytes;
    if (!iov) {
        return 0;
    }
    pieces = keep[1] = calloc(p->size_count, sizeof *pieces);
    if (pieces == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < p->size_count; i++) {
        pieces[i] = (hws_iov){.base = at, .length = p->sizes[i]};
        at += p->sizes[i];
    }
    *buffer = pieces;
    *length = p->size_count;
    return 0;
}

static int window_open(perf_window *w, uint32_t size)
{
    w->size = size;
    w->ops = calloc(size, sizeof *w->ops);
    return w->ops == NULL ? -1 : 0;
}

static void options_of_operations(perf_lane *l)
{
    uint32_t iov = l->params->iov;

    l->send_opts = (hws_op_opts){.struct_size = sizeof(hws_op_opts), .flags = HWS_OP_INLINE};
    l->receive_opts = l->send_opts;
    l->send_opts.flags |= iov & PERF_IOV_SEND ? HWS_OP_IOV : 0;
    l->receive_opts.flags |= iov & PERF_IOV_RECEIVE ? HWS_OP_IOV : 0;
    if (l->test->api == PERF_STREAM) {
        l->receive_opts.flags |= HWS_OP_WAIT_ALL;
    }
    l->counts_receives = (l->test->api == PERF_TAG || l->test->api == PERF_TAG_SYNC) &&
                         !l->test->ping_pong && l->options->mode == HWS_PROGRESS_MANUAL &&
                         !l->options->sleep;
    if (l->counts_receives) {
        l->receive_opts.callback = perf_count_receive;
        l->receive_opts.callback_arg = l;
    }
}

int perf_lane_open(perf_lane *l, const perf_options *o, const perf_params *p, uint32_t index)
{
    l->options = o;
    l->params = p;
    l->test = &perf_tests[p->test];
    l->index = index;
    l->tag = TAG + index;
    l->bytes = perf_message_bytes(p);
    options_of_operations(l);
    l->header = calloc(1, p->am_header + 1u);
    if (l->header == NULL || window_open(&l->sends, p->window) < 0 ||
        window_open(&l->receives, p->window) < 0 ||
        buffer_open(l, p->iov & PERF_IOV_SEND, &l->send, &l->send_length, &l->buffers[0]) < 0 ||
        buffer_open(l, p->iov & PERF_IOV_RECEIVE, &l->receive, &l->receive_length, &l->buffers[2]) <
            0) {
        return HWS_E_NO_MEMORY;
    }
    if (perf_clock_open(&l->clock, o->percentiles ? p->iterations : 0) < 0) {
        return HWS_E_NO_MEMORY;
    }
    return l->test->api == PERF_AM      ? perf_am_open(l)
           : l->test->api == PERF_MULTI ? perf_multi_open(l)
                                        : HWS_OK;
}

void perf_lane_free(perf_lane *l)
{
    for (size_t i = 0; i < sizeof l->buffers / sizeof l->buffers[0]; i++) {
        free(l->buffers[i]);
    }
    free(l->send_segments);
    free(l->receive_segments);
    free(l->clock.ring);
    free(l->receives.ops);
    free(l->sends.ops);
    free(l->header);
}

static void peer_gone(void *arg, const hws_event *event)
{
    perf_lane *l = arg;

    atomic_store(&l->gone, event->status);
}

int32_t perf_lane_watch(perf_lane *l)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = peer_gone, .callback_arg = l};
    bool watched = l->test->api == PERF_AM || (l->test->api == PERF_PUT && l->test->ping_pong);

    if (!watched || l->options->loopback) {
        return HWS_OK;
    }
    if (l->queue != 0) { /* which is waited on */
        opts.callback = NULL;
        opts.queue = l->queue;
    }
    /* Nobody sends it: it ends with the connection. */
    return hws_tag_recv(l->from, &l->watch, sizeof l->watch, TAG_WATCH + l->index, UINT64_MAX,
                        &opts, NULL);
}

/* Warm up, then measure. */
int32_t perf_lane_run(perf_lane *l)
{
    const perf_options *o = l->options;
    bool reports = l->client && !o->final_only && !o->json;
    int32_t r;

    perf_clock_start(&l->clock, false);
    r = perf_loop_run(l, l->params->warmup);
    if (r < 0) {
        return r;
    }
    perf_clock_start(&l->clock, reports);
    r = perf_loop_run(l, l->params->iterations);
    perf_clock_stop(&l->clock);
    return r;
}
