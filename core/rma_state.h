/*
 * What an endpoint knows of remote memory access in both directions.
 */
#ifndef HWS_CORE_RMA_STATE_H
#define HWS_CORE_RMA_STATE_H

#include "list.h"
#include <stdbool.h>
#include <stdint.h>

struct hws__rma {
    /* Messages to send, each list in order: a job's last goes before the next's first. */
    struct hws__list jobs;    /* of this side's operations */
    struct hws__list answers; /* to the peer's, which pass those that wait for the peer's answers */
    uint32_t asked;           /* messages whose answer has not come, at most HWS__RMA_ASKS */
    uint32_t answering;       /* answers that are not sent */
    bool answers_next;        /* the lists take turns */
    struct hws__list plans;
    bool busy;         /* UCX holds a message of the job that is under way */
    bool fenced;       /* messages that are not flushed must not be overtaken by direct access */
    bool flushing;     /* UCX flushes */
    uint64_t messages; /* operations that were made messages, */
    uint64_t messages_flushing, messages_flushed; /* asked to be, and known to be complete */
    uint64_t ucx, ucx_flushed;                    /* operations that UCX did, likewise */
};

#endif
