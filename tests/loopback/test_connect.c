/*
 * Connections: how they come to be, what they are told to be, and how they end.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The final event of a connect whose events go to record 0. */
static t_seen connected(t_pair *pair, hws_id endpoint)
{
    t_seen seen;

    UNTIL(pair, t_record_find(&pair->record[0], HWS_EVENT_CONNECT, endpoint, 0, &seen));
    return seen;
}

/* Posts a connect with the pair's records. */
static hws_id dial(t_pair *pair, const char *host, uint16_t port, uint64_t timeout_ns, hws_id *op)
{
    hws_endpoint_opts endpoint = {.struct_size = sizeof(endpoint),
                                  .sink = t_record_sink(&pair->record[0], 3)};
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .callback = t_record_event,
                        .callback_arg = &pair->record[0],
                        .user = 77,
                        .timeout_ns = timeout_ns};
    hws_id id = 0;

    CHECK_OK(hws_connect(pair->worker[0], host, port, &endpoint, &opts, &id, op));
    return id;
}

static hws_listener_info listener_info(hws_id listener)
{
    hws_listener_info info = {.struct_size = sizeof(info)};

    CHECK_OK(hws_listener_query(listener, &info));
    return info;
}

/* One message each way. */
static void exchange(t_pair *pair, hws_id a, hws_id b)
{
    uint64_t out[2] = {11, 22}, in[2] = {0, 0};
    hws_id ops[4];

    CHECK_OK(hws_tag_recv(b, &in[0], 8, 5, UINT64_MAX, NULL, &ops[0]));
    CHECK_OK(hws_tag_recv(a, &in[1], 8, 5, UINT64_MAX, NULL, &ops[1]));
    CHECK_OK(hws_tag_send(a, &out[0], 8, 5, NULL, &ops[2]));
    CHECK_OK(hws_tag_send(b, &out[1], 8, 5, NULL, &ops[3]));
    for (int i = 0; i < 4; i++) {
        WAIT_OK(pair, ops[i]);
    }
    CHECK_EQ(in[0], 11);
    CHECK_EQ(in[1], 22);
}

/* Waits until an id is gone. */
static void gone(t_pair *pair, hws_id id)
{
    UNTIL(pair, hws_kind(id) == HWS_E_STALE);
}

CASE(ipv4_reports_both_ends)
{
    t_pair pair;
    t_seen seen;
    char expected[80];

    t_pair_listen(&pair, NULL);
    CHECK_STR(listener_info(pair.listener).address, "127.0.0.1");
    hws_id op = 0;
    hws_id client = dial(&pair, "127.0.0.1", pair.port, 0, &op);
    CHECK_EQ(hws_kind(client), HWS_KIND_ENDPOINT);
    CHECK_EQ(hws_kind(op), HWS_KIND_OP);
    CHECK_EQ(t_endpoint_info(client).state, HWS_STATE_CONNECTING);
    seen = connected(&pair, client);
    CHECK_OK(seen.event.status);
    CHECK(seen.event.op == op);
    CHECK_EQ(seen.event.user, 77);
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
    exchange(&pair, client, seen.event.source);
    CHECK_EQ(listener_info(pair.listener).requests, 1);
    CHECK_EQ(listener_info(pair.listener).accepted, 1);
    CHECK_EQ(listener_info(pair.listener).rejected, 0);
    CHECK_EQ(listener_info(pair.listener).strangers, 0);
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
    CHECK_STR(listener_info(pair.listener).address, "::1");
    snprintf(expected, sizeof(expected), "[::1]:%u", pair.port);
    CHECK_STR(t_endpoint_info(pair.endpoint[0]).peer_address, expected);
    exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
    t_pair_close(&pair);
}

CASE(host_name)
{
    t_pair pair;
    t_pair_opts opts = {.host = "localhost"};

    t_pair_listen(&pair, NULL);
    t_pair_connect(&pair, &opts, &pair.endpoint[0], &pair.endpoint[1]);
    exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
    t_pair_close(&pair);
}

