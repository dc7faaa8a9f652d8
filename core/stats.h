/*
 * Statistics: the owner of a worker gathers its counters and publishes them as a whole, for threads
 * and processes that cannot look at what only the owner may touch.
 */
#ifndef HWS_CORE_STATS_H
#define HWS_CORE_STATS_H

#include "traffic.h"
#include <stdatomic.h>
#include <stdbool.h>

struct hws__worker;
struct hws__endpoint;

/** How old published counters of a worker that makes progress get. */
#define HWS__STATS_NS 100000000u
#define HWS__STATS_WORDS (sizeof(hws_stats) / sizeof(uint64_t))

/** A struct hws_stats by a sequence lock: `turn` is odd while it is written, by one at a time. */
struct hws__stats_words {
    _Atomic uint64_t turn;
    _Atomic uint64_t at; /* when, by the monotonic clock */
    _Atomic uint64_t word[HWS__STATS_WORDS];
};

void hws__stats_write(struct hws__stats_words *to, const hws_stats *s, uint64_t now);
/** False if the writer keeps it or died in the middle. */
bool hws__stats_read(struct hws__stats_words *from, hws_stats *s, uint64_t *at);

/** The way of an endpoint, HWS_VIA_*. */
uint32_t hws__endpoint_via(const struct hws__endpoint *ep);
/** Publish the counters of a worker. Owner only. */
void hws__stats_publish(struct hws__worker *w, uint64_t now);
/** The same if they are older than HWS__STATS_NS. Owner only. */
void hws__stats_tick(struct hws__worker *w, uint64_t now);
/** A worker ends: what it counted stays with its context. */
void hws__stats_retire(struct hws__worker *w);
/** A context ends: what it counted stays with the process. */
void hws__stats_context_ended(const hws_stats *gone);

#endif
