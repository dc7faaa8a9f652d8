/* Unit tests of sockets.c, on sockets of the test's own. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
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

/* A socket bound to an address, and to a port that is not the listener's: the kernel gives that one, too, to another
 * address. */
static int bound(const struct sockaddr_in *from)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    int fd;

    cr_assert_geq(fd = socket(AF_INET, SOCK_STREAM, 0), 0);
    cr_assert_eq(bind(fd, (const struct sockaddr *)from, sizeof *from), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&name, &length), 0);
    if (hws__address_port(&name) == port) {
        close(fd);
        return bound(from);
    }
    return fd;
}

/* One connection from an address of this machine: the accepted side, and the client's. */
static int connect_from(uint32_t address, int *client)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int accepted;

    *client = bound(&from);
    cr_assert_eq(connect(*client, (struct sockaddr *)&to, sizeof to), 0);
    cr_assert_geq(accepted = accept(listener, NULL, NULL), 0);
    return accepted;
}

/* As those between two hosts are, from another address. */
static int connect_one(int *client)
{
    return connect_from(INADDR_LOOPBACK + 1, client);
}

/* Those of the list that are on the listener's port. */
static size_t accepted_ones(const struct hws__connections *list,
                            const struct hws__connected **first)
{
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i].port == port && n++ == 0) {
            *first = &list->at[i];
        }
    }
    return n;
}

Test(sockets, a_listener_alone_has_no_connections)
{
    struct hws__connections list = {0};
    const struct hws__connected *one;

    hws__sockets_connected(&list);
    cr_assert_eq(accepted_ones(&list, &one), 0);
    free(list.at);
}

Test(sockets, connections_are_found_by_their_local_port)
{
    struct hws__connections list = {0};
    const struct hws__connected *one = NULL;
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    int client, accepted = connect_one(&client);
    char a[64], b[64];

    hws__sockets_connected(&list);
    cr_assert_eq(accepted_ones(&list, &one), 1);
    cr_assert_eq(one->fd, accepted);
    getsockname(client, (struct sockaddr *)&name, &length);
    hws__address_text(&name, a, sizeof a);
    hws__address_text(&one->peer, b, sizeof b);
    cr_assert_str_eq(a, b);
    close(client);
    close(accepted);
    hws__sockets_connected(&list);
    cr_assert_eq(accepted_ones(&list, &one), 0);
    free(list.at);
}

Test(sockets, the_list_grows_and_knows_each_socket_again)
{
    enum { MANY = 100 };
    struct hws__connections before = {0}, list = {0};
    const struct hws__connected *one;
    int client[MANY], accepted[MANY];

    for (int i = 0; i < MANY; i++) {
        accepted[i] = connect_one(&client[i]);
        if (i == MANY / 2 - 1) {
            hws__sockets_connected(&before);
        }
    }
    hws__sockets_connected(&list);
    cr_assert_eq(accepted_ones(&before, &one), MANY / 2);
    cr_assert_eq(accepted_ones(&list, &one), MANY);
    for (size_t i = 0, known = 0; i < list.n; i++) {
        known += list.at[i].port == port && hws__sockets_among(&before, &list.at[i]);
        cr_assert(hws__sockets_among(&list, &list.at[i]));
        cr_assert(i + 1 < list.n || known == MANY / 2, "%zu", known);
    }
    for (int i = 0; i < MANY; i++) {
        close(client[i]);
        close(accepted[i]);
    }
    free(before.at);
    free(list.at);
}

/* The one accepted connection, as it is listed. */
static struct hws__connected find_one(int accepted)
{
    struct hws__connections list = {0};
    const struct hws__connected *one = NULL;
    struct hws__connected found;

    hws__sockets_connected(&list);
    cr_assert_eq(accepted_ones(&list, &one), 1);
    found = *one;
    free(list.at);
    cr_assert_eq(found.fd, accepted);
    return found;
}

Test(sockets, shutdown_ends_the_connection)
{
    int client, accepted = connect_one(&client);
    struct hws__connected one = find_one(accepted);
    char byte;

    hws__sockets_shutdown(&one);
    cr_assert_eq(read(client, &byte, 1), 0, "the peer sees the end");
    close(client);
    close(accepted);
}

