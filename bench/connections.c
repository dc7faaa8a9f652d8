/*
 * Many connections between two processes: what each costs in memory and descriptors, how long a
 * connect takes, what they cost while nothing happens, and what the idle ones cost the active one.
 *
 *     connections COUNT [RECEIVES] [IDLE_SECONDS] [PINGS] [GAP_MS] [tcp]
 *
 * This process is the client; it starts the server, which is the same program, and directs it
 * through two pipes: one letter a command, one bench_usage or 8 bytes back.
 */
#include "crowd.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void ask_report(int to, int from, struct crowd_report *r)
{
    char command = TELL_USAGE;

    crowd_transfer(true, to, &command, 1);
    crowd_transfer(false, from, r, sizeof *r);
}

static void connect_one(struct crowd *p, uint16_t port, uint64_t *ns)
{
    uint64_t start = bench_now_ns();
    hws_endpoint_opts opts = {.struct_size = sizeof opts,
                              .flags = p->plan.tcp ? HWS_ENDPOINT_TCP_ONLY : 0};
    hws_id op, *endpoint = &p->endpoints[p->connected++];

    bench_check(hws_connect(p->worker, "127.0.0.1", port, &opts, NULL, endpoint, &op),
                "connecting");
    bench_check(hws_wait(op, 60 * BENCH_SECOND, NULL), "connecting");
    *ns = bench_now_ns() - start;
}

/* Half a round trip on the first connection: the median, in ns. */
static uint64_t play(struct crowd *p, int to, uint64_t *ns)
{
    char command = PLAY;
    uint64_t value = 0;

    if (p->plan.pings == 0) {
        return 0;
    }
    crowd_transfer(true, to, &command, 1);
    for (uint64_t i = 0; i < p->plan.pings; i++) {
        uint64_t start = bench_now_ns();

        crowd_send(p->endpoints[0], &value);
        crowd_receive(p->endpoints[0], &value);
        ns[i] = bench_now_ns() - start;
    }
    return bench_percentile(ns, p->plan.pings, 50) / 2;
}

static double per_connection(uint64_t before, uint64_t after, uint64_t count)
{
    return after < before || count == 0 ? 0 : (double)(after - before) / (double)count;
}

static void print_side(const char *name, const struct crowd_report *before,
                       const struct crowd_report *after, const struct crowd_report *rested,
                       uint64_t count)
{
    const bench_usage *a = &before->usage, *b = &after->usage, *c = &rested->usage;
    double rest = (double)(c->now_ns - b->now_ns);

    printf(", \"%s\": {\"endpoints\": %llu, \"isolated\": %llu, \"spares\": %llu, \"cap\": %llu, "
           "\"fallbacks\": %llu, \"rss_per_connection\": %.0f, \"pss_per_connection\": %.0f, "
           "\"fds_per_connection\": %.2f, \"idle_cpu_percent\": %.4f, \"wakeups\": %llu, "
           "\"safety_wakeups\": %llu}",
           name, (unsigned long long)after->stats.endpoints,
           (unsigned long long)after->stats.isolated, (unsigned long long)after->stats.spares,
           (unsigned long long)after->stats.isolated_cap,
           (unsigned long long)after->stats.fallbacks, per_connection(a->rss, b->rss, count),
           per_connection(a->pss, b->pss, count), per_connection(a->fds, b->fds, count),
           rest > 0 ? 100.0 * (double)(c->cpu_ns - b->cpu_ns) / rest : 0.0,
           (unsigned long long)rested->stats.wakeups,
           (unsigned long long)rested->stats.safety_wakeups);
}

struct measured {
    struct crowd_report before[2], after[2], rested[2]; /* client, server */
    uint64_t lone_ns, crowded_ns;
    uint64_t *connect_ns;
};

static void run(struct crowd *p, uint16_t port, int to, int from, struct measured *m, uint64_t *ns)
{
    char command = POST_RECEIVES;
    uint64_t done;

    connect_one(p, port, &m->connect_ns[0]); /* the first one pays for what is loaded once */
    m->lone_ns = play(p, to, ns);
    crowd_look(p, &m->before[0]);
    ask_report(to, from, &m->before[1]);
    for (uint64_t i = 1; i < p->plan.count; i++) {
        usleep((useconds_t)p->plan.gap_ms * 1000); /* a spare can be made ready meanwhile */
        connect_one(p, port, &m->connect_ns[i]);
    }
    crowd_transfer(true, to, &command, 1);
    crowd_transfer(false, from, &done, sizeof done);
    crowd_post_receives(p);
    usleep(500000); /* what was begun in the background ends */
    crowd_look(p, &m->after[0]);
    ask_report(to, from, &m->after[1]);
    sleep((unsigned)p->plan.idle_seconds);
    crowd_look(p, &m->rested[0]);
    ask_report(to, from, &m->rested[1]);
    m->crowded_ns = play(p, to, ns);
}

