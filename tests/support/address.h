/*
 * Addresses of a pair's workers, endpoints made by them, and messages over those.
 */
#ifndef TESTS_SUPPORT_ADDRESS_H
#define TESTS_SUPPORT_ADDRESS_H

#include "support/pair.h"

typedef struct t_address {
    uint64_t length;
    unsigned char data[16384];
} t_address;

/* By the flags of hws_worker_address(); asked for its length, with too little room, and with enough. */
t_address t_address_of(hws_id worker, uint32_t flags);

/* An endpoint of the pair's side to who has the address, connected. */
hws_id t_address_dial(t_pair *pair, int side, const t_address *b, uint32_t flags);

/*
 * Ten messages of every size from `from` to `source`, an endpoint or a worker; half of them wait for their receive.
 * Each is given back and received once more.
 */
void t_address_exchange(t_pair *pair, hws_id from, hws_id source, uint64_t tag);

#endif
