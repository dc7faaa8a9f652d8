#include "room.h"
#include "cuda.h"
#include <string.h>

/* Of what is still unknown, where the driver cannot tell, the host's. */
static int32_t find_kind(const void *pointer, uint32_t *kind)
{
    bool known;
    int32_t r = *kind == HWS_MEMORY_UNKNOWN ? hws__cuda_kind(0, pointer, kind, &known) : HWS_OK;

    if (*kind == HWS_MEMORY_UNKNOWN) {
        *kind = HWS_MEMORY_HOST;
    }
    return r;
}

int32_t hws__room_copy(struct hws__context *c, struct hws__room room, uint64_t at, void *bytes,
                       uint64_t count, bool out)
{
    hws_iov one = {room.buffer, UINT64_MAX};
    const hws_iov *v = room.flags & HWS_OP_IOV ? room.buffer : &one;
    char *ours = bytes;
    int32_t r = HWS_OK;

    for (; count != 0 && r == HWS_OK; v++) {
        uint64_t n;
        char *theirs;

        if (at >= v->length) {
            at -= v->length;
            continue;
        }
        n = v->length - at < count ? v->length - at : count;
        theirs = (char *)v->base + at;
        if ((r = find_kind(theirs, &room.kind)) < 0) {
            break;
        }
        if (hws__cuda_is(room.kind)) {
            r = hws__cuda_copy(c, out ? ours : theirs, out ? theirs : ours, n);
        } else {
            memcpy(out ? ours : theirs, out ? theirs : ours, n);
        }
        ours += n;
        count -= n;
        at = 0;
    }
    return r;
}
