#include "stats_print.h"

#include <string.h>

#define FIELD(name)                      \
    {                                    \
#name, offsetof(hws_stats, name) \
    }

const stats_field stats_fields[] = {
    FIELD(endpoints),        FIELD(isolated),
    FIELD(spares),           FIELD(isolated_cap),
    FIELD(isolated_total),   FIELD(fallbacks),
    FIELD(redials),          FIELD(lane_violations),
    FIELD(ops_inline),       FIELD(ops_posted),
    FIELD(ops_submitted),    FIELD(ops_pending),
    FIELD(events),           FIELD(queue_overflows),
    FIELD(wakeups),          FIELD(safety_wakeups),
    FIELD(signals),          FIELD(unexpected),
    FIELD(unexpected_bytes), FIELD(am_dropped),
    FIELD(failures),         {NULL, 0},
};

const char *const stats_traffic[7] = {"tag", "stream", "am", "multi", "put", "get", "atomic"};
const char *const stats_vias[5] = {"other", "shm", "tcp", "rdma", "self"};

uint64_t stats_value(const hws_stats *s, const stats_field *f)
{
    uint64_t n;

    memcpy(&n, (const char *)s + f->offset, sizeof n);
    return n;
}

const char *stats_kind(uint32_t kind)
{
    static const char *const names[32] = {
        [HWS_EVENT_TAG_SEND] = "tag_send",
        [HWS_EVENT_TAG_RECV] = "tag_recv",
        [HWS_EVENT_STREAM_SEND] = "stream_send",
        [HWS_EVENT_STREAM_RECV] = "stream_recv",
        [HWS_EVENT_AM_SEND] = "am_send",
        [HWS_EVENT_AM_RECV] = "am_recv",
        [HWS_EVENT_FLUSH] = "flush",
        [HWS_EVENT_TASK] = "task",
        [HWS_EVENT_PUT] = "put",
        [HWS_EVENT_GET] = "get",
        [HWS_EVENT_ATOMIC] = "atomic",
        [HWS_EVENT_PLAN] = "plan",
        [HWS_EVENT_MULTI_SEND] = "multi_send",
        [HWS_EVENT_MULTI_RECV] = "multi_recv",
        [HWS_EVENT_MULTI_LIST] = "multi_list",
    };

    return kind < 32 ? names[kind] : NULL;
}
