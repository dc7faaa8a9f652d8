/*
 * UCX_TLS without a network: connections are made all the same, and nothing but shared memory carries data.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdlib.h>
#include <string.h>

static void exchange(t_pair *pair)
{
    char in[8] = "";
    hws_id op = 0, receive = 0;

    CHECK_OK(hws_tag_recv(pair->endpoint[1], in, sizeof(in), 7, UINT64_MAX, NULL, &receive));
    CHECK_OK(hws_tag_send(pair->endpoint[0], "without", 8, 7, NULL, &op));
    WAIT_OK(pair, op);
    WAIT_OK(pair, receive);
    CHECK_STR(in, "without");
}

CASE(shared_memory_alone)
{
    static const char *const lists[] = {"sm", "shm,self", "sysv", "sysv,cma,self", "^tcp"};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        t_pair pair;

        setenv("UCX_TLS", lists[i], 1);
        t_pair_open(&pair, NULL);
        CHECK_EQ(t_endpoint_info(pair.endpoint[0]).transports, HWS_TRANSPORT_SHM);
        CHECK_EQ(t_endpoint_info(pair.endpoint[1]).transports, HWS_TRANSPORT_SHM);
        exchange(&pair);
        t_pair_close(&pair);
    }
}

/* Who cannot have shared memory is told what keeps it from the network. */
CASE(no_way_is_left)
{
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = HWS_ENDPOINT_TCP_ONLY};
    hws_id endpoint = 0, op = 0;
    hws_event event;
    t_pair pair;

    setenv("UCX_TLS", "sysv,self", 1);
    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, &opts, NULL, &endpoint, &op));
    event = WAIT(&pair, op);
    CHECK_CODE(event.status, HWS_E_UNREACHABLE);
    CHECK(event.detail != NULL && strstr(event.detail, "UCX_TLS") != NULL);
    t_pair_close(&pair);
}

CASES_MAIN
