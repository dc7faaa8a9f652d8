/*
 * Received bytes go into the memory of whoever waits for them.
 */
#ifndef HWS_CORE_COPY_INTO_H
#define HWS_CORE_COPY_INTO_H

#include "cuda.h"
#include "op.h"
#include "worker.h"

/**
 * Copy contiguous data of the library's into a receiver's buffer, or its pieces, of any kind of memory; at most `length`
 * bytes. 0, or HWS_E_CUDA.
 */
static inline int32_t hws__copy_into(struct hws__worker *w, uint32_t kind, void *buffer,
                                     uint64_t count, uint32_t flags, const void *data,
                                     uint64_t length)
{
    if (__builtin_expect(hws__cuda_is(kind), 0)) {
        return hws__cuda_scatter(w->context, buffer, count, flags, data, length);
    }
    hws__scatter(buffer, count, flags, data, length);
    return HWS_OK;
}

#endif
