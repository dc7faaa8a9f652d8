#include "address.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESSES 32u

/* The bytes of the address alone, and how many; 0 in other families than IPv4 and IPv6. */
static size_t host_bytes(const struct sockaddr_storage *a, const void **at)
{
    if (a->ss_family == AF_INET6) {
        *at = &((const struct sockaddr_in6 *)a)->sin6_addr;
        return sizeof(struct in6_addr);
    }
    *at = &((const struct sockaddr_in *)a)->sin_addr;
    return a->ss_family == AF_INET ? sizeof(struct in_addr) : 0;
}

void hws__address_host(const struct sockaddr_storage *a, char *text, size_t size)
{
    const void *in;

    text[0] = '\0';
    if (host_bytes(a, &in) != 0) {
        inet_ntop(a->ss_family, in, text, (socklen_t)size);
    }
}

uint16_t hws__address_port(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                                          : ((const struct sockaddr_in *)a)->sin_port);
}

void hws__address_text(const struct sockaddr_storage *a, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN];

    hws__address_host(a, host, sizeof host);
    if (host[0] == '\0') {
        text[0] = '\0';
        return;
    }
    snprintf(text, size, a->ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u", host,
             (unsigned)hws__address_port(a));
}

bool hws__address_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const void *x, *y;
    size_t length = host_bytes(a, &x);

    return length != 0 && length == host_bytes(b, &y) && memcmp(x, y, length) == 0;
}

bool hws__address_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    return hws__address_port(a) == hws__address_port(b) && hws__address_same_host(a, b);
}

int hws__address_order(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const void *x, *y;
    size_t length = host_bytes(a, &x);
    int by_port = hws__address_port(a) - hws__address_port(b);
    int by_family = a->ss_family - b->ss_family;

    (void)host_bytes(b, &y);
    return by_port != 0 ? by_port : by_family != 0 ? by_family : memcmp(x, y, length);
}

socklen_t hws__address_length(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

struct sockaddr_storage hws__address_for_ucx(const struct sockaddr_storage *a)
{
    struct sockaddr_storage to = *a;
    struct sockaddr_in *in = (struct sockaddr_in *)&to;

    if (a->ss_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET) {
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    return to;
}

uint32_t hws__address_resolve(const char *host, uint16_t port, bool numeric, bool passive,
                              struct sockaddr_storage **out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0) |
                                         (passive ? AI_PASSIVE : 0)};
    struct addrinfo *list, *a;
    char service[8];
    uint32_t n = 0;
    int r;

    snprintf(service, sizeof service, "%u", (unsigned)port);
    if ((r = getaddrinfo(host, service, &hints, &list)) != 0) {
        errno = r == EAI_MEMORY ? ENOMEM : 0;
        return 0;
    }
    if ((*out = calloc(ADDRESSES, sizeof **out)) != NULL) {
        for (a = list; a != NULL && n < ADDRESSES; a = a->ai_next) {
            if (a->ai_family == AF_INET || a->ai_family == AF_INET6) {
                memcpy(&(*out)[n++], a->ai_addr, a->ai_addrlen);
            }
        }
        if (n == 0) {
            free(*out);
            *out = NULL;
        }
        r = 0;
    } else {
        r = ENOMEM;
    }
    freeaddrinfo(list);
    errno = r;
    return n;
}

bool hws__address_is_here(const struct sockaddr_storage *a)
{
    int fd = socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool here = true;

    if (fd >= 0) {
        here = bind(fd, (const struct sockaddr *)a, hws__address_length(a)) == 0 ||
               errno != EADDRNOTAVAIL;
        close(fd);
    }
    return here;
}

bool hws__address_has_route(const struct sockaddr_storage *a)
{
    int fd = socket(a->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool has = fd < 0 || connect(fd, (const void *)a, hws__address_length(a)) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return has;
}
