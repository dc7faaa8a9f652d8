/* Unit tests of data_sockets.c, on sockets of the test's own. WITH: one_connection.c */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "data_sockets.h"
#include "one_connection.h"

/* As in UCX: the worker's epoll set watches the transports' ones, and these the sockets. */
static int outer, inner;
static struct hws__data_sockets list;

static void watch(int set, int fd)
{
    struct epoll_event e = {.events = EPOLLIN};

    cr_assert_eq(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e), 0);
}

static void setup(void)
{
    t_listen();
    outer = epoll_create1(0);
    inner = epoll_create1(0);
    watch(outer, inner);
}

static void teardown(void)
{
    hws__data_sockets_free(&list);
    close(inner);
    close(outer);
    t_stop_listening();
}

TestSuite(data_sockets, .init = setup, .fini = teardown);

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
Test(data_sockets, keepalive_of_others_is_left_alone)
{
    const int on = 1, idle = 77;
    int client, accepted = t_connect_one(&client);

    setsockopt(accepted, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(accepted, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    watch(inner, accepted);
    hws__data_sockets_watch(&list, outer, &hws__silence_default);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPIDLE), 77);
    close(client);
    close(accepted);
}

Test(data_sockets, keepalive_reaches_the_tcp_sockets_of_a_worker)
{
    int client, accepted = t_connect_one(&client), pipes[2];

    cr_assert_eq(pipe(pipes), 0);
    watch(inner, accepted);
    watch(inner, pipes[0]);
    watch(outer, pipes[0]);
    hws__data_sockets_watch(&list, outer, &hws__silence_default);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPIDLE), 1);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPINTVL), 1);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPCNT), 4);
    cr_assert_eq(keepalive(accepted), 1);
    cr_assert_eq(keepalive(client), 0, "others are left alone");
    hws__data_sockets_watch(&list, -1, &hws__silence_default);
    cr_assert_eq(list.n, 0);
    close(client);
    close(accepted);
}

Test(data_sockets, within_one_host_the_kernel_asks_more_often)
{
    int client, accepted = t_connect_from(INADDR_LOOPBACK, &client);

    watch(inner, accepted);
    hws__data_sockets_watch(&list, outer, &hws__silence_default);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPIDLE), 1);
    cr_assert_eq(tcp_option(accepted, TCP_KEEPCNT), 4);
    close(client);
    close(accepted);
}

/* UCX closes its sockets unasked, and the program gets their numbers. */
Test(data_sockets, a_number_that_another_has_now_is_left_alone)
{
    int client, accepted = t_connect_one(&client), pipes[2];
    char byte = 'x';

    watch(inner, accepted);
    hws__data_sockets_watch(&list, outer, &hws__silence_default);
    cr_assert_eq(list.n, 1);
    cr_assert_eq(pipe(pipes), 0);
    cr_assert_eq(dup2(pipes[0], accepted), accepted);
    cr_assert_eq(hws__data_sockets_end_lost(&list, &hws__silence_default, true), HWS__LOOK_NEVER);
    cr_assert_eq(write(pipes[1], &byte, 1), 1);
    cr_assert_eq(read(accepted, &byte, 1), 1);
    hws__data_sockets_watch(&list, outer, &hws__silence_default);
    cr_assert_eq(list.n, 0);
    close(client);
    close(accepted);
}

/* A peer that is there and takes nothing is not lost, however long that lasts. */
Test(data_sockets, a_peer_that_reads_nothing_is_not_lost, .timeout = 60)
{
    int client, accepted = t_connect_one(&client);
    static char data[1 << 16];

    watch(inner, client);
    hws__data_sockets_watch(&list, outer, &hws__silence_default);
    cr_assert_neq(hws__data_sockets_end_lost(&list, &hws__silence_default, false), HWS__LOOK_SOON,
                  "nothing is on its way");
    while (send(client, data, sizeof data, MSG_DONTWAIT) > 0) {}
    for (int i = 0; i < 40; i++) {
        usleep(100000);
        cr_assert_eq(hws__data_sockets_end_lost(&list, &hws__silence_default, false),
                     HWS__LOOK_SOON, "more is on its way than the peer takes");
    }
    while (recv(accepted, data, sizeof data, MSG_DONTWAIT) > 0) {}
    /* Nothing on its way for longer than keepalive's question and its answer take. */
    hws__data_sockets_watch(&list, outer, &hws__silence_default);
    for (int i = 0; i < 30; i++) {
        usleep(100000);
        hws__data_sockets_end_lost(&list, &hws__silence_default, true);
    }
    cr_assert_gt(send(client, data, 1, MSG_DONTWAIT | MSG_NOSIGNAL), 0, "shut down");
    close(client);
    close(accepted);
}
