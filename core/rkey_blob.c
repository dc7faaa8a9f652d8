#include "rkey_blob.h"
#include "error.h"
#include "fnv.h"
#include "host.h"
#include "ucx_loader.h"
#include <string.h>
#include <unistd.h>

#define VERSION 2

/* Little endian. UCX's own key follows. UCX reads it without looking at its length, so nothing may
 * reach it that was not packed by this library, whole. */
struct header {
    unsigned char magic[4];
    uint8_t version, ucx_minor, memory_kind, zero;
    uint64_t base, length;
    uint64_t host, pid;
    uint64_t memory, key;
    uint64_t segment;
    uint64_t ucx_length;
    uint64_t checksum; /* of everything, with this field 0 */
};

_Static_assert(sizeof(struct header) == 80, "the wire format");

static const unsigned char magic[4] = {'H', 'W', 'R', 'K'};

static uint64_t checksum_of(const struct header *h, const void *rest, uint64_t length)
{
    struct header copy = *h;

    copy.checksum = 0;
    return hws__fnv(hws__fnv(HWS__FNV, &copy, sizeof copy), rest, length);
}

uint64_t hws__rkey_blob_size(const struct hws__packed *p)
{
    return sizeof(struct header) + p->ucx_length;
}

void hws__rkey_blob_write(const struct hws__packed *p, void *out)
{
    struct header h = {.version = VERSION,
                       .ucx_minor = (uint8_t)hws__ucx.minor,
                       .memory_kind = (uint8_t)p->memory_kind,
                       .base = p->base,
                       .length = p->length,
                       .host = hws__host_hash(),
                       .pid = (uint64_t)getpid(),
                       .memory = p->memory,
                       .key = p->key,
                       .segment = p->segment,
                       .ucx_length = p->ucx_length};
    char *rest = (char *)out + sizeof h;

    memcpy(h.magic, magic, sizeof h.magic);
    memcpy(rest, p->ucx, p->ucx_length);
    h.checksum = checksum_of(&h, rest, p->ucx_length);
    memcpy(out, &h, sizeof h);
}

int32_t hws__rkey_blob_read(const void *packed, uint64_t length, hws_id endpoint,
                            struct hws__rkey_blob *out)
{
    const char *rest = (const char *)packed + sizeof(struct header);
    struct header h;

    if (length < sizeof h.magic || memcmp(packed, magic, sizeof magic) != 0) {
        return hws__fail(HWS_E_INVALID, endpoint, "not a packed remote key");
    }
    if (length < sizeof h) {
        return hws__fail(HWS_E_INVALID, endpoint, "a remote key cut to %llu bytes",
                         (unsigned long long)length);
    }
    memcpy(&h, packed, sizeof h);
    if (h.version != VERSION) {
        return hws__fail(HWS_E_PEER_VERSION, endpoint, "a remote key of version %u, this is %u",
                         h.version, VERSION);
    }
    if (length - sizeof h != h.ucx_length) {
        return hws__fail(HWS_E_INVALID, endpoint, "a remote key of %llu bytes instead of %llu",
                         (unsigned long long)length, (unsigned long long)h.ucx_length + sizeof h);
    }
    if (checksum_of(&h, rest, length - sizeof h) != h.checksum) {
        return hws__fail(HWS_E_INVALID, endpoint, "a damaged remote key: wrong checksum");
    }
    if (h.ucx_minor != (uint8_t)hws__ucx.minor) {
        return hws__fail(HWS_E_PEER_VERSION, endpoint, "a remote key of UCX 1.%u, this is 1.%d",
                         h.ucx_minor, hws__ucx.minor);
    }
    *out = (struct hws__rkey_blob){.base = h.base,
                                   .length = h.length,
                                   .host = h.host,
                                   .pid = h.pid,
                                   .memory = h.memory,
                                   .key = h.key,
                                   .segment = h.segment,
                                   .memory_kind = h.memory_kind,
                                   .ucx = rest};
    return HWS_OK;
}
