/*
 * The packed form of a remote key: what travels to the peer.
 */
#ifndef HWS_CORE_RKEY_BLOB_H
#define HWS_CORE_RKEY_BLOB_H

#include "memory.h"

/** A packed key that has been checked. */
struct hws__rkey_blob {
    uint64_t base, length, host, pid;
    hws_id memory;
    uint64_t key, segment; /* struct hws__memory's */
    uint32_t memory_kind;
    const void *ucx; /* UCX's own key */
};

/** Bytes of the packed form. */
uint64_t hws__rkey_blob_size(const struct hws__packed *p);
/** Write it, hws__rkey_blob_size() bytes. */
void hws__rkey_blob_write(const struct hws__packed *p, void *out);
/**
 * Read it, trusting nothing.
 * @return 0, HWS_E_INVALID, HWS_E_PEER_VERSION
 */
int32_t hws__rkey_blob_read(const void *packed, uint64_t length, hws_id endpoint,
                            struct hws__rkey_blob *out);

#endif
