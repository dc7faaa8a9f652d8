/*
 * The sockets of a UCX worker's TCP connections, found through the kernel once for many looks at them: UCX has no call
 * for what must be done with them, and there may be thousands.
 */
#ifndef HWS_CORE_DATA_SOCKETS_H
#define HWS_CORE_DATA_SOCKETS_H

#include "silence.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hws__data_socket {
    uint64_t inode; /* before anything is done to it, since UCX closes it unasked */
    int fd;
    bool one_host; /* both ends are on this one */
};

/** Zero is an empty list. */
struct hws__data_sockets {
    struct hws__data_socket *at;
    size_t n, room;
};

/**
 * List them anew, without those for which there is no memory, and have the system notice an idle peer that is lost:
 * each gets keepalive where UCX has set none, as it does at its own first look at a connection only, 20 s after the
 * start. Programs that this one starts do not inherit them from then on.
 * @param efd  the event descriptor of the UCX worker
 */
void hws__data_sockets_watch(struct hws__data_sockets *l, int efd, const struct hws__silence *s);

/** When they must be looked at again. */
enum hws__next_look {
    HWS__LOOK_NEVER, /* the kernel watches them alone, or none is left */
    HWS__LOOK_IDLE,  /* whether the kernel's keepalive is answered */
    HWS__LOOK_SOON   /* something is on its way, or a question has no answer yet */
};

/**
 * Shut down those whose peer has acknowledged nothing for too long of what is on its way, or answers no question of
 * keepalive, which is asked more often once one is without an answer. A peer that takes nothing still acknowledges.
 * @param expects  the peer is to do something: those that do not answer are shut down sooner
 */
enum hws__next_look hws__data_sockets_end_lost(const struct hws__data_sockets *l,
                                               const struct hws__silence *s, bool expects);

/** Peers' addresses without ports; more than these are left out. */
#define HWS__HOSTS 16
struct hws__hosts {
    uint32_t n;
    char text[HWS__HOSTS][INET6_ADDRSTRLEN];
};

/**
 * The peers of those that have acknowledged nothing for the default time, and to which the kernel has everything that
 * was sent.
 */
void hws__data_sockets_silent(const struct hws__data_sockets *l, struct hws__hosts *hosts);
bool hws__data_sockets_has_host(const struct hws__hosts *hosts,
                                const struct sockaddr_storage *peer);

void hws__data_sockets_free(struct hws__data_sockets *l);

#endif
