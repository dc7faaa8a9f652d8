/*
 * Whose endpoint of UCX is whose. UCX pairs the endpoints that two UCX workers make to each other's address by their
 * numbers: the nth of one with the nth of the other, whoever asked for them. So the answer to the nth dial must be the
 * nth endpoint that is made to the dialler, also where an earlier dial was given up.
 */
#ifndef HWS_CORE_PAIRING_H
#define HWS_CORE_PAIRING_H

#include <stdint.h>

struct hws__uworker;

/** Sorted by peer. */
struct hws__pairings {
    struct hws__pairing {
        uint64_t peer; /* UCX's number of its UCX worker */
        uint64_t made; /* endpoints that were made to it, ever */
    } * of;
    uint32_t count, room;
};

/**
 * How many endpoints of UCX were made by `u` to a UCX address; the caller counts. Null: no memory, or not an address.
 * Valid until the next call.
 */
uint64_t *hws__pairing(struct hws__uworker *u, const void *address);
void hws__pairings_free(struct hws__pairings *p);

#endif