CASE(no_listen_address_means_all)
{
    t_pair pair;
    hws_listener_opts listener = {.struct_size = sizeof(listener)};
    hws_id all = 0, client[1], server[1];

    t_pair_listen(&pair, NULL);
    listener.sink = t_record_sink(&pair.record[1], 1);
    CHECK_OK(hws_listen(pair.worker[1], NULL, 0, &listener, &all));
    pair.port = (uint16_t)listener_info(all).port;
    t_pair_connect(&pair, NULL, &client[0], &server[0]);
    exchange(&pair, client[0], server[0]);
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
        pair.port = (uint16_t)listener_info(listener).port;
        CHECK_STR(listener_info(listener).address, hosts[i][0] != NULL ? hosts[i][0] : "0.0.0.0");
        from.sink = t_record_sink(&pair.record[0], 1);
        CHECK_OK(hws_connect(pair.worker[0], hosts[i][1], pair.port, &from, NULL, &client, &op));
        WAIT_OK(&pair, op);
        snprintf(expected, sizeof(expected), "%s:%u", hosts[i][1], pair.port);
        CHECK_STR(t_endpoint_info(client).peer_address, expected);
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
        exchange(&pair, client, seen.event.source);
        t_pair_close(&pair);
    }
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
    gone(&pair, pair.endpoint[1]);
    CHECK_OK(hws_close(pair.listener));
    gone(&pair, pair.listener);
    CHECK_OK(hws_listen(pair.worker[1], "127.0.0.1", pair.port, NULL, &second));
    CHECK_EQ(listener_info(second).port, pair.port);
    CHECK_OK(connected(&pair, dial(&pair, "127.0.0.1", pair.port, 0, NULL)).event.status);
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

CASE(refused)
{
    t_pair pair;
    t_seen seen;

    t_pair_listen(&pair, NULL);
    hws_id client = dial(&pair, "127.0.0.1", t_closed_port(), 0, NULL);
    seen = connected(&pair, client);
    /* UCX 1.22 says the one or the other, by which of its threads sees the refusal first. */
    CHECK_CODE(seen.event.status, HWS_E_REFUSED);
    t_pair_close(&pair);
}

/* A plain listener, to be asked for connections without waiting for one. */
static int listening(uint16_t *port)
{
    int fd = t_plain_listener(port);

    CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

/* End whatever connected, as the kernel does for a process that is killed. */
static void reset_all(int listener)
{
    const struct linger at_once = {.l_onoff = 1};
    int fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
        close(fd);
    }
}

/* Somebody was there: whoever waits for a server to come need not wait for this one. */
CASE_BOTH(taken_in_and_reset_is_not_refused)
{
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = flags};
    hws_id client, op = 0;
    hws_event event;
    uint16_t port;
    t_pair pair;
    int fd = listening(&port);

    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", port, &opts, NULL, &client, &op));
    UNTIL(&pair, (reset_all(fd), hws_wait(op, 0, &event)) != HWS_E_TIMED_OUT);
    CHECK_CODE(event.status, HWS_E_CONNECTION_RESET);
    close(fd);
    t_pair_close(&pair);
}

