/*
 * Memory of one side of a pair, and the key by which the other side reaches it.
 */
#ifndef TESTS_SUPPORT_REMOTE_H
#define TESTS_SUPPORT_REMOTE_H

#include "support/pair.h"

#define T_RMA_FEATURES \
    (HWS_FEATURE_TAG | HWS_FEATURE_STREAM | HWS_FEATURE_AM | HWS_FEATURE_RMA | HWS_FEATURE_ATOMIC)

typedef struct t_remote {
    hws_id memory;
    hws_id rkey; /* on the other side's endpoint */
    char *base;  /* also `address` at the peer */
    uint64_t address, length;
    int allocated;
} t_remote;

/* Memory of side `owner`: allocated by the library, or the test's own. */
void t_remote_open(t_remote *remote, t_pair *pair, int owner, int allocated, uint64_t length);
void t_remote_close(t_remote *remote);

/* A packed key, to be freed. */
void *t_pack(hws_id memory, uint64_t *length);

/* Every combination of transport, kind of memory and direction; `user` is the side that acts. */
#define CASE_REMOTE(case_name)                                                 \
    static void case_name(t_pair *pair, int user, t_remote *remote);           \
    static void case_name##_each(uint32_t flags, int allocated)                \
    {                                                                          \
        for (int user = 0; user < 2; user++) {                                 \
            t_pair pair;                                                       \
            t_remote remote;                                                   \
            t_remote_pair(&pair, flags);                                       \
            t_remote_open(&remote, &pair, 1 - user, allocated, T_REMOTE_SIZE); \
            case_name(&pair, user, &remote);                                   \
            t_remote_close(&remote);                                           \
            t_pair_close(&pair);                                               \
        }                                                                      \
    }                                                                          \
    CASE(case_name##_shm_allocated)                                            \
    {                                                                          \
        case_name##_each(0, 1);                                                \
    }                                                                          \
    CASE(case_name##_shm_registered)                                           \
    {                                                                          \
        case_name##_each(0, 0);                                                \
    }                                                                          \
    CASE(case_name##_tcp)                                                      \
    {                                                                          \
        case_name##_each(HWS_ENDPOINT_TCP_ONLY, 0);                            \
    }                                                                          \
    static void case_name(t_pair *pair, int user, t_remote *remote)

#define T_REMOTE_SIZE (UINT64_C(4) << 20)

/* A pair that can do remote memory access; flags: of the client's endpoint. */
void t_remote_pair(t_pair *pair, uint32_t flags);

/* Flush the endpoint of a side and wait for it. */
void t_flush(t_pair *pair, int side);

#endif
