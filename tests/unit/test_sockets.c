/* Unit tests of sockets.c, on sockets of the test's own. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "address.h"
#include "sockets.h"

static int listener;
static uint16_t port;

static void setup(void)
{
    struct sockaddr_storage a = {.ss_family = AF_INET};
    socklen_t length = sizeof a;

    ((struct sockaddr_in *)&a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_assert_geq(listener = socket(AF_INET, SOCK_STREAM, 0), 0);
    cr_assert_eq(bind(listener, (struct sockaddr *)&a, sizeof(struct sockaddr_in)), 0);
    cr_assert_eq(listen(listener, 64), 0);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&a, &length), 0);
    port = hws__address_port(&a);
}

static void teardown(void)
{
    close(listener);
}

TestSuite(sockets, .init = setup, .fini = teardown);

/* One connection: the accepted side, and the client's. */
static int connect_one(int *client)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int accepted;

    cr_assert_geq(*client = socket(AF_INET, SOCK_STREAM, 0), 0);
    cr_assert_eq(connect(*client, (struct sockaddr *)&to, sizeof to), 0);
    cr_assert_geq(accepted = accept(listener, NULL, NULL), 0);
    return accepted;
}

Test(sockets, a_listener_alone_has_no_connections)
{
    struct hws__accepted out[4];

    cr_assert_eq(hws__sockets_accepted(port, out, 4), 0);
}

Test(sockets, accepted_connections_are_found_by_their_local_port)
{
    struct hws__accepted out[4];
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    int client, accepted = connect_one(&client);
    char a[64], b[64];

    cr_assert_eq(hws__sockets_accepted(port, out, 4), 1);
    cr_assert_eq(out[0].fd, accepted);
    getsockname(client, (struct sockaddr *)&name, &length);
    hws__address_text(&name, a, sizeof a);
    hws__address_text(&out[0].peer, b, sizeof b);
    cr_assert_str_eq(a, b);
    cr_assert_eq(hws__sockets_accepted((uint16_t)(port ^ 1), out, 4), 0);
    close(client);
    close(accepted);
    cr_assert_eq(hws__sockets_accepted(port, out, 4), 0);
}

Test(sockets, the_room_is_not_overrun)
{
    struct hws__accepted out[3];
    int client[5], accepted[5];

    for (int i = 0; i < 5; i++) {
        accepted[i] = connect_one(&client[i]);
    }
    memset(&out[2], 0x5a, sizeof out[2]);
    cr_assert_eq(hws__sockets_accepted(port, out, 2), 2);
    for (size_t i = 0; i < sizeof out[2]; i++) {
        cr_assert_eq(((unsigned char *)&out[2])[i], 0x5a);
    }
    cr_assert_eq(hws__sockets_accepted(port, out, 0), 0);
    for (int i = 0; i < 5; i++) {
        close(client[i]);
        close(accepted[i]);
    }
}

Test(sockets, shutdown_ends_the_connection)
{
    struct hws__accepted out[1];
    int client, accepted = connect_one(&client);
    char byte;

    cr_assert_eq(hws__sockets_accepted(port, out, 1), 1);
    hws__sockets_shutdown(&out[0]);
    cr_assert_eq(read(client, &byte, 1), 0, "the peer sees the end");
    close(client);
    close(accepted);
}

/* Between the look and the end the descriptor may have become another's. */
Test(sockets, a_descriptor_that_was_used_again_is_left_alone)
{
    struct hws__accepted out[1];
    int client, other, pair[2], accepted = connect_one(&client);
    char byte = 'x';

    cr_assert_eq(hws__sockets_accepted(port, out, 1), 1);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    cr_assert_eq(dup2(pair[0], accepted), accepted);
    hws__sockets_shutdown(&out[0]);
    cr_assert_eq(write(pair[1], &byte, 1), 1);
    cr_assert_eq(read(accepted, &byte, 1), 1);
    other = dup(accepted);
    close(accepted);
    hws__sockets_shutdown(&out[0]);
    close(other);
    close(pair[0]);
    close(pair[1]);
    close(client);
}

static int tcp_option(int fd, int name)
{
    socklen_t length = sizeof(int);
    int value = 0;

    cr_assert_eq(getsockopt(fd, IPPROTO_TCP, name, &value, &length), 0);
    return value;
}

static int keepalive(int fd)
{
    socklen_t length = sizeof(int);
    int value = 0;

    cr_assert_eq(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length), 0);
    return value;
}

/* What UCX, by the user's configuration, has set is left as it is. */
Test(sockets, keepalive_of_others_is_left_alone)
{
    const int on = 1, idle = 77;
    int client, accepted = connect_one(&client);
    int outer = epoll_create1(0), inner = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};

    setsockopt(accepted, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(accepted, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    cr_assert_eq(epoll_ctl(inner, EPOLL_CTL_ADD, accepted, &e), 0);
    cr_assert_eq(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &e), 0);
    hws__sockets_watch_peer(outer);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPIDLE), 77);
    close(inner);
    close(outer);
    close(client);
    close(accepted);
}

/* UCX: the worker's epoll set watches the transports' ones, and these the sockets. */
Test(sockets, keepalive_reaches_the_tcp_sockets_of_a_worker)
{
    int client, accepted = connect_one(&client), pipes[2];
    int outer = epoll_create1(0), inner = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};

    cr_assert_eq(pipe(pipes), 0);
    cr_assert_eq(epoll_ctl(inner, EPOLL_CTL_ADD, accepted, &e), 0);
    cr_assert_eq(epoll_ctl(inner, EPOLL_CTL_ADD, pipes[0], &e), 0);
    cr_assert_eq(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &e), 0);
    cr_assert_eq(epoll_ctl(outer, EPOLL_CTL_ADD, pipes[0], &e), 0);
    hws__sockets_watch_peer(outer);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPIDLE), 1);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPINTVL), 1);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPCNT), 1);
    cr_assert_eq(keepalive(accepted), 1);
    cr_assert_eq(keepalive(client), 0, "others are left alone");
    close(inner);
    close(outer);
    hws__sockets_watch_peer(-1);
    hws__sockets_watch_peer(outer);
    close(client);
    close(accepted);
}

/* A peer that is there and takes nothing is not lost, however long that lasts. */
Test(sockets, a_peer_that_reads_nothing_is_not_lost, .timeout = 60)
{
    int client, accepted = connect_one(&client);
    int outer = epoll_create1(0), inner = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};
    static char data[1 << 16];

    cr_assert_eq(epoll_ctl(inner, EPOLL_CTL_ADD, client, &e), 0);
    cr_assert_eq(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &e), 0);
    cr_assert_not(hws__sockets_end_lost(outer, false), "nothing is on its way");
    while (send(client, data, sizeof data, MSG_DONTWAIT) > 0) {}
    for (int i = 0; i < 40; i++) {
        usleep(100000);
        cr_assert(hws__sockets_end_lost(outer, false), "more is on its way than the peer takes");
    }
    while (recv(accepted, data, sizeof data, MSG_DONTWAIT) > 0) {}
    /* Nothing on its way for longer than keepalive's question and its answer take. */
    hws__sockets_watch_peer(outer);
    for (int i = 0; i < 30; i++) {
        usleep(100000);
        hws__sockets_end_lost(outer, true);
    }
    cr_assert_gt(send(client, data, 1, MSG_DONTWAIT | MSG_NOSIGNAL), 0, "shut down");
    close(inner);
    close(outer);
    close(client);
    close(accepted);
}
