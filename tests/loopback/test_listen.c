/*
 * Listeners: where they listen, how many they let in at once, and what becomes of those who dial when they close.
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/dial.h"

CASE(no_listen_address_means_all)
{
    t_pair pair;
    hws_listener_opts listener = {.struct_size = sizeof(listener)};
    hws_id all = 0, client[1], server[1];

    t_pair_listen(&pair, NULL);
    listener.sink = t_record_sink(&pair.record[1], 1);
    CHECK_OK(hws_listen(pair.worker[1], NULL, 0, &listener, &all));
    pair.port = (uint16_t)t_listener_info(all).port;
    t_pair_connect(&pair, NULL, &client[0], &server[0]);
    t_exchange(&pair, client[0], server[0]);
    t_pair_close(&pair);
}

CASE(port_can_be_chosen_and_used_again)
{
    t_pair pair;
    hws_id second = 0;

    t_pair_open(&pair, NULL);
    CHECK_CODE(hws_listen(pair.worker[1], "127.0.0.1", pair.port, NULL, &second),
               HWS_E_ADDRESS_IN_USE);
    /* Its connections are still in the kernel: the address must be reusable all the same. */
    CHECK_OK(hws_close(pair.endpoint[1]));
    t_gone(&pair, pair.endpoint[1]);
    CHECK_OK(hws_close(pair.listener));
    t_gone(&pair, pair.listener);
    CHECK_OK(hws_listen(pair.worker[1], "127.0.0.1", pair.port, NULL, &second));
    CHECK_EQ(t_listener_info(second).port, pair.port);
    CHECK_OK(t_dialled(&pair, t_dial(&pair, "127.0.0.1", pair.port, 0, NULL)).event.status);
    t_pair_close(&pair);
}

CASE(bad_listen_addresses)
{
    t_pair pair;
    hws_id out = 0;

    t_pair_listen(&pair, NULL);
    CHECK_CODE(hws_listen(pair.worker[1], "not an address", 0, NULL, &out), HWS_E_INVALID);
    CHECK_CODE(hws_listen(pair.worker[1], "", 0, NULL, &out), HWS_E_INVALID);
    CHECK_CODE(hws_listen(pair.worker[1], "1.2.3.4.5", 0, NULL, &out), HWS_E_INVALID);
    CHECK_CODE(hws_listen(pair.worker[1], "192.0.2.1", 0, NULL, &out), HWS_E_UNREACHABLE);
    CHECK_EQ(out, 0);
    t_pair_close(&pair);
}

CASE(closed_listener_refuses_but_its_endpoints_live)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_close(pair.listener));
    t_gone(&pair, pair.listener);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.listener) == 1);
    t_exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
    hws_id late = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    /* The kernel may still have taken the connection in before the socket was closed. */
    int32_t status = t_dialled(&pair, late).event.status;
    CHECK_CODE(status, HWS_E_REFUSED);
    t_pair_close(&pair);
}

/* So many dial, and reach a listener whose worker makes no progress. */
static void dial_together(t_pair *pair, uint32_t flags, hws_id *ops, int count)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts, .flags = flags};
    hws_id client;

    for (int i = 0; i < count; i++) {
        CHECK_OK(
            hws_connect(pair->worker[0], "127.0.0.1", pair->port, &opts, NULL, &client, &ops[i]));
    }
    for (uint64_t start = t_now(); t_now() - start < 300 * T_MS;) {
        hws_worker_progress(pair->worker[0]);
    }
}

/* More than arrive in one step: none is turned away. */
CASE(many_by_tcp_at_once)
{
    enum { PEERS = 150 };
    hws_event event = {0};
    hws_id ops[PEERS];
    t_pair pair;

    t_pair_listen(&pair, NULL);
    dial_together(&pair, HWS_ENDPOINT_TCP_ONLY, ops, PEERS);
    for (int i = 0; i < PEERS; i++) {
        event = WAIT(&pair, ops[i]);
        CHECK_OK(event.status);
    }
    CHECK_EQ(t_listener_info(pair.listener).rejected, 0);
    CHECK_EQ(t_stats(pair.worker[0]).redials, 0);
    t_pair_close(&pair);
}

/* What was ordered for a peer comes when the peer's end is not told yet. */
CASE(listener_closed_while_workers_are_made_for_its_peers)
{
    enum { PEERS = 6 };
    t_pair pair;
    hws_id clients[PEERS];

    t_pair_listen(&pair, NULL);
    for (int i = 0; i < PEERS; i++) {
        clients[i] = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    }
    UNTIL(&pair, t_listener_info(pair.listener).requests == PEERS);
    CHECK_OK(hws_close(pair.listener));
    t_sleep(100 * T_MS);
    for (int i = 0; i < PEERS; i++) {
        t_dialled(&pair, clients[i]);
    }
    t_pair_close(&pair);
}

/* Who arrives while the owner is busy, and then closes, is not told of another version. */
CASE_BOTH(listener_closed_before_it_saw_its_peers)
{
    enum { PEERS = 6 };
    hws_id ops[PEERS];
    t_pair pair;

    t_pair_listen(&pair, NULL);
    dial_together(&pair, flags, ops, PEERS);
    CHECK_OK(hws_close(pair.listener));
    for (int i = 0; i < PEERS; i++) {
        int32_t status = WAIT(&pair, ops[i]).status;

        /* The other one of those that UCX's thread has taken in by then. */
        CHECK(status == HWS_E_REFUSED || status == HWS_E_CONNECTION_RESET);
    }
    t_pair_close(&pair);
}

CASES_MAIN
