/*
 * Connections: how they come to be, what they are told to be, what carries them and what is said of them.
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/dial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

CASE(ipv4_reports_both_ends)
{
    t_pair pair;
    t_seen seen;
    char expected[80];

    t_pair_listen(&pair, NULL);
    CHECK_STR(t_listener_info(pair.listener).address, "127.0.0.1");
    hws_id op = 0;
    hws_id client = t_dial(&pair, "127.0.0.1", pair.port, 0, &op);
    CHECK_EQ(hws_kind(client), HWS_KIND_ENDPOINT);
    CHECK_EQ(hws_kind(op), HWS_KIND_OP);
    CHECK_EQ(t_endpoint_info(client).state, HWS_STATE_CONNECTING);
    seen = t_dialled(&pair, client);
    CHECK_OK(seen.event.status);
    CHECK(seen.event.op == op);
    CHECK_EQ(seen.event.user, T_DIAL_USER);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    CHECK(seen.event.op == pair.listener);
    CHECK_EQ(seen.event.user, 1);
    CHECK_EQ(hws_kind(seen.event.source), HWS_KIND_ENDPOINT);

    hws_endpoint_info at_client = t_endpoint_info(client);
    hws_endpoint_info at_server = t_endpoint_info(seen.event.source);
    CHECK_EQ(at_client.state, HWS_STATE_OPEN);
    CHECK_EQ(at_server.state, HWS_STATE_OPEN);
    CHECK_EQ(at_client.peer_pid, getpid());
    CHECK_EQ(at_server.peer_pid, getpid());
    CHECK(at_client.peer_host != 0 && at_client.peer_host == at_server.peer_host);
    snprintf(expected, sizeof(expected), "127.0.0.1:%u", pair.port);
    CHECK_STR(at_client.peer_address, expected);
    CHECK_STR(at_server.local_address, expected);
    CHECK_STR(at_server.peer_address, at_client.local_address);
    t_exchange(&pair, client, seen.event.source);
    CHECK_EQ(t_listener_info(pair.listener).requests, 1);
    CHECK_EQ(t_listener_info(pair.listener).accepted, 1);
    CHECK_EQ(t_listener_info(pair.listener).rejected, 0);
    CHECK_EQ(t_listener_info(pair.listener).strangers, 0);
    t_pair_close(&pair);
}

CASE(ipv6)
{
    t_pair_opts opts = {.host = "::1"};
    t_pair pair;
    char expected[80];

    if (!t_can_bind("::1")) {
        SKIP("this machine has no IPv6 loopback address");
    }
    hws_library_info ucx = {.struct_size = sizeof(ucx)};
    CHECK_OK(hws_library_open(NULL, &ucx));
    if (ucx.ucx_minor < 14) {
        SKIP("UCX 1.13 overruns memory with IPv6: refused by the library");
    }
    CHECK_EQ(setenv("UCX_TCP_AF_PRIO", "inet6,inet", 1), 0);
    t_pair_open(&pair, &opts);
    CHECK_STR(t_listener_info(pair.listener).address, "::1");
    snprintf(expected, sizeof(expected), "[::1]:%u", pair.port);
    CHECK_STR(t_endpoint_info(pair.endpoint[0]).peer_address, expected);
    t_exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
    t_pair_close(&pair);
}

CASE(host_name)
{
    t_pair pair;
    t_pair_opts opts = {.host = "localhost"};

    t_pair_listen(&pair, NULL);
    t_pair_connect(&pair, &opts, &pair.endpoint[0], &pair.endpoint[1]);
    t_exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
    t_pair_close(&pair);
}

/* 127.0.0.0/8 is this machine, though no interface has more than the first. */
CASE(every_loopback_address_is_this_machine)
{
    static const char *const hosts[][2] = {{"127.0.0.2", "127.0.0.2"}, {NULL, "127.45.6.7"}};
    hws_listener_opts opts = {.struct_size = sizeof(opts)};
    hws_endpoint_opts from = {.struct_size = sizeof(from), .local_address = "127.0.0.3"};

    for (int i = 0; i < 2; i++) {
        hws_id listener = 0, client = 0, op = 0;
        char expected[80];
        t_seen seen;
        t_pair pair;

        t_pair_listen(&pair, NULL);
        opts.sink = t_record_sink(&pair.record[1], 1);
        CHECK_OK(hws_listen(pair.worker[1], hosts[i][0], 0, &opts, &listener));
        pair.port = (uint16_t)t_listener_info(listener).port;
        CHECK_STR(t_listener_info(listener).address, hosts[i][0] != NULL ? hosts[i][0] : "0.0.0.0");
        from.sink = t_record_sink(&pair.record[0], 1);
        CHECK_OK(hws_connect(pair.worker[0], hosts[i][1], pair.port, &from, NULL, &client, &op));
        WAIT_OK(&pair, op);
        snprintf(expected, sizeof(expected), "%s:%u", hosts[i][1], pair.port);
        CHECK_STR(t_endpoint_info(client).peer_address, expected);
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
        t_exchange(&pair, client, seen.event.source);
        t_pair_close(&pair);
    }
}

