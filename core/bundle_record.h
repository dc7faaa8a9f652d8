/*
 * A message in a bundle: a record, the data behind it, then the next record at a multiple of 8.
 */
#ifndef HWS_CORE_BUNDLE_RECORD_H
#define HWS_CORE_BUNDLE_RECORD_H

#include "bundle.h"
#include <string.h>

struct hws__record {
    uint64_t tag; /* or id of an active message */
    uint32_t length;
    uint32_t kind; /* HWS_EVENT_* of its sender */
};

/** Bytes that it takes with its data. */
static inline uint32_t hws__record_bytes(uint64_t length)
{
    return (uint32_t)(sizeof(struct hws__record) + ((length + 7) & ~UINT64_C(7)));
}

/** How long the record at `at` is, with its data; 0: it is none. */
static inline size_t hws__record_at(struct hws__record *r, const char *at, size_t left)
{
    size_t length;

    if (left < sizeof *r) {
        return 0;
    }
    memcpy(r, at, sizeof *r);
    length = r->length <= HWS__BUNDLE_MESSAGE ? hws__record_bytes(r->length) : SIZE_MAX;
    return length <= left ? length : 0;
}

#endif
