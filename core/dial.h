/*
 * Dialling: the client's way to its peer, by socket address or by worker address. Owner only.
 */
#ifndef HWS_CORE_DIAL_H
#define HWS_CORE_DIAL_H

#include "endpoint.h"

/** Resolve the name, then dial. */
void hws__dial_resolve(struct hws__endpoint *ep);
/** Dial the next address. */
void hws__dial(struct hws__endpoint *ep);
/** The same on the UCX worker that was found for it. */
void hws__dial_on(struct hws__endpoint *ep, struct hws__uworker *u);
/** A dial failed: another way, the next address, or the end of the attempt. */
void hws__dial_failed(struct hws__endpoint *ep, int32_t status);
/** Why an endpoint does not try shared memory. */
uint32_t hws__dial_tcp_reason(const struct hws__endpoint *ep);

/** UCX's endpoint on u to an address, for `ep`. */
ucs_status_t hws__address_ep(struct hws__endpoint *ep, struct hws__uworker *u, const void *address,
                             ucp_ep_h *out);
/** Dial the address of an endpoint. */
void hws__dial_address(struct hws__endpoint *ep, struct hws__uworker *u, const void *address);

/** Post the connect operation of an endpoint that is filled in; `start` begins it, under ownership (connect.c). */
int32_t hws__connect_post(struct hws__endpoint *ep, void (*start)(struct hws__endpoint *),
                          const hws_op_opts *opts, hws_id *out, hws_id *op);
/** Take the options of an endpoint over. */
int32_t hws__endpoint_options(struct hws__endpoint *ep, const hws_endpoint_opts *o);

#endif
