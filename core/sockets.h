/*
 * UCX's TCP sockets, found through the kernel: UCX has no call for what must be done with them.
 */
#ifndef HWS_CORE_SOCKETS_H
#define HWS_CORE_SOCKETS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What an epoll set watches. */
struct hws__watched {
    int fd, set;
    uint32_t events; /* asked for */
    uint64_t data;   /* the caller's own, of the set's owner */
};
typedef void hws__watched_fn(const struct hws__watched *w, void *arg);

/** Call fn with each descriptor in a set. */
void hws__sockets_watched(int set, hws__watched_fn *fn, void *arg);
/** Call fn with each in the sets that one watches: the sockets of a UCX worker, by its event descriptor. */
void hws__sockets_watched_below(int efd, hws__watched_fn *fn, void *arg);

/**
 * Keep one of UCX's sockets, which it opens without that flag, from programs that this one starts: with a copy in
 * another process the peer would not learn of this one's end, and a port would stay taken.
 */
void hws__sockets_close_on_exec(int fd);

/** An option of SOL_SOCKET; -1: it has none of that name. */
int hws__sockets_option(int fd, int name);
/** What a socket is, as long as it is open, whatever its number; 0: no socket. */
uint64_t hws__sockets_inode(int fd);
/** Call fn with each descriptor of this process until it returns true. Returns that one, or -1. */
int hws__sockets_each(bool (*fn)(int fd, void *arg), void *arg);
/** fd is a TCP socket on a local port; its address. */
bool hws__sockets_is_on(int fd, uint16_t port, struct sockaddr_storage *local);
/** fd is a socket that listens on a local port. */
bool hws__sockets_listens(int fd, uint16_t port);
/** The port on which fd listens; 0: it does not. */
uint16_t hws__sockets_listening(int fd);

/** Have the kernel keep from this process's listening sockets on a port what would make UCX abort. */
void hws__sockets_screen(uint16_t port);
/** Whose socket it is: a listener's, whose clients ask; of a client that was taken in and confirms; of a dial. */
enum hws__screened { HWS__LISTENS, HWS__TAKEN_IN, HWS__DIALLED };
/** The same on one socket. */
void hws__sockets_screen_one(int fd, enum hws__screened who);

/** A connected IP socket of this process. */
struct hws__connected {
    int fd;
    uint16_t port; /* local */
    uint64_t inode;
    struct sockaddr_storage peer;
};

/** Zero is an empty list; `at` is the caller's to free(). */
struct hws__connections {
    struct hws__connected *at; /* in the order of their inodes */
    size_t n, room;
};

/** List them anew, without those for which there is no memory. */
void hws__sockets_connected(struct hws__connections *list);
/** Whether that socket is in a list. */
bool hws__sockets_among(const struct hws__connections *list, const struct hws__connected *c);
/**
 * A connected or connecting TCP socket of this process by its ends; -1 if there is none.
 * @param known  its number, if it is open still: no other is looked at; -1: any
 * @param port   local
 * @param local  NULL: any address
 * @param peer   NULL: not connected yet
 */
int hws__sockets_find(int known, uint16_t port, const struct sockaddr_storage *local,
                      const struct sockaddr_storage *peer);
/** The same of one that connects, or is connected already, to a peer. */
int hws__sockets_find_dial(int known, uint16_t port, const struct sockaddr_storage *peer);
/** End one if it still is the same socket. */
void hws__sockets_shutdown(const struct hws__connected *c);

#endif
