/*
 * The limits of the process: with few descriptors, or little address space, left, every call says by
 * its code what it could not do, what is open goes on, and all works again once there is room.
 * TIMEOUT: 300
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/proc.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define ALL UINT64_MAX

static void limit(int what, uint64_t value)
{
    struct rlimit l;

    CHECK_EQ(getrlimit(what, &l), 0);
    l.rlim_cur = value < l.rlim_max ? value : l.rlim_max;
    CHECK_EQ(setrlimit(what, &l), 0);
}

static void echo(t_pair *pair)
{
    uint64_t out = 5, in = 0;
    hws_id send = 0, receive = 0;

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, ALL, NULL, &receive));
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(pair, send);
    WAIT_OK(pair, receive);
    CHECK_EQ(in, 5);
}

/* What a want of resources may end in: on this side, or seen from the other. */
static int is_want(int32_t code)
{
    switch (code) {
    case HWS_OK:
    case HWS_E_NO_RESOURCE:
    case HWS_E_NO_MEMORY:
    case HWS_E_SYSTEM:
    case HWS_E_IO:
    case HWS_E_RESOLVE: /* the resolver needs descriptors, too */
    case HWS_E_UNREACHABLE:
    case HWS_E_REJECTED:
    case HWS_E_ISOLATED_CAP:
    case HWS_E_CONNECTION_RESET:
    case HWS_E_REFUSED:
    case HWS_E_PEER_VERSION: /* what a second rejection most often means; no reason comes with it */
    case HWS_E_TIMED_OUT:
        return 1;
    default:
        return 0;
    }
}

/* One more connection, if there is enough for it. */
static int32_t one_more(t_pair *pair, uint32_t flags, hws_id *endpoint)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts, .flags = flags};
    hws_op_opts deadline = {.struct_size = sizeof deadline, .timeout_ns = 2 * T_SECOND};
    hws_id op = 0;
    int32_t r =
        hws_connect(pair->worker[0], "127.0.0.1", pair->port, &opts, &deadline, endpoint, &op);

    if (r == HWS_OK) {
        r = WAIT(pair, op).status;
    }
    if (!is_want(r)) {
        t_fail(__FILE__, __LINE__, "connecting: %s", hws_error_name(r));
    }
    return r;
}

static void close_one(t_pair *pair, hws_id endpoint)
{
    if (endpoint != 0 && hws_kind(endpoint) > 0) {
        CHECK_OK(hws_close(endpoint));
        UNTIL(pair, hws_kind(endpoint) < 0);
    }
}

CASE_BOTH(descriptors)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    int refused = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (uint64_t left = 0; left < 72; left += 4) {
        hws_id endpoint = 0, context = 0;

        limit(RLIMIT_NOFILE, t_fd_count() + left);
        refused += one_more(&pair, flags, &endpoint) != HWS_OK;
        CHECK(is_want(hws_context_open(NULL, &context)));
        echo(&pair);
        limit(RLIMIT_NOFILE, UINT64_MAX);
        if (context != 0) {
            CHECK_OK(hws_close_wait(context, t_patience()));
        }
        close_one(&pair, endpoint);
    }
    CHECK(refused > 0);
    {
        hws_id endpoint = 0;

        CHECK_OK(one_more(&pair, flags, &endpoint));
        close_one(&pair, endpoint);
    }
    t_pair_close(&pair);
}

CASES_MAIN
