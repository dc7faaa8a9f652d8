/*
 * From TCP to shared memory. Where it is said so (hws__context.upgrades), a client dials by TCP and its
 * hello offers the address of an isolated worker; the welcome of a listener that has one, too, answers
 * with that one's:
 *
 *   client                              server
 *   HELLO (address)           TCP  ->
 *                                  <-   WELCOME (address)
 *   JOIN            shared memory  ->
 *                                  <-   JOINED
 *
 * From then on everything travels by shared memory. The TCP connection, the line, stays: the kernel ends
 * it at once when the peer is killed.
 *
 * UCX can do both in one connection. Since 1.14 it then goes on asking the kernel about TCP at each
 * progress of the isolated worker.
 */
#ifndef HWS_CORE_UPGRADE_H
#define HWS_CORE_UPGRADE_H

#include <stdbool.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

struct hws__endpoint;
struct hws__uworker;

struct hws__upgrade {
    struct hws__uworker *offer; /* client: the isolated worker of the hello, not yet the worker's */
    bool due;                   /* hws__upgrade_step() has something to do */
    bool waits;                 /* for an isolated worker */
    bool failed;                /* client: the peer's memory is out of reach */
    ucp_ep_h line;              /* after the change: the TCP connection, */
    struct hws__uworker *line_worker; /* of this */
};

/** Client: whether this dial begins by TCP and offers shared memory. */
bool hws__upgrade_wanted(const struct hws__endpoint *ep);
/** What it does now, it does by TCP. */
bool hws__upgrade_by_tcp(const struct hws__endpoint *ep);
/** Client: the TCP connection is on its way; ask for an isolated worker, then send the hello. */
void hws__upgrade_start(struct hws__endpoint *ep);
/** What hws__upgrade_start() or hws__upgrade_decide() asked for came; null: there is none. */
void hws__upgrade_uworker(struct hws__endpoint *ep, struct hws__uworker *u);

/** Server, in UCX callbacks: the hello offers an address. */
void hws__upgrade_offered(struct hws__endpoint *ep, bool same_host, const void *address,
                          uint64_t length);
/** Server: the peer is let in. True: hws__hello_welcome() comes again when the upgrade is decided. */
bool hws__upgrade_decide(struct hws__endpoint *ep);
/** Client, in UCX callbacks: the welcome, with an address or (length 0) without. True: it is not the end
 * of the hello. */
bool hws__upgrade_welcome(struct hws__endpoint *ep, const void *address, uint64_t length);

/** What must be done outside UCX callbacks. */
void hws__upgrade_step(struct hws__endpoint *ep);
/** Give back what a dial still holds. */
void hws__upgrade_end(struct hws__endpoint *ep);

#endif
