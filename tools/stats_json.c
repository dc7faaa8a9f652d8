#include "perf.h"
#include "stats_print.h"
#include "tool.h"

#include <jansson.h>
#include <stdlib.h>

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *flows(const char *const *names, size_t count, const uint64_t *const columns[4])
{
    static const char *const keys[4] = {"sent", "bytes_sent", "received", "bytes_received"};
    json_t *all = json_object();

    for (size_t i = 0; i < count; i++) {
        json_t *one = json_object();

        for (int k = 0; k < 4; k++) {
            json_object_set_new(one, keys[k], number(columns[k][i]));
        }
        json_object_set_new(all, names[i], one);
    }
    return all;
}

static json_t *failures(const uint64_t codes[128])
{
    json_t *all = json_object();

    for (int32_t code = 1; code < 128; code++) {
        if (codes[code] != 0) {
            json_object_set_new(all, hws_error_name(-code), number(codes[code]));
        }
    }
    return all;
}

static json_t *latencies(const stats_options *o, uint32_t worker)
{
    json_t *all = json_object();

    for (uint32_t kind = 0; kind < 32; kind++) {
        hws_latency l = {.struct_size = sizeof l};
        json_t *buckets;

        if (stats_kind(kind) == NULL || hws_latency_peek(o->pid, worker, kind, &l) < 0 ||
            l.count == 0) {
            continue;
        }
        buckets = json_array();
        for (uint32_t i = 0; i < HWS_LATENCY_BUCKETS; i++) {
            json_array_append_new(buckets, number(l.buckets[i]));
        }
        json_object_set_new(all, stats_kind(kind),
                            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "count",
                                      (json_int_t)l.count, "sum_ns", (json_int_t)l.sum_ns, "min_ns",
                                      (json_int_t)l.min_ns, "max_ns", (json_int_t)l.max_ns,
                                      "p50_ns", (json_int_t)l.p50_ns, "p90_ns",
                                      (json_int_t)l.p90_ns, "p99_ns", (json_int_t)l.p99_ns,
                                      "p999_ns", (json_int_t)l.p999_ns, "buckets", buckets));
    }
    return all;
}

static json_t *worker_json(const stats_options *o, const stats_worker *w, uint32_t index)
{
    const hws_stats *s = &w->stats;
    json_t *one = json_pack("{s:s, s:s, s:f}", "name", w->info.name, "mode",
                            perf_mode_name(w->info.mode), "age_s", (double)w->info.age_ns / 1e9);

    for (const stats_field *f = stats_fields; f->name != NULL; f++) {
        json_object_set_new(one, f->name, number(stats_value(s, f)));
    }
    json_object_set_new(
        one, "kinds",
        flows(stats_traffic, 7,
              (const uint64_t *const[]){s->sent, s->bytes_sent, s->received, s->bytes_received}));
    json_object_set_new(one, "transports",
                        flows(stats_vias, 5,
                              (const uint64_t *const[]){s->via_sent, s->via_bytes_sent,
                                                        s->via_received, s->via_bytes_received}));
    json_object_set_new(one, "op_failures", failures(s->op_failures));
    json_object_set_new(one, "endpoint_failures", failures(s->endpoint_failures));
    if (w->info.latency) {
        json_object_set_new(one, "latency", latencies(o, index));
    }
    return one;
}

int stats_print_json(const stats_options *o, const stats_worker *workers, uint32_t count)
{
    json_t *list = json_array(), *all;

    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(list, worker_json(o, &workers[i], i));
    }
    all = json_pack("{s:I, s:o}", "pid", (json_int_t)o->pid, "workers", list);
    if (all == NULL || json_dumpf(all, stdout, JSON_COMPACT) != 0) {
        json_decref(all);
        return tool_failed(HWS_E_NO_MEMORY, "stats");
    }
    putchar('\n');
    json_decref(all);
    return TOOL_OK;
}
