/*
 * The bytes of worker addresses and blobs: a frame, UCX's address, items.
 */
#ifndef HWS_CORE_BLOB_H
#define HWS_CORE_BLOB_H

#include <hawser.h>
#include <stdbool.h>

/** Where things are in a blob that was checked. */
struct hws__blob {
    uint32_t flags;
    uint32_t ucx_major, ucx_minor;
    uint32_t items;
    uint64_t worker;
    const void *address;
    uint64_t address_length;
    const unsigned char *first_item;
};

/** Bytes of a blob. */
uint64_t hws__blob_bytes(uint64_t address_length, const hws_blob_item *items, uint32_t count);
/** Write one of hws__blob_bytes(); `b` says what, its `items` and `first_item` are ignored. */
void hws__blob_write(void *to, const struct hws__blob *b, const hws_blob_item *items,
                     uint32_t count);
/** Check and take apart. 0 or HWS_E_INVALID. */
int32_t hws__blob_read(const void *from, uint64_t length, struct hws__blob *b);

#endif
