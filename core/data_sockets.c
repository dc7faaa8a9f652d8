#include "data_sockets.h"
#include "address.h"
#include "sockets.h"
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Whether both ends have the same address. */
static bool on_one_host(int fd)
{
    struct sockaddr_storage local, peer;
    socklen_t length = sizeof local, peer_length = sizeof peer;

    return getsockname(fd, (struct sockaddr *)&local, &length) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_length) == 0 &&
           hws__address_same_host(&local, &peer);
}

static void keep_alive(const struct hws__data_socket *c, const struct hws__silence *s)
{
    const int on = 1;
    int fd = c->fd;

    if (hws__sockets_option(fd, SO_KEEPALIVE) == 0) {
        s = c->one_host ? hws__silence_on_one_host(s) : s;
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &s->idle_s, sizeof s->idle_s);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &s->interval_s, sizeof s->interval_s);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &s->probes, sizeof s->probes);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
}

static void add(struct hws__data_sockets *l, const struct hws__data_socket *c)
{
    if (l->n == l->room) {
        size_t room = l->room != 0 ? 2 * l->room : 8;
        struct hws__data_socket *at = realloc(l->at, room * sizeof *at);

        if (at == NULL) {
            return;
        }
        l->at = at;
        l->room = room;
    }
    l->at[l->n++] = *c;
}

struct watch {
    struct hws__data_sockets *sockets;
    const struct hws__silence *silence;
};

static void watch(const struct hws__watched *w, void *arg)
{
    const struct watch *to = arg;
    struct hws__data_socket c = {.fd = w->fd};

    hws__sockets_close_on_exec(w->fd);
    if (hws__sockets_option(w->fd, SO_PROTOCOL) == IPPROTO_TCP &&
        (c.inode = hws__sockets_inode(w->fd)) != 0) {
        c.one_host = on_one_host(w->fd);
        keep_alive(&c, to->silence);
        add(to->sockets, &c);
    }
}

void hws__data_sockets_watch(struct hws__data_sockets *l, int efd, const struct hws__silence *s)
{
    struct watch to = {l, s};

    l->n = 0;
    hws__sockets_watched_below(efd, watch, &to);
}

/* Its number is not another's by now. */
static bool is_there(const struct hws__data_socket *c)
{
    return hws__sockets_inode(c->fd) == c->inode;
}

/* A connection, as the kernel sees it. */
struct state {
    struct tcp_info info;
    int queued; /* bytes on their way */
    bool one_host;
};

/* Whether it is a connection that is looked at: with something on its way, or `expects`, or idle between hosts. */
static bool get_state(const struct hws__data_socket *c, const struct hws__silence *s, bool expects,
                      struct state *t)
{
    socklen_t length = sizeof t->info;

    t->one_host = c->one_host;
    if (ioctl(c->fd, SIOCOUTQ, &t->queued) != 0 ||
        (t->queued == 0 && !expects && (s->idle_ms == 0 || t->one_host))) {
        return false;
    }
    memset(&t->info, 0, sizeof t->info);
    return getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &t->info, &length) == 0 &&
           (t->info.tcpi_state == TCP_ESTABLISHED || t->info.tcpi_state == TCP_CLOSE_WAIT);
}

static bool lost(const struct tcp_info *t, const struct hws__silence *s)
{
    if (t->tcpi_last_ack_recv < s->unheard_ms) {
        return false;
    }
    if (t->tcpi_unacked == 0) {
        return t->tcpi_probes > 2; /* the peer takes no more, and does not say so any more */
    }
    /* Sent again after 200 and 600 ms, on a quick network: not what was sent just now after a rest. */
    return t->tcpi_retransmits > 2 || (t->tcpi_retransmits == 2 && t->tcpi_last_data_sent >= 400);
}

/* The kernel's own questions have no answer, for which it would wait longer itself. */
static bool mute(const struct tcp_info *t, const struct hws__silence *s, uint32_t after_ms)
{
    return t->tcpi_probes >= s->questions && t->tcpi_last_ack_recv >= after_ms;
}

static bool silent(const struct state *t, const struct hws__silence *s, bool expects)
{
    if (t->queued != 0) {
        return lost(&t->info, s);
    }
    return mute(&t->info, s, expects ? s->mute_ms : s->idle_ms);
}

/* By both measures where nothing can be cut. */
static bool is_silent(const struct state *t, const struct hws__silence *s, bool expects)
{
    return silent(t, s, expects) &&
           (!t->one_host || silent(t, hws__silence_on_one_host(s), expects));
}

static enum hws__next_look next_look(const struct hws__data_socket *c, const struct state *t,
                                     const struct hws__silence *s)
{
    if (t->queued != 0) {
        return HWS__LOOK_SOON;
    }
    if (t->one_host || s->idle_ms == 0) {
        return HWS__LOOK_NEVER;
    }
    if (t->info.tcpi_probes == 0) {
        return HWS__LOOK_IDLE;
    }
    /* The kernel asks once a second, and one lost packet is no lost peer: told anew of a time that has passed,
     * it asks at once. */
    if (is_there(c)) {
        setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &s->idle_s, sizeof s->idle_s);
    }
    return HWS__LOOK_SOON;
}

static enum hws__next_look end_if_lost(const struct hws__data_socket *c,
                                       const struct hws__silence *s, bool expects)
{
    const struct linger at_once = {.l_onoff = 1};
    struct state t;

    if (!get_state(c, s, expects, &t)) {
        return HWS__LOOK_NEVER;
    }
    if (!is_silent(&t, s, expects)) {
        return next_look(c, &t, s);
    }
    if (is_there(c)) {
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        shutdown(c->fd, SHUT_RDWR);
    }
    return HWS__LOOK_NEVER;
}

enum hws__next_look hws__data_sockets_end_lost(const struct hws__data_sockets *l,
                                               const struct hws__silence *s, bool expects)
{
    enum hws__next_look found, next = HWS__LOOK_NEVER;

    for (size_t i = 0; i < l->n; i++) {
        found = end_if_lost(&l->at[i], s, expects);
        next = found > next ? found : next;
    }
    return next;
}

static void add_if_silent(const struct hws__data_socket *c, struct hws__hosts *hosts)
{
    const struct hws__silence *s = &hws__silence_default;
    struct pollfd room = {.fd = c->fd, .events = POLLOUT};
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    struct state t;

    /* Where there is room UCX keeps nothing back. */
    if (get_state(c, s, false, &t) && t.queued != 0 && is_silent(&t, s, false) &&
        poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) && is_there(c) &&
        getpeername(c->fd, (struct sockaddr *)&peer, &length) == 0 &&
        !hws__data_sockets_has_host(hosts, &peer)) {
        hws__address_host(&peer, hosts->text[hosts->n++], sizeof hosts->text[0]);
    }
}

void hws__data_sockets_silent(const struct hws__data_sockets *l, struct hws__hosts *hosts)
{
    hosts->n = 0;
    for (size_t i = 0; i < l->n && hosts->n < HWS__HOSTS; i++) {
        add_if_silent(&l->at[i], hosts);
    }
}

bool hws__data_sockets_has_host(const struct hws__hosts *hosts, const struct sockaddr_storage *peer)
{
    char text[INET6_ADDRSTRLEN];

    hws__address_host(peer, text, sizeof text);
    for (uint32_t i = 0; i < hosts->n; i++) {
        if (strcmp(hosts->text[i], text) == 0) {
            return true;
        }
    }
    return false;
}

void hws__data_sockets_free(struct hws__data_sockets *l)
{
    free(l->at);
}
