/* Buckets of the histograms: each time has one, their bounds grow, quantiles lie in the right one. */
#include "latency.h"

#include <criterion/criterion.h>

Test(latency, buckets_meet_at_their_bounds)
{
    cr_assert_eq(hws__latency_bucket(0), 0);
    for (uint32_t i = 0; i + 1 < HWS_LATENCY_BUCKETS; i++) {
        uint64_t bound = hws__latency_bound(i);

        cr_assert_eq(hws__latency_bucket(bound - 1), i, "%u", i);
        cr_assert_eq(hws__latency_bucket(bound), i + 1, "%u", i);
    }
    cr_assert_eq(hws__latency_bucket(UINT64_MAX), HWS_LATENCY_BUCKETS - 1);
}

Test(latency, bounds_are_those_of_the_manual)
{
    static const uint64_t bounds[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20};

    for (uint32_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        cr_assert_eq(hws__latency_bound(i), bounds[i]);
    }
}

Test(latency, quantiles)
{
    static struct hws__histogram h;
    hws_latency l;

    for (uint64_t i = 1; i <= 1000; i++) {
        hws__latency_count(&h, i);
    }
    hws__latency_fill(&h, 3, &l);
    cr_assert_eq(l.kind, 3);
    cr_assert_eq(l.count, 1000);
    cr_assert_eq(l.sum_ns, 500500);
    cr_assert_eq(l.min_ns, 1);
    cr_assert_eq(l.max_ns, 1000);
    cr_assert_eq(l.p50_ns, 512);
    cr_assert_eq(l.p90_ns, 1000); /* the bucket's bound is 1024 */
    cr_assert_eq(l.p999_ns, 1000);
}

Test(latency, of_nothing)
{
    static struct hws__histogram h;
    hws_latency l;

    hws__latency_fill(&h, 0, &l);
    cr_assert_eq(l.count, 0);
    cr_assert_eq(l.p50_ns, 0);
    cr_assert_eq(l.max_ns, 0);
}
