#include "perf.h"
#include "perf_json.h"
#include "tool.h"

#include <stdlib.h>

#define MIB (1024.0 * 1024.0)

const char *perf_mode_name(uint32_t mode)
{
    static const char *const names[] = {"manual", "blocking", "thread", "thread-polling"};

    return mode < sizeof names / sizeof names[0] ? names[mode] : "?";
}

static json_t *three(const double *values)
{
    return json_pack("{s:f, s:f, s:f}", "p50", values[0], "p99", values[1], "p99.9", values[2]);
}

/* The figures: microseconds, MiB and messages a second. */
json_t *perf_json_result(const perf_options *o, const perf_result *r)
{
    json_t *result = json_pack(
        "{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "iterations", (json_int_t)r->iterations,
        "percentile_rank", o->rank, "percentile_us", r->percentile, "average_us",
        r->latency_average, "overall_us", r->latency_overall, "bandwidth_average",
        r->bandwidth_average / MIB, "bandwidth_overall", r->bandwidth_overall / MIB, "rate_average",
        r->rate_average, "rate_overall", r->rate_overall);

    if (result != NULL && o->percentiles) {
        json_t *all = three(r->all);

        json_object_set_new(all, "max", json_real(r->all[3]));
        json_object_set_new(result, "percentiles_us", all);
        json_object_set_new(result, "percentiles_last_2048_us", three(r->last));
    }
    return result;
}

static json_t *sizes(const perf_params *p)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < p->size_count; i++) {
        json_array_append_new(list, json_integer((json_int_t)p->sizes[i]));
    }
    return list;
}

/* What was run. */
static json_t *setting(const perf_options *o, const perf_setting *s)
{
    const perf_params *p = &o->params;
    const hws_library_info *l = &s->library;
    char ucx[32];

    snprintf(ucx, sizeof ucx, "%u.%u.%u", l->ucx_major, l->ucx_minor, l->ucx_release);
    return json_pack(
        "{s:s, s:o, s:I, s:i, s:i, s:i, s:s, s:b, s:b, s:s, s:s, s:s, s:b, s:s, s:i, s:f}", "test",
        perf_tests[p->test].name, "sizes", sizes(p), "warmup", (json_int_t)p->warmup, "window",
        (int)p->window, "threads", (int)p->threads, "am_header", (int)p->am_header, "mode",
        perf_mode_name(o->mode), "sleep", o->sleep, "raw", o->raw, "ucx", ucx, "ucx_path",
        l->ucx_path, "lanes", s->endpoint.lanes, "isolated", s->endpoint.isolated != 0, "reason",
        s->endpoint.reason_text, "pause_us", (int)o->pause_us, "timestamp_ns", perf_tick_cost_ns());
}

int perf_json_print(const perf_options *o, const perf_result *r, const perf_setting *s)
{
    json_t *all = setting(o, s);
    json_t *result = perf_json_result(o, r);

    if (all == NULL || result == NULL) {
        tool_error("perf: the JSON could not be made");
        return TOOL_FAILED;
    }
    json_object_set_new(all, "result", result);
    perf_json_dump(all);
    return TOOL_OK;
}

/* One line, and the object is gone. */
void perf_json_dump(json_t *object)
{
    json_dumpf(object, stdout, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(8));
    fputc('\n', stdout);
    fflush(stdout);
    json_decref(object);
}

static double real(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static void three_back(const json_t *object, double *values)
{
    values[0] = real(object, "p50");
    values[1] = real(object, "p99");
    values[2] = real(object, "p99.9");
}

/* The figures of a run, out of what perf_json_print() printed. */
void perf_json_result_back(const json_t *run, perf_result *r)
{
    const json_t *o = json_object_get(run, "result");

    *r = (perf_result){
        .iterations = (uint64_t)json_integer_value(json_object_get(o, "iterations")),
        .percentile = real(o, "percentile_us"),
        .latency_average = real(o, "average_us"),
        .latency_overall = real(o, "overall_us"),
        .bandwidth_average = real(o, "bandwidth_average") * MIB,
        .bandwidth_overall = real(o, "bandwidth_overall") * MIB,
        .rate_average = real(o, "rate_average"),
        .rate_overall = real(o, "rate_overall"),
    };
    three_back(json_object_get(o, "percentiles_us"), r->all);
    r->all[3] = real(json_object_get(o, "percentiles_us"), "max");
    three_back(json_object_get(o, "percentiles_last_2048_us"), r->last);
}
