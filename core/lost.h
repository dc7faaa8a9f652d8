/*
 * Peers over TCP that are lost while data is on its way to them. The kernel would try for a quarter of an
 * hour; its own limit, TCP_USER_TIMEOUT, also ends the connection of a peer that is there and takes
 * nothing for so long, because it is stopped or computes. So the sockets are looked at here, and those
 * whose peer acknowledges nothing are shut down, which UCX reports as a failure of the connection. While
 * an operation waits for the peer, so are those that do not answer the kernel's keepalive. Closing does
 * not wait for silent peers either.
 */
#ifndef HWS_CORE_LOST_H
#define HWS_CORE_LOST_H

#include <stdint.h>

struct hws__uworker;
struct hws__worker;

/** How often while data may be on its way. */
#define HWS__LOST_NS 300000000u

/** A connection of u travels by TCP. Owner only. */
void hws__lost_watch(struct hws__uworker *u);
/** u may have sent something. Owner only. */
void hws__lost_expect(struct hws__uworker *u);
/** Look, if it is time. Owner only. */
void hws__lost_check(struct hws__worker *w, uint64_t now);

#endif
