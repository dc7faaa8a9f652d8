/*
 * Multi-buffer messages: what of a message travels how, and the list that tells the peer of it.
 */
#include "multi_layout.h"
#include "cuda.h"
#include "error.h"
#include "post.h"
#include <string.h>

/* Whether UCX can handle the segment's memory. */
static int32_t check_kind(const struct hws__post *p, const hws_segment *s)
{
    uint32_t kind = s->memory_kind;

    return kind == HWS_MEMORY_HOST || s->length == 0
               ? HWS_OK
               : hws__cuda_check(p->worker->context, p->source, s->base, &kind);
}

int32_t hws__multi_layout_of(struct hws__multi_layout *layout, const struct hws__post *p)
{
    int32_t r;

    *layout = (struct hws__multi_layout){.segments = p->header, .count = p->mask};
    for (uint64_t i = 0; i < layout->count; i++) {
        const hws_segment *s = &layout->segments[i];

        if (s->length > HWS__ENTRY_LENGTH || (s->base == NULL && s->length != 0) ||
            (s->memory_kind >= HWS__ENTRY_KIND_UNKNOWN && s->memory_kind != HWS_MEMORY_UNKNOWN) ||
            layout->total + s->length < layout->total) {
            return hws__fail(HWS_E_INVALID, p->source, "segment %llu", (unsigned long long)i);
        }
        if ((r = check_kind(p, s)) < 0) {
            return r;
        }
        layout->total += s->length;
        if (hws__multi_is_own(s)) {
            layout->large++;
        } else {
            layout->gathered += s->length;
        }
    }
    layout->within = layout->gathered <= p->am_id;
    return HWS_OK;
}

void hws__multi_layout_write(struct hws__multi_wire *to, const struct hws__multi_layout *layout,
                             uint64_t tag, uint64_t sequence)
{
    uint64_t *entries = (uint64_t *)(void *)(to + 1);
    char *data = (char *)(entries + layout->count);

    *to = (struct hws__multi_wire){.tag = tag,
                                   .sequence = sequence,
                                   .total = layout->total,
                                   .count = (uint32_t)layout->count,
                                   .flags = layout->within ? HWS__MULTI_DATA : 0};
    for (uint64_t i = 0; i < layout->count; i++) {
        const hws_segment *s = &layout->segments[i];
        bool own = hws__multi_is_own(s);

        entries[i] = hws__entry(s, own);
        if (!own && layout->within && s->length != 0) {
            memcpy(data, s->base, s->length);
            data += s->length;
        }
    }
}

uint64_t hws__multi_layout_bytes(const struct hws__multi_layout *layout)
{
    return sizeof(struct hws__multi_wire) + hws__multi_entries(layout->count, 0) +
           (layout->within ? layout->gathered : 0);
}

uint64_t hws__multi_layout_price(const struct hws__multi_layout *layout)
{
    uint64_t parts = (uint64_t)layout->large + (layout->within ? 0 : 1);

    return hws__multi_layout_bytes(layout) + parts * HWS__CREDIT_PART;
}
