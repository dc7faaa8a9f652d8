/*
 * The system asks idle peers whether they are there, on the socket of each end of a TCP connection: of one that comes
 * alone at once, of many that come together soon.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define COUNT 12
#define HIGHEST 1024

/* Connected sockets that the system looks after, and that programs started by this one do not get. */
static int looked_after(void)
{
    int n = 0;

    for (int fd = 0; fd < HIGHEST; fd++) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof peer, size = sizeof(int);
        int on = 0;

        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
            (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) &&
            getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &size) == 0 && on &&
            (fcntl(fd, F_GETFD) & FD_CLOEXEC)) {
            n++;
        }
    }
    return n;
}

CASE(one_and_many)
{
    t_pair_opts opts = {.endpoint_flags = HWS_ENDPOINT_TCP_ONLY};
    hws_id client[COUNT], server[COUNT];
    t_pair pair;

    t_pair_open(&pair, &opts);
    UNTIL(&pair, looked_after() >= 2);
    for (int i = 0; i < COUNT; i++) {
        t_pair_connect(&pair, &opts, &client[i], &server[i]);
    }
    UNTIL(&pair, looked_after() >= 2 * (COUNT + 1));
    t_pair_close(&pair);
}

CASES_MAIN
