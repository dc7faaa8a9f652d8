#include "support/remote.h"

#include <stdlib.h>

void t_remote_pair(t_pair *pair, uint32_t flags)
{
    t_pair_opts opts = {.endpoint_flags = flags, .features = T_RMA_FEATURES};

    t_pair_open(pair, &opts);
}

void *t_pack(hws_id memory, uint64_t *length)
{
    void *packed;

    CHECK_CODE(hws_rkey_pack(memory, 0, NULL, 0, length), HWS_E_TOO_BIG);
    packed = t_alloc(*length);
    CHECK_OK(hws_rkey_pack(memory, 0, packed, *length, length));
    return packed;
}

void t_remote_open(t_remote *remote, t_pair *pair, int owner, int allocated, uint64_t length)
{
    hws_mem_info info = {.struct_size = sizeof(info)};
    uint64_t packed_length;
    void *packed;

    *remote = (t_remote){.allocated = allocated};
    if (allocated) {
        CHECK_OK(hws_mem_alloc(pair->context, length, NULL, &remote->memory));
    } else {
        remote->base = t_alloc(length);
        CHECK_OK(hws_mem_register(pair->context, remote->base, length, NULL, &remote->memory));
    }
    CHECK_OK(hws_mem_query(remote->memory, &info));
    CHECK_EQ(info.allocated, allocated);
    CHECK_EQ(info.memory_kind, HWS_MEMORY_HOST);
    CHECK(allocated ? info.length >= length : info.length == length && info.base == remote->base);
    remote->base = info.base;
    remote->address = (uint64_t)(uintptr_t)info.base;
    remote->length = length;
    packed = t_pack(remote->memory, &packed_length);
    CHECK_OK(hws_rkey_unpack(pair->endpoint[1 - owner], packed, packed_length, 0, &remote->rkey));
    free(packed);
}

void t_remote_close(t_remote *remote)
{
    CHECK_OK(hws_close(remote->rkey));
    CHECK_OK(hws_close(remote->memory));
    if (!remote->allocated) {
        free(remote->base);
    }
}

void t_flush(t_pair *pair, int side)
{
    hws_id op = 0;

    CHECK_OK(hws_flush(pair->endpoint[side], NULL, &op));
    WAIT_OK(pair, op);
}
