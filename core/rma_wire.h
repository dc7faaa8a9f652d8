/*
 * The messages of remote memory access: active messages of Hawser's own, told apart by `type`.
 *
 *   asks                                   answers
 *   PUT (address) data, in pieces          -
 *   PUT with NOTIFY, last piece            - (an event at the peer)
 *   GET (address, length, op)              DATA (offset, op) data, in pieces
 *   ATOMIC (address, operands, op)         VALUE (the old one), if it fetches
 *
 * The peer names the memory by its id and a random number: both must be right, and the piece inside
 * and of the kind of access that was registered. A violation ends the connection, as it does on
 * hardware that checks keys.
 */
#ifndef HWS_CORE_RMA_WIRE_H
#define HWS_CORE_RMA_WIRE_H

#include <stdint.h>

enum hws__rma_type {
    HWS__RMA_PUT = 1,
    HWS__RMA_GET,
    HWS__RMA_ATOMIC,
    HWS__RMA_DATA,
    HWS__RMA_VALUE
};

#define HWS__RMA_NOTIFY 1u /* last piece: tell the peer's application `value` */
#define HWS__RMA_FETCH 2u  /* the old value is wanted */
#define HWS__RMA_LAST 4u   /* of a put: no piece follows */

/** The header, little endian. */
struct hws__rma_msg {
    uint8_t type, flags, action, size;
    uint32_t zero;
    uint64_t memory, key;
    uint64_t address; /* at the owner of the memory; of DATA: offset in the answer */
    uint64_t length;  /* of the whole operation, bytes */
    uint64_t op;      /* of the one that asks */
    uint64_t value;   /* of DATA: bytes that follow in further pieces */
    uint64_t compare;
};

_Static_assert(sizeof(struct hws__rma_msg) == 64, "the wire format");

/** Messages that may wait for their answers at once: whoever has asked so often holds the next back. */
#define HWS__RMA_ASKS 4096u

/**
 * Bytes of data in one message: fits one piece of every transport used for it, so that a message
 * is copied once, straight to where it belongs.
 */
#define HWS__RMA_PIECE 8064u

#endif
