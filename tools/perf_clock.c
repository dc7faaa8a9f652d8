#include "perf_clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAST 2048u                      /* how many iterations ucx_perftest takes percentiles of */
#define SAMPLES_MAX (UINT64_C(1) << 22) /* 32 MB a thread, with --percentiles */
#define REPORT_NS UINT64_C(1000000000)

static uint64_t first_ticks, first_ns;

uint64_t perf_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The counter's rate is found by looking at both clocks now and again when a result is made: the
 * longer the run, the more exact. */
void perf_clock_calibrate(void)
{
    first_ns = perf_now_ns();
    first_ticks = perf_ticks();
}

static double ns_per_tick(void)
{
    uint64_t ns, ticks;

    do {
        ns = perf_now_ns() - first_ns;
        ticks = perf_ticks() - first_ticks;
    } while (ns < 1000000 || ticks == 0);
    return (double)ns / (double)ticks;
}

/* What reading the counter adds to every iteration, on both sides of a comparison alike. */
double perf_tick_cost_ns(void)
{
    enum { READS = 10000 };
    uint64_t start = perf_now_ns();
    volatile uint64_t sink;

    for (int i = 0; i < READS; i++) {
        sink = perf_ticks();
    }
    (void)sink;
    return (double)(perf_now_ns() - start) / READS;
}

int perf_clock_open(perf_clock *c, uint64_t samples)
{
    uint64_t size = LAST;

    while (size < samples && size < SAMPLES_MAX) {
        size *= 2;
    }
    c->mask = size - 1;
    c->ring = malloc(size * sizeof *c->ring);
    if (c->ring == NULL) {
        return -1;
    }
    memset(c->ring, 0, size * sizeof *c->ring); /* touched now, not in the measured loop */
    return 0;
}

void perf_clock_start(perf_clock *c, bool reports)
{
    c->count = 0;
    c->report_count = 0;
    c->start_ns = perf_now_ns();
    c->report_ns = c->start_ns;
    c->previous = perf_ticks();
    c->report_at = UINT64_MAX;
    if (reports) {
        c->report_at = c->previous + (uint64_t)((double)REPORT_NS / ns_per_tick());
    }
}

void perf_clock_stop(perf_clock *c)
{
    c->stop_ns = perf_now_ns();
}

/* Wait, and leave the wait out of all figures. Nothing is called meanwhile, so that the peer has
 * nothing to do either and goes to sleep if it ever does. */
void perf_clock_pause(perf_lane *lane)
{
    perf_clock *c = &lane->clock;
    uint64_t begin = perf_now_ns(), end = begin + lane->options->pause_us * UINT64_C(1000), now;

    do {
        now = perf_now_ns();
    } while (now < end);
    c->start_ns += now - begin;
    c->report_ns += now - begin;
    c->previous = perf_ticks();
}

