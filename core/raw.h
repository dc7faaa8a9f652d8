/*
 * Raw endpoints: the peer is a plain UCX program. Each has a UCX worker of its own, so what UCX
 * matches on that worker is the endpoint's.
 */
#ifndef HWS_CORE_RAW_H
#define HWS_CORE_RAW_H

#include "endpoint.h"

int32_t hws__raw_send(struct hws__post *p, struct hws__op *op, ucp_request_param_t *param);
int32_t hws__raw_recv(struct hws__post *p);
/** A message that UCX holds, taken out of UCX's matching; null if none. */
struct hws__message *hws__raw_probe(struct hws__endpoint *ep, uint64_t tag, uint64_t mask);
struct hws__message *hws__raw_probe_all(struct hws__worker *w, uint64_t tag, uint64_t mask);
/** A message that was only looked at: it waits in the scopes from now on. */
void hws__raw_put_back(struct hws__message *m);
int32_t hws__raw_message_to(struct hws__post *p, struct hws__message *m);
/** Receives of the worker against what raw endpoints got. */
void hws__raw_match(struct hws__worker *w);
/** Handlers of active messages on the UCX worker of a raw endpoint. */
void hws__raw_handlers(struct hws__uworker *u);
void hws__raw_handler(struct hws__uworker *u, uint32_t am_id, bool set);
void hws__raw_free(struct hws__uworker *u);

#endif
