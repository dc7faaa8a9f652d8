/*
 * Worker addresses and blobs: whatever the bytes are, nothing outside of them is read, and every item of one
 * that is taken lies inside, whole.
 * INTERNAL SANITIZED
 * WITH: replay.c
 */
#include "blob.h"
#include "fuzz/fuzz.h"
#include "support/check.h"

#include <string.h>

enum { LENGTH_AT = 16, CHECKSUM_AT = 24, FRAME = 48, ITEMS_LOOKED_AT = 100 };

static void items(const unsigned char *data, size_t size, uint32_t count)
{
    const unsigned char *end = data + size, *before = data + FRAME;
    hws_blob_item item;

    for (uint32_t i = 0; i < count && i < ITEMS_LOOKED_AT; i++) {
        const unsigned char *at;

        CHECK_OK(hws_blob_item_get(data, size, i, &item));
        at = item.data;
        CHECK(at >= before && at <= end && item.length <= (uint64_t)(end - at));
        (void)fuzz_checksum(at, item.length); /* reads all of it */
        before = at + item.length;
    }
    CHECK_CODE(hws_blob_item_get(data, size, count, &item), HWS_E_NOT_FOUND);
}

static void look(const unsigned char *data, size_t size)
{
    hws_address_info info = {.struct_size = sizeof info};
    struct hws__blob blob = {0};
    hws_blob_item item;
    int32_t code = hws_address_query(data, size, &info);

    CHECK(code == HWS_OK || code == HWS_E_INVALID);
    if (code < 0) {
        CHECK_CODE(hws_blob_item_get(data, size, 0, &item), HWS_E_INVALID);
        return;
    }
    CHECK(memchr(info.text, '\0', sizeof info.text) != NULL);
    CHECK_OK(hws__blob_read(data, size, &blob));
    CHECK((const unsigned char *)blob.address == data + FRAME &&
          blob.address_length <= size - FRAME);
    (void)fuzz_checksum(blob.address, blob.address_length);
    items(data, size, info.items);
}

void fuzz_one(const unsigned char *data, size_t size)
{
    static unsigned char repaired[1 << 17];
    uint64_t sum, length = size;

    look(data, size);
    if (size < FRAME || size > sizeof repaired) {
        return;
    }
    memcpy(repaired, data, size);
    memcpy(repaired + LENGTH_AT, &length, 8);
    memset(repaired + CHECKSUM_AT, 0, 8);
    sum = fuzz_checksum(repaired, size);
    memcpy(repaired + CHECKSUM_AT, &sum, 8);
    look(repaired, size);
}

FUZZ_MAIN("address")
