/*
 * Tagged messages: on raw endpoints UCX's own, else carried by active messages and matched by
 * Hawser, so that endpoint and worker receives, cancel, precedence and peer failure have one
 * meaning on every UCX worker.
 */
#ifndef HWS_CORE_TAG_H
#define HWS_CORE_TAG_H

#include "bundle_record.h"
#include "endpoint.h"

/** UCX's handler of HWS__AM_TAG. */
ucs_status_t hws__tag_cb(void *arg, const void *header, size_t header_length, void *data,
                         size_t length, const ucp_am_recv_param_t *param);
/** A message with this tag has come on its own. What UCX must hear. */
ucs_status_t hws__tag_arrived(struct hws__endpoint *ep, struct hws__uworker *u, uint64_t tag,
                              void *data, uint64_t length, uint64_t attr);
/**
 * The tagged message of the record at `at` has come in a bundle, of which so many bytes are left. If nobody waits for
 * it, it rests with those behind it that nobody waits for. Owner only.
 * @return bytes of the records that were taken
 */
size_t hws__tag_bundled(struct hws__endpoint *ep, struct hws__uworker *u,
                        const struct hws__record *r, char *at, size_t left);
/**
 * A small message that nobody wants yet waits for its receive. False: no memory, and the endpoint has failed. Owner only.
 */
bool hws__tag_wait(struct hws__endpoint *ep, uint64_t tag, const char *data, uint64_t length);
/** Receive a waiting or held message with a posting. Consumes the message if it succeeds. */
int32_t hws__message_to(struct hws__post *p, struct hws__message *m);
/** The same of a posted receive, taken out of matching. Owner only, outside UCX callbacks. */
void hws__message_meet(struct hws__op *op, struct hws__message *m);
/**
 * A message, of one buffer or many, that was received and given back waits for its next receive, or has met it. Owner
 * only.
 */
void hws__message_offer(struct hws__message *m);
/** Start fetching a rendezvous descriptor into the posting's buffer. */
int32_t hws__fetch(struct hws__post *p, struct hws__uworker *u, void *desc, uint64_t length,
                   hws_id from);

#endif
