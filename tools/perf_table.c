/*
 * What a comparison comes to: ratios and what is added, as a table or as JSON.
 */
#include "perf_compare.h"

#include <stdlib.h>

struct spread {
    double median, min, max;
};

/* Latency tests are judged by time, the others by messages a second; what ucx_perftest calls otherwise, and may
 * count otherwise, by bytes. */
static bool by_time(const perf_options *o)
{
    return perf_tests[o->params.test].ping_pong && o->params.threads == 1;
}

static double figure(const perf_options *o, const perf_result *r)
{
    return by_time(o)                               ? r->latency_overall
           : perf_tests[o->params.test].raw != NULL ? r->bandwidth_overall
                                                    : r->rate_overall;
}

static double ratio_of(const struct perf_comparison *c, const struct perf_round *r)
{
    double raw = figure(c->o, &r->raw);

    return raw == 0 ? 0 : figure(c->o, &r->ours) / raw;
}

static double percentile_ratio_of(const struct perf_comparison *c, const struct perf_round *r)
{
    (void)c;
    return r->raw.percentile == 0 ? 0 : r->ours.percentile / r->raw.percentile;
}

static double added_of(const struct perf_comparison *c, const struct perf_round *r)
{
    (void)c;
    return (r->ours.latency_overall - r->raw.latency_overall) * 1000.0;
}

static double percentile_added_of(const struct perf_comparison *c, const struct perf_round *r)
{
    (void)c;
    return (r->ours.percentile - r->raw.percentile) * 1000.0;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static struct spread over(const struct perf_comparison *c,
                          double (*of)(const struct perf_comparison *, const struct perf_round *))
{
    uint32_t n = c->o->rounds;
    double *v = n != 0 ? calloc(n, sizeof *v) : NULL;
    struct spread s = {0, 0, 0};

    if (v == NULL) {
        return s;
    }
    for (uint32_t i = 0; i < n; i++) {
        v[i] = of(c, &c->rounds[i]);
    }
    qsort(v, n, sizeof *v, compare_doubles);
    s = (struct spread){(v[(n - 1) / 2] + v[n / 2]) / 2, v[0], v[n - 1]};
    free(v);
    return s;
}

static const char *text_of(const struct perf_comparison *c, const char *name)
{
    const char *text = json_string_value(json_object_get(c->setting, name));

    return text != NULL ? text : "?";
}

void perf_table_head(const struct perf_comparison *c)
{
    printf("%s, %llu bytes, %s mode%s; hawser over %s\n", perf_tests[c->o->params.test].name,
           (unsigned long long)perf_message_bytes(&c->o->params), perf_mode_name(c->o->mode),
           c->o->sleep ? ", sleeping" : "", text_of(c, "lanes"));
    printf("UCX %s for both: %s ran on %s\n", text_of(c, "ucx"), c->raw.program, c->raw.loaded);
    if (by_time(c->o)) {
        printf("round   hawser us   (%g%%ile)      raw us   (%g%%ile)    ratio   added ns\n",
               c->o->rank, c->o->rank);
    } else {
        printf("round   hawser MB/s        msg/s    raw MB/s        msg/s    ratio\n");
    }
}

void perf_table_round(const struct perf_comparison *c, uint32_t i)
{
    const struct perf_round *r = &c->rounds[i];
    const perf_result *ours = &r->ours, *raw = &r->raw;
    const double mib = 1024.0 * 1024.0;

    if (by_time(c->o)) {
        printf("%5u %11.3f %10.3f %11.3f %10.3f %8.3f %10.1f\n", i + 1, ours->latency_overall,
               ours->percentile, raw->latency_overall, raw->percentile, ratio_of(c, r),
               added_of(c, r));
    } else {
        printf("%5u %13.1f %12.0f %11.1f %12.0f %8.3f\n", i + 1, ours->bandwidth_overall / mib,
               ours->rate_overall, raw->bandwidth_overall / mib, raw->rate_overall, ratio_of(c, r));
    }
    fflush(stdout);
}

static void print_spread(const char *what, struct spread s, const char *unit)
{
    printf("%-28s median %.3f  min %.3f  max %.3f%s\n", what, s.median, s.min, s.max, unit);
}

/* Medians over the rounds of the percentiles of the last 2048 iterations, ours and raw. */
static void median_percentiles(const struct perf_comparison *c, int which, double *ours,
                               double *raw)
{
    uint32_t n = c->o->rounds;
    double *v = n != 0 ? calloc(n * 2, sizeof *v) : NULL;

    *ours = *raw = 0;
    if (v == NULL) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        v[i] = c->rounds[i].ours.last[which];
        v[n + i] = c->rounds[i].raw.last[which];
    }
    qsort(v, n, sizeof *v, compare_doubles);
    qsort(v + n, n, sizeof *v, compare_doubles);
    *ours = v[n / 2];
    *raw = v[n + n / 2];
    free(v);
}

static void print_percentiles(const struct perf_comparison *c)
{
    static const char *const names[] = {"p50", "p99", "p99.9"};

    for (int i = 0; i < 3; i++) {
        double ours, raw;

        median_percentiles(c, i, &ours, &raw);
        printf("%-6s hawser %.3f us, raw %.3f us (last 2048 iterations, median of the rounds)\n",
               names[i], ours, raw);
    }
}

void perf_table_summary(const struct perf_comparison *c)
{
    print_spread("ratio hawser/raw", over(c, ratio_of), "");
    if (by_time(c->o)) {
        print_spread("ratio of the percentiles", over(c, percentile_ratio_of), "");
        print_spread("added per message", over(c, added_of), " ns");
        print_spread("added at the percentile", over(c, percentile_added_of), " ns");
    }
    if (c->o->percentiles) {
        print_percentiles(c);
    }
}

static json_t *spread_json(struct spread s)
{
    return json_pack("{s:f, s:f, s:f}", "median", s.median, "min", s.min, "max", s.max);
}

static json_t *percentiles_json(const struct perf_comparison *c)
{
    static const char *const names[] = {"p50", "p99", "p99.9"};
    json_t *object = json_object();

    for (int i = 0; i < 3; i++) {
        double ours, raw;

        median_percentiles(c, i, &ours, &raw);
        json_object_set_new(object, names[i],
                            json_pack("{s:f, s:f}", "hawser_us", ours, "raw_us", raw));
    }
    return object;
}

void perf_table_json(struct perf_comparison *c)
{
    json_t *all = c->setting, *rounds = json_array();

    for (uint32_t i = 0; i < c->o->rounds; i++) {
        json_t *ours = perf_json_result(c->o, &c->rounds[i].ours);
        json_t *raw = perf_json_result(c->o, &c->rounds[i].raw);

        json_array_append_new(rounds, json_pack("{s:o, s:o}", "hawser", ours, "raw", raw));
    }
    json_object_set_new(all, "raw_program", json_string(c->raw.program));
    json_object_set_new(all, "raw_library", json_string(c->raw.loaded));
    json_object_set_new(all, "ratio", spread_json(over(c, ratio_of)));
    if (by_time(c->o)) {
        json_object_set_new(all, "ratio_percentile", spread_json(over(c, percentile_ratio_of)));
        json_object_set_new(all, "added_ns", spread_json(over(c, added_of)));
        json_object_set_new(all, "added_percentile_ns", spread_json(over(c, percentile_added_of)));
    }
    if (c->o->percentiles) {
        json_object_set_new(all, "percentiles", percentiles_json(c));
    }
    json_object_set_new(all, "rounds", rounds);
    perf_json_dump(all);
    c->setting = NULL;
}
