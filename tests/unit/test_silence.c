/* Unit tests of silence.c. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "silence.h"

static struct hws__silence of(const char *idle, const char *interval, const char *probes)
{
    const char *pairs[] = {"TCP_KEEPIDLE", idle, "UCX_TCP_KEEPINTVL", interval, "UCX_TCP_KEEPCNT",
                           probes,         NULL};

    return hws__silence_of(pairs);
}

Test(silence, default_without_settings)
{
    struct hws__silence s = hws__silence_of(NULL);

    cr_assert_eq(s.unheard_ms, hws__silence_default.unheard_ms);
    cr_assert_eq(s.mute_ms, hws__silence_default.mute_ms);
    cr_assert_eq(s.idle_s, 1);
}

Test(silence, settings_of_the_context)
{
    struct hws__silence s = of("10s", "2s", "10");

    cr_assert_eq(s.idle_s, 10);
    cr_assert_eq(s.interval_s, 2);
    cr_assert_eq(s.probes, 10);
    cr_assert_eq(s.unheard_ms, 30000);
    cr_assert_eq(s.mute_ms, 30000);
}

Test(silence, one_host_has_more_time)
{
    struct hws__silence longer = of("10s", "2s", "10");

    cr_assert_eq(hws__silence_on_one_host(&hws__silence_default)->unheard_ms, 5000);
    cr_assert_eq(hws__silence_on_one_host(&hws__silence_default)->probes, 4);
    cr_assert_eq(hws__silence_on_one_host(&longer), &longer);
}

Test(silence, settings_of_the_environment)
{
    struct hws__silence s;

    setenv("UCX_TCP_KEEPIDLE", "5", 1);
    s = hws__silence_of(NULL);
    cr_assert_eq(s.idle_s, 5);
    cr_assert_eq(s.interval_s, 1);
    cr_assert_eq(s.unheard_ms, 9000);
}

Test(silence, units)
{
    cr_assert_eq(of("1m", "1500ms", "1").unheard_ms, 62000);
    cr_assert_eq(of("10us", "1ns", "2").unheard_ms, 3000); /* the kernel counts seconds */
    cr_assert_eq(of("inf", "1s", "1").idle_s, 32767);
    cr_assert_eq(of("1e9s", "1s", "1").idle_s, 32767);
}

Test(silence, what_is_no_time_is_the_default)
{
    struct hws__silence s = of("auto", "0s", "auto");

    cr_assert_eq(s.idle_s, 1);
    cr_assert_eq(s.interval_s, 1);
    cr_assert_eq(s.probes, 4);
    cr_assert_eq(of("5 apples", "-3", "-1").unheard_ms, 5000);
    cr_assert_eq(of("1s", "1s", "99999").probes, 127);
}