/* ---- What carries a connection ---- */

CASE(shared_memory_is_isolated)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    t_exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
    for (int side = 0; side < 2; side++) {
        hws_endpoint_info info = t_endpoint_info(pair.endpoint[side]);
        CHECK_EQ(info.isolated, 1);
        CHECK_EQ(info.reason, HWS_REASON_LOCAL);
        CHECK(info.transports & HWS_TRANSPORT_SHM);
        CHECK(info.lanes[0] != '\0');
        CHECK(info.reason_text[0] != '\0');
        CHECK_OK(info.status);
    }
    CHECK(t_stats(pair.context).isolated >= 2);
    CHECK_EQ(t_stats(pair.context).fallbacks, 0);
    t_pair_close(&pair);
}

static void no_shared_memory(const t_pair_opts *opts)
{
    t_pair pair;

    t_pair_open(&pair, opts);
    t_exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
    for (int side = 0; side < 2; side++) {
        hws_endpoint_info info = t_endpoint_info(pair.endpoint[side]);
        CHECK_EQ(info.isolated, 0);
        CHECK_EQ(info.reason, HWS_REASON_TCP_ONLY);
        CHECK_EQ(info.transports & HWS_TRANSPORT_SHM, 0);
        CHECK(info.transports & (HWS_TRANSPORT_TCP | HWS_TRANSPORT_RDMA));
        CHECK(strstr(info.lanes, "posix") == NULL && strstr(info.lanes, "sysv") == NULL);
    }
    CHECK_EQ(t_stats(pair.context).lane_violations, 0);
    t_pair_close(&pair);
}

CASE(tcp_only_by_endpoint)
{
    t_pair_opts opts = {.endpoint_flags = HWS_ENDPOINT_TCP_ONLY};

    no_shared_memory(&opts);
}

CASE(tcp_only_by_context)
{
    t_pair_opts opts = {.context_flags = HWS_CONTEXT_NO_SHARED_MEMORY};

    no_shared_memory(&opts);
}

CASE(both_sides_on_one_worker)
{
    for (uint32_t flags = 0; flags <= HWS_ENDPOINT_TCP_ONLY; flags += HWS_ENDPOINT_TCP_ONLY) {
        t_pair_opts opts = {.one_worker = 1, .endpoint_flags = flags};
        t_pair pair;
        t_pair_open(&pair, &opts);
        t_exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
        t_pair_close(&pair);
    }
}

CASE(from_a_chosen_address)
{
    t_pair pair;
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .local_address = "127.0.0.1"};
    hws_id client = 0, op = 0;
    t_seen seen;

    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, &opts, NULL, &client, &op));
    WAIT_OK(&pair, op);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    CHECK(strncmp(t_endpoint_info(client).local_address, "127.0.0.1:", 10) == 0);
    CHECK(strncmp(t_endpoint_info(seen.event.source).peer_address, "127.0.0.1:", 10) == 0);
    /* Not of this machine: kept for documentation. */
    for (int i = 0; i < 2; i++) {
        opts.local_address = i == 0 ? "nonsense" : "192.0.2.1";
        CHECK_CODE(hws_connect(pair.worker[0], "127.0.0.1", pair.port, &opts, NULL, &client, &op),
                   HWS_E_INVALID);
    }
    t_pair_close(&pair);
}

#define MANY 24