/* How long connecting took in the end and in the beginning, before all are put into the order of their times. */
static void print_connects(uint64_t *ns, uint64_t count)
{
    uint64_t fifth = (count + 4) / 5, percents[] = {50, 99, 100};
    uint64_t last = bench_percentile(ns + count - fifth, fifth, 50);
    uint64_t first = bench_percentile(ns, fifth, 50);

    for (int i = 0; i < 3; i++) {
        percents[i] = bench_percentile(ns, count, (double)percents[i]);
    }
    printf(", \"connect_ns\": {\"p50\": %llu, \"p99\": %llu, \"max\": %llu, \"first_fifth\": %llu, "
           "\"last_fifth\": %llu}",
           (unsigned long long)percents[0], (unsigned long long)percents[1],
           (unsigned long long)percents[2], (unsigned long long)first, (unsigned long long)last);
}

static void print(const struct crowd *p, struct measured *m)
{
    hws_endpoint_info info = {.struct_size = sizeof info};
    uint64_t more = p->plan.count - 1;

    hws_endpoint_query(p->endpoints[0], &info);
    printf("{\"connections\": %llu, \"receives\": %llu, \"idle_seconds\": %llu, \"lanes\": \"%s\"",
           (unsigned long long)p->connected, (unsigned long long)p->plan.receives,
           (unsigned long long)p->plan.idle_seconds, info.lanes);
    print_side("client", &m->before[0], &m->after[0], &m->rested[0], more);
    print_side("server", &m->before[1], &m->after[1], &m->rested[1], more);
    printf(", \"half_round_trip_ns\": {\"lone\": %llu, \"crowded\": %llu}",
           (unsigned long long)m->lone_ns, (unsigned long long)m->crowded_ns);
    if (more != 0) {
        print_connects(m->connect_ns + 1, more);
    }
    puts("}");
}

static void direct(const struct crowd_plan *plan, int to, int from)
{
    struct crowd p = {.plan = *plan};
    struct measured m = {.connect_ns = calloc(plan->count, sizeof(uint64_t))};
    uint64_t *ns = calloc(plan->pings + 1, sizeof *ns), port;
    char command = LEAVE;

    if (ns == NULL || m.connect_ns == NULL) {
        exit(1);
    }
    crowd_transfer(false, from, &port, sizeof port);
    crowd_pin(1);
    crowd_open(&p);
    run(&p, (uint16_t)port, to, from, &m, ns);
    print(&p, &m);
    crowd_transfer(true, to, &command, 1);
    hws_close_wait(p.context, 20 * BENCH_SECOND);
    free(m.connect_ns);
    free(ns);
}

static uint64_t argument(int argc, char **argv, int i, uint64_t fallback)
{
    return argc > i ? strtoull(argv[i], NULL, 10) : fallback;
}

int main(int argc, char **argv)
{
    struct crowd_plan plan = {.count = argument(argc, argv, 1, 100),
                              .receives = argument(argc, argv, 2, 1000),
                              .idle_seconds = argument(argc, argv, 3, 10),
                              .pings = argument(argc, argv, 4, 20000),
                              .gap_ms = argument(argc, argv, 5, 20),
                              .tcp = argc > 6 && strcmp(argv[6], "tcp") == 0};
    int down[2], up[2];
    pid_t server;

    if (plan.count == 0 || pipe(down) != 0 || pipe(up) != 0) {
        fputs("Usage: connections COUNT [RECEIVES] [IDLE_SECONDS] [PINGS] [GAP_MS] [tcp]\n",
              stderr);
        return 2;
    }
    server = fork(); /* before anything of UCX exists */
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(down[1]);
        close(up[0]);
        crowd_serve(&plan, down[0], up[1]);
        return 0;
    }
    close(down[0]);
    close(up[1]);
    direct(&plan, down[1], up[0]);
    waitpid(server, NULL, 0);
    return 0;
}
