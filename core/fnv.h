/* FNV-1a over 64 bits: every change of a single byte changes it. Against damage, not against malice. */
#ifndef HWS_CORE_FNV_H
#define HWS_CORE_FNV_H

#include <stddef.h>
#include <stdint.h>

/** The hash of no bytes. */
#define HWS__FNV UINT64_C(0xcbf29ce484222325)

/** The hash of what `hash` stands for, followed by these bytes. */
static inline uint64_t hws__fnv(uint64_t hash, const void *data, size_t length)
{
    const unsigned char *byte = (const unsigned char *)data;

    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

#endif
