/* Unit tests of sockets.c, on sockets of the test's own. WITH: one_connection.c */
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
#include "one_connection.h"
#include "sockets.h"

TestSuite(sockets, .init = t_listen, .fini = t_stop_listening);

/* Those of the list that are on the listener's port. */
static size_t accepted_ones(const struct hws__connections *list,
                            const struct hws__connected **first)
{
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i].port == t_port && n++ == 0) {
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
    int client, accepted = t_connect_one(&client);
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
        accepted[i] = t_connect_one(&client[i]);
        if (i == MANY / 2 - 1) {
            hws__sockets_connected(&before);
        }
    }
    hws__sockets_connected(&list);
    cr_assert_eq(accepted_ones(&before, &one), MANY / 2);
    cr_assert_eq(accepted_ones(&list, &one), MANY);
    for (size_t i = 0, known = 0; i < list.n; i++) {
        known += list.at[i].port == t_port && hws__sockets_among(&before, &list.at[i]);
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
    int client, accepted = t_connect_one(&client);
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
    int client, other, pair[2], accepted = t_connect_one(&client);
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

Test(sockets, a_connection_is_found_by_its_ends)
{
    struct sockaddr_storage here, there;
    socklen_t length = sizeof here, peer_length = sizeof there;
    int client, accepted = t_connect_one(&client);

    cr_assert_eq(getsockname(accepted, (struct sockaddr *)&here, &length), 0);
    cr_assert_eq(getpeername(accepted, (struct sockaddr *)&there, &peer_length), 0);
    cr_assert_eq(hws__sockets_find(-1, t_port, NULL, &there), accepted);
    cr_assert_eq(hws__sockets_find(-1, t_port, &here, &there), accepted);
    cr_assert_eq(hws__sockets_find_dial(-1, hws__address_port(&there), &here), client);
    /* No other is looked at if the number is known. */
    cr_assert_eq(hws__sockets_find(accepted, t_port, &here, &there), accepted);
    cr_assert_eq(hws__sockets_find(client, t_port, &here, &there), -1);
    close(accepted);
    cr_assert_eq(hws__sockets_find(accepted, t_port, &here, &there), -1);
    cr_assert_eq(hws__sockets_find(-1, t_port, &here, &there), -1);
    close(client);
}

Test(sockets, one_far_from_the_last_is_found)
{
    struct sockaddr_storage there;
    socklen_t length = sizeof there;
    int client, accepted = t_connect_one(&client), high;

    cr_assert_eq(getpeername(accepted, (struct sockaddr *)&there, &length), 0);
    cr_assert_eq(hws__sockets_find(-1, t_port, NULL, &there), accepted);
    cr_assert_geq(high = fcntl(accepted, F_DUPFD, 900), 900);
    close(accepted);
    cr_assert_eq(hws__sockets_find(-1, t_port, NULL, &there), high);
    cr_assert_geq(accepted = dup(high), 0); /* a low number again */
    close(high);
    cr_assert_eq(hws__sockets_find(-1, t_port, NULL, &there), accepted);
    close(accepted);
    close(client);
}
