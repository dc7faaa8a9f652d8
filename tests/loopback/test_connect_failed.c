/*
 * Connections that do not come to be: refused, reset, too late, given up; and peers that talk nonsense or say nothing.
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

CASE(refused)
{
    t_pair pair;
    t_seen seen;

    t_pair_listen(&pair, NULL);
    hws_id client = t_dial(&pair, "127.0.0.1", t_closed_port(), 0, NULL);
    seen = t_dialled(&pair, client);
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

CASE(unresolvable_name)
{
    t_pair pair;

    t_pair_listen(&pair, NULL);
    hws_id client = t_dial(&pair, "no-such-host.invalid", 1, 0, NULL);
    CHECK_CODE(t_dialled(&pair, client).event.status, HWS_E_RESOLVE);
    t_pair_close(&pair);
}

CASE(deadline)
{
    t_pair pair;
    uint16_t port;
    int fd = t_plain_listener(&port);
    uint64_t start = t_now();

    t_pair_listen(&pair, NULL);
    hws_id client = t_dial(&pair, "127.0.0.1", port, 300 * T_MS, NULL);
    CHECK_CODE(t_dialled(&pair, client).event.status, HWS_E_TIMED_OUT);
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
    hws_id client = t_dial(&pair, "127.0.0.1", port, 5 * T_SECOND, NULL);
    /* Dialling needs progress: it may wait for a UCX worker of its own. */
    CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    UNTIL(&pair, (taken = accept(fd, NULL, NULL)) >= 0);
    close(taken);
    close(fd);
    seen = t_dialled(&pair, client);
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
        hws_id client = t_dial(&pair, "127.0.0.1", port, 300 * T_MS, NULL);

        UNTIL(&pair, (taken = accept(fd, NULL, NULL)) >= 0);
        talk(taken, &nonsense[i]);
        CHECK(t_dialled(&pair, client).event.status < 0);
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
    info = t_listener_info(listener);
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
    hws_id client = t_dial(&pair, "127.0.0.1", port, 0, &op);
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_OK(hws_cancel(op));
    CHECK_CODE(t_dialled(&pair, client).event.status, HWS_E_CANCELED);
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
    hws_id client = t_dial(&pair, "127.0.0.1", port, 0, NULL);
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_OK(hws_close(client));
    t_gone(&pair, client);
    CHECK_EQ(t_record_kinds(&pair.record[0], HWS_EVENT_CONNECT, client), 1);
    CHECK_CODE(t_dialled(&pair, client).event.status, HWS_E_CANCELED);
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
        client[i] = t_dial(&pair, "127.0.0.1", port, 0, NULL);
        CHECK_OK(i % 4 ? hws_abort(client[i]) : hws_close(client[i]));
    }
    for (int i = 0; i < 300; i++) {
        CHECK_CODE(t_dialled(&pair, client[i]).event.status, HWS_E_CANCELED);
    }
    close(fd);
    t_pair_close(&pair);
}

CASE(closed_at_once)
{
    t_pair pair;

    t_pair_listen(&pair, NULL);
    for (int i = 0; i < 20; i++) {
        hws_id client = t_dial(&pair, "127.0.0.1", pair.port, 0, NULL);
        for (int j = 0; j < i; j++) {
            t_pair_step(&pair);
        }
        CHECK_OK(hws_close(client));
        t_gone(&pair, client);
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
    hws_id client = t_dial(&pair, "127.0.0.1", port, 0, NULL);
    CHECK_CODE(hws_tag_send(client, &data, 8, 1, NULL, &op), HWS_E_NOT_CONNECTED);
    CHECK_CODE(hws_am_send(client, 1, NULL, 0, &data, 8, NULL, &op), HWS_E_NOT_CONNECTED);
    CHECK_CODE(hws_stream_send(client, &data, 8, NULL, &op), HWS_E_NOT_CONNECTED);
    close(fd);
    t_pair_close(&pair);
}

CASES_MAIN
