/*
 * `hawser stats`: what was read, and how it is shown.
 */
#ifndef HAWSER_STATS_PRINT_H
#define HAWSER_STATS_PRINT_H

#include <hawser.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct stats_options {
    uint32_t pid;
    uint32_t watch; /* seconds; 0: once */
    bool all, json;
} stats_options;

/** One worker of the process. */
typedef struct stats_worker {
    hws_stats stats;
    hws_peek_info info;
} stats_worker;

/** A counter by its name in hws_stats. */
typedef struct stats_field {
    const char *name;
    size_t offset;
} stats_field;

extern const stats_field stats_fields[]; /* ends with a null name */
extern const char *const stats_traffic[7];
extern const char *const stats_vias[5];

uint64_t stats_value(const hws_stats *s, const stats_field *f);
/** The name of an operation's kind, or null. */
const char *stats_kind(uint32_t kind);

/** Exit codes. */
int stats_print(const stats_options *o, const stats_worker *workers, uint32_t count);
int stats_print_json(const stats_options *o, const stats_worker *workers, uint32_t count);

#endif
