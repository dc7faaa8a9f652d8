#include "perf_side.h"
#include "tool.h"

#include <pthread.h>
#include <stdlib.h>

int perf_side_open(struct perf_side *s, const perf_options *o)
{
    hws_worker_opts opts = {.struct_size = sizeof opts, .mode = o->mode};
    hws_context_opts context = {.struct_size = sizeof context,
                                .features = HWS_FEATURE_TAG | HWS_FEATURE_STREAM | HWS_FEATURE_AM};
    int32_t r;

    s->options = o;
    s->params = o->params;
    s->setting.library.struct_size = sizeof s->setting.library;
    if (!o->raw) { /* the server learns late which test it is: it has them all */
        context.features |= HWS_FEATURE_RMA | HWS_FEATURE_ATOMIC;
    }
    opts.spin_ns = o->sleep ? 1 : UINT64_MAX; /* -E poll never sleeps, -E sleep does at once */
    if ((r = hws_library_open(NULL, &s->setting.library)) < 0) {
        return tool_failed(r, "loading UCX");
    }
    if ((r = hws_context_open(&context, &s->context)) < 0) {
        return tool_failed(r, "opening a context");
    }
    if ((r = hws_worker_open(s->context, &opts, &s->worker)) < 0) {
        return tool_failed(r, "opening a worker");
    }
    return TOOL_OK;
}

void perf_side_close(struct perf_side *s)
{
    if (s->context != 0) {
        hws_close_wait(s->context, 10 * PERF_SECOND);
    }
    if (s->lanes != NULL) {
        for (uint32_t i = 0; i < s->params.threads; i++) {
            if (s->lanes[i].queue != 0) {
                hws_close(s->lanes[i].queue);
            }
            perf_lane_free(&s->lanes[i]);
        }
        free(s->lanes);
    }
    if (s->queue != 0) {
        hws_close(s->queue);
    }
}

int perf_side_lanes(struct perf_side *s)
{
    s->lanes = calloc(s->params.threads, sizeof *s->lanes);
    if (s->lanes == NULL) {
        return tool_failed(HWS_E_NO_MEMORY, "preparing");
    }
    for (uint32_t i = 0; i < s->params.threads; i++) {
        perf_lane *lane = &s->lanes[i];
        int32_t r;

        lane->context = s->context;
        lane->worker = s->worker;
        lane->client = s->options->host != NULL || s->options->loopback;
        if ((r = perf_lane_open(lane, s->options, &s->params, i)) < 0) {
            return tool_failed(r, "preparing");
        }
    }
    return TOOL_OK;
}

int perf_side_exchange(struct perf_side *s)
{
    for (uint32_t i = 0; i < s->params.threads; i++) {
        int32_t r = s->lanes[i].test->api < PERF_PUT ? HWS_OK : perf_rma_open(&s->lanes[i]);

        if (r < 0) {
            return tool_failed(r, "exchanging memory");
        }
        if ((r = perf_lane_watch(&s->lanes[i])) < 0) {
            return tool_failed(r, "preparing");
        }
    }
    return TOOL_OK;
}

static void *lane_main(void *arg)
{
    perf_lane *lane = arg;
    int32_t r = perf_lane_run(lane);

    if (r < 0) {
        lane->status = r;
    } else {
        perf_clock_result(lane);
    }
    return NULL;
}

/* Run every lane in a thread, the first one in this. */
int perf_side_run(struct perf_side *s)
{
    pthread_t threads[PERF_THREADS_MAX];
    uint32_t n = s->params.threads;

    for (uint32_t i = 1; i < n; i++) {
        if (pthread_create(&threads[i], NULL, lane_main, &s->lanes[i]) != 0) {
            tool_error("perf: a thread could not be started");
            exit(TOOL_FAILED); /* the peer waits for that lane: nothing to save here */
        }
    }
    lane_main(&s->lanes[0]);
    for (uint32_t i = 1; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (s->lanes[i].status < 0) {
            return tool_failed(s->lanes[i].status, "running the test");
        }
    }
    return TOOL_OK;
}

int32_t perf_side_send(hws_id endpoint, uint64_t tag, const void *data, uint64_t length)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .timeout_ns = 10 * PERF_SECOND};
    hws_id op;
    int32_t r = hws_tag_send(endpoint, data, length, tag, &opts, &op);

    return r < 0 ? r : hws_wait(op, HWS_FOREVER, NULL);
}

int32_t perf_side_receive(hws_id endpoint, uint64_t tag, void *data, uint64_t length,
                          uint64_t timeout_ns)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .timeout_ns = timeout_ns};
    hws_event event;
    hws_id op;
    int32_t r = hws_tag_recv(endpoint, data, length, tag, UINT64_MAX, &opts, &op);

    if (r < 0 || (r = hws_wait(op, HWS_FOREVER, &event)) < 0 || (r = event.status) < 0) {
        return r;
    }
    return event.length == length ? HWS_OK : HWS_E_PROTOCOL;
}
