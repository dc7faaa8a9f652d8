/*
 * Multi-buffer messages: the sizes of -s are the segments. A small message is taken as it arrived, a
 * large one is fetched to where the lane has its memory.
 */
#include "perf.h"

#include <stdlib.h>

#define AS_IT_ARRIVED 65536u

static hws_segment *segments(const perf_params *p, char *at)
{
    hws_segment *all = calloc(p->size_count, sizeof *all);

    for (uint32_t i = 0; all != NULL && i < p->size_count; i++) {
        all[i] = (hws_segment){.base = at, .length = p->sizes[i]};
        at += p->sizes[i];
    }
    return all;
}

int32_t perf_multi_open(perf_lane *l)
{
    l->send_segments = segments(l->params, l->buffers[0]);
    l->receive_segments = segments(l->params, l->buffers[2]);
    return l->send_segments == NULL || l->receive_segments == NULL ? HWS_E_NO_MEMORY : HWS_OK;
}

int32_t perf_multi_receive(perf_lane *l)
{
    hws_event event = {0};
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE, .result = &event};
    hws_multi_recv_opts list = {.struct_size = sizeof list,
                                .flags = l->bytes > AS_IT_ARRIVED ? HWS_MULTI_LIST : 0};
    hws_id op, buffer;
    int32_t r = hws_multi_recv(l->from, l->tag, UINT64_MAX, &list, &opts, &op);

    if (r == HWS_OK) {
        r = hws_wait(op, HWS_FOREVER, &event);
    }
    if (r < 0 || (r = event.status) < 0) {
        return r;
    }
    buffer = ((const hws_multi_detail *)event.detail)->buffer;
    if (list.flags == 0) {
        return hws_close(buffer);
    }
    opts.result = NULL;
    r = hws_multi_fetch(buffer, l->receive_segments, l->params->size_count, &opts, &op);
    return r == HWS_OK ? hws_wait(op, HWS_FOREVER, NULL) : r < 0 ? r : HWS_OK;
}
