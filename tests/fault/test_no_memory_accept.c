/*
 * Want of memory while a connection is accepted: the endpoint that does not come to be has failed for that
 * reason, and is counted so.
 *
 * INTERNAL
 * WRAP: malloc calloc realloc aligned_alloc strdup
 * WITH: failing.c
 */
#include "fault/failing.h"
#include "support/cases.h"
#include "support/pair.h"

/* How many allocations an accept makes at most. */
#define ALLOCATIONS 40

/* A client by TCP, whose server finds no memory for its n-th allocation; the counters of the server's worker. */
static hws_stats connect_once(int64_t n)
{
    hws_endpoint_opts tcp = {.struct_size = sizeof tcp, .flags = HWS_ENDPOINT_TCP_ONLY};
    hws_listener_info info = {.struct_size = sizeof info};
    hws_id context = 0, client = 0, server = 0, listener = 0, endpoint = 0, op = 0;
    hws_stats stats;

    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, NULL, &client));
    CHECK_OK(hws_worker_open(context, NULL, &server));
    CHECK_OK(hws_listen(server, "127.0.0.1", 0, NULL, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    CHECK_OK(hws_connect(client, "127.0.0.1", (uint16_t)info.port, &tcp, NULL, &endpoint, &op));
    for (uint64_t start = t_now(); hws_wait(op, 0, NULL) == HWS_E_TIMED_OUT;
         t_check_patience(__FILE__, __LINE__, start, "the end of the connect")) {
        failing_countdown = n;
        hws_worker_progress(server);
        n = failing_countdown;
        failing_countdown = 0;
    }
    stats = t_stats(server);
    CHECK_OK(hws_close_wait(context, t_patience()));
    return stats;
}

/* How many of these endpoints were counted, one connect for each allocation. */
static uint64_t without_memory(void)
{
    uint64_t count = 0;

    for (int64_t n = 1; n <= ALLOCATIONS; n++) {
        hws_stats stats = connect_once(n);

        CHECK_EQ(stats.endpoint_failures[0], 0);
        count += stats.endpoint_failures[-HWS_E_NO_MEMORY];
    }
    return count;
}

/*
 * Which allocation is the endpoint's own differs from one connect to the next, as those of the library's threads
 * count, too: a round may miss it.
 */
CASE(accept)
{
    for (uint64_t start = t_now(); without_memory() == 0;) {
        t_check_patience(__FILE__, __LINE__, start, "an endpoint without memory");
    }
}

CASES_MAIN
