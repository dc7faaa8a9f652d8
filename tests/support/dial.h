/*
 * Connections that a test makes on its own, over the listener of a pair or to anywhere else: dialled from side 0, their
 * events in record 0.
 */
#ifndef TESTS_SUPPORT_DIAL_H
#define TESTS_SUPPORT_DIAL_H

#include "support/pair.h"

/* Posts a connect with the pair's records; its user value is T_DIAL_USER. The endpoint; `op` may be null. */
#define T_DIAL_USER 77
hws_id t_dial(t_pair *pair, const char *host, uint16_t port, uint64_t timeout_ns, hws_id *op);

/* Waits for the final event of a connect. */
t_seen t_dialled(t_pair *pair, hws_id endpoint);

/* One message each way. */
void t_exchange(t_pair *pair, hws_id a, hws_id b);

/* Waits until an id is gone. */
void t_gone(t_pair *pair, hws_id id);

/*
 * What a child (spawn.h) does first: it begins, opens a context (`how` may be null) and a worker, and dials the port of
 * its parent, a number as text. The endpoint, which is open.
 */
hws_id t_child_dial(const char *port, const hws_context_opts *how, uint32_t endpoint_flags,
                    hws_id *worker);

hws_listener_info t_listener_info(hws_id listener);

#endif