CASE(closed_listener_refuses_but_its_endpoints_live)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_close(pair.listener));
    gone(&pair, pair.listener);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.listener) == 1);
    exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
    hws_id late = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    /* The kernel may still have taken the connection in before the socket was closed. */
    int32_t status = connected(&pair, late).event.status;
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
    CHECK_EQ(listener_info(pair.listener).rejected, 0);
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
        clients[i] = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    }
    UNTIL(&pair, listener_info(pair.listener).requests == PEERS);
    CHECK_OK(hws_close(pair.listener));
    t_sleep(100 * T_MS);
    for (int i = 0; i < PEERS; i++) {
        connected(&pair, clients[i]);
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

CASE(unresolvable_name)
{
    t_pair pair;

    t_pair_listen(&pair, NULL);
    hws_id client = dial(&pair, "no-such-host.invalid", 1, 0, NULL);
    CHECK_CODE(connected(&pair, client).event.status, HWS_E_RESOLVE);
    t_pair_close(&pair);
}

CASE(deadline)
{
    t_pair pair;
    uint16_t port;
    int fd = t_plain_listener(&port);
    uint64_t start = t_now();

    t_pair_listen(&pair, NULL);
    hws_id client = dial(&pair, "127.0.0.1", port, 300 * T_MS, NULL);
    CHECK_CODE(connected(&pair, client).event.status, HWS_E_TIMED_OUT);
    CHECK(t_now() - start >= 300 * T_MS);
    close(fd);
    t_pair_close(&pair);
}

CASE(peer_that_hangs_up)
{
    t_pair pair;
    uint16_t port;
    int fd = t_plain_listener(&port), taken = -1;
    t_seen seen;

    t_pair_listen(&pair, NULL);
    hws_id client = dial(&pair, "127.0.0.1", port, 5 * T_SECOND, NULL);
    /* Dialling needs progress: it may wait for a UCX worker of its own. */
    CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    UNTIL(&pair, (taken = accept(fd, NULL, NULL)) >= 0);
    close(taken);
    close(fd);
    seen = connected(&pair, client);
    CHECK(seen.event.status < 0);
    CHECK_STR(hws_error_category(seen.event.status), "peer");
    t_pair_close(&pair);
}

/* Bytes that are no message of UCX's, and those that look like one: a length, a status, then the same byte. */
static const struct nonsense {
    uint64_t length, status;
    unsigned char byte;
    size_t bytes;
} nonsense[] = {{0, 0, 0, 100000}, {100, 0, 0xff, 100}, {100, 1, 0xff, 100},
                {3, 0, 0, 3},      {0, 0, 0, 0},        {40, 0, 0x02, 40},
                {40, 0, 0x22, 40}, {40, 0, 0, 39},      {0, 0x80, 0, 0}};
enum { NONSENSE = sizeof nonsense / sizeof *nonsense };

static void talk(int fd, const struct nonsense *n)
{
    size_t size = 2 * sizeof n->length + n->bytes;
    unsigned char *message = t_alloc(size);

    memcpy(message, &n->length, sizeof n->length);
    memcpy(message + sizeof n->length, &n->status, sizeof n->status);
    memset(message + 2 * sizeof n->length, n->byte, n->bytes);
    CHECK(send(fd, message, size, MSG_DONTWAIT) > 0);
    free(message);
}

/* It is no UCX: what it says does no harm, and is no answer. */
CASE(peer_that_talks_nonsense)
{
    t_pair pair;
    uint16_t port;
    int fd = t_plain_listener(&port), taken = -1;

    t_pair_listen(&pair, NULL);
    CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    for (int i = 0; i < NONSENSE; i++) {
        hws_id client = dial(&pair, "127.0.0.1", port, 300 * T_MS, NULL);

        UNTIL(&pair, (taken = accept(fd, NULL, NULL)) >= 0);
        talk(taken, &nonsense[i]);
        CHECK(connected(&pair, client).event.status < 0);
        close(taken);
    }
    close(fd);
    t_pair_connect(&pair, NULL, &pair.endpoint[0], &pair.endpoint[1]);
    t_pair_close(&pair);
}

static int plain_client(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* The same of who dials. */
CASE(client_that_talks_nonsense)
{
    t_pair pair;

    t_pair_listen(&pair, NULL);
    for (int i = 0; i < NONSENSE; i++) {
        int fd = plain_client(pair.port);

        talk(fd, &nonsense[i]);
        t_pair_idle(&pair, 20 * T_MS);
        close(fd);
    }
    t_pair_connect(&pair, NULL, &pair.endpoint[0], &pair.endpoint[1]);
    t_pair_close(&pair);
}

/* Who says nothing is ended after the listener's hello timeout, not sooner, whatever other workers do. */
CASE(silence_has_its_time)
{
    hws_listener_opts opts = {.struct_size = sizeof(opts), .hello_timeout_ns = 2 * T_SECOND};
    hws_listener_info info;
    hws_id listener = 0, worker = 0;
    uint64_t start;
    t_pair pair;
    char byte;
    int fd;

    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_listen(pair.worker[1], "127.0.0.1", 0, &opts, &listener));
    info = listener_info(listener);
    fd = plain_client((uint16_t)info.port);
    start = t_now();
    while (t_now() - start < T_SECOND) {
        CHECK_OK(hws_worker_open(pair.context, NULL, &worker));
        CHECK_OK(hws_listen(worker, "127.0.0.1", 0, NULL, &listener));
        CHECK_OK(hws_close_wait(worker, t_patience()));
        t_pair_step(&pair);
        CHECK_EQ(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
        CHECK_EQ(errno, EAGAIN);
    }
    UNTIL(&pair, recv(fd, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN);
    CHECK(t_now() - start >= 2 * T_SECOND);
    close(fd);
    t_pair_close(&pair);
}

CASE(cancelled)
{
    t_pair pair;
    uint16_t port;
    int fd = t_plain_listener(&port);
    hws_id op = 0;

    t_pair_listen(&pair, NULL);
    hws_id client = dial(&pair, "127.0.0.1", port, 0, &op);
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_OK(hws_cancel(op));
    CHECK_CODE(connected(&pair, client).event.status, HWS_E_CANCELED);
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_EQ(t_record_kinds(&pair.record[0], HWS_EVENT_CONNECT, 0), 1);
    close(fd);
    t_pair_close(&pair);
}

CASE(closed_while_connecting)
{
    t_pair pair;
    uint16_t port;
    int fd = t_plain_listener(&port);
    t_seen last;

    t_pair_listen(&pair, NULL);
    hws_id client = dial(&pair, "127.0.0.1", port, 0, NULL);
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_OK(hws_close(client));
    gone(&pair, client);
    CHECK_EQ(t_record_kinds(&pair.record[0], HWS_EVENT_CONNECT, client), 1);
    CHECK_CODE(connected(&pair, client).event.status, HWS_E_CANCELED);
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_CLOSED, client) == 1);
    last = t_record_at(&pair.record[0], t_record_count(&pair.record[0]) - 1);
    CHECK_EQ(last.event.kind, HWS_EVENT_CLOSED);
    close(fd);
    t_pair_close(&pair);
}

/* Beside a thread that owns the worker: the connect itself may still be on its way to it. */
CASE(given_up_at_once_beside_a_thread)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD_POLLING};
    t_pair pair;
    uint16_t port;
    int fd = t_plain_listener(&port);
    hws_id client[300];

    t_pair_listen(&pair, &opts);
    for (int i = 0; i < 300; i++) {
        client[i] = dial(&pair, "127.0.0.1", port, 0, NULL);
        CHECK_OK(i % 4 ? hws_abort(client[i]) : hws_close(client[i]));
    }
    for (int i = 0; i < 300; i++) {
        CHECK_CODE(connected(&pair, client[i]).event.status, HWS_E_CANCELED);
    }
    close(fd);
    t_pair_close(&pair);
}

