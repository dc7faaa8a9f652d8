/*
 * Connections by worker address that UCX 1.13 has half made.
 *
 * UCX answers a peer that dials an address by an endpoint of its own. On the connection that the peer made it asks
 * for the way back, and keeps its reply until the peer agrees. If that connection or the UCX worker ends before, UCX
 * throws the reply away, and a build with assertions, as Debian's, ends the process ("got REP message",
 * ucp_request.c:684): a dialler that dies in that moment takes the owner of the address with it. Nothing of UCX's can
 * be called for such an endpoint, and each of its own ways out leads there. So Hawser agrees in the peer's place: for
 * one progress UCX finds a pair of sockets of this process under the number of its connection, with the peer's word
 * in it. UCX sends its reply, which is passed on, and takes the peer's own word, when it comes, for a repetition.
 */
#ifndef HWS_CORE_HALF_MADE_H
#define HWS_CORE_HALF_MADE_H

#include <stdbool.h>
#include <stdint.h>

struct hws__uworker;

struct hws__half_made {
    bool possible; /* peers dial this UCX worker, and UCX is one that needs it */
    bool due;      /* it made progress since it was looked at */
    uint64_t next; /* not before: looking costs some microseconds */
};

/** A new UCX worker. */
void hws__half_made_init(struct hws__uworker *u);
/**
 * Complete what can be, after progress whose result was `done`; returns what that did. Owner only, only where
 * `possible`. Looking costs some 30 us, so with much work it is put off now and then.
 */
int hws__half_made_step(struct hws__uworker *u, int done);
/** Do what was put off, before u sleeps. Owner only. */
int hws__half_made_rest(struct hws__uworker *u);
/**
 * Before u is destroyed: complete all there are, those on connections that UCX made itself, too. Owner only, not inside
 * a sweep.
 */
void hws__half_made_end(struct hws__uworker *u);

#endif
