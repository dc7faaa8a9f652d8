/*
 * System V shared memory that lies behind an address: its name, and holding it against its owner's end.
 */
#ifndef HWS_CORE_SEGMENT_H
#define HWS_CORE_SEGMENT_H

#include <stdint.h>

/** The segment mapped at `address` of this process, by a name that is never 0; 0 if it is none, or cannot be told. */
uint64_t hws__segment_of(const void *address);
/**
 * Attach a segment by its name, or null where it is gone. Then it exists until it is released, whoever ends
 * meanwhile.
 */
const void *hws__segment_hold(uint64_t segment);
void hws__segment_release(const void *held);

#endif