CASE(closed_at_once)
{
    t_pair pair;

    t_pair_listen(&pair, NULL);
    for (int i = 0; i < 20; i++) {
        hws_id client = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
        for (int j = 0; j < i; j++) {
            t_pair_step(&pair);
        }
        CHECK_OK(hws_close(client));
        gone(&pair, client);
        UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_CLOSED, client) == 1);
        CHECK_EQ(t_record_kinds(&pair.record[0], HWS_EVENT_CONNECT, client), 1);
    }
    /* Whatever they left behind at the listener, the next one gets through. */
    t_pair_connect(&pair, NULL, &pair.endpoint[0], &pair.endpoint[1]);
    t_pair_close(&pair);
}

CASE(not_usable_before_its_event)
{
    t_pair pair;
    uint16_t port;
    int fd = t_plain_listener(&port);
    uint64_t data = 1;
    hws_id op = 0;

    t_pair_listen(&pair, NULL);
    hws_id client = dial(&pair, "127.0.0.1", port, 0, NULL);
    CHECK_CODE(hws_tag_send(client, &data, 8, 1, NULL, &op), HWS_E_NOT_CONNECTED);
    CHECK_CODE(hws_am_send(client, 1, NULL, 0, &data, 8, NULL, &op), HWS_E_NOT_CONNECTED);
    CHECK_CODE(hws_stream_send(client, &data, 8, NULL, &op), HWS_E_NOT_CONNECTED);
    close(fd);
    t_pair_close(&pair);
}

