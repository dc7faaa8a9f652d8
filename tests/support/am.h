/*
 * Active messages of tests: posting that succeeds, and a handler that keeps what it saw.
 */
#ifndef TESTS_SUPPORT_AM_H
#define TESTS_SUPPORT_AM_H

#include "support/pair.h"

/* Posts; the operation has an id, which is returned. */
hws_id t_am_send(hws_id endpoint, uint32_t am_id, const void *header, uint64_t header_length,
                 const void *data, uint64_t length, uint32_t op_flags);

/* What a callback saw last. */
typedef struct t_am_seen {
    int count;
    uint32_t flags, am_id;
    int32_t status;
    uint64_t user, length, header_length, header_sum, sum;
    hws_id source, endpoint, buffer;
} t_am_seen;

/* The handler's callback: `arg` is a t_am_seen. Notices of other kinds count nothing. */
void t_am_note(void *arg, const hws_event *event);

/* Clears `seen` and has a handler keep there what comes; its user value is 90 + am_id. */
void t_am_handle(hws_id worker, uint32_t am_id, uint32_t am_flags, t_am_seen *seen);

#endif
