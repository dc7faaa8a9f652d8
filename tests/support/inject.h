/*
 * A message handed to the core as if UCX had received it from the client of a pair: what no honest peer sends.
 */
#ifndef TESTS_SUPPORT_INJECT_H
#define TESTS_SUPPORT_INJECT_H

#include "support/pair.h"

#include "endpoint.h"
#include "progress.h"

#include <stdlib.h>
#include <string.h>

static inline struct hws__endpoint *t_server_of(const t_pair *pair)
{
    return hws__obj_find(&hws__objects, pair->endpoint[1]);
}

/* In memory of exactly its length, for the address sanitizer. */
static inline void t_inject(t_pair *pair, ucp_am_recv_callback_t handler, const void *data,
                            size_t length, uint64_t attr)
{
    struct hws__endpoint *ep = t_server_of(pair);
    ucp_am_recv_param_t param = {.recv_attr = attr};
    bool nested = hws__own(ep->worker);
    void *copy = t_alloc(length + 1);

    memcpy(copy, data, length);
    CHECK_EQ(handler(ep->uworker, NULL, 0, copy, length, &param), UCS_OK);
    free(copy);
    hws__disown(ep->worker, nested);
}

#endif
