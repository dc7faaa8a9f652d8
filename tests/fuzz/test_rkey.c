/*
 * Packed remote keys: whatever the bytes are, nothing outside of them is read, and what is taken lies inside.
 * INTERNAL SANITIZED
 * WITH: replay.c
 */
#include "fuzz/fuzz.h"
#include "rkey_blob.h"
#include "support/check.h"
#include "ucx_loader.h"

#include <string.h>

enum { MINOR_AT = 5, CHECKSUM_AT = 72, HEADER = 80 };

static int32_t look(const unsigned char *data, size_t size)
{
    struct hws__rkey_blob blob = {0};
    int32_t code = hws__rkey_blob_read(data, size, 0, &blob);
    volatile unsigned char last;

    CHECK(code == HWS_OK || code == HWS_E_INVALID || code == HWS_E_PEER_VERSION);
    if (code == HWS_OK) {
        CHECK((const unsigned char *)blob.ucx == data + HEADER);
        if (size > HEADER) {
            last = data[size - 1];
            (void)last;
        }
    }
    return code;
}

void fuzz_one(const unsigned char *data, size_t size)
{
    static unsigned char repaired[1 << 17];
    uint64_t sum;

    hws__ucx.minor = 22;
    (void)look(data, size);
    if (size < HEADER || size > sizeof repaired) {
        return;
    }
    /* The same as if whoever damaged it had known the checksum and this UCX. */
    memcpy(repaired, data, size);
    repaired[MINOR_AT] = 22;
    memset(repaired + CHECKSUM_AT, 0, 8);
    sum = fuzz_checksum(repaired, size);
    memcpy(repaired + CHECKSUM_AT, &sum, 8);
    if (look(repaired, size) == HWS_OK) {
        CHECK_EQ(memcmp(repaired, "HWRK", 4), 0);
    }
}

FUZZ_MAIN("rkey")