/* ---- Answering by hand ---- */

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
    *client = dial(pair, "127.0.0.1", pair->port, 0, NULL);
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
    CHECK_OK(connected(&pair, client).event.status);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, server) == 1);
    CHECK_CODE(hws_reject(server), HWS_E_IN_USE);
    exchange(&pair, client, server);
    CHECK_EQ(listener_info(pair.listener).accepted, 1);
    t_pair_close(&pair);
}

CASE(explicit_reject)
{
    hws_id client;
    t_pair pair;

    hws_id server = asked(&pair, &client);
    CHECK_OK(hws_reject(server));
    CHECK_CODE(connected(&pair, client).event.status, HWS_E_REJECTED);
    gone(&pair, server);
    CHECK_CODE(hws_accept(server), HWS_E_STALE);
    CHECK_CODE(hws_reject(server), HWS_E_STALE);
    CHECK_EQ(listener_info(pair.listener).rejected, 1);
    CHECK_EQ(listener_info(pair.listener).accepted, 0);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, 0), 0);
    /* The listener goes on. */
    client = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    CHECK_OK(hws_accept(requested(&pair, 1)));
    CHECK_OK(connected(&pair, client).event.status);
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
        hws_id client = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
        CHECK_CODE(connected(&pair, client).event.status, i % 2 == 0 ? HWS_OK : HWS_E_REJECTED);
    }
    CHECK_EQ(listener_info(pair.listener).requests, 6);
    CHECK_EQ(listener_info(pair.listener).accepted, 3);
    CHECK_EQ(listener_info(pair.listener).rejected, 3);
    t_pair_close(&pair);
}

CASE(peer_that_gives_up_before_the_answer)
{
    hws_id client;
    t_pair pair;
    hws_endpoint_info info = {.struct_size = sizeof(info)};

    hws_id server = asked(&pair, &client);
    CHECK_OK(hws_abort(client));
    gone(&pair, client);
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
        hws_id client = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
        hws_id server = requested(&pair, i);

        CHECK_OK(hws_accept(server));
        for (uint32_t steps = 0; steps < i * 20; steps++) {
            t_pair_step(&pair);
        }
        CHECK_OK(hws_abort(client));
        gone(&pair, client);
        UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, server) == 1);
        CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, server), 1);
        CHECK_OK(hws_close(server));
        gone(&pair, server);
    }
    t_pair_close(&pair);
}

CASE(listener_closed_while_it_lets_in)
{
    hws_id client;
    t_pair pair;

    hws_id server = asked(&pair, &client);
    CHECK_OK(hws_accept(server));
    CHECK_OK(hws_close(pair.listener));
    gone(&pair, pair.listener);
    connected(&pair, client);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, server) == 1 ||
                     t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, server) == 1);
    t_pair_close(&pair);
}

CASE(unanswered_request_ends_with_the_listener)
{
    t_pair_opts opts = {.listener_flags = HWS_LISTENER_EXPLICIT};
    t_pair pair;

    t_pair_listen(&pair, &opts);
    hws_id client = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    requested(&pair, 0);
    CHECK_OK(hws_close(pair.listener));
    gone(&pair, pair.listener);
    t_seen seen = connected(&pair, client);
    CHECK(seen.event.status < 0);
    CHECK_STR(hws_error_category(seen.event.status), "peer");
    t_pair_close(&pair);
}

