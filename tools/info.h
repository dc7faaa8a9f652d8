/*
 * `hawser info`: what it finds out.
 */
#ifndef HAWSER_INFO_H
#define HAWSER_INFO_H

#include <hawser.h>

#include <stdbool.h>

#define INFO_TRANSPORTS_MAX 32
#define INFO_FLAGS 7

/** A transport and the devices that it can use. */
typedef struct info_transport {
    char name[32];
    char devices[256]; /* "eth0, lo" */
} info_transport;

/** How the UCX in use was built, as far as it matters to its users. */
typedef struct info_flag {
    const char *name;
    const char *meaning;
    bool on;
} info_flag;

typedef struct info_facts {
    hws_library_info library;
    bool flags_known; /* only ucx_info of the same UCX can tell; it is not always installed */
    info_flag flags[INFO_FLAGS];
    info_transport transports[INFO_TRANSPORTS_MAX];
    uint32_t transport_count;
} info_facts;

/* info_ucx.c */
void info_flags(info_facts *facts);
void info_transports(info_facts *facts, const char *description);

#endif
