/*
 * What passed through an endpoint: plain numbers of its worker's owner, counted where a message is
 * handed to UCX or arrives; what is refused is not. Sums are made when somebody asks.
 */
#ifndef HWS_CORE_TRAFFIC_H
#define HWS_CORE_TRAFFIC_H

#include <hawser.h>

#define HWS__TRAFFIC_KINDS 7
#define HWS__VIAS 5

struct hws__flow {
    uint64_t count, bytes;
};

struct hws__traffic {
    struct hws__flow out[HWS__TRAFFIC_KINDS]; /* by HWS_TRAFFIC_* */
    struct hws__flow in[HWS__TRAFFIC_KINDS];
};

/** One more message, or operation on remote memory, with so many bytes. */
static inline void hws__flow_add(struct hws__flow *flow, uint64_t bytes)
{
    flow->count++;
    flow->bytes += bytes;
}

/** Messages handed to UCX, without those of remote memory access. */
static inline uint64_t hws__traffic_messages(const struct hws__traffic *t)
{
    return t->out[HWS_TRAFFIC_TAG].count + t->out[HWS_TRAFFIC_STREAM].count +
           t->out[HWS_TRAFFIC_AM].count + t->out[HWS_TRAFFIC_MULTI].count;
}

/** Operations on the peer's memory. */
static inline uint64_t hws__traffic_remote(const struct hws__traffic *t)
{
    return t->out[HWS_TRAFFIC_PUT].count + t->out[HWS_TRAFFIC_GET].count +
           t->out[HWS_TRAFFIC_ATOMIC].count;
}

static inline void hws__traffic_add(struct hws__traffic *sum, const struct hws__traffic *t)
{
    for (int k = 0; k < HWS__TRAFFIC_KINDS; k++) {
        sum->out[k].count += t->out[k].count;
        sum->out[k].bytes += t->out[k].bytes;
        sum->in[k].count += t->in[k].count;
        sum->in[k].bytes += t->in[k].bytes;
    }
}

#endif