/* ---- What carries a connection ---- */

CASE(shared_memory_is_isolated)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
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
    exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
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
        exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
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
        clients[i] = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    }
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_CONNECT, 0) == MANY);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, 0) == MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(connected(&pair, clients[i]).event.status);
        char address[64];
        int peers = 0;
        snprintf(address, sizeof(address), "%s", t_endpoint_info(clients[i]).local_address);
        for (uint32_t j = 0; j < MANY; j++) {
            t_seen seen;
            CHECK(t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, j, &seen));
            if (strcmp(t_endpoint_info(seen.event.source).peer_address, address) == 0) {
                peers++;
                exchange(&pair, clients[i], seen.event.source);
            }
        }
        CHECK_EQ(peers, 1);
    }
    CHECK_EQ(listener_info(pair.listener).accepted, MANY);
    t_pair_close(&pair);
}

CASE(counters_count_messages)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    for (int i = 0; i < 5; i++) {
        exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
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

/* ---- The end ---- */

CASE(goodbye)
{
    t_pair pair;
    t_seen seen;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_close(pair.endpoint[0]));
    CHECK_OK(hws_close(pair.endpoint[0]));
    gone(&pair, pair.endpoint[0]);
    CHECK_CODE(hws_close(pair.endpoint[0]), HWS_E_STALE);
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_CLOSED, pair.endpoint[0]) == 1);
    CHECK_EQ(t_record_kinds(&pair.record[0], HWS_EVENT_DISCONNECTED, 0), 0);

    UNTIL(&pair,
          t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1], 0, &seen));
    CHECK_CODE(seen.event.status, HWS_E_PEER_CLOSED);
    CHECK_EQ(seen.event.user, 2);
    CHECK_EQ(t_endpoint_info(pair.endpoint[1]).state, HWS_STATE_PEER_CLOSED);
    t_pair_idle(&pair, 50 * T_MS);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.endpoint[1]), 0);
    CHECK_OK(hws_close(pair.endpoint[1]));
    gone(&pair, pair.endpoint[1]);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.endpoint[1]) == 1);

    /* CLOSED was the last event of both. */
    t_pair_idle(&pair, 50 * T_MS);
    for (int side = 0; side < 2; side++) {
        uint32_t last = t_record_count(&pair.record[side]) - 1;
        seen = t_record_at(&pair.record[side], last);
        CHECK_EQ(seen.event.kind, HWS_EVENT_CLOSED);
        CHECK(seen.event.source == pair.endpoint[side]);
        CHECK_EQ(t_record_kinds(&pair.record[side], HWS_EVENT_DISCONNECTED, 0), (uint32_t)side);
    }
    CHECK_EQ(t_stats(pair.context).endpoints, 0);
    t_pair_close(&pair);
}

CASE(goodbye_from_both_sides_at_once)
{
    t_pair pair;

    for (int i = 0; i < 5; i++) {
        t_pair_open(&pair, NULL);
        CHECK_OK(hws_close(pair.endpoint[0]));
        CHECK_OK(hws_close(pair.endpoint[1]));
        gone(&pair, pair.endpoint[0]);
        gone(&pair, pair.endpoint[1]);
        CHECK_EQ(t_stats(pair.context).failures, 0);
        t_pair_close(&pair);
    }
}

