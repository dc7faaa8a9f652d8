/*
 * Memory kept back for the end of a connection that fails for want of it.
 *
 * UCX allocates a little when an endpoint is closed, and ends the process where it gets none ("failed to create failed
 * tl iface stub" on 1.22, "failed to put UCT EP into the worker hash" on 1.13). So each worker keeps a block that is
 * given back just before.
 */
#ifndef HWS_CORE_RESERVE_H
#define HWS_CORE_RESERVE_H

struct hws__worker;

/** Have it, if there is memory. Owner only. */
void hws__reserve_keep(struct hws__worker *w);
/** A connection fails for want of memory. Owner only; also inside UCX. */
void hws__reserve_spend(struct hws__worker *w);

#endif
