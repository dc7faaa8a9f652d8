#include "blob.h"
#include "error.h"
#include "fnv.h"
#include "guard.h"
#include "options.h"
#include <stdio.h>
#include <string.h>

#define MAGIC 0x41535748u /* "HWSA", little endian */
#define VERSION 1
#define FLAGS (HWS_ADDRESS_HELLO | HWS_ADDRESS_UNSAFE_SHARED_MEMORY)

struct frame {
    uint32_t magic;
    uint16_t version, flags;
    uint16_t ucx_major, ucx_minor;
    uint32_t items;
    uint64_t length;   /* of everything */
    uint64_t checksum; /* of everything, with 0 here */
    uint64_t worker;
    uint64_t address_length;
};

struct item {
    uint64_t key, length;
};

_Static_assert(sizeof(struct frame) == 48, "the format");

static uint64_t padded(uint64_t n)
{
    return (n + 7) & ~UINT64_C(7);
}

static uint64_t checksum(const struct frame *frame, const unsigned char *rest, uint64_t length)
{
    return hws__fnv(hws__fnv(HWS__FNV, frame, sizeof *frame), rest, length);
}

uint64_t hws__blob_bytes(uint64_t address_length, const hws_blob_item *items, uint32_t count)
{
    uint64_t bytes = sizeof(struct frame) + padded(address_length);

    for (uint32_t i = 0; i < count; i++) {
        bytes += sizeof(struct item) + padded(items[i].length);
    }
    return bytes;
}

void hws__blob_write(void *to, const struct hws__blob *b, const hws_blob_item *items,
                     uint32_t count)
{
    uint64_t length = hws__blob_bytes(b->address_length, items, count);
    struct frame f = {.magic = MAGIC,
                      .version = VERSION,
                      .flags = (uint16_t)b->flags,
                      .ucx_major = (uint16_t)b->ucx_major,
                      .ucx_minor = (uint16_t)b->ucx_minor,
                      .items = count,
                      .length = length,
                      .worker = b->worker,
                      .address_length = b->address_length};
    unsigned char *p = to;

    memset(to, 0, length);
    p += sizeof f;
    memcpy(p, b->address, b->address_length);
    p += padded(b->address_length);
    for (uint32_t i = 0; i < count; i++) {
        struct item item = {items[i].key, items[i].length};

        memcpy(p, &item, sizeof item);
        p += sizeof item;
        if (item.length != 0) {
            memcpy(p, items[i].data, item.length);
        }
        p += padded(item.length);
    }
    f.checksum = checksum(&f, (unsigned char *)to + sizeof f, length - sizeof f);
    memcpy(to, &f, sizeof f);
}

/* Step over an item; null if it does not fit into what is left. */
static const unsigned char *next_item(const unsigned char *p, const unsigned char *end,
                                      hws_blob_item *out)
{
    struct item item;

    if ((uint64_t)(end - p) < sizeof item) {
        return NULL;
    }
    memcpy(&item, p, sizeof item);
    p += sizeof item;
    if (item.length > (uint64_t)(end - p) || padded(item.length) > (uint64_t)(end - p)) {
        return NULL;
    }
    *out = (hws_blob_item){.key = item.key, .data = p, .length = item.length};
    return p + padded(item.length);
}

static bool read(const unsigned char *from, uint64_t length, struct hws__blob *b)
{
    const unsigned char *p = from + sizeof(struct frame), *end = from + length;
    hws_blob_item item;
    struct frame f;
    uint64_t sum;

    memcpy(&f, from, sizeof f);
    sum = f.checksum;
    f.checksum = 0;
    if (f.magic != MAGIC || f.version != VERSION || f.length != length || (f.flags & ~FLAGS) != 0 ||
        sum != checksum(&f, p, length - sizeof f) || f.address_length == 0 ||
        f.address_length > length || padded(f.address_length) > length - sizeof f) {
        return false;
    }
    *b = (struct hws__blob){.flags = f.flags,
                            .ucx_major = f.ucx_major,
                            .ucx_minor = f.ucx_minor,
                            .items = f.items,
                            .worker = f.worker,
                            .address = p,
                            .address_length = f.address_length,
                            .first_item = p + padded(f.address_length)};
    p = b->first_item;
    for (uint32_t i = 0; i < f.items && p != NULL; i++) {
        p = next_item(p, end, &item);
    }
    return p == end;
}

int32_t hws__blob_read(const void *from, uint64_t length, struct hws__blob *b)
{
    if (from == NULL || length < sizeof(struct frame) || !read(from, length, b)) {
        return hws__fail(HWS_E_INVALID, 0, "%llu bytes are no address, or a damaged one",
                         (unsigned long long)length);
    }
    return HWS_OK;
}

int32_t hws_address_query(const void *address, uint64_t length, hws_address_info *out)
{
    hws_address_info info = {0};
    struct hws__blob b = {0};
    int32_t r;

    HWS__ENTER();
    if ((r = hws__blob_read(address, length, &b)) < 0) {
        return r;
    }
    info.flags = b.flags;
    info.ucx_major = b.ucx_major;
    info.ucx_minor = b.ucx_minor;
    info.items = b.items;
    info.worker = b.worker;
    snprintf(info.text, sizeof info.text, "worker %016llx of UCX %u.%u%s%s, %u items",
             (unsigned long long)b.worker, b.ucx_major, b.ucx_minor,
             b.flags & HWS_ADDRESS_HELLO ? ", hello" : "",
             b.flags & HWS_ADDRESS_UNSAFE_SHARED_MEMORY ? ", shm" : "", b.items);
    return hws__fill(out, &info, sizeof info, "address info");
}

int32_t hws_blob_item_get(const void *blob, uint64_t length, uint32_t index, hws_blob_item *item)
{
    const unsigned char *p;
    struct hws__blob b = {0};
    int32_t r;

    HWS__ENTER();
    if (item == NULL) {
        return hws__fail(HWS_E_INVALID, 0, "item is null");
    }
    if ((r = hws__blob_read(blob, length, &b)) < 0) {
        return r;
    }
    if (index >= b.items) {
        return hws__fail(HWS_E_NOT_FOUND, 0, "item %u of %u", index, b.items);
    }
    p = b.first_item;
    for (uint32_t i = 0; i <= index; i++) {
        p = next_item(p, (const unsigned char *)blob + length, item);
    }
    return HWS_OK;
}