CASE(abort_is_a_failure_for_the_peer)
{
    for (uint32_t flags = 0; flags <= HWS_ENDPOINT_TCP_ONLY; flags += HWS_ENDPOINT_TCP_ONLY) {
        t_pair_opts opts = {.endpoint_flags = flags};
        t_pair pair;
        t_seen seen;
        char buffer[8];
        hws_id op = 0;

        t_pair_open(&pair, &opts);
        CHECK_OK(hws_tag_recv(pair.endpoint[0], buffer, 8, 1, UINT64_MAX, NULL, &op));
        CHECK_OK(hws_abort(pair.endpoint[0]));
        CHECK_CODE(WAIT(&pair, op).status, HWS_E_CANCELED);
        gone(&pair, pair.endpoint[0]);
        UNTIL(&pair,
              t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1], 0, &seen));
        CHECK(seen.event.status < 0 && seen.event.status != HWS_E_PEER_CLOSED);
        CHECK_STR(hws_error_category(seen.event.status), "peer");
        CHECK_EQ(t_endpoint_info(pair.endpoint[1]).state, HWS_STATE_FAILED);
        CHECK_CODE(t_endpoint_info(pair.endpoint[1]).status, seen.event.status);
        t_pair_close(&pair);
    }
}

CASE(data_sent_before_the_goodbye_arrives)
{
    for (uint32_t flags = 0; flags <= HWS_ENDPOINT_TCP_ONLY; flags += HWS_ENDPOINT_TCP_ONLY) {
        t_pair_opts opts = {.endpoint_flags = flags};
        hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
        t_pair pair;
        uint64_t in = 0, out[50];
        hws_id op = 0;

        t_pair_open(&pair, &opts);
        for (uint64_t i = 0; i < 50; i++) {
            out[i] = i;
            CHECK(hws_tag_send(pair.endpoint[0], &out[i], 8, i, &detached, NULL) >= 0);
        }
        CHECK_OK(hws_close(pair.endpoint[0]));
        gone(&pair, pair.endpoint[0]);
        UNTIL(&pair,
              t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
        for (uint64_t i = 0; i < 50; i++) {
            CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, i, UINT64_MAX, NULL, &op));
            WAIT_OK(&pair, op);
            CHECK_EQ(in, i);
        }
        CHECK_CODE(hws_tag_recv(pair.endpoint[1], &in, 8, 0, 0, NULL, &op), HWS_E_PEER_CLOSED);
        t_pair_close(&pair);
    }
}

/* ---- Inside callbacks ---- */

static void close_source(void *arg, const hws_event *event)
{
    uint32_t *kind = arg;

    if (event->kind == *kind) {
        CHECK_OK(hws_close(event->source));
        CHECK_OK(hws_close(event->source));
    }
}

CASE(closed_inside_the_callback)
{
    uint32_t kinds[] = {HWS_EVENT_CONNECT, HWS_EVENT_ACCEPTED, HWS_EVENT_DISCONNECTED};

    for (int i = 0; i < 3; i++) {
        t_pair pair;
        t_seen seen;
        int side = kinds[i] == HWS_EVENT_CONNECT ? 0 : 1;
        t_pair_listen(&pair, NULL);
        pair.record[side].then = close_source;
        pair.record[side].then_arg = &kinds[i];
        hws_id client = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
        CHECK_OK(connected(&pair, client).event.status);
        UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
        if (kinds[i] == HWS_EVENT_DISCONNECTED) {
            CHECK_OK(hws_close(client));
        }
        hws_id closed = side == 0 ? client : seen.event.source;
        UNTIL(&pair, t_record_kinds(&pair.record[side], HWS_EVENT_CLOSED, closed) == 1);
        CHECK_EQ(hws_kind(closed), HWS_E_STALE);
        t_pair_close(&pair);
    }
}

struct inside {
    t_pair *pair;
    int calls;
};

static void block(void *arg, const hws_event *event)
{
    struct inside *inside = arg;
    t_pair *pair = inside->pair;
    hws_event events[2];
    hws_id ops[1] = {0}, queue = 0;
    static char buffer[8];

    if (event->kind != HWS_EVENT_CONNECT) {
        return;
    }
    CHECK_CODE(hws_close_wait(event->source, T_SECOND), HWS_E_DEADLOCK);
    CHECK_EQ(hws_kind(event->source), HWS_KIND_ENDPOINT);
    CHECK_OK(hws_tag_recv(pair->worker[0], buffer, 8, 1, UINT64_MAX, NULL, &ops[0]));
    CHECK_CODE(hws_wait(ops[0], T_SECOND, NULL), HWS_E_DEADLOCK);
    CHECK_CODE(hws_wait_many(ops, 1, HWS_WAIT_ALL, T_SECOND, events), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_progress(pair->worker[0]), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_progress(pair->worker[1]), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_wait(pair->worker[0], T_SECOND), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_arm(pair->worker[0]), HWS_E_DEADLOCK);
    CHECK_OK(hws_queue_open(NULL, &queue));
    CHECK_CODE(hws_queue_pop(queue, events, 2, T_SECOND), HWS_E_DEADLOCK);
    CHECK_OK(hws_close(queue));
    inside->calls++;
}

