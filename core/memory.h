/*
 * Registered memory. Its handle belongs to hws__context_shm(); peers on other UCX contexts never use
 * it: they reach the memory by messages, which name it by id and key.
 */
#ifndef HWS_CORE_MEMORY_H
#define HWS_CORE_MEMORY_H

#include "context.h"
#include <stdbool.h>

struct hws__memory {
    struct hws__obj obj;
    struct hws__context *context;
    struct hws__list link; /* of the context */
    ucp_mem_h ucx;
    void *base;
    uint64_t length;
    uint64_t key; /* random: a peer that knows it was given it */
    uint32_t memory_kind;
    uint32_t access;  /* HWS_MEM_* */
    uint64_t segment; /* that it lies in, see segment.h; 0: none */
    void *cuda;       /* the CUDA context it was registered in, see cuda.h; null: none */
    bool allocated;
    bool closing;  /* goes with its last use */
    uint32_t uses; /* plans and answers that hold it */
};

/** The memory of an id with one more use, or null with `*error` set. Any thread. */
struct hws__memory *hws__memory_use(hws_id id, int32_t *error);
void hws__memory_unuse(struct hws__memory *m);
int32_t hws__memory_close(hws_id id);
/** Release what a context that ends still has registered. */
void hws__memory_end(struct hws__context *c);

/**
 * What a peer asks for: memory of context `c` with one more use, or null if there is none of that
 * id and key, or the piece is not inside, or not registered for `access`. Any thread.
 */
struct hws__memory *hws__memory_reach(const struct hws__context *c, hws_id id, uint64_t key,
                                      uint64_t address, uint64_t length, uint32_t access);

/** What a packed key is made of; `ucx` is released by hws__memory_pack_free(). */
struct hws__packed {
    void *ucx;
    size_t ucx_length;
    hws_id memory;
    uint64_t key, segment, base, length;
    uint32_t memory_kind;
};

/** `raw`: for a plain UCX program, which needs UCX's own remote access at this end. */
int32_t hws__memory_pack(hws_id id, bool raw, struct hws__packed *out);
void hws__memory_pack_free(struct hws__packed *p);

#endif
