/*
 * Isolated UCX workers: who waits for one, the spares that are kept for the next, and how many there may be.
 */
#ifndef HWS_CORE_ISOLATED_H
#define HWS_CORE_ISOLATED_H

#include "endpoint.h"

/** Where the connection goes: needs one UCX worker (isolated.c). */
void hws__uworker_request(struct hws__endpoint *ep);
void hws__uworker_unrequest(struct hws__endpoint *ep);
/** Give back an isolated worker that was asked for and not used. */
void hws__spares_return(struct hws__worker *w, struct hws__uworker *u);
/** Order spares up to the number wanted, to be made not before `delay_ns` from now. */
void hws__spares_fill(struct hws__worker *w, uint64_t delay_ns);
/** An endpoint or a listener has left: what is kept for the next goes after a while if none comes (idle.c). */
void hws__worker_unused(struct hws__worker *w);

/** Reserve one isolated worker. False: the cap is reached. Any thread. */
bool hws__isolated_reserve(struct hws__context *c);
void hws__isolated_unreserve(struct hws__context *c);

#endif
