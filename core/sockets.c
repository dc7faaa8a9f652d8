#include "sockets.h"
#include "address.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void hws__sockets_watched(int set, hws__watched_fn *fn, void *arg)
{
    struct hws__watched w = {.set = set};
    char path[48], line[128];
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", set);
    if ((f = fopen(path, "re")) == NULL) {
        return;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "tfd: %d events: %" SCNx32 " data: %" SCNx64, &w.fd, &w.events, &w.data) ==
            3) {
            fn(&w, arg);
        }
    }
    fclose(f);
}

struct below {
    hws__watched_fn *fn;
    void *arg;
};

/* A transport's own epoll set: its sockets are one level below the worker's. */
static void visit_below(const struct hws__watched *w, void *arg)
{
    const struct below *b = arg;
    char path[48], target[32];
    ssize_t n;

    snprintf(path, sizeof path, "/proc/self/fd/%d", w->fd);
    n = readlink(path, target, sizeof target - 1);
    if (n > 0) {
        target[n] = '\0';
        if (strcmp(target, "anon_inode:[eventpoll]") == 0) {
            hws__sockets_watched(w->fd, b->fn, b->arg);
        }
    }
}

void hws__sockets_watched_below(int efd, hws__watched_fn *fn, void *arg)
{
    struct below b = {fn, arg};

    hws__sockets_watched(efd, visit_below, &b);
}

int hws__sockets_option(int fd, int name)
{
    int value = 0;
    socklen_t length = sizeof value;

    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

void hws__sockets_close_on_exec(int fd)
{
    int flags = fcntl(fd, F_GETFD);

    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) {
        fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    }
}

uint64_t hws__sockets_inode(int fd)
{
    struct stat s;

    return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? (uint64_t)s.st_ino : 0;
}

/* No descriptor is left to read a folder by, so all below the limit are in use. */
static int each_number(bool (*fn)(int fd, void *arg), void *arg)
{
    struct rlimit limit = {0};

    getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = 0; fd < (int)limit.rlim_cur; fd++) {
        if (fn(fd, arg)) {
            return fd;
        }
    }
    return -1;
}

int hws__sockets_each(bool (*fn)(int fd, void *arg), void *arg)
{
    struct dirent *e;
    DIR *d = opendir("/proc/self/fd");
    int found = -1;

    if (d == NULL) {
        return errno == EMFILE ? each_number(fn, arg) : -1;
    }
    while (found < 0 && (e = readdir(d)) != NULL) {
        int fd = atoi(e->d_name);

        if (e->d_name[0] != '.' && fd != dirfd(d) && fn(fd, arg)) {
            found = fd;
        }
    }
    closedir(d);
    return found;
}

/* The local port of an IP socket; 0: none. */
static uint16_t local_port(int fd, struct sockaddr_storage *local)
{
    socklen_t length = sizeof *local;

    if (getsockname(fd, (struct sockaddr *)local, &length) != 0 ||
        (local->ss_family != AF_INET && local->ss_family != AF_INET6)) {
        return 0;
    }
    return hws__address_port(local);
}

bool hws__sockets_is_on(int fd, uint16_t port, struct sockaddr_storage *local)
{
    return local_port(fd, local) == port && port != 0;
}

uint16_t hws__sockets_listening(int fd)
{
    struct sockaddr_storage local;
    uint16_t port = local_port(fd, &local);

    return port != 0 && hws__sockets_option(fd, SO_ACCEPTCONN) == 1 ? port : 0;
}

bool hws__sockets_listens(int fd, uint16_t port)
{
    return port != 0 && hws__sockets_listening(fd) == port;
}

struct ends {
    uint16_t port;
    bool connecting; /* may be not connected yet */
    const struct sockaddr_storage *local, *peer;
};

static bool has_ends(int fd, void *arg)
{
    const struct ends *ends = arg;
    struct sockaddr_storage a;
    socklen_t length = sizeof a;

    if (!hws__sockets_is_on(fd, ends->port, &a) ||
        (ends->local != NULL && !hws__address_same(&a, ends->local))) {
        return false;
    }
    if (getpeername(fd, (struct sockaddr *)&a, &length) != 0) {
        return ends->connecting && hws__sockets_option(fd, SO_ACCEPTCONN) == 0;
    }
    return ends->peer != NULL && hws__address_same(&a, ends->peer);
}

/* The first from one number to another, which is the quicker way: no list is made. */
static int among_numbers(int from, int to, struct ends *ends)
{
    for (int fd = from > 0 ? from : 0; fd < to; fd++) {
        if (has_ends(fd, ends)) {
            return fd;
        }
    }
    return -1;
}

static int find(int known, struct ends ends)
{
    enum { NEAR = 32 };
    /* Connections that were made one after the other are often looked for so: their numbers are close. */
    static _Atomic int last, highest;
    int near = atomic_load(&last), top = atomic_load(&highest) + NEAR, found;

    if (known >= 0) {
        return has_ends(known, &ends) ? known : -1;
    }
    found = among_numbers(near - NEAR, near + NEAR, &ends);
    found = found < 0 ? among_numbers(0, top, &ends) : found;
    found = found < 0 ? hws__sockets_each(has_ends, &ends) : found;
    if (found >= 0) {
        atomic_store(&last, found);
        atomic_store(&highest, found > top - NEAR ? found : top - NEAR);
    }
    return found;
}

int hws__sockets_find(int known, uint16_t port, const struct sockaddr_storage *local,
                      const struct sockaddr_storage *peer)
{
    return find(known, (struct ends){port, peer == NULL, local, peer});
}

int hws__sockets_find_dial(int known, uint16_t port, const struct sockaddr_storage *peer)
{
    return find(known, (struct ends){port, true, NULL, peer});
}

/* Room for one more. */
static struct hws__connected *reserve(struct hws__connections *list)
{
    if (list->n == list->room) {
        size_t room = list->room != 0 ? 2 * list->room : 64;
        struct hws__connected *at = realloc(list->at, room * sizeof *at);

        if (at == NULL) {
            return NULL;
        }
        list->at = at;
        list->room = room;
    }
    return &list->at[list->n];
}

static bool add_connected(int fd, void *arg)
{
    struct hws__connections *list = arg;
    struct hws__connected *c = reserve(list);
    struct sockaddr_storage local;
    socklen_t length = sizeof c->peer;

    if (c == NULL) {
        return true;
    }
    /* The quickest question first: most descriptors are no sockets. */
    if ((c->port = local_port(fd, &local)) != 0 &&
        getpeername(fd, (struct sockaddr *)&c->peer, &length) == 0 &&
        (c->inode = hws__sockets_inode(fd)) != 0) {
        c->fd = fd;
        list->n++;
    }
    return false;
}

static int by_inode(const void *a, const void *b)
{
    const struct hws__connected *x = a, *y = b;

    return (x->inode > y->inode) - (x->inode < y->inode);
}

void hws__sockets_connected(struct hws__connections *list)
{
    list->n = 0;
    hws__sockets_each(add_connected, list);
    if (list->n != 0) {
        qsort(list->at, list->n, sizeof *list->at, by_inode);
    }
}

bool hws__sockets_among(const struct hws__connections *list, const struct hws__connected *c)
{
    return list->n != 0 && bsearch(c, list->at, list->n, sizeof *c, by_inode) != NULL;
}

void hws__sockets_shutdown(const struct hws__connected *c)
{
    if (hws__sockets_inode(c->fd) == c->inode) {
        shutdown(c->fd, SHUT_RDWR);
    }
}
