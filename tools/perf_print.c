/*
 * ucx_perftest's output, column for column, so that whatever reads the one reads the other.
 */
#include "perf.h"

#include <string.h>

#define MIB (1024.0 * 1024.0)
static const char line_of_box[] =
    "+---------------------------------------------------------------------------------------------"
    "-------------+\n";
static const char line_of_header[] =
    "+--------------+--------------+------------------------------+---------------------"
    "+-----------------------+\n";
static const char line_of_columns[] =
    "+--------------+--------------+----------+---------+---------+----------+----------"
    "+-----------+-----------+\n";

static void row(const char *name, const char *value)
{
    printf("| %-13s %-60s                               |\n", name, value);
}

static void row_number(const char *name, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    row(name, text);
}

/* What the server prints when a client is there. */
void perf_print_box(const perf_options *o, const perf_params *p)
{
    const perf_test *test = &perf_tests[p->test];

    fputs(line_of_box, stdout);
    row("API:", "protocol layer");
    row("Test:", test->title);
    row("Data layout:", "(automatic)");
    row("Send memory:", "host");
    row("Recv memory:", "host");
    row_number("Message size:", perf_message_bytes(p));
    row_number("Window size:", p->window);
    if (test->api == PERF_AM) {
        printf("| AM header size: %-89u|\n", p->am_header);
    }
    if (!o->csv && !o->loopback) {
        fputs(line_of_box, stdout);
    }
    fflush(stdout);
}

void perf_print_header(const perf_options *o)
{
    const perf_test *test = &perf_tests[o->params.test];

    if (o->csv) {
        printf("iterations,%.1f_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,"
               "overall_mr%s\n",
               o->rank, o->percentiles ? ",p50_lat,p99_lat,p99.9_lat,max_lat" : "");
    } else {
        fputs(line_of_header, stdout);
        printf("|              |              |       %8s (usec)        |   bandwidth (MB/s)  |"
               "  message rate (msg/s) |\n",
               test->ping_pong ? "latency" : "overhead");
        fputs(line_of_columns, stdout);
        printf(
            "|    %5s     | # iterations | %4.1f%%ile | average | overall |  average |  overall |"
            "  average  |  overall  |\n",
            o->final_only ? "Test" : "Stage", o->rank);
        fputs(line_of_columns, stdout);
    }
    fflush(stdout);
}

static void line(const perf_options *o, const perf_result *r)
{
    const char *format = o->csv ? "%4.0f,%.3f,%.3f,%.3f,%.2f,%.2f,%.0f,%.0f"
                                : "%18.0f %10.3f %9.3f %9.3f %11.2f %10.2f %11.0f %11.0f";

    printf(format, (double)r->iterations, r->percentile, r->latency_average, r->latency_overall,
           r->bandwidth_average / MIB, r->bandwidth_overall / MIB, r->rate_average,
           r->rate_overall);
}

/* Of several threads ucx_perftest prints what they did together, in fewer columns. */
static void line_of_threads(const perf_options *o, const perf_result *r)
{
    const char *format = o->csv ? "%4.0f,%.3f,%.2f,%.0f" : "%18.0f %29.3f %22.2f %23.0f";

    printf(format, (double)r->iterations, r->latency_overall, r->bandwidth_overall / MIB,
           r->rate_overall);
}

void perf_print_progress(const perf_options *o, uint32_t thread, const perf_result *r)
{
    flockfile(stdout); /* the threads' lines stay whole */
    printf("[thread %u]", thread);
    line(o, r);
    /* A table keeps its number of columns: these are known of all iterations only. */
    puts(o->csv && o->percentiles ? ",,,," : "");
    fflush(stdout);
    funlockfile(stdout);
}

static void percentiles(const perf_options *o, const perf_result *r)
{
    const char *format =
        o->csv ? ",%.3f,%.3f,%.3f,%.3f"
               : "\nPercentiles: p50 %.3f  p99 %.3f  p99.9 %.3f  max %.3f us (of all iterations)";

    printf(format, r->all[0], r->all[1], r->all[2], r->all[3]);
}

void perf_print_final(const perf_options *o, const perf_result *r)
{
    if (!o->csv) {
        fputs(o->final_only ? "          " : "Final:    ", stdout);
    }
    if (o->params.threads > 1) {
        line_of_threads(o, r);
    } else {
        line(o, r);
    }
    if (o->percentiles) {
        percentiles(o, r);
    }
    putchar('\n');
    fflush(stdout);
}
