/*
 * One side of a run: what it opened, its lanes, and the messages that both sides agree by.
 *
 * Every thread has a connection of its own, a lane. The client sends its parameters on each; when
 * the server has them all and has made ready, it answers on each. These messages are tagged ones,
 * and so is the acknowledgement at the end of a run in one direction (perf_loop.c).
 */
#ifndef HAWSER_PERF_SIDE_H
#define HAWSER_PERF_SIDE_H

#include "perf.h"

#define PERF_SECOND UINT64_C(1000000000)
#define PERF_TAG_PARAMS UINT64_C(0x4857500100000000)
#define PERF_TAG_READY UINT64_C(0x4857500200000000)
#define PERF_TAG_MEMORY UINT64_C(0x4857500300000000)
#define PERF_TAG_DONE UINT64_C(0x4857500400000000)

/** What a side opened. */
struct perf_side {
    const perf_options *options;
    perf_params params;
    hws_id context, worker, queue, listener;
    perf_lane *lanes; /* params.threads of them */
    perf_setting setting;
};

/* Exit codes; what failed was said. */
int perf_side_open(struct perf_side *s, const perf_options *o);
void perf_side_close(struct perf_side *s);
int perf_side_lanes(struct perf_side *s);
/** What the lanes need of each other, once they are connected. */
int perf_side_exchange(struct perf_side *s);
int perf_side_run(struct perf_side *s);

/* Codes of the library. */
int32_t perf_side_send(hws_id endpoint, uint64_t tag, const void *data, uint64_t length);
int32_t perf_side_receive(hws_id endpoint, uint64_t tag, void *data, uint64_t length,
                          uint64_t timeout_ns);

/* perf_server.c */
int perf_server_listen(struct perf_side *s, const char *host, uint16_t port);
int32_t perf_server_peer(struct perf_side *s, hws_id *endpoint);

#endif
