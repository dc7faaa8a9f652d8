/*
 * Listeners: connection requests become endpoints.
 */
#ifndef HWS_CORE_LISTENER_H
#define HWS_CORE_LISTENER_H

#include "gate.h"
#include "worker.h"

#define HWS__LISTEN6 (HWS__GATE_SOCKETS - 1)

struct hws__listener {
    struct hws__obj obj;
    struct hws__worker *worker;
    ucp_listener_h ucx;
    ucp_listener_h ucx6[HWS__LISTEN6]; /* the same port on IPv6 addresses */
    uint32_t ucx6_count;
    struct hws__gate gate;
    struct hws__list link;
    struct hws__sink sink, endpoint_sink;
    uint32_t flags;
    uint64_t hello_timeout, close_timeout;
    char address[64];
    uint16_t port;
    _Atomic uint64_t requests, accepted, rejected, redirected, strangers, bad_auth;
    ucp_conn_request_h *pending; /* seen inside a UCX callback, handled after the sweep */
    uint32_t pending_count, pending_room;
};

struct hws__listener *hws__listener_find(hws_id id, int32_t *error);
/** UCX's handler of connection requests; arg: the listener. */
void hws__listener_request_cb(ucp_conn_request_h request, void *arg);
/** Handle what arrived during the sweep. Owner only. */
int hws__listener_step(struct hws__listener *l);
/** Stop listening; peers that are not through their hello are turned away. Owner only. */
void hws__listener_close(struct hws__listener *l);
/** The listener of an endpoint, null if it is gone. */
struct hws__listener *hws__listener_of(const struct hws__endpoint *ep);

#endif
