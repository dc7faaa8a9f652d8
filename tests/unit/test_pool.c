/* Unit tests of pool.c: blocks are used again, within a limit, and go back when nobody needs them. */
#include <criterion/criterion.h>
#include <string.h>

#include "pool.h"

#define MIB (UINT64_C(1) << 20)

static struct hws__pool pool;

static void setup(void)
{
    hws__pool_init(&pool, 16 * MIB);
}

static void teardown(void)
{
    hws__pool_drain(&pool);
    cr_assert_eq(pool.bytes, 0);
}

TestSuite(pool, .init = setup, .fini = teardown);

/* Every byte of every size can be written, and no size is more than a quarter, or 1 KiB, too large. */
Test(pool, blocks_hold_what_they_are_taken_for)
{
    for (uint64_t length = 0; length < 5 * MIB; length = length * 9 / 8 + 1) {
        void *block = hws__pool_take(&pool, length);

        cr_assert_neq(block, NULL);
        cr_assert_eq((uintptr_t)block % HWS__POOL_ALIGN, 0);
        memset(block, 0xa5, length);
        hws__pool_give(&pool, block, length);
        cr_assert_geq(pool.bytes, length);
        cr_assert_leq(pool.bytes, length < 1024 ? 1024 : length + length / 4 + 1, "%llu",
                      (unsigned long long)length);
        hws__pool_drain(&pool);
        cr_assert_eq(pool.bytes, 0);
    }
}

Test(pool, a_block_is_used_again_for_its_size_only)
{
    void *a = hws__pool_take(&pool, 5000), *b = hws__pool_take(&pool, 5001), *c;

    hws__pool_give(&pool, a, 5000);
    hws__pool_give(&pool, b, 5001);
    cr_assert_eq(hws__pool_take(&pool, 5000), b, "the last one is warm");
    cr_assert_eq(hws__pool_take(&pool, 5119), a);
    c = hws__pool_take(&pool, 5000);
    cr_assert_eq(pool.reused, 2);
    cr_assert_eq(pool.fresh, 3);
    hws__pool_give(&pool, a, 5119);
    cr_assert_neq(hws__pool_take(&pool, 5121), a, "too small");
    hws__pool_give(&pool, b, 5000);
    hws__pool_give(&pool, c, 5000);
}

Test(pool, large_blocks_are_aligned_to_huge_pages)
{
    static const uint64_t lengths[] = {2 * MIB - 1, 2 * MIB + 1, 3 * MIB, 7 * MIB + 5};
    void *block[4];

    for (int i = 0; i < 4; i++) {
        block[i] = hws__pool_take(&pool, lengths[i]);
        cr_assert_eq((uintptr_t)block[i] % (2 * MIB), 0);
        memset(block[i], i, lengths[i]);
    }
    for (int i = 0; i < 4; i++) {
        hws__pool_give(&pool, block[i], lengths[i]);
    }
    cr_assert_eq(hws__pool_take(&pool, 7 * MIB + 5), block[3]);
    hws__pool_give(&pool, block[3], 7 * MIB + 5);
}

Test(pool, no_more_is_kept_than_the_limit)
{
    void *block[20];

    for (int i = 0; i < 20; i++) {
        block[i] = hws__pool_take(&pool, MIB);
    }
    for (int i = 0; i < 20; i++) {
        hws__pool_give(&pool, block[i], MIB);
        cr_assert_eq(pool.bytes, (i < 16 ? (uint64_t)i + 1 : 16) * MIB);
    }
    block[0] = hws__pool_take(&pool, 64 * MIB);
    hws__pool_drain(&pool);
    hws__pool_give(&pool, block[0], 64 * MIB);
    cr_assert_eq(pool.bytes, 0, "one block of more than the limit");
}

Test(pool, none_is_kept_with_a_limit_of_zero)
{
    void *block;

    hws__pool_init(&pool, 0);
    block = hws__pool_take(&pool, 100);
    hws__pool_give(&pool, block, 100);
    cr_assert_eq(pool.bytes, 0);
    cr_assert_eq(pool.reused, 0);
}

Test(pool, what_is_not_there_is_null)
{
    cr_assert_eq(hws__pool_take(&pool, UINT64_MAX), NULL);
    cr_assert_eq(hws__pool_take(&pool, UINT64_MAX / 2), NULL);
    cr_assert_eq(hws__pool_take(&pool, UINT64_C(1) << 60), NULL);
    hws__pool_give(&pool, NULL, 5);
    cr_assert_eq(pool.bytes, 0);
}

/* Eight blocks, of which two are used all the time: these stay, the others go by halves. */
Test(pool, what_nobody_needs_goes_back)
{
    const uint64_t size = 8192;
    void *block[8];
    uint64_t now = 0;

    for (int i = 0; i < 8; i++) {
        block[i] = hws__pool_take(&pool, size);
    }
    for (int i = 0; i < 8; i++) {
        hws__pool_give(&pool, block[i], size);
    }
    hws__pool_age(&pool, now += HWS__POOL_AGE_NS);
    cr_assert_eq(pool.bytes, 8 * size, "they have just been used");
    hws__pool_age(&pool, now + HWS__POOL_AGE_NS - 1);
    cr_assert_eq(pool.bytes, 8 * size, "too early");
    static const uint64_t left[] = {5, 3, 2, 2, 2};
    for (int round = 0; round < 5; round++) {
        void *a = hws__pool_take(&pool, size), *b = hws__pool_take(&pool, size);

        hws__pool_give(&pool, a, size);
        hws__pool_give(&pool, b, size);
        hws__pool_age(&pool, now += HWS__POOL_AGE_NS);
        cr_assert_eq(pool.bytes, left[round] * size, "round %d: %llu", round,
                     (unsigned long long)(pool.bytes / size));
    }
    hws__pool_age(&pool, now += HWS__POOL_AGE_NS);
    hws__pool_age(&pool, now += HWS__POOL_AGE_NS);
    cr_assert_eq(pool.bytes, 0);
}