CASE(many_at_once)
{
    t_pair pair;
    hws_id clients[MANY];

    t_pair_listen(&pair, NULL);
    for (int i = 0; i < MANY; i++) {
        clients[i] = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    }
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_CONNECT, 0) == MANY);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, 0) == MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(t_dialled(&pair, clients[i]).event.status);
        char address[64];
        int peers = 0;
        snprintf(address, sizeof(address), "%s", t_endpoint_info(clients[i]).local_address);
        for (uint32_t j = 0; j < MANY; j++) {
            t_seen seen;
            CHECK(t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, j, &seen));
            if (strcmp(t_endpoint_info(seen.event.source).peer_address, address) == 0) {
                peers++;
                t_exchange(&pair, clients[i], seen.event.source);
            }
        }
        CHECK_EQ(peers, 1);
    }
    CHECK_EQ(t_listener_info(pair.listener).accepted, MANY);
    t_pair_close(&pair);
}

CASE(counters_count_messages)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    for (int i = 0; i < 5; i++) {
        t_exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
    }
    for (int side = 0; side < 2; side++) {
        hws_endpoint_info info = t_endpoint_info(pair.endpoint[side]);
        CHECK_EQ(info.sent, 5);
        CHECK_EQ(info.received, 5);
        CHECK_EQ(info.bytes_sent, 40);
        CHECK_EQ(info.bytes_received, 40);
    }
    t_pair_close(&pair);
}

/* ---- Values and descriptions ---- */

CASE(user_values)
{
    t_pair pair;
    hws_id queue = 0;
    uint64_t value = 1;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_queue_open(NULL, &queue));
    hws_id ids[] = {pair.context,     pair.worker[0],   pair.worker[1], pair.listener,
                    pair.endpoint[0], pair.endpoint[1], queue};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        CHECK_OK(hws_user_get(ids[i], &value));
        CHECK_EQ(value, 0);
        CHECK_OK(hws_user_set(ids[i], UINT64_MAX - i));
    }
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        CHECK_OK(hws_user_get(ids[i], &value));
        CHECK(value == UINT64_MAX - i);
    }
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

CASE(descriptions)
{
    t_pair pair;
    static char text[65536];
    uint64_t needed = 0;

    t_pair_open(&pair, NULL);
    hws_id ids[] = {pair.context, pair.worker[0], pair.endpoint[0]};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        int32_t code = hws_describe(ids[i], NULL, 0, &needed); /* nothing was asked for */
        CHECK(code == HWS_OK || code == HWS_E_TOO_BIG);
        CHECK(needed > 10 && needed < sizeof(text));
        memset(text, 'x', sizeof(text));
        CHECK_CODE(hws_describe(ids[i], text, 10, NULL), HWS_E_TOO_BIG);
        CHECK_EQ(strlen(text), 9);
        CHECK_EQ(text[10], 'x');
        CHECK_OK(hws_describe(ids[i], text, sizeof(text), &needed));
        CHECK_EQ(strlen(text) + 1, needed);
    }
    t_pair_close(&pair);
}

/* ---- Inside callbacks ---- */

CASE(reconnects)
{
    t_pair pair;

    t_pair_listen(&pair, NULL);
    for (int i = 0; i < 30; i++) {
        t_pair_connect(&pair, NULL, &pair.endpoint[0], &pair.endpoint[1]);
        t_exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
        CHECK_OK(hws_close(pair.endpoint[i % 2]));
        t_gone(&pair, pair.endpoint[i % 2]);
        CHECK_OK(hws_close(pair.endpoint[1 - i % 2]));
        t_gone(&pair, pair.endpoint[1 - i % 2]);
    }
    CHECK_EQ(t_stats(pair.context).endpoints, 0);
    CHECK_EQ(t_stats(pair.context).isolated, 0);
    t_pair_close(&pair);
}

/* At every step of connecting, on both ways, and of failing. */
CASE(described_while_connecting)
{
    hws_endpoint_opts opts[2] = {{.struct_size = sizeof opts[0]},
                                 {.struct_size = sizeof opts[0], .flags = HWS_ENDPOINT_TCP_ONLY}};
    hws_id endpoint = 0, op = 0;
    char text[4096];
    t_pair pair;

    t_pair_listen(&pair, NULL);
    for (int i = 0; i < 4; i++) {
        uint64_t until = t_now() + 100 * T_MS;

        CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", i < 2 ? pair.port : t_closed_port(),
                             &opts[i % 2], NULL, &endpoint, &op));
        while (hws_wait(op, 0, NULL) == HWS_E_TIMED_OUT || t_now() < until) {
            CHECK_OK(hws_describe(endpoint, text, sizeof text, NULL));
            CHECK(text[0] != '\0');
            t_pair_step(&pair);
        }
        CHECK_OK(hws_close(endpoint));
    }
    t_pair_close(&pair);
}

CASES_MAIN
