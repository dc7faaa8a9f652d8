/*
 * Settings of transports. UCX_TLS without a network: connections are made all the same, and nothing but shared memory
 * carries data; without shared memory: nothing else is tried. Pieces of TCP of all sizes arrive.
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/proc.h"

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

static void set_or_unset(const char *name, const char *value)
{
    if (value == NULL) {
        unsetenv(name);
    } else {
        setenv(name, value, 1);
    }
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

/* By UCX's own words. */
CASE(a_transport_that_is_not_there_is_named)
{
    hws_error error = {.struct_size = sizeof(error)};
    hws_id context = 0;

    setenv("UCX_TLS", "nosuch", 1);
    CHECK_CODE(hws_context_open(NULL, &context), HWS_E_NO_DEVICE);
    hws_last_error(&error);
    CHECK(strstr(error.text, "nosuch") != NULL);
}

/* UCX says which variable it is to its log only. */
CASE(a_bad_value_in_the_environment_is_named)
{
    hws_error error = {.struct_size = sizeof(error)};
    hws_id context = 0;

    setenv("UCX_RNDV_THRESH", "nonsense", 1);
    CHECK_CODE(hws_context_open(NULL, &context), HWS_E_CONFIG);
    CHECK_OK(hws_last_error(&error));
    CHECK(strstr(error.text, "RNDV_THRESH") != NULL);
    unsetenv("UCX_RNDV_THRESH");
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_close_wait(context, t_patience()));
}

enum { LENGTH = 1 << 20 };

/* One long message from `from` to whoever receives at `to`. */
static void send_long(t_pair *at_client, hws_id from, t_pair *at_server, hws_id to)
{
    char *out = t_alloc(LENGTH), *in = t_alloc(LENGTH);
    hws_id op = 0, receive = 0;

    t_fill(out, LENGTH, 3);
    t_fill(in, LENGTH, 4);
    CHECK_OK(hws_tag_recv(to, in, LENGTH, 7, UINT64_MAX, NULL, &receive));
    CHECK_OK(hws_tag_send(from, out, LENGTH, 7, NULL, &op));
    WAIT_OK(at_client, op);
    WAIT_OK(at_server, receive);
    CHECK_EQ(t_checksum(in, LENGTH), t_checksum(out, LENGTH));
    free(in);
    free(out);
}

CASE(segments_fit)
{
    static const char *const sizes[][2] = {
        {"16k", NULL}, {"16k", "64k"}, {NULL, "256k"}, {"64k", "1000000"}, {"1m", "8k"}};

    setenv("UCX_TLS", "tcp", 1);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        t_pair pair;

        set_or_unset("UCX_TCP_RX_SEG_SIZE", sizes[i][0]);
        set_or_unset("UCX_TCP_TX_SEG_SIZE", sizes[i][1]);
        t_pair_open(&pair, NULL);
        send_long(&pair, pair.endpoint[0], &pair, pair.endpoint[1]);
        t_pair_close(&pair);
    }
}

/* UCX ends a process that is sent more by TCP in one piece than it takes. */
CASE(a_peer_may_send_longer_segments)
{
    static const char *const small[] = {"TCP_RX_SEG_SIZE", "16k", NULL};
    const t_pair_opts threads = {.mode = HWS_PROGRESS_THREAD};
    const t_pair_opts little = {.mode = HWS_PROGRESS_THREAD, .config = small};
    hws_id endpoint = 0, op = 0;
    t_pair server, client;

    setenv("UCX_TLS", "tcp", 1);
    t_pair_listen(&server, &little);
    t_pair_listen(&client, &threads);
    CHECK_OK(hws_connect(client.worker[0], "127.0.0.1", server.port, NULL, NULL, &endpoint, &op));
    WAIT_OK(&client, op);
    send_long(&client, endpoint, &server, server.worker[1]);
    t_pair_close(&client);
    t_pair_close(&server);
}

static void connect_and_close(t_pair *pair)
{
    hws_id ends[2];

    t_pair_connect(pair, NULL, &ends[0], &ends[1]);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(hws_close(ends[i]));
        UNTIL(pair, hws_kind(ends[i]) == HWS_E_STALE);
    }
}

/* No transport of the list is shared memory: no other connection may be tried beside the one by TCP, and stay. */
CASE(connections_without_shared_memory_leave_no_descriptors)
{
    static const char *const lists[] = {"tcp", "self,tcp,cma", "tcp,cuda_copy,cuda_ipc"};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        t_pair pair;
        uint64_t before;

        setenv("UCX_TLS", lists[i], 1);
        t_pair_open(&pair, NULL);
        exchange(&pair);
        connect_and_close(&pair);
        t_pair_idle(&pair, 300000000);
        before = t_fd_count();
        for (int k = 0; k < 12; k++) {
            connect_and_close(&pair);
        }
        UNTIL(&pair, t_fd_count() <= before);
        exchange(&pair);
        t_pair_close(&pair);
    }
}

CASES_MAIN
