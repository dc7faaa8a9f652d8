/*
 * Closing an endpoint of UCX while UCX flushes it.
 *
 * What was posted while UCX connected is sent once it has, all in one progress; a flush among it goes on in the next
 * one (UCX 1.22). A forced close between the two does not see the flush: it frees the endpoint, and the flush goes on
 * with what was freed. The progress that sends them gives a number other than 0, so after one that gives 0 no flush
 * is about to go on.
 */
#ifndef HWS_CORE_LATE_CUT_H
#define HWS_CORE_LATE_CUT_H

#include "endpoint.h"

/** Let go of an endpoint of UCX (null: none) that `ep` had: by force, now or once it can be. */
void hws__late_cut(struct hws__endpoint *ep, struct hws__uworker *u, ucp_ep_h ucx);
/** Cut those that can be now; how many. Owner only, right after the sweep's progress. */
int hws__late_cuts(struct hws__worker *w);

#endif
