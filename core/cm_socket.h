/*
 * The socket on which UCX's connection manager watches a connection.
 *
 * UCX finds the handler of an event by the number of its descriptor, in one table for the process. An
 * event that UCX's thread cannot deliver, because the UCX worker is in a call, waits under that number
 * until the worker is progressed. When by then the number is another worker's, because the descriptor
 * was closed and its number given away or because the connection moved, the event reaches the wrong
 * handler: a build with assertions aborts. So the events are stopped first.
 */
#ifndef HWS_CORE_CM_SOCKET_H
#define HWS_CORE_CM_SOCKET_H

#include "uworker.h"

/**
 * Before an endpoint of u is closed: no event of its connection comes, and none waits. Progresses u.
 * @param known  the socket, as it was found when the connection began; -1: it is looked for
 */
void hws__cm_unwatch(struct hws__uworker *u, ucp_ep_h ucx, int known);

/** The local port of an endpoint that connects; 0: there is none. */
uint16_t hws__cm_port(ucp_ep_h ucx);

/**
 * A dial was begun from a port: keep its socket from programs that this one starts, and from what would make UCX
 * abort. Returns the socket; -1: it is not found.
 */
int hws__cm_dialled(uint16_t port, const struct sockaddr_storage *peer);
/** A listener on a port took a client in: keep its socket from programs that this one starts. Returns it, or -1. */
int hws__cm_accepted(uint16_t port, const struct sockaddr_storage *client);

/**
 * Whether somebody took in the connection from a port to a peer that failed, and is not closed yet. UCX says the same
 * of one that nobody took in.
 */
bool hws__cm_answered(int known, uint16_t port, const struct sockaddr_storage *peer);

/**
 * Before a connection request of u is accepted on another UCX worker: the same, but for a reset that
 * comes in this moment. Programs that this one starts do not inherit the socket from then on. Progresses u.
 * @param port  of the listener
 * @return the socket, or -1
 */
int hws__cm_pause(struct hws__uworker *u, const struct sockaddr_storage *client, uint16_t port);

/** The socket of a listener; -1: it is not found. */
int hws__cm_listening(ucp_listener_h listener);

/** Refuse a request of u, and leave no event of it behind: it is closed soon. Progresses u. */
void hws__cm_reject(struct hws__uworker *u, ucp_listener_h listener, ucp_conn_request_h request);

/** Take a connection that is no endpoint yet away from u for ever, and end it. Progresses nothing. */
void hws__cm_drop(int fd);

#endif
