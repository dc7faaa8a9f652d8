#include "support/multi.h"

#include <stdlib.h>

t_shape t_shape_make(const uint64_t *sizes, uint64_t count, uint64_t seed)
{
    t_shape s = {.count = count, .seed = seed, .segments = calloc(count + 1, sizeof(hws_segment))};

    CHECK(s.segments != NULL);
    for (uint64_t i = 0; i < count; i++) {
        s.segments[i].length = sizes[i];
        s.segments[i].base = t_alloc(sizes[i] + 1);
        t_fill(s.segments[i].base, sizes[i], seed + i);
        s.total += sizes[i];
    }
    return s;
}

void t_shape_drop(t_shape *s)
{
    for (uint64_t i = 0; i < s->count; i++) {
        free(s->segments[i].base);
    }
    free(s->segments);
}

hws_id t_multi_send(hws_id endpoint, uint64_t tag, const t_shape *s)
{
    hws_id op = 0;

    CHECK_OK(hws_multi_send(endpoint, tag, s->segments, s->count, NULL, NULL, &op));
    CHECK(op != 0);
    return op;
}

hws_id t_multi_recv(hws_id source, uint64_t tag, uint64_t mask, uint32_t flags)
{
    hws_multi_recv_opts opts = {.struct_size = sizeof(opts), .flags = flags};
    hws_id op = 0;

    CHECK_OK(hws_multi_recv(source, tag, mask, &opts, NULL, &op));
    CHECK(op != 0);
    return op;
}

const hws_multi_detail *t_multi_check_list(const hws_event *event, hws_id endpoint, uint64_t tag,
                                           const t_shape *s)
{
    const hws_multi_detail *d = event->detail;

    CHECK_EQ(event->status, HWS_OK);
    CHECK(event->tag == tag);
    CHECK_EQ(event->length, s->total);
    CHECK(event->flags & HWS_EVENT_FLAG_BUFFER);
    CHECK(d != NULL);
    CHECK_EQ(d->count, s->count);
    CHECK_EQ(d->total, s->total);
    CHECK(d->endpoint == endpoint);
    CHECK_EQ(hws_kind(d->buffer), HWS_KIND_BUFFER);
    for (uint64_t i = 0; i < s->count; i++) {
        CHECK_EQ(d->segments[i].length, s->segments[i].length);
    }
    return d;
}

void t_multi_check_data(const hws_segment *got, const t_shape *s)
{
    for (uint64_t i = 0; i < s->count; i++) {
        if (s->segments[i].length != 0) {
            CHECK_FILLED(got[i].base, s->segments[i].length, s->seed + i);
        }
    }
}

void t_multi_take(t_pair *pair, hws_id op, hws_id endpoint, uint64_t tag, const t_shape *s)
{
    hws_event event = WAIT_OK(pair, op);
    const hws_multi_detail *d;

    CHECK_EQ(event.kind, HWS_EVENT_MULTI_RECV);
    CHECK((event.flags & HWS_EVENT_FLAG_RNDV) == 0);
    d = t_multi_check_list(&event, endpoint, tag, s);
    t_multi_check_data(d->segments, s);
    CHECK_OK(hws_close(d->buffer));
}

void t_multi_waiting(t_pair *pair, hws_id worker, uint64_t messages)
{
    UNTIL(pair, t_stats(worker).unexpected == messages);
}
