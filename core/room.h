/*
 * Copies between the library's memory and a buffer of the program's, which may be in pieces and of any kind of memory.
 */
#ifndef HWS_CORE_ROOM_H
#define HWS_CORE_ROOM_H

#include "op.h"

struct hws__context;

/** A buffer of the program's. */
struct hws__room {
    void *buffer;
    uint64_t length; /* bytes, or pieces with HWS_OP_IOV */
    uint32_t flags, kind;
};

/**
 * Copy `count` bytes between a buffer, from its byte `at` on, and `bytes`; `out`: out of the buffer. It has as many.
 * @return 0, or HWS_E_CUDA
 */
int32_t hws__room_copy(struct hws__context *c, struct hws__room room, uint64_t at, void *bytes,
                       uint64_t count, bool out);

/** Received bytes go into the buffer from its start. It has as many. 0, or HWS_E_CUDA. */
static inline int32_t hws__room_fill(struct hws__context *c, struct hws__room room,
                                     const void *bytes, uint64_t count)
{
    if (__builtin_expect(room.kind != HWS_MEMORY_HOST, 0)) {
        return hws__room_copy(c, room, 0, (void *)(uintptr_t)bytes, count, false);
    }
    hws__scatter(room.buffer, room.length, room.flags, bytes, count);
    return HWS_OK;
}

#endif
