#include "crowd.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAG_PENDING 1 /* a receive that nothing comes for */
#define TAG_PING 2

void crowd_pin(uint32_t which)
{
    cpu_set_t all, one;

    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) {
        return;
    }
    CPU_ZERO(&one);
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && which-- == 0) {
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

void crowd_transfer(bool writing, int fd, void *data, size_t size)
{
    char *at = data;

    while (size != 0) {
        ssize_t n = writing ? write(fd, at, size) : read(fd, at, size);

        if (n <= 0) {
            fputs("connections: the other process is gone\n", stderr);
            exit(1);
        }
        at += n;
        size -= (size_t)n;
    }
}

/* Thread mode: a thread of the library sleeps until there is something to do. */
void crowd_open(struct crowd *p)
{
    hws_worker_opts opts = {.struct_size = sizeof opts, .mode = HWS_PROGRESS_THREAD};

    p->endpoints = calloc(p->plan.count, sizeof *p->endpoints);
    p->buffers = calloc(p->plan.receives + 1, sizeof *p->buffers);
    if (p->endpoints == NULL || p->buffers == NULL) {
        fputs("connections: no memory\n", stderr);
        exit(1);
    }
    bench_check(hws_context_open(NULL, &p->context), "opening a context");
    bench_check(hws_worker_open(p->context, &opts, &p->worker), "opening a worker");
}

void crowd_look(const struct crowd *p, struct crowd_report *r)
{
    memset(r, 0, sizeof *r);
    r->stats.struct_size = sizeof r->stats;
    hws_stats_get(p->context, &r->stats);
    bench_usage_get(&r->usage);
}

/* Receives that stay pending, spread over the connections. */
void crowd_post_receives(struct crowd *p)
{
    for (uint64_t i = 0; i < p->plan.receives; i++) {
        hws_id op;

        bench_check(hws_tag_recv(p->endpoints[i % p->plan.count], &p->buffers[i], 8, TAG_PENDING,
                                 UINT64_MAX, NULL, &op),
                    "posting a receive");
    }
}

void crowd_receive(hws_id endpoint, uint64_t *value)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE};
    hws_id op;
    int32_t r = bench_check(
        hws_tag_recv(endpoint, value, sizeof *value, TAG_PING, UINT64_MAX, &opts, &op), "a ping");

    if (r == HWS_OK) {
        bench_check(hws_wait(op, 10 * BENCH_SECOND, NULL), "a ping");
    }
}

void crowd_send(hws_id endpoint, const uint64_t *value)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE};
    hws_id op;
    int32_t r =
        bench_check(hws_tag_send(endpoint, value, sizeof *value, TAG_PING, &opts, &op), "a ping");

    if (r == HWS_OK) {
        bench_check(hws_wait(op, 10 * BENCH_SECOND, NULL), "a ping");
    }
}

static void serve_command(struct crowd *p, char command, int out)
{
    struct crowd_report report;
    uint64_t value = 0;

    switch (command) {
    case TELL_USAGE:
        crowd_look(p, &report);
        crowd_transfer(true, out, &report, sizeof report);
        break;
    case POST_RECEIVES:
        /* The client hears of its last connection a little earlier than this side. */
        while (p->connected < p->plan.count) {
            sched_yield();
        }
        crowd_post_receives(p);
        crowd_transfer(true, out, &value, sizeof value);
        break;
    case PLAY:
        for (uint64_t i = 0; i < p->plan.pings; i++) {
            crowd_receive(p->endpoints[0], &value);
            crowd_send(p->endpoints[0], &value);
        }
        break;
    default:
        break;
    }
}

/* The first thing on a new connection: which one it is. Accepted in the order of the connects. */
static void on_accepted(void *arg, const hws_event *event)
{
    struct crowd *p = arg;

    if (event->kind == HWS_EVENT_ACCEPTED && p->connected < p->plan.count) {
        p->endpoints[p->connected] = event->source;
        p->connected++;
    }
}

void crowd_serve(const struct crowd_plan *plan, int in, int out)
{
    struct crowd p = {.plan = *plan};
    hws_listener_opts opts = {.struct_size = sizeof opts,
                              .sink = {.callback = on_accepted, .callback_arg = &p}};
    hws_listener_info info = {.struct_size = sizeof info};
    uint64_t port;
    char command = 0;

    crowd_pin(0);
    crowd_open(&p);
    bench_check(hws_listen(p.worker, "127.0.0.1", 0, &opts, &p.listener), "listening");
    bench_check(hws_listener_query(p.listener, &info), "asking for the port");
    port = info.port;
    crowd_transfer(true, out, &port, sizeof port);
    while (command != LEAVE) {
        crowd_transfer(false, in, &command, 1);
        serve_command(&p, command, out);
    }
    hws_close_wait(p.context, 20 * BENCH_SECOND);
}
