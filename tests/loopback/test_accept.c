/*
 * Connection requests that the application answers by hand: yes, no, inside the callback, and peers or
 * listeners that do not wait for the answer.
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/dial.h"

#include <stdio.h>
#include <string.h>

static hws_id requested(t_pair *pair, uint32_t nth)
{
    t_seen seen;

    UNTIL(pair, t_record_find(&pair->record[1], HWS_EVENT_REQUEST, 0, nth, &seen));
    CHECK(seen.event.op == pair->listener);
    return seen.event.source;
}

/* A listener that asks, and a client that waits for its answer. */
static hws_id asked(t_pair *pair, hws_id *client)
{
    t_pair_listen(pair, &(t_pair_opts){.listener_flags = HWS_LISTENER_EXPLICIT});
    *client = t_dial(pair, "127.0.0.1", pair->port, 0, NULL);
    return requested(pair, 0);
}

CASE(explicit_accept)
{
    hws_id client;
    t_pair pair;

    hws_id server = asked(&pair, &client);
    hws_endpoint_info info = t_endpoint_info(server);
    CHECK_EQ(info.state, HWS_STATE_REQUEST);
    CHECK(strncmp(info.peer_address, "127.0.0.1:", 10) == 0);
    t_pair_idle(&pair, 30 * T_MS);
    CHECK_EQ(t_record_kinds(&pair.record[0], HWS_EVENT_CONNECT, 0), 0);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, 0), 0);
    CHECK_OK(hws_accept(server));
    CHECK_CODE(hws_accept(server), HWS_E_IN_USE);
    CHECK_OK(t_dialled(&pair, client).event.status);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, server) == 1);
    CHECK_CODE(hws_reject(server), HWS_E_IN_USE);
    t_exchange(&pair, client, server);
    CHECK_EQ(t_listener_info(pair.listener).accepted, 1);
    t_pair_close(&pair);
}

CASE(explicit_reject)
{
    hws_id client;
    t_pair pair;

    hws_id server = asked(&pair, &client);
    CHECK_OK(hws_reject(server));
    CHECK_CODE(t_dialled(&pair, client).event.status, HWS_E_REJECTED);
    t_gone(&pair, server);
    CHECK_CODE(hws_accept(server), HWS_E_STALE);
    CHECK_CODE(hws_reject(server), HWS_E_STALE);
    CHECK_EQ(t_listener_info(pair.listener).rejected, 1);
    CHECK_EQ(t_listener_info(pair.listener).accepted, 0);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, 0), 0);
    /* The listener goes on. */
    client = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    CHECK_OK(hws_accept(requested(&pair, 1)));
    CHECK_OK(t_dialled(&pair, client).event.status);
    t_pair_close(&pair);
}

static void answer(void *arg, const hws_event *event)
{
    int *count = arg;

    if (event->kind == HWS_EVENT_REQUEST) {
        if ((*count)++ % 2 == 0) {
            CHECK_OK(hws_accept(event->source));
        } else {
            CHECK_OK(hws_reject(event->source));
        }
    }
}

CASE(answered_inside_the_callback)
{
    t_pair_opts opts = {.listener_flags = HWS_LISTENER_EXPLICIT};
    t_pair pair;
    int count = 0;

    t_pair_listen(&pair, &opts);
    pair.record[1].then = answer;
    pair.record[1].then_arg = &count;
    for (int i = 0; i < 6; i++) {
        hws_id client = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
        CHECK_CODE(t_dialled(&pair, client).event.status, i % 2 == 0 ? HWS_OK : HWS_E_REJECTED);
    }
    CHECK_EQ(t_listener_info(pair.listener).requests, 6);
    CHECK_EQ(t_listener_info(pair.listener).accepted, 3);
    CHECK_EQ(t_listener_info(pair.listener).rejected, 3);
    t_pair_close(&pair);
}

CASE(peer_that_gives_up_before_the_answer)
{
    hws_id client;
    t_pair pair;
    hws_endpoint_info info = {.struct_size = sizeof(info)};

    hws_id server = asked(&pair, &client);
    CHECK_OK(hws_abort(client));
    t_gone(&pair, client);
    UNTIL(&pair,
          hws_endpoint_query(server, &info) == HWS_E_STALE || info.state != HWS_STATE_REQUEST);
    int32_t code = hws_accept(server);
    CHECK_CODE(code, HWS_E_STALE);
    t_pair_close(&pair);
}

