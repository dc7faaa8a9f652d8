/*
 * Hawser and ucx_perftest in turns, on the same UCX and the same CPUs. On a shared machine a figure
 * drifts from one minute to the next: what counts is the ratio within a round.
 */
#include "perf_compare.h"
#include "tool.h"

#include <stdlib.h>

static int run_ours(struct perf_comparison *c, perf_result *out)
{
    char *text = NULL;
    int code = perf_self(c->o, true, &text);
    json_t *run = code == TOOL_OK && text != NULL ? json_loads(text, 0, NULL) : NULL;

    free(text);
    if (run == NULL) {
        return TOOL_FAILED;
    }
    perf_json_result_back(run, out);
    if (c->setting == NULL) {
        json_object_del(run, "result");
        c->setting = run;
    } else {
        json_decref(run);
    }
    return TOOL_OK;
}

/* ucx_perftest gives one percentile a run; for several it runs several times. */
static int run_raw(struct perf_comparison *c, perf_result *out)
{
    static const double ranks[] = {50.0, 99.0, 99.9};
    perf_result sum;

    if (!c->o->percentiles) {
        return perf_raw_run(&c->raw, c->o, c->o->rank, out);
    }
    for (int i = 0; i < 3; i++) {
        if (perf_raw_run(&c->raw, c->o, ranks[i], &sum) != 0) {
            return TOOL_FAILED;
        }
        if (i == 0) {
            *out = sum;
        } else {
            out->latency_overall += sum.latency_overall;
            out->bandwidth_overall += sum.bandwidth_overall;
            out->rate_overall += sum.rate_overall;
        }
        out->last[i] = sum.percentile;
    }
    out->latency_overall /= 3;
    out->bandwidth_overall /= 3;
    out->rate_overall /= 3;
    return TOOL_OK;
}

/* Our first run tells which UCX it is, so it comes first; then the order changes every round. */
static int run_round(struct perf_comparison *c, uint32_t i)
{
    struct perf_round *r = &c->rounds[i];
    int code;

    if (i % 2 == 1) {
        code = run_raw(c, &r->raw);
        return code == 0 ? run_ours(c, &r->ours) : TOOL_FAILED;
    }
    code = run_ours(c, &r->ours);
    if (code == TOOL_OK && i == 0) {
        code = perf_raw_find(&c->raw, json_string_value(json_object_get(c->setting, "ucx_path")));
    }
    return code == 0 && run_raw(c, &r->raw) == 0 ? TOOL_OK : TOOL_FAILED;
}

int perf_compare(const perf_options *o)
{
    struct perf_comparison c = {.o = o, .rounds = calloc(o->rounds, sizeof(struct perf_round))};
    int code = c.rounds == NULL ? TOOL_FAILED : TOOL_OK;

    for (uint32_t i = 0; i < o->rounds && code == TOOL_OK; i++) {
        code = run_round(&c, i);
        if (code == TOOL_OK && !o->json) {
            if (i == 0) {
                perf_table_head(&c);
            }
            perf_table_round(&c, i);
        }
    }
    if (code == TOOL_OK && o->json) {
        perf_table_json(&c);
    } else if (code == TOOL_OK) {
        perf_table_summary(&c);
    }
    json_decref(c.setting);
    free(c.rounds);
    return code;
}
