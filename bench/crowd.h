/*
 * What connections.c is made of: a process with many connections, and the server side of it.
 */
#ifndef HAWSER_BENCH_CROWD_H
#define HAWSER_BENCH_CROWD_H

#include "bench.h"
#include "usage.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Commands to the server, a letter each. */
#define TELL_USAGE 'u'    /* answer: struct crowd_report */
#define POST_RECEIVES 'r' /* as many as planned; answer: 8 bytes when it is done */
#define PLAY 'p'          /* answer every ping on the first connection */
#define LEAVE 'q'

struct crowd_plan {
    uint64_t count, receives, idle_seconds, pings, gap_ms;
    bool tcp; /* no shared memory */
};

/** One process: client or server. */
struct crowd {
    struct crowd_plan plan;
    hws_id context, worker, listener;
    hws_id *endpoints;
    uint64_t *buffers;
    _Atomic uint64_t connected; /* on the server by the thread that makes progress */
};

struct crowd_report {
    bench_usage usage;
    hws_stats stats;
};

/** Stay on the first or second CPU that may be used. */
void crowd_pin(uint32_t which);
/** All of `size` bytes through a pipe, or leave. */
void crowd_transfer(bool writing, int fd, void *data, size_t size);
void crowd_open(struct crowd *p);
void crowd_look(const struct crowd *p, struct crowd_report *r);
void crowd_post_receives(struct crowd *p);
void crowd_receive(hws_id endpoint, uint64_t *value);
void crowd_send(hws_id endpoint, const uint64_t *value);

/** The server's life. */
void crowd_serve(const struct crowd_plan *plan, int in, int out);

#endif