static int compare_ticks(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The last `count` samples, sorted; null without memory. */
static uint64_t *sorted(const perf_clock *c, uint64_t count)
{
    uint64_t *copy = malloc(count * sizeof *copy);

    if (copy != NULL) {
        for (uint64_t i = 0; i < count; i++) {
            copy[i] = c->ring[(c->count - 1 - i) & c->mask];
        }
        qsort(copy, count, sizeof *copy, compare_ticks);
    }
    return copy;
}

static double at_rank(const uint64_t *ticks, uint64_t count, double rank, double us_per_tick)
{
    uint64_t i = (uint64_t)(rank / 100.0 * (double)count);

    return (double)ticks[i < count ? i : count - 1] * us_per_tick;
}

/* A ping-pong's iteration is there and back: its latency is half of it. */
static double per_message(const perf_lane *lane)
{
    return lane->test->ping_pong ? 2.0 : 1.0;
}

/* Of the last iterations, as ucx_perftest does it. */
static void last_percentiles(perf_lane *lane)
{
    static const double ranks[] = {50.0, 99.0, 99.9};
    uint64_t count = lane->clock.count < LAST ? lane->clock.count : LAST;
    double us = ns_per_tick() / 1000.0 / per_message(lane);
    uint64_t *ticks = count == 0 ? NULL : sorted(&lane->clock, count);

    if (ticks != NULL) {
        lane->result.percentile = at_rank(ticks, count, lane->options->rank, us);
        for (int i = 0; i < 3; i++) {
            lane->result.last[i] = at_rank(ticks, count, ranks[i], us);
        }
        free(ticks);
    }
}

/* Of every iteration that was kept: all of them up to SAMPLES_MAX. */
static void all_percentiles(perf_lane *lane)
{
    static const double ranks[] = {50.0, 99.0, 99.9, 100.0};
    uint64_t size = lane->clock.mask + 1;
    uint64_t count = lane->clock.count < size ? lane->clock.count : size;
    double us = ns_per_tick() / 1000.0 / per_message(lane);
    uint64_t *ticks = count == 0 ? NULL : sorted(&lane->clock, count);

    if (ticks != NULL) {
        for (int i = 0; i < 4; i++) {
            lane->result.all[i] = at_rank(ticks, count, ranks[i], us);
        }
        free(ticks);
    }
}

/* Figures over some time and iterations, into the "average" columns. */
static void averages(perf_lane *lane, uint64_t ns, uint64_t iterations)
{
    double messages = (double)iterations * per_message(lane), seconds = (double)ns / 1e9;
    perf_result *r = &lane->result;

    r->latency_average = messages == 0 ? 0 : seconds * 1e6 / messages;
    r->rate_average = seconds == 0 ? 0 : messages / seconds;
    r->bandwidth_average = r->rate_average * (double)perf_iteration_bytes(lane->params);
}

/* Fill the result as of `now`: the average columns cover the time since the last line. */
static void fill(perf_lane *lane, uint64_t now)
{
    perf_clock *c = &lane->clock;
    perf_result *r = &lane->result;

    r->iterations = c->count;
    averages(lane, now - c->start_ns, c->count);
    r->latency_overall = r->latency_average;
    r->rate_overall = r->rate_average;
    r->bandwidth_overall = r->bandwidth_average;
    averages(lane, now - c->report_ns, c->count - c->report_count);
    last_percentiles(lane);
    c->report_ns = now;
    c->report_count = c->count;
}

void perf_clock_report(perf_lane *lane)
{
    perf_clock *c = &lane->clock;

    fill(lane, perf_now_ns());
    perf_print_progress(lane->options, lane->index, &lane->result);
    c->previous = perf_ticks(); /* printing is no part of the next iteration */
    c->report_at = c->previous + (uint64_t)((double)REPORT_NS / ns_per_tick());
}

void perf_clock_result(perf_lane *lane)
{
    fill(lane, lane->clock.stop_ns);
    if (lane->options->percentiles) {
        all_percentiles(lane);
    }
}

/* Of several threads: latencies are averaged, bandwidths and rates add up. */
void perf_result_merge(perf_result *all, const perf_lane *lanes, uint32_t count)
{
    *all = lanes[0].result;
    for (uint32_t i = 1; i < count; i++) {
        const perf_result *r = &lanes[i].result;

        all->percentile += r->percentile;
        all->latency_average += r->latency_average;
        all->latency_overall += r->latency_overall;
        all->bandwidth_average += r->bandwidth_average;
        all->bandwidth_overall += r->bandwidth_overall;
        all->rate_average += r->rate_average;
        all->rate_overall += r->rate_overall;
        for (int k = 0; k < 4; k++) {
            all->all[k] = r->all[k] > all->all[k] ? r->all[k] : all->all[k];
        }
        for (int k = 0; k < 3; k++) {
            all->last[k] = r->last[k] > all->last[k] ? r->last[k] : all->last[k];
        }
    }
    all->percentile /= count;
    all->latency_average /= count;
    all->latency_overall /= count;
}
