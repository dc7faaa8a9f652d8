#include "sockets.h"
#include "address.h"
#include <dirent.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Call fn with each descriptor that an epoll set watches. */
static void for_each_watched(int epfd, void (*fn)(int fd, unsigned arg), unsigned arg)
{
    char path[48], line[128];
    FILE *f;
    int fd;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epfd);
    if ((f = fopen(path, "re")) == NULL) {
        return;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "tfd: %d", &fd) == 1) {
            fn(fd, arg);
        }
    }
    fclose(f);
}

static int option(int fd, int name)
{
    int value = 0;
    socklen_t length = sizeof value;

    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

static void watch(int fd, unsigned milliseconds)
{
    const int on = 1, seconds = 1, probes = 2;

    if (option(fd, SO_PROTOCOL) != IPPROTO_TCP) {
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
    if (option(fd, SO_KEEPALIVE) == 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
}

/* A transport's own epoll set: its sockets are one level below the worker's. */
static void watch_below(int fd, unsigned milliseconds)
{
    char path[48], target[32];
    ssize_t n;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    n = readlink(path, target, sizeof target - 1);
    if (n > 0) {
        target[n] = '\0';
        if (strcmp(target, "anon_inode:[eventpoll]") == 0) {
            for_each_watched(fd, watch, milliseconds);
        }
    }
}

void hws__sockets_watch_peer(int efd, unsigned milliseconds)
{
    for_each_watched(efd, watch_below, milliseconds);
}

static uint64_t inode_of(int fd)
{
    struct stat s;

    return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? (uint64_t)s.st_ino : 0;
}

uint32_t hws__sockets_accepted(uint16_t port, struct hws__accepted *out, uint32_t room)
{
    struct sockaddr_storage local;
    struct dirent *e;
    DIR *d = opendir("/proc/self/fd");
    uint32_t n = 0;

    if (d == NULL) {
        return 0;
    }
    while (n < room && (e = readdir(d)) != NULL) {
        socklen_t length = sizeof local;
        int fd = atoi(e->d_name);

        if (e->d_name[0] == '.' || fd == dirfd(d) || (out[n].inode = inode_of(fd)) == 0 ||
            getsockname(fd, (struct sockaddr *)&local, &length) != 0 ||
            (local.ss_family != AF_INET && local.ss_family != AF_INET6) ||
            hws__address_port(&local) != port) {
            continue;
        }
        length = sizeof out[n].peer;
        if (getpeername(fd, (struct sockaddr *)&out[n].peer, &length) == 0) {
            out[n++].fd = fd;
        }
    }
    closedir(d);
    return n;
}

void hws__sockets_shutdown(const struct hws__accepted *a)
{
    if (inode_of(a->fd) == a->inode) {
        shutdown(a->fd, SHUT_RDWR);
    }
}
