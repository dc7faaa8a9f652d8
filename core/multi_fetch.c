/*
 * Multi-buffer messages: the data of one whose list was received, into the caller's memory.
 */
#include "multi_recv.h"
#include "cuda.h"
#include "error.h"
#include "guard.h"
#include "post.h"

/* Whether memory of the caller's can be the place of a segment. */
static int32_t check_place(const struct hws__post *p, const struct hws__multi *x, uint64_t i,
                           const hws_segment *to)
{
    uint64_t length = x->segments[i].length;
    uint32_t kind = to->memory_kind;
    int32_t r;

    if (to->length < length) {
        return hws__fail(HWS_E_TRUNCATED, p->tag, "segment %llu has %llu bytes",
                         (unsigned long long)i, (unsigned long long)length);
    }
    if (length == 0) {
        return HWS_OK;
    }
    if (to->base == NULL) {
        return hws__fail(HWS_E_INVALID, p->tag, "segment %llu is null", (unsigned long long)i);
    }
    if ((r = hws__cuda_check(p->worker->context, p->tag, to->base, &kind)) < 0) {
        return r;
    }
    if (hws__cuda_is(kind) && !hws__multi_own(x, i) && x->inline_at == 0) {
        return hws__fail(HWS_E_BUFFER_KIND, p->tag,
                         "segment %llu comes together with others: into host memory only",
                         (unsigned long long)i);
    }
    return HWS_OK;
}

/* The caller's memory becomes the places of the segments: of all, or of none. */
static int32_t take_places(const struct hws__post *p, struct hws__multi *x)
{
    const hws_segment *to = p->header;
    int32_t r;

    if (p->mask != x->detail.count) {
        return hws__fail(HWS_E_INVALID, p->tag, "%llu segments given, %llu listed",
                         (unsigned long long)p->mask, (unsigned long long)x->detail.count);
    }
    for (uint64_t i = 0; i < p->mask; i++) {
        if ((r = check_place(p, x, i, &to[i])) < 0) {
            return r;
        }
    }
    for (uint64_t i = 0; i < p->mask; i++) {
        x->segments[i].base = to[i].base;
        x->segments[i].memory_kind = to[i].memory_kind;
    }
    return HWS_OK;
}

static int32_t fetch_run(struct hws__post *p)
{
    struct hws__message *m = hws__obj_find(&hws__objects, p->tag);
    struct hws__multi *x;
    int32_t r;

    if (m == NULL) {
        return hws__id_error(&hws__objects, p->tag, HWS_KIND_BUFFER);
    }
    if ((x = m->multi) == NULL) {
        return hws__fail(HWS_E_INVALID, p->tag, "the buffer is not of a multi-buffer message");
    }
    if (x->ours) {
        return hws__fail(HWS_E_IN_USE, p->tag, "the data was fetched");
    }
    if (x->status < 0) {
        return hws__fail(x->status, p->tag, "%s", hws_error_text(x->status));
    }
    if (hws__op_next(p) == NULL) {
        return HWS_E_TOO_MANY;
    }
    if ((r = take_places(p, x)) < 0) {
        return r;
    }
    p->source = m->ep_id;
    p->done_tag = m->tag;
    p->done_length = x->detail.total;
    hws__list_remove(&m->kept);
    hws__obj_hide(&m->obj);
    hws__multi_copy_inline(x);
    if (!hws__multi_start(x)) {
        return hws__multi_wait(p, x);
    }
    p->done_status = hws__multi_status(x);
    hws__message_release(m);
    return HWS_DONE;
}

int32_t hws_multi_fetch(hws_id buffer, const hws_segment *segments, uint64_t count,
                        const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p = {.run = fetch_run,
                          .tag = buffer,
                          .mask = count,
                          .header = segments,
                          .keep = count * sizeof *segments,
                          .kind = HWS_EVENT_MULTI_RECV};
    struct hws__message *m;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((m = hws__obj_get(buffer, HWS_KIND_BUFFER, &r)) == NULL) {
        return r;
    }
    if (segments == NULL && count != 0) {
        return hws__fail(HWS_E_INVALID, buffer, "segments is null");
    }
    p.worker = m->worker;
    return hws__post(&p, opts, op);
}
