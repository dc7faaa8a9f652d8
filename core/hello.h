/*
 * The first message each way, and the messages of Hawser's own that follow (goodbye).
 *
 *   client                          server
 *   HELLO (who, nonce)      ->
 *                           <-      WELCOME, or CHALLENGE (nonce) where a key is set,
 *   PROOF                   ->      or REFUSED (code)
 *                           <-      WELCOME (proof) or REFUSED
 *   (JOIN                   <->     JOINED, see upgrade.h)
 *   ...
 *   GOODBYE                 <->     GOODBYE_ACK
 *   ABORTED                 <->
 *
 * The client id of UCX's connection request says who dials before anything is accepted.
 */
#ifndef HWS_CORE_HELLO_H
#define HWS_CORE_HELLO_H

#include "endpoint.h"

#define HWS__AM_CONTROL 0
#define HWS__AM_TAG 1
#define HWS__AM_USER 2
#define HWS__AM_MULTI 3
#define HWS__AM_MULTI_PART 4
#define HWS__AM_RMA 5
#define HWS__AM_CREDIT 6
#define HWS__AM_BUNDLE 7
/** The user's id 0 as an id of UCX, for messages without a header; the next ones follow. */
#define HWS__AM_DIRECT 16

#define HWS__PROTOCOL 1
/** How long the peer may take for it. */
#define HWS__HELLO_NS UINT64_C(5000000000)
#define HWS__CLIENT_MAGIC 0x4857u
#define HWS__CLIENT_TCP_ONLY 1u

/** What the 64-bit client id of UCX carries: magic 16, protocol 4, flags 4, UCX minor 8, host 32. */
uint64_t hws__client_id(bool tcp_only);

struct hws__client {
    bool known; /* the magic is there */
    bool tcp_only, same_ucx, same_protocol, same_host;
};
struct hws__client hws__client_parse(uint64_t id);

/** A hello that came before its endpoint, see waddress.h. */
void hws__hello_resume(struct hws__endpoint *ep, const void *hello);
void hws__hello_start(struct hws__endpoint *ep);
/** Let the client in, now or after the upgrade. */
void hws__hello_welcome(struct hws__endpoint *ep);
/** The welcome with the address of an isolated worker; open when the client joins there. */
void hws__hello_welcome_upgrade(struct hws__endpoint *ep, struct hws__uworker *u);
void hws__hello_join(struct hws__endpoint *ep);
void hws__hello_refuse(struct hws__endpoint *ep, int32_t code);
/** Sends a flush; the peer answers with the same number. */
void hws__flush_send(struct hws__endpoint *ep, uint64_t sequence);
/** Tells the peer that its multi-buffer message of this number was refused. */
void hws__multi_refuse_send(struct hws__endpoint *ep, uint64_t sequence, int32_t code);
/** Tell a peer at once that the connection ends without a goodbye. */
void hws__hello_aborted(struct hws__endpoint *ep);
/** Sends a goodbye; the answer ends the phase. */
void hws__goodbye(struct hws__endpoint *ep);
/** UCX's handler of HWS__AM_CONTROL. */
ucs_status_t hws__control_cb(void *arg, const void *header, size_t header_length, void *data,
                             size_t length, const ucp_am_recv_param_t *param);

#endif
