/* Unit tests of core/time.h. */
#include <criterion/criterion.h>

#include "../core/time.h"

Test(time, it_goes_forward)
{
    uint64_t a = hws__now(), b = hws__now();

    cr_assert_gt(a, 0);
    cr_assert_geq(b, a);
}

Test(time, a_deadline_does_not_overflow)
{
    cr_assert_eq(hws__deadline(100, 20), 120);
    cr_assert_eq(hws__deadline(100, 0), 100);
    cr_assert_eq(hws__deadline(100, UINT64_MAX), UINT64_MAX);
    cr_assert_eq(hws__deadline(100, UINT64_MAX - 100), UINT64_MAX);
    cr_assert_eq(hws__deadline(100, UINT64_MAX - 101), UINT64_MAX - 1);
    cr_assert_eq(hws__deadline(UINT64_MAX, 1), UINT64_MAX);
}

Test(time, what_is_left)
{
    uint64_t second = 1000000000u;

    cr_assert_eq(hws__left(UINT64_MAX), UINT64_MAX);
    cr_assert_eq(hws__left(0), 0);
    cr_assert_eq(hws__left(hws__now()), 0);
    cr_assert_gt(hws__left(hws__now() + 100 * second), 50 * second);
    cr_assert_leq(hws__left(hws__now() + 100 * second), 100 * second);
}
