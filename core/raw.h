/*
 * Raw endpoints: the peer is a plain UCX program. Each has a UCX worker of its own, so what UCX
 * matches on that worker is the endpoint's; but those by a plain worker address share one, where
 * nothing tells whose a message is.
 */
#ifndef HWS_CORE_RAW_H
#define HWS_CORE_RAW_H

#include "endpoint.h"

/** Send a tagged message; synchronously if `p->mask` is not 0. As hws__op_posted(). */
int32_t hws__raw_send(struct hws__post *p, struct hws__op *op, ucp_request_param_t *param);
/** Receive one on an endpoint: what is there, else wait, in UCX or, by an address, in the worker's scope. */
int32_t hws__raw_recv(struct hws__post *p);
/**
 * Where a receive on the endpoint waits, whose UCX worker is swept from now on; null if that is in UCX, or UCX may
 * hold a message for it. Owner only.
 */
struct hws__scope *hws__raw_quiet(struct hws__endpoint *ep);
/** The first message that waits for a receive of the endpoint, or of the worker; null if none. */
struct hws__message *hws__raw_probe(struct hws__endpoint *ep, uint64_t tag, uint64_t mask);
struct hws__message *hws__raw_probe_all(struct hws__worker *w, uint64_t tag, uint64_t mask);
/** Receive one that was taken out of UCX's matching; part of hws__message_to(). */
int32_t hws__raw_message_to(struct hws__post *p, struct hws__message *m);
/**
 * Take what nobody asked UCX itself for out of its matching, in order of arrival: the oldest receive of endpoint
 * or worker gets it, or it waits for one. Owner only, outside UCX callbacks.
 */
void hws__raw_arrived(struct hws__uworker *u);
/** What the handlers of an id, or of all that the worker has, need in a raw UCX worker. False: no memory. */
bool hws__raw_reserve(struct hws__uworker *u, uint32_t am_id);
bool hws__raw_reserve_all(struct hws__uworker *u);
/** Have a raw UCX worker hand over the active messages of every id that its worker has a handler for. */
void hws__raw_handlers(struct hws__uworker *u);
/** The same of one id, or have UCX drop them. What is set was reserved. */
void hws__raw_handler(struct hws__uworker *u, uint32_t am_id, bool set);
/** Free what was reserved. */
void hws__raw_free(struct hws__uworker *u);

#endif
