#include "half_made.h"
#include "sockets.h"
#include "time.h"
#include "ucx_loader.h"
#include "uworker.h"
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of the time no more than one part in so many is spent on looking ... */
#define SHARE 128
/* ... but for so many looks after a rest, in which peers may dial. */
#define BURST 16
/* So many at once. */
#define MANY 16
/* UCX handles 16 sockets in one progress. */
#define ROUNDS 4

/* What UCX 1.13 has sent on a connection that waits for the peer's word: on one that the peer made, its own
 * word (9) and its question (34); on one that it made itself, a magic number (8) and the question. */
#define ASKED_ON_THEIRS 43
#define ASKED_ON_OWN 42

/* UCX's message of the connection manager: its id, the length of what follows (both packed), "agreed". */
static const unsigned char agreed[] = {0x20, 4, 0, 0, 0, 2, 0, 0, 0};

struct half {
    struct hws__watched at;
    int saved;      /* the connection, while UCX has the stand-in */
    int stands;     /* our end of the stand-in */
    uint64_t inode; /* of UCX's end */
};

struct search {
    bool all; /* those that UCX made itself, too */
    uint32_t count;
    struct half at[MANY];
};

/* The kernel's struct tcp_info, of which each system's headers know more or less. */
struct counts {
    uint64_t known[13];
    uint64_t rates[2], acked, received;
    uint32_t segments[2], unsent, others[3];
    uint64_t times[4];
    uint32_t delivered[2];
    uint64_t sent, again;
};
_Static_assert(offsetof(struct counts, unsent) == 144 && offsetof(struct counts, sent) == 200,
               "as in the kernel");

/* All that was ever sent on a connection; 0 also if that is unknown (before Linux 4.19). */
static uint64_t sent(int fd)
{
    struct counts c = {0};
    socklen_t length = sizeof c;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &c, &length) != 0 || length < sizeof c) {
        return 0;
    }
    return c.sent - c.again + c.unsent;
}

/* UCX waits for room on it as well, which it has: it waits for the peer. */
static void note(const struct hws__watched *w, void *arg)
{
    struct search *s = arg;
    uint64_t bytes;

    if ((w->events & EPOLLOUT) != 0 && s->count < MANY &&
        ((bytes = sent(w->fd)) == ASKED_ON_THEIRS || (s->all && bytes == ASKED_ON_OWN))) {
        s->at[s->count++] = (struct half){.at = *w};
    }
}

/* Give UCX a stand-in for the connection, on which the peer's word has come. */
static bool stand_in(struct half *h)
{
    struct epoll_event e = {.events = h->at.events, .data.u64 = h->at.data};
    /* What UCX sends must fit into the connection, which has room for this. */
    const int little = 1;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        return false;
    }
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    if (send(pair[1], agreed, sizeof agreed, MSG_NOSIGNAL) == sizeof agreed &&
        (h->saved = fcntl(h->at.fd, F_DUPFD_CLOEXEC, 0)) >= 0) {
        /* One entry at a time: UCX may free its endpoint at the first event of two. */
        epoll_ctl(h->at.set, EPOLL_CTL_DEL, h->at.fd, NULL);
        h->inode = hws__sockets_inode(pair[0]);
        dup3(pair[0], h->at.fd, O_CLOEXEC);
        epoll_ctl(h->at.set, EPOLL_CTL_ADD, h->at.fd, &e);
        close(pair[0]);
        h->stands = pair[1];
        return true;
    }
    close(pair[0]);
    close(pair[1]);
    return false;
}

static void find_again(const struct hws__watched *w, void *arg)
{
    struct hws__watched *found = arg;

    if (w->fd == found->fd) {
        found->events = w->events;
    }
}

/* Pass on what UCX has sent. */
static void pass_on(const struct half *h)
{
    char bytes[16384];
    ssize_t n;

    while ((n = recv(h->stands, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
        if (send(h->saved, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n) {
            shutdown(h->saved, SHUT_RDWR); /* rather than a hole in it */
            return;
        }
    }
}

/* Give UCX its connection back, unless it has closed the stand-in meanwhile. */
static void stand_down(const struct half *h)
{
    struct hws__watched now = {.fd = h->at.fd};
    struct epoll_event e = {.data.u64 = h->at.data};

    pass_on(h);
    if (hws__sockets_inode(h->at.fd) == h->inode) {
        hws__sockets_watched(h->at.set, find_again, &now);
        e.events = now.events;
        /* That takes the stand-in out of the set, too. */
        dup3(h->saved, h->at.fd, O_CLOEXEC);
        if (now.events != 0) {
            epoll_ctl(h->at.set, EPOLL_CTL_ADD, h->at.fd, &e);
        }
    }
    close(h->saved);
    close(h->stands);
}

/* UCX has sent something on each. */
static bool all_replied(const struct search *s)
{
    char byte;

    for (uint32_t i = 0; i < s->count; i++) {
        if (recv(s->at[i].stands, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
            return false;
        }
    }
    return true;
}

static int complete(struct hws__uworker *u, bool all)
{
    struct search s = {.all = all};
    uint32_t n = 0;
    int done = 0;

    hws__sockets_watched_below(u->efd, note, &s);
    for (uint32_t i = 0; i < s.count; i++) {
        if (stand_in(&s.at[i])) {
            s.at[n++] = s.at[i];
        }
    }
    s.count = n;
    for (int i = 0; n != 0 && i < ROUNDS && !all_replied(&s); i++) {
        done += (int)hws__uworker_progress(u);
    }
    while (n-- > 0) {
        stand_down(&s.at[n]);
    }
    return done;
}

void hws__half_made_init(struct hws__uworker *u)
{
    u->half_made.possible =
        (u->role == HWS__ADDRESS || u->role == HWS__ADDRESS_SHM) && !hws__ucx_at_least(1, 14);
}

/* Look, and put off the next look by what this one took. */
static int look(struct hws__uworker *u)
{
    struct hws__half_made *h = &u->half_made;
    uint64_t begin = hws__now(), end, pause;
    int done = complete(u, false);

    end = hws__now();
    pause = SHARE * (end - begin);
    h->due = false;
    h->next = (h->next + BURST * pause > end ? h->next : end - BURST * pause) + pause;
    return done;
}

int hws__half_made_step(struct hws__uworker *u, int done)
{
    u->half_made.due |= done != 0;
    return u->half_made.due && hws__now() >= u->half_made.next ? look(u) : 0;
}

int hws__half_made_rest(struct hws__uworker *u)
{
    return u->half_made.due ? look(u) : 0;
}

void hws__half_made_end(struct hws__uworker *u)
{
    if (u->half_made.possible) {
        complete(u, true);
    }
}
