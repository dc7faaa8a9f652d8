/*
 * The page of a worker that other processes read: memory without a name in any file system, which they
 * find among the descriptors of this process (/proc/PID/fd). Nothing is left over when it dies, and
 * who may look is decided by the kernel as for a debugger.
 */
#ifndef HWS_CORE_STATS_PAGE_H
#define HWS_CORE_STATS_PAGE_H

#include "latency.h"
#include "stats.h"

#define HWS__STATS_PAGE_NAME "hawser-stats"
#define HWS__STATS_PAGE_MAGIC UINT64_C(0x3173746174737768) /* "hwstats1" */

struct hws__stats_page {
    uint64_t magic;
    uint32_t size;       /* of this structure in the library that wrote it */
    uint32_t stats_size; /* sizeof(hws_stats) there */
    uint32_t pid;        /* as the process itself knows it: a forked child has the page too */
    uint32_t mode;
    uint32_t has_latency;
    uint32_t reserved;
    hws_id worker;
    char name[64];
    struct hws__stats_words stats;
    struct hws__latency latency; /* its pages do not exist until something is written */
};

struct hws__worker;

/** Make the page of a worker. Without memory for it there are no histograms: false. */
bool hws__stats_page_open(struct hws__worker *w, bool latency);
/** The worker can be used: let others find the page. */
void hws__stats_page_announce(struct hws__worker *w, hws_id id);
void hws__stats_page_close(struct hws__worker *w);

#endif
