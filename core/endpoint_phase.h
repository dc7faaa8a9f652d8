/*
 * From one phase of an endpoint to the next: what endpoint_open.c, endpoint_step.c and endpoint_close.c share.
 * Owner only, outside UCX callbacks.
 */
#ifndef HWS_CORE_ENDPOINT_PHASE_H
#define HWS_CORE_ENDPOINT_PHASE_H

#include "endpoint.h"

/** Tell who listens of the peer. False: nobody is there to be told. */
bool hws__endpoint_tell_accepted(struct hws__endpoint *ep);
/** End its connect operation. */
void hws__endpoint_end_connect(struct hws__endpoint *ep, int32_t status);

/** DISCONNECTED, unless it was told or must not be. */
void hws__endpoint_tell_disconnected(struct hws__endpoint *ep, int32_t status);
/** End all operations but those that UCX has. */
void hws__endpoint_end_ops(struct hws__endpoint *ep, int32_t status);
/** Release rendezvous messages: their data died with the peer. */
void hws__endpoint_drop_unfetched(struct hws__endpoint *ep);

/** Closing has come to UCX's part: cut, and wait for the operations to come back. */
void hws__endpoint_force(struct hws__endpoint *ep);
/** Nothing is left: the id is gone, and the last event follows what other threads posted while it was there. */
void hws__endpoint_finish(struct hws__endpoint *ep);

#endif
