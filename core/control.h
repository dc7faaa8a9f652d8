/*
 * Messages of Hawser's own on the wire: those of the handshake, and what endpoints tell each other after it.
 */
#ifndef HWS_CORE_CONTROL_H
#define HWS_CORE_CONTROL_H

#include "auth.h"
#include "hello.h"

#define HWS__CONTROL_MAGIC 0x31525748u /* "HWR1", little endian */

/** What a message is, see hello.h, multi.h, upgrade.h and flush.c. */
enum hws__control_type {
    HWS__CONTROL_HELLO = 1,
    HWS__CONTROL_CHALLENGE,
    HWS__CONTROL_PROOF,
    HWS__CONTROL_WELCOME,
    HWS__CONTROL_REFUSED,
    HWS__CONTROL_GOODBYE,
    HWS__CONTROL_GOODBYE_ACK,
    HWS__CONTROL_FLUSH,
    HWS__CONTROL_FLUSH_ACK,
    HWS__CONTROL_MULTI_REFUSED,
    HWS__CONTROL_JOIN,
    HWS__CONTROL_JOINED,
    HWS__CONTROL_ABORTED
};

#define HWS__CONTROL_SHARED 1u /* my UCX worker serves several endpoints: send REPLY along */
#define HWS__CONTROL_KEY 2u    /* I have a pre-shared key */

/** Every message of Hawser's own: little endian, 128 bytes. */
struct hws__control {
    uint32_t magic;
    uint8_t type, protocol, flags, ucx_minor;
    int32_t code;
    uint32_t reason; /* HWS_REASON_* of the sender */
    uint64_t host, pid;
    uint64_t sequence; /* of a flush, a multi-buffer message, or a dial: see pairing.h */
    unsigned char nonce[HWS__NONCE], proof[HWS__PROOF];
    uint64_t multi_bytes_max; /* the sender takes multi-buffer messages up to here */
    uint32_t multi_count_max;
    uint32_t network;         /* the sender's network namespace */
    uint32_t credit_messages; /* what the sender lets wait, of each sort; 0: no limit */
    uint32_t credit_kib;
};

_Static_assert(sizeof(struct hws__control) == 128, "the wire format");

/* Byte swapping is not needed where Hawser runs; this is what the format relies on. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian machines only");

/** Send one, with the rest of it filled in; what is lost by a failing endpoint is no loss. Owner only. */
void hws__control_send(struct hws__endpoint *ep, const struct hws__control *c,
                       enum hws__control_type type);
/** The same with the address of a UCX worker behind it, null: none. */
void hws__control_send_with(struct hws__endpoint *ep, const struct hws__control *c,
                            enum hws__control_type type, struct hws__uworker *u);

#endif