CASE(blocking_calls_inside_a_callback)
{
    t_pair pair;
    struct inside inside = {.pair = &pair};

    t_pair_listen(&pair, NULL);
    pair.record[0].then = block;
    pair.record[0].then_arg = &inside;
    hws_id client = dial(&pair, "127.0.0.1", pair.port, 0, NULL);
    CHECK_OK(connected(&pair, client).event.status);
    CHECK_EQ(inside.calls, 1);
    t_pair_close(&pair);
}

CASE(closing_a_worker_ends_its_children_first)
{
    t_pair pair;
    char buffer[8];
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = t_record_event};
    hws_id op = 0;
    t_seen seen;

    t_pair_open(&pair, NULL);
    opts.callback_arg = &pair.record[1];
    CHECK_OK(hws_tag_recv(pair.worker[1], buffer, 8, 1, UINT64_MAX, &opts, &op));
    CHECK_OK(hws_tag_recv(pair.endpoint[1], buffer, 8, 1, UINT64_MAX, &opts, &op));
    CHECK_OK(hws_close(pair.worker[1]));
    CHECK_CODE(hws_listen(pair.worker[1], "127.0.0.1", 0, NULL, &op), HWS_E_CLOSING);
    while (hws_kind(pair.worker[1]) != HWS_E_STALE) {
        int32_t code = hws_close_wait(pair.worker[1], T_MS);
        CHECK(code == HWS_OK || code == HWS_E_TIMED_OUT || code == HWS_E_STALE);
        (void)hws_worker_progress(pair.worker[0]);
    }
    CHECK_EQ(hws_kind(pair.endpoint[1]), HWS_E_STALE);
    CHECK_EQ(hws_kind(pair.listener), HWS_E_STALE);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_TAG_RECV, 0), 2);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.endpoint[1]), 1);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.listener), 1);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.worker[1]), 1);
    seen = t_record_at(&pair.record[1], t_record_count(&pair.record[1]) - 1);
    CHECK(seen.event.source == pair.worker[1] && seen.event.kind == HWS_EVENT_CLOSED);
    t_pair_close(&pair);
}

CASE(close_wait)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    /* Closing flushes to a peer that makes no progress meanwhile: nothing was sent, so it ends. */
    CHECK_OK(hws_close_wait(pair.endpoint[0], t_patience()));
    CHECK_EQ(hws_kind(pair.endpoint[0]), HWS_E_STALE);
    CHECK_CODE(hws_close_wait(pair.endpoint[0], T_SECOND), HWS_E_STALE);
    CHECK_OK(hws_close_wait(pair.context, t_patience()));
    t_record_free(&pair.record[0]);
    t_record_free(&pair.record[1]);
}

CASE(reconnects)
{
    t_pair pair;

    t_pair_listen(&pair, NULL);
    for (int i = 0; i < 30; i++) {
        t_pair_connect(&pair, NULL, &pair.endpoint[0], &pair.endpoint[1]);
        exchange(&pair, pair.endpoint[0], pair.endpoint[1]);
        CHECK_OK(hws_close(pair.endpoint[i % 2]));
        gone(&pair, pair.endpoint[i % 2]);
        CHECK_OK(hws_close(pair.endpoint[1 - i % 2]));
        gone(&pair, pair.endpoint[1 - i % 2]);
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
