/*
 * Peers over TCP that are lost while data is on its way to them. The kernel would try for a quarter of an
 * hour; its own limit, TCP_USER_TIMEOUT, also ends the connection of a peer that is there and takes
 * nothing for so long, because it is stopped or computes. So the sockets are looked at here, and those
 * whose peer acknowledges nothing are shut down, which UCX reports as a failure of the connection. So are
 * those to other hosts that do not answer the kernel's keepalive: it asks once a second at most, too seldom to
 * tell within three seconds a lost peer from a lost packet, so that once a question has no answer it is asked anew
 * at each look. Closing does not wait for silent peers either.
 */
#ifndef HWS_CORE_LOST_H
#define HWS_CORE_LOST_H

#include <stdint.h>

struct hws__uworker;
struct hws__worker;

/** How often while data may be on its way, or a question has no answer. */
#define HWS__LOST_NS 300000000u
/** How often while nothing happens on connections to other hosts. */
#define HWS__LOST_IDLE_NS 500000000u
/** How long a list of sockets serves where no connection is made, in case UCX has made one unasked. */
#define HWS__LOST_LIST_NS UINT64_C(10000000000)

/**
 * The system is to notice when the peer of a new TCP connection of u is lost: at once, or together with others that
 * come within HWS__LOST_NS, since all connections of u must be gone through. Owner only.
 */
void hws__lost_keep_alive(struct hws__uworker *u);
/** The data of a new connection of u travels by TCP. Owner only. */
void hws__lost_watch(struct hws__uworker *u);
/** u may have sent something. Owner only. */
void hws__lost_expect(struct hws__uworker *u);
/** Look, if it is time. Owner only. */
void hws__lost_check(struct hws__worker *w, uint64_t now);

#endif
