#include "silence.h"
#include "ucx_config.h"
#include <stdlib.h>
#include <string.h>

/* Of the kernel's options: longer ones are refused. */
#define SECONDS_MAX 32767
#define PROBES_MAX 127

const struct hws__silence hws__silence_default = {.idle_s = 1,
                                                  .interval_s = 1,
                                                  .probes = 4,
                                                  .unheard_ms = 1200,
                                                  .mute_ms = 1500,
                                                  .idle_ms = 2000,
                                                  .questions = 3};

static const struct hws__silence one_host = {
    .idle_s = 1, .interval_s = 1, .probes = 4, .unheard_ms = 5000, .mute_ms = 5000, .questions = 1};

const struct hws__silence *hws__silence_on_one_host(const struct hws__silence *s)
{
    return s->unheard_ms < one_host.unheard_ms ? &one_host : s;
}

/* Whole seconds, as the kernel takes them. */
static int round_up(double value)
{
    int whole = value < SECONDS_MAX ? (int)value : SECONDS_MAX;

    return whole < value && whole < SECONDS_MAX ? whole + 1 : whole;
}

/* A time as UCX writes it; `other` where it is none. */
static int seconds(const char *text, int other)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
    char *end;
    double value;

    if (text == NULL) {
        return other;
    }
    value = strtod(text, &end);
    if (end == text || !(value > 0)) {
        return other;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].unit) == 0) {
            return round_up(value * units[i].seconds);
        }
    }
    return other;
}

static int count(const char *text, int other)
{
    long value = text != NULL ? strtol(text, NULL, 10) : 0;

    return value <= 0 ? other : value < PROBES_MAX ? (int)value : PROBES_MAX;
}

struct hws__silence hws__silence_of(const char *const *pairs)
{
    const char *idle = hws__ucx_config_user("TCP_KEEPIDLE", pairs);
    const char *interval = hws__ucx_config_user("TCP_KEEPINTVL", pairs);
    const char *probes = hws__ucx_config_user("TCP_KEEPCNT", pairs);
    struct hws__silence s = hws__silence_default;

    if (idle == NULL && interval == NULL && probes == NULL) {
        return s;
    }
    s.idle_s = seconds(idle, s.idle_s);
    s.interval_s = seconds(interval, s.interval_s);
    s.probes = count(probes, s.probes);
    s.idle_ms = 0;
    s.questions = 1;
    s.unheard_ms = s.mute_ms =
        (uint32_t)(((uint64_t)s.idle_s + (uint64_t)s.interval_s * (uint64_t)s.probes) * 1000u);
    return s;
}
