/*
 * The memory that messages arrive in, kept for the next ones: the kernel takes longer to make fresh pages
 * than a copy takes to fill them. Sizes come in four steps to each power of two. Blocks of 2 MiB and more
 * are mappings of their own, aligned so that huge pages can back them.
 */
#ifndef HWS_CORE_POOL_H
#define HWS_CORE_POOL_H

#include "list.h"
#include <stdint.h>

#define HWS__POOL_ALIGN 64u
#define HWS__POOL_BYTES (UINT64_C(64) << 20)
/** Up to 1 KiB, then four sizes to each power of two, up to 1 TiB. */
#define HWS__POOL_SIZES 121u
/** How often half of what was not used in between is given back to the system. */
#define HWS__POOL_AGE_NS UINT64_C(1000000000)

struct hws__pool_size {
    struct hws__list free; /* in the blocks themselves; what was used last comes first */
    uint32_t count;
    uint32_t least; /* that there were since the last look: so many were not needed */
};

/** Of a worker; owner only. */
struct hws__pool {
    struct hws__pool_size sizes[HWS__POOL_SIZES];
    uint64_t limit; /* of `bytes` */
    uint64_t bytes; /* that are free */
    uint64_t reused, fresh;
    uint64_t aged_at;
};

void hws__pool_init(struct hws__pool *p, uint64_t limit);
/** At least `length` bytes, aligned to HWS__POOL_ALIGN; also for 0. Null: no memory. */
void *hws__pool_take(struct hws__pool *p, uint64_t length);
/** Give a block back that was taken with this length; null is nothing. */
void hws__pool_give(struct hws__pool *p, void *block, uint64_t length);
/** Give half of the blocks back that nobody needed since the last call; at most once in HWS__POOL_AGE_NS. */
void hws__pool_age(struct hws__pool *p, uint64_t now);
/** Give every free block back. */
void hws__pool_drain(struct hws__pool *p);

#endif
