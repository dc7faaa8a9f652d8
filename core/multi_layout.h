/*
 * What of a multi-buffer message that is sent travels in its list, and what in parts.
 */
#ifndef HWS_CORE_MULTI_LAYOUT_H
#define HWS_CORE_MULTI_LAYOUT_H

#include "multi.h"

/** What is to be sent, summed up. */
struct hws__multi_layout {
    const hws_segment *segments;
    uint64_t count;
    uint64_t total;
    uint64_t gathered; /* bytes */
    uint32_t large;    /* parts of their own */
    bool within;       /* the gathered segments travel in the list */
};

/** Whether a segment is a part of its own. */
static inline bool hws__multi_is_own(const hws_segment *s)
{
    return s->length != 0 && (s->memory_kind != HWS_MEMORY_HOST || s->length >= HWS__MULTI_LARGE);
}

/** Of the segments that a posting names. A code if UCX cannot handle one of them. */
int32_t hws__multi_layout_of(struct hws__multi_layout *layout, const struct hws__post *p);
/** Bytes of the list, with the gathered data if that travels along. */
uint64_t hws__multi_layout_bytes(const struct hws__multi_layout *layout);
/** What a message costs its receiver while it waits. */
uint64_t hws__multi_layout_price(const struct hws__multi_layout *layout);
/** Write the list, and behind it the gathered data if that travels along. */
void hws__multi_layout_write(struct hws__multi_wire *to, const struct hws__multi_layout *layout,
                             uint64_t tag, uint64_t sequence);

/** Send one that is more than its list (multi_send_parts.c). As the `run` of a posting. */
int32_t hws__multi_send_parts(struct hws__post *p, const struct hws__multi_layout *layout);

#endif
