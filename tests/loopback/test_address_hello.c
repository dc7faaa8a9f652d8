/*
 * Worker addresses with a hello: who meets whom, and dials that are cut, given up or answered too late. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/address.h"
#include "support/pair.h"

#define ALL UINT64_MAX

/* Side 0 has dialled side 1's address: its endpoint, and what side 1 was told of its own. */
static hws_id dialled(t_pair *pair, t_seen *accepted)
{
    t_address b;
    hws_id client;

    t_pair_listen(pair, NULL);
    b = t_address_of(pair->worker[1], HWS_ADDRESS_HELLO);
    client = t_address_dial(pair, 0, &b, 0);
    UNTIL(pair, t_record_find(&pair->record[1], HWS_EVENT_ACCEPTED, 0, 0, accepted));
    return client;
}

/* A peer that vanishes is noticed by the other side; on UCX 1.13.1 by its keepalive, 20 s later. */
CASE(hello_cut)
{
    t_pair pair;
    hws_id client, server;
    uint64_t start;
    t_seen seen;

    client = dialled(&pair, &seen);
    server = seen.event.source;
    CHECK_OK(hws_abort(client));
    start = t_now();
    while (!t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, server, 0, &seen)) {
        t_pair_step(&pair);
        CHECK(t_now() - start < 60 * T_SECOND);
    }
    CHECK(seen.event.status < 0);
    t_pair_close(&pair);
}

/* With a hello both ends are full endpoints: identity, tags with a source, multi-buffer, goodbye. */
CASE(hello)
{
    t_pair pair;
    hws_id client, server, recv = 0, send = 0;
    hws_segment s = {.base = (char[]){"segment"}, .length = 8};
    hws_endpoint_info info;
    t_seen seen;

    client = dialled(&pair, &seen);
    server = seen.event.source;
    CHECK_EQ(seen.event.op, 0);
    info = t_endpoint_info(server);
    CHECK(info.peer_pid != 0);
    CHECK_EQ(info.reason, HWS_REASON_ADDRESS);
    CHECK_EQ(info.transports & HWS_TRANSPORT_SHM, 0);
    t_address_exchange(&pair, client, server, 100);
    t_address_exchange(&pair, server, client, 200);
    t_address_exchange(&pair, client, pair.worker[1], 300);
    CHECK_OK(hws_multi_recv(server, 1, ALL, NULL, NULL, &recv));
    CHECK_OK(hws_multi_send(client, 1, &s, 1, NULL, NULL, &send));
    CHECK_OK(hws_close(((const hws_multi_detail *)WAIT_OK(&pair, recv).detail)->buffer));
    WAIT_OK(&pair, send);
    CHECK_OK(hws_tag_recv(server, &(uint64_t){0}, 8, 1, ALL, NULL, &recv));
    CHECK_OK(hws_close(client));
    CHECK_EQ(WAIT(&pair, recv).status, HWS_E_PEER_CLOSED);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, server, 0, &seen));
    CHECK_EQ(seen.event.status, HWS_E_PEER_CLOSED);
    t_pair_close(&pair);
}

/* Who of several workers hears of how many, and talks to them. */
static void accept_and_talk(t_pair *pair, int side, const hws_id *dialled, int count)
{
    t_record *record = &pair->record[side];
    t_seen seen;

    UNTIL(pair, t_record_kinds(record, HWS_EVENT_ACCEPTED, 0) == (uint32_t)count);
    for (int i = 0; i < count; i++) {
        CHECK(t_record_find(record, HWS_EVENT_ACCEPTED, 0, (uint32_t)i, &seen));
        CHECK_EQ(t_endpoint_info(seen.event.source).reason, HWS_REASON_ADDRESS);
        t_address_exchange(pair, dialled[i], pair->worker[side], 100 * (uint64_t)i);
    }
}