/* Between the look and the end the descriptor may have become another's. */
Test(sockets, a_descriptor_that_was_used_again_is_left_alone)
{
    int client, other, pair[2], accepted = connect_one(&client);
    struct hws__connected one = find_one(accepted);
    char byte = 'x';

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    cr_assert_eq(dup2(pair[0], accepted), accepted);
    hws__sockets_shutdown(&one);
    cr_assert_eq(write(pair[1], &byte, 1), 1);
    cr_assert_eq(read(accepted, &byte, 1), 1);
    other = dup(accepted);
    close(accepted);
    hws__sockets_shutdown(&one);
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

Test(sockets, a_connection_is_found_by_its_ends)
{
    struct sockaddr_storage here, there;
    socklen_t length = sizeof here, peer_length = sizeof there;
    int client, accepted = connect_one(&client);

    cr_assert_eq(getsockname(accepted, (struct sockaddr *)&here, &length), 0);
    cr_assert_eq(getpeername(accepted, (struct sockaddr *)&there, &peer_length), 0);
    cr_assert_eq(hws__sockets_find(-1, port, NULL, &there), accepted);
    cr_assert_eq(hws__sockets_find(-1, port, &here, &there), accepted);
    cr_assert_eq(hws__sockets_find_dial(-1, hws__address_port(&there), &here), client);
    /* No other is looked at if the number is known. */
    cr_assert_eq(hws__sockets_find(accepted, port, &here, &there), accepted);
    cr_assert_eq(hws__sockets_find(client, port, &here, &there), -1);
    close(accepted);
    cr_assert_eq(hws__sockets_find(accepted, port, &here, &there), -1);
    cr_assert_eq(hws__sockets_find(-1, port, &here, &there), -1);
    close(client);
}

Test(sockets, one_far_from_the_last_is_found)
{
    struct sockaddr_storage there;
    socklen_t length = sizeof there;
    int client, accepted = connect_one(&client), high;

    cr_assert_eq(getpeername(accepted, (struct sockaddr *)&there, &length), 0);
    cr_assert_eq(hws__sockets_find(-1, port, NULL, &there), accepted);
    cr_assert_geq(high = fcntl(accepted, F_DUPFD, 900), 900);
    close(accepted);
    cr_assert_eq(hws__sockets_find(-1, port, NULL, &there), high);
    cr_assert_geq(accepted = dup(high), 0); /* a low number again */
    close(high);
    cr_assert_eq(hws__sockets_find(-1, port, NULL, &there), accepted);
    close(accepted);
    close(client);
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
    hws__sockets_watch_peer(outer, &hws__silence_default);
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
    hws__sockets_watch_peer(outer, &hws__silence_default);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPIDLE), 1);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPINTVL), 1);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPCNT), 4);
    cr_assert_eq(keepalive(accepted), 1);
    cr_assert_eq(keepalive(client), 0, "others are left alone");
    close(inner);
    close(outer);
    hws__sockets_watch_peer(-1, &hws__silence_default);
    hws__sockets_watch_peer(outer, &hws__silence_default);
    close(client);
    close(accepted);
}

Test(sockets, within_one_host_the_kernel_asks_more_often)
{
    int client, accepted = connect_from(INADDR_LOOPBACK, &client);
    int outer = epoll_create1(0), inner = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};

    cr_assert_eq(epoll_ctl(inner, EPOLL_CTL_ADD, accepted, &e), 0);
    cr_assert_eq(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &e), 0);
    hws__sockets_watch_peer(outer, &hws__silence_default);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPIDLE), 1);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPCNT), 4);
    close(inner);
    close(outer);
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
    cr_assert_neq(hws__sockets_end_lost(outer, &hws__silence_default, false), HWS__LOOK_SOON,
                  "nothing is on its way");
    while (send(client, data, sizeof data, MSG_DONTWAIT) > 0) {}
    for (int i = 0; i < 40; i++) {
        usleep(100000);
        cr_assert_eq(hws__sockets_end_lost(outer, &hws__silence_default, false), HWS__LOOK_SOON,
                     "more is on its way than the peer takes");
    }
    while (recv(accepted, data, sizeof data, MSG_DONTWAIT) > 0) {}
    /* Nothing on its way for longer than keepalive's question and its answer take. */
    hws__sockets_watch_peer(outer, &hws__silence_default);
    for (int i = 0; i < 30; i++) {
        usleep(100000);
        hws__sockets_end_lost(outer, &hws__silence_default, true);
    }
    cr_assert_gt(send(client, data, 1, MSG_DONTWAIT | MSG_NOSIGNAL), 0, "shut down");
    close(inner);
    close(outer);
    close(client);
    close(accepted);
}
