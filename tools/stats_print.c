#include "stats_print.h"
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>

static void print_counters(const stats_options *o, const hws_stats *s)
{
    for (const stats_field *f = stats_fields; f->name != NULL; f++) {
        uint64_t n = stats_value(s, f);

        if (n != 0 || o->all) {
            printf("  %-18s %20" PRIu64 "\n", f->name, n);
        }
    }
}

/* Rows of messages and bytes in both directions. */
static void print_flows(const stats_options *o, const char *title, const char *const *names,
                        size_t count, const uint64_t *const columns[4])
{
    bool head = false;

    for (size_t i = 0; i < count; i++) {
        uint64_t any = columns[0][i] | columns[1][i] | columns[2][i] | columns[3][i];

        if (any == 0 && !o->all) {
            continue;
        }
        if (!head) {
            printf("  %-10s %14s %18s %14s %18s\n", title, "sent", "bytes", "received", "bytes");
            head = true;
        }
        printf("  %-10s %14" PRIu64 " %18" PRIu64 " %14" PRIu64 " %18" PRIu64 "\n", names[i],
               columns[0][i], columns[1][i], columns[2][i], columns[3][i]);
    }
}

static void print_failures(const char *what, const uint64_t failures[128])
{
    for (int32_t code = 1; code < 128; code++) {
        if (failures[code] != 0) {
            printf("  %s %-18s %14" PRIu64 "  %s\n", what, hws_error_name(-code), failures[code],
                   hws_error_text(-code));
        }
    }
}

static void print_latencies(const stats_options *o, uint32_t worker)
{
    bool head = false;

    for (uint32_t kind = 0; kind < 32; kind++) {
        hws_latency l = {.struct_size = sizeof l};

        if (stats_kind(kind) == NULL || hws_latency_peek(o->pid, worker, kind, &l) < 0 ||
            l.count == 0) {
            continue;
        }
        if (!head) {
            printf("  %-12s %12s %10s %10s %10s %10s %10s %12s  microseconds\n", "latency", "count",
                   "average", "p50", "p90", "p99", "p99.9", "maximum");
            head = true;
        }
        printf("  %-12s %12" PRIu64 " %10.3f %10.3f %10.3f %10.3f %10.3f %12.3f\n",
               stats_kind(kind), l.count, (double)l.sum_ns / (double)l.count / 1e3,
               (double)l.p50_ns / 1e3, (double)l.p90_ns / 1e3, (double)l.p99_ns / 1e3,
               (double)l.p999_ns / 1e3, (double)l.max_ns / 1e3);
    }
}

int stats_print(const stats_options *o, const stats_worker *workers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const hws_stats *s = &workers[i].stats;

        printf("worker %" PRIu32 " \"%s\", %.1f s ago\n", i, workers[i].info.name,
               (double)workers[i].info.age_ns / 1e9);
        print_counters(o, s);
        print_flows(
            o, "kind", stats_traffic, 7,
            (const uint64_t *const[]){s->sent, s->bytes_sent, s->received, s->bytes_received});
        print_flows(o, "transport", stats_vias, 5,
                    (const uint64_t *const[]){s->via_sent, s->via_bytes_sent, s->via_received,
                                              s->via_bytes_received});
        print_failures("operations", s->op_failures);
        print_failures("endpoints ", s->endpoint_failures);
        if (workers[i].info.latency) {
            print_latencies(o, i);
        }
    }
    return TOOL_OK;
}
