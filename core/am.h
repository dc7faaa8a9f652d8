/*
 * Active messages of the user: one UCX id carries them all, the first 8 bytes of the header hold
 * the user's id, so that handlers can be set once a worker and not on each UCX worker. Those without a
 * header of their own and with one of the first ids travel as UCX ids: UCX sends a message without any
 * header by a shorter way.
 */
#ifndef HWS_CORE_AM_H
#define HWS_CORE_AM_H

#include "endpoint.h"

#define HWS__AM_PREFIX 8u

/** UCX's handler of HWS__AM_TAG (tag_arrived.c). */
ucs_status_t hws__tag_cb(void *arg, const void *header, size_t header_length, void *data,
                         size_t length, const ucp_am_recv_param_t *param);
/** UCX's handler of HWS__AM_USER. */
ucs_status_t hws__am_cb(void *arg, const void *header, size_t header_length, void *data,
                        size_t length, const ucp_am_recv_param_t *param);
/** UCX's handler of HWS__AM_DIRECT and on. */
ucs_status_t hws__am_direct_cb(void *arg, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param);
/** A message of id `am_id` arrived at an endpoint. Returns what UCX must hear. */
ucs_status_t hws__am_arrived(struct hws__uworker *u, struct hws__endpoint *ep, uint32_t am_id,
                             const void *header, size_t header_length, void *data, size_t length,
                             uint64_t recv_attr);
/** Tell the handler. The message is the receiver's from here on. */
void hws__am_tell(struct hws__message *m, const struct hws__am_handler *h, int32_t status);
/** Whether the handler, the present one, is still to be told of a message, which no longer counts against its sender's
 * window. */
bool hws__am_due(struct hws__worker *w, struct hws__notice *t);
/** End the fetches of a destroyed UCX worker. Owner only. */
void hws__am_orphans(struct hws__uworker *u);
/** Messages that need memory of the user or fetching, after the sweep. */
int hws__am_step(struct hws__worker *w);

#endif
