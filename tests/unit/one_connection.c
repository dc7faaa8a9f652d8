#include "one_connection.h"
#include "address.h"
#include <criterion/criterion.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener;
uint16_t t_port;

void t_listen(void)
{
    struct sockaddr_storage a = {.ss_family = AF_INET};
    socklen_t length = sizeof a;

    ((struct sockaddr_in *)&a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_assert_geq(listener = socket(AF_INET, SOCK_STREAM, 0), 0);
    cr_assert_eq(bind(listener, (struct sockaddr *)&a, sizeof(struct sockaddr_in)), 0);
    cr_assert_eq(listen(listener, 64), 0);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&a, &length), 0);
    t_port = hws__address_port(&a);
}

void t_stop_listening(void)
{
    close(listener);
}

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
    if (hws__address_port(&name) == t_port) {
        close(fd);
        return bound(from);
    }
    return fd;
}

int t_connect_from(uint32_t address, int *client)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(t_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int accepted;

    *client = bound(&from);
    cr_assert_eq(connect(*client, (struct sockaddr *)&to, sizeof to), 0);
    cr_assert_geq(accepted = accept(listener, NULL, NULL), 0);
    return accepted;
}

int t_connect_one(int *client)
{
    return t_connect_from(INADDR_LOOPBACK + 1, client);
}
