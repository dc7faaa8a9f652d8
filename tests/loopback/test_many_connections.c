/*
 * More connections by TCP to one worker than UCX 1.13 takes by its own default, 1024 on each side.
 */
/* TIMEOUT: 180 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/proc.h"

#include <stdlib.h>
#include <sys/resource.h>

#define MANY 1100
/* Both ends are in this process, each with a socket for the dial and one for the data. */
#define FILES 8192

static hws_id client[MANY], server[MANY];

CASE(all_are_made)
{
    t_pair_opts opts = {.endpoint_flags = HWS_ENDPOINT_TCP_ONLY};
    uint64_t out = 7, in = 0;
    hws_id recv, send;
    t_pair pair;

    if (t_limit(RLIMIT_NOFILE, FILES) < FILES) {
        SKIP("fewer than %d files may be open", FILES);
    }
    t_pair_listen(&pair, &opts);
    for (int i = 0; i < MANY; i++) {
        t_pair_connect(&pair, &opts, &client[i], &server[i]);
    }
    CHECK_OK(hws_tag_recv(server[MANY - 1], &in, sizeof in, 1, UINT64_MAX, NULL, &recv));
    CHECK_OK(hws_tag_send(client[MANY - 1], &out, sizeof out, 1, NULL, &send));
    WAIT_OK(&pair, send);
    WAIT_OK(&pair, recv);
    CHECK_EQ(in, out);
    t_pair_close(&pair);
}

/* The user's own limit is kept, and named. */
CASE(ucx_has_no_room)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts, .flags = HWS_ENDPOINT_TCP_ONLY};
    int32_t status = HWS_OK;
    t_pair pair;

    setenv("UCX_ASYNC_MAX_EVENTS", "48", 1);
    t_pair_listen(&pair, NULL);
    for (int i = 0; i < 64 && status == HWS_OK; i++) {
        hws_id op;

        CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, &opts, NULL, &client[i], &op));
        status = WAIT(&pair, op).status;
    }
    if (status != HWS_OK) { /* newer versions of UCX have no such limit */
        CHECK_EQ(status, HWS_E_NO_RESOURCE);
    }
    t_pair_close(&pair);
}

CASES_MAIN
