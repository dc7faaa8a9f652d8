#include "cm_socket.h"
#include "address.h"
#include "gate.h"
#include "sockets.h"
#include "ucx_loader.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

void hws__cm_unwatch(struct hws__uworker *u, ucp_ep_h ucx, int known)
{
    ucp_ep_attr_t local = {.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR};
    ucp_ep_attr_t peer = {.field_mask = UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR};
    bool connected;
    int fd;

    if (hws__ucx.ucp_ep_query(ucx, &local) != UCS_OK) {
        return; /* made from a worker's address */
    }
    connected = hws__ucx.ucp_ep_query(ucx, &peer) == UCS_OK;
    fd = hws__sockets_find(known, hws__address_port(&local.local_sockaddr), &local.local_sockaddr,
                           connected ? &peer.remote_sockaddr : NULL);
    if (fd >= 0 && hws__ucx.ucs_async_remove_handler(fd, 1) == UCS_OK) {
        hws__uworker_progress(u);
    }
}

uint16_t hws__cm_port(ucp_ep_h ucx)
{
    ucp_ep_attr_t local = {.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR};

    return hws__ucx.ucp_ep_query(ucx, &local) == UCS_OK ? hws__address_port(&local.local_sockaddr)
                                                        : 0;
}

int hws__cm_dialled(uint16_t port, const struct sockaddr_storage *peer)
{
    int fd = port != 0 ? hws__sockets_find_dial(-1, port, peer) : -1;

    if (fd >= 0) {
        hws__sockets_screen_one(fd, HWS__DIALLED);
        hws__sockets_close_on_exec(fd);
    }
    return fd;
}

int hws__cm_accepted(uint16_t port, const struct sockaddr_storage *client)
{
    int fd = hws__sockets_find(-1, port, NULL, client);

    if (fd >= 0) {
        hws__sockets_screen_one(fd, HWS__TAKEN_IN);
        hws__sockets_close_on_exec(fd);
    }
    return fd;
}

bool hws__cm_answered(int known, uint16_t port, const struct sockaddr_storage *peer)
{
    int fd = port != 0 ? hws__sockets_find_dial(known, port, peer) : -1;
    struct tcp_info t = {0};
    socklen_t length = sizeof t;

    /* The wish to connect counts as a byte. */
    return fd >= 0 && getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &length) == 0 &&
           t.tcpi_bytes_acked != 0;
}

/* The socket stays in UCX's table: accepting it, or destroying the listener, takes it out. */
static bool pause_fd(int fd)
{
    return hws__ucx.ucs_async_modify_handler(fd, 0) == UCS_OK;
}

int hws__cm_pause(struct hws__uworker *u, const struct sockaddr_storage *client, uint16_t port)
{
    int fd = hws__cm_accepted(port, client);

    if (fd >= 0 && pause_fd(fd)) {
        hws__uworker_progress(u);
    }
    return fd;
}

static bool listens_at(int fd, void *arg)
{
    const struct sockaddr_storage *address = arg;
    struct sockaddr_storage a;
    socklen_t length = sizeof a;

    return hws__sockets_listens(fd, hws__address_port(address)) &&
           getsockname(fd, (struct sockaddr *)&a, &length) == 0 && hws__address_same(&a, address);
}

int hws__cm_listening(ucp_listener_h listener)
{
    ucp_listener_attr_t q = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};

    return hws__ucx.ucp_listener_query(listener, &q) == UCS_OK
               ? hws__sockets_each(listens_at, &q.sockaddr)
               : -1;
}

void hws__cm_reject(struct hws__uworker *u, ucp_listener_h listener, ucp_conn_request_h request)
{
    ucp_conn_request_attr_t client = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};
    ucp_listener_attr_t here = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};

    if (hws__ucx.ucp_conn_request_query(request, &client) == UCS_OK &&
        hws__ucx.ucp_listener_query(listener, &here) == UCS_OK) {
        hws__cm_pause(u, &client.client_address, hws__address_port(&here.sockaddr));
    }
    /* UCX 1.13 would take what is left of the socket's events for the next one's that is given its number. */
    hws__gate_hold();
    hws__ucx.ucp_listener_reject(listener, request);
    hws__uworker_progress(u);
    hws__gate_let_go();
}

void hws__cm_drop(int fd)
{
    hws__ucx.ucs_async_remove_handler(fd, 1);
    shutdown(fd, SHUT_RDWR); /* UCX closes it with its worker */
}