/* Who said yes hears of it, also when the connection ends before it is whole. */
CASE(peer_that_gives_up_while_it_is_let_in)
{
    t_pair_opts opts = {.listener_flags = HWS_LISTENER_EXPLICIT};
    t_pair pair;

    t_pair_listen(&pair, &opts);
    for (uint32_t i = 0; i < 8; i++) {
        hws_id client = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
        hws_id server = requested(&pair, i);

        CHECK_OK(hws_accept(server));
        for (uint32_t steps = 0; steps < i * 20; steps++) {
            t_pair_step(&pair);
        }
        CHECK_OK(hws_abort(client));
        t_gone(&pair, client);
        UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, server) == 1);
        CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, server), 1);
        CHECK_OK(hws_close(server));
        t_gone(&pair, server);
    }
    t_pair_close(&pair);
}

/* The application may do other things once it has heard of the peer: nothing of the connection waits for it. */
static void check_open_without(const char *how, uint32_t endpoint_flags, uint32_t listener_flags)
{
    hws_endpoint_opts endpoint = {.struct_size = sizeof(endpoint), .flags = endpoint_flags};
    t_pair pair;
    hws_id client, op;

    printf("%s\n", how);
    t_pair_listen(&pair, &(t_pair_opts){.listener_flags = listener_flags});
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, &endpoint, NULL, &client, &op));
    if (listener_flags & HWS_LISTENER_EXPLICIT) {
        CHECK_OK(hws_accept(requested(&pair, 0)));
    }
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, 0) == 1);
    CHECK_OK(hws_wait(op, t_patience(), NULL)); /* progress of the client alone */
    CHECK_EQ(t_endpoint_info(client).state, HWS_STATE_OPEN);
    t_pair_close(&pair);
}

CASE(accepted_by_who_makes_no_progress_then)
{
    for (int i = 0; i < 5; i++) {
        check_open_without("shared memory", 0, 0);
        check_open_without("TCP", HWS_ENDPOINT_TCP_ONLY, 0);
        check_open_without("asked for", 0, HWS_LISTENER_EXPLICIT);
        check_open_without("asked for, TCP", HWS_ENDPOINT_TCP_ONLY, HWS_LISTENER_EXPLICIT);
        check_open_without("plain UCX", HWS_ENDPOINT_RAW, HWS_LISTENER_RAW);
    }
}

CASE(listener_closed_while_it_lets_in)
{
    hws_id client;
    t_pair pair;

    hws_id server = asked(&pair, &client);
    CHECK_OK(hws_accept(server));
    CHECK_OK(hws_close(pair.listener));
    t_gone(&pair, pair.listener);
    t_dialled(&pair, client);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, server) == 1 ||
                     t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, server) == 1);
    t_pair_close(&pair);
}

/* Nobody is told of the end of an endpoint that no event has named. */
CASE(worker_closed_before_it_lets_in)
{
    for (uint64_t delay = 0; delay < 15 * T_MS; delay += T_MS / 2) {
        t_pair pair;
        uint32_t accepted;

        t_pair_listen(&pair, NULL);
        t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
        t_pair_idle(&pair, delay);
        CHECK_OK(hws_close(pair.worker[1]));
        t_gone(&pair, pair.worker[1]);
        accepted = t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, 0);
        CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, 0),
                 accepted + 2); /* the listener and the worker */
        t_pair_close(&pair);
    }
}

CASE(unanswered_request_ends_with_the_listener)
{
    t_pair_opts opts = {.listener_flags = HWS_LISTENER_EXPLICIT};
    t_pair pair;

    t_pair_listen(&pair, &opts);
    hws_id client = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    requested(&pair, 0);
    CHECK_OK(hws_close(pair.listener));
    t_gone(&pair, pair.listener);
    t_seen seen = t_dialled(&pair, client);
    CHECK(seen.event.status < 0);
    CHECK_STR(hws_error_category(seen.event.status), "peer");
    t_pair_close(&pair);
}

CASES_MAIN
