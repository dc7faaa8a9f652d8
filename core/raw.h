/*
 * Raw endpoints: the peer is a plain UCX program. Each has a UCX worker of its own, so what UCX
 * matches on that worker is the endpoint's.
 */
#ifndef HWS_CORE_RAW_H
#define HWS_CORE_RAW_H

#include "endpoint.h"

int32_t hws__raw_send(struct hws__post *p, struct hws__op *op, ucp_request_param_t *param);
int32_t hws__raw_recv(struct hws__post *p);
/**
 * Where a receive on the endpoint waits, whose UCX worker is swept from now on; null if that is in UCX, or UCX may hold
 * a message for it. Owner only.
 */
struct hws__scope *hws__raw_quiet(struct hws__endpoint *ep);
/** The first message that waits for a receive of the endpoint, or of the worker; null if none. */
struct hws__message *hws__raw_probe(struct hws__endpoint *ep, uint64_t tag, uint64_t mask);
struct hws__message *hws__raw_probe_all(struct hws__worker *w, uint64_t tag, uint64_t mask);
int32_t hws__raw_message_to(struct hws__post *p, struct hws__message *m);
/**
 * Take what nobody asked UCX itself for out of its matching, in order of arrival: the oldest receive of endpoint
 * or worker gets it, or it waits for one. Owner only, outside UCX callbacks.
 */
void hws__raw_arrived(struct hws__uworker *u);
/** Handlers of active messages on the UCX worker of a raw endpoint. */
void hws__raw_handlers(struct hws__uworker *u);
void hws__raw_handler(struct hws__uworker *u, uint32_t am_id, bool set);
void hws__raw_free(struct hws__uworker *u);

#endif