/* Two who dial each other and themselves at once, each more than once: none is taken for the other. */
CASE(hello_of_all_at_once)
{
    enum { EACH = 6 };
    t_pair pair;
    t_address b[2];
    hws_id ep[2][EACH], op[2][EACH];

    t_pair_listen(&pair, NULL);
    for (int side = 0; side < 2; side++) {
        b[side] = t_address_of(pair.worker[side], HWS_ADDRESS_HELLO);
    }
    for (int i = 0; i < EACH; i++) {
        for (int to = 0; to < 2; to++) { /* half of those who dial an address are its owner */
            CHECK_OK(hws_connect_address(pair.worker[(to + i) % 2], b[to].data, b[to].length, NULL,
                                         NULL, &ep[to][i], &op[to][i]));
        }
    }
    for (int i = 0; i < EACH; i++) {
        WAIT_OK(&pair, op[0][i]);
        WAIT_OK(&pair, op[1][i]);
    }
    accept_and_talk(&pair, 0, ep[0], EACH);
    accept_and_talk(&pair, 1, ep[1], EACH);
    t_pair_close(&pair);
}

/* Dials that are given up before they are answered leave those after them alone. */
CASE(hello_after_one_that_was_given_up)
{
    t_pair pair;
    t_address b;
    t_seen seen;

    t_pair_listen(&pair, NULL);
    b = t_address_of(pair.worker[1], HWS_ADDRESS_HELLO);
    for (int i = 0; i < 5; i++) {
        hws_id given_up, op, client;

        CHECK_OK(hws_connect_address(pair.worker[0], b.data, b.length, NULL, NULL, &given_up, &op));
        for (int step = 0; step < i; step++) {
            t_pair_step(&pair);
        }
        CHECK_OK(hws_abort(given_up));
        client = t_address_dial(&pair, 0, &b, 0);
        t_address_exchange(&pair, client, pair.worker[1], 100);
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, (uint32_t)i, &seen));
        CHECK_OK(hws_close(client));
        (void)WAIT(&pair, op);
    }
    t_pair_close(&pair);
}

/* UCX 1.13 keeps the line between two workers for the other direction, and tells nobody. */
CASE(hello_that_is_aborted)
{
    for (int aborting = 0; aborting < 2; aborting++) {
        t_pair pair;
        t_seen seen;
        hws_id end[2];
        t_address b;

        t_pair_listen(&pair, NULL);
        b = t_address_of(pair.worker[1], HWS_ADDRESS_HELLO);
        end[0] = t_address_dial(&pair, 0, &b, 0);
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
        end[1] = seen.event.source;
        CHECK_OK(hws_abort(end[aborting]));
        UNTIL(&pair, t_record_find(&pair.record[1 - aborting], HWS_EVENT_DISCONNECTED,
                                   end[1 - aborting], 0, &seen));
        CHECK_CODE(seen.event.status, HWS_E_CONNECTION_RESET);
        t_pair_close(&pair);
    }
}

/* The peer answers when the dial was given up already, and UCX's endpoint not yet. */
CASE(raw_answer_that_comes_too_late)
{
    hws_endpoint_opts raw = {.struct_size = sizeof(raw), .flags = HWS_ENDPOINT_RAW};
    hws_id endpoint = 0, op = 0;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    for (int steps = 0; steps < 400; steps++) {
        t_address b = t_address_of(pair.worker[1], 0);
        int32_t status;

        CHECK_OK(hws_connect_address(pair.worker[0], b.data, b.length, &raw, NULL, &endpoint, &op));
        for (int i = 0; i < steps % 40; i++) {
            hws_worker_progress(pair.worker[i % 2]);
        }
        hws_cancel(op);
        for (int i = 0; i < 20; i++) {
            hws_worker_progress(pair.worker[1]);
            hws_worker_progress(pair.worker[0]);
        }
        status = WAIT(&pair, op).status;
        CHECK(status == HWS_OK || status == HWS_E_CANCELED);
        CHECK_OK(hws_close(endpoint));
        UNTIL(&pair, hws_kind(endpoint) < 0);
    }
    t_pair_close(&pair);
}

CASES_MAIN
