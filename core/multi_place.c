/*
 * Multi-buffer messages: memory for the segments of one that is received.
 */
#include "multi_recv.h"
#include "cuda.h"
#include "progress.h"
#include "room.h"

/* Segments that came with the list have a place already. */
static bool is_inline(const struct hws__multi *x, uint64_t i)
{
    return x->inline_at != 0 && !hws__multi_own(x, i);
}

/* One block for every segment that has no place. */
static bool allocate_block(struct hws__multi *x)
{
    uint64_t bytes = 0;
    char *to;

    for (uint64_t i = 0; i < x->detail.count; i++) {
        if (!is_inline(x, i)) {
            bytes +=
                (x->segments[i].length + HWS__POOL_ALIGN - 1) & ~(uint64_t)(HWS__POOL_ALIGN - 1);
        }
    }
    if (bytes == 0) {
        return true;
    }
    if ((to = x->block = hws__pool_take(&x->message->worker->pool, bytes)) == NULL) {
        return false;
    }
    x->block_length = bytes;
    for (uint64_t i = 0; i < x->detail.count; i++) {
        if (!is_inline(x, i)) {
            x->segments[i].base = to;
            x->segments[i].memory_kind = HWS_MEMORY_HOST;
            to += (x->segments[i].length + HWS__POOL_ALIGN - 1) & ~(uint64_t)(HWS__POOL_ALIGN - 1);
        }
    }
    return true;
}

/* The user's memory for every segment. Not inside UCX. */
static bool allocate_hooked(struct hws__multi *x)
{
    bool all = true;

    x->hooked = true;
    hws__callback_depth++;
    for (uint64_t i = 0; i < x->detail.count; i++) {
        hws_segment *s = &x->segments[i];

        if (!hws__cuda_can(x->message->worker->context, s->memory_kind)) {
            s->memory_kind = HWS_MEMORY_HOST; /* what the sender has is nothing for this UCX */
        }
        s->base = s->length != 0 && all
                      ? x->want.alloc(x->want.alloc_arg, s->length, s->memory_kind)
                      : NULL;
        all = all && (s->base != NULL || s->length == 0);
    }
    hws__callback_depth--;
    return all;
}

void hws__multi_copy_inline(struct hws__multi *x)
{
    const char *from = x->message->data;

    if (x->inline_at == 0) {
        return;
    }
    from += x->inline_at;
    for (uint64_t i = 0; i < x->detail.count; i++) {
        if (!hws__multi_own(x, i)) {
            const hws_segment *s = &x->segments[i];
            int32_t r = hws__room_fill(x->message->worker->context,
                                       (struct hws__room){s->base, s->length, 0, s->memory_kind},
                                       from, s->length);

            x->status = x->status < 0 ? x->status : r;
            from += s->length;
        }
    }
}

int32_t hws__multi_allocate(struct hws__multi *x)
{
    x->ours = true;
    if (x->want.alloc == NULL) {
        return allocate_block(x) ? HWS_OK : HWS_E_NO_MEMORY;
    }
    if (!allocate_hooked(x)) {
        return HWS_E_ALLOCATOR;
    }
    hws__multi_copy_inline(x);
    return x->status;
}
