/*
 * Endpoints that are left while UCX flushes them. A send that wants an answer makes UCX connect once more; a flush
 * behind it waits for that, and goes on in the progress after the one that connects. Here UCX makes its progress step
 * by step, so that somebody leaves between any two. INTERNAL
 */
#include "support/cases.h"
#include "support/pair.h"
#include "ucx_loader.h"
#include "waddress.h"
#include "worker.h"

#define STEPS 12

static unsigned (*progress)(ucp_worker_h);
static ucs_status_ptr_t (*close_nbx)(ucp_ep_h, const ucp_request_param_t *);
static ucp_worker_h watched; /* of side 0 */
static bool slow, may;       /* it makes progress only when it may */
static bool left;            /* with a flush under way */
static unsigned last, since; /* what its last progress did; how many there were since it was left */

static unsigned progress_slowly(ucp_worker_h ucx)
{
    if (ucx != watched) {
        return progress(ucx);
    }
    if (slow && !may) {
        return 0;
    }
    may = false;
    since++;
    return last = progress(ucx);
}

/* What UCX frees too early need not be missed: so it is looked at here. */
static ucs_status_ptr_t close_watched(ucp_ep_h ep, const ucp_request_param_t *param)
{
    CHECK(!left || last == 0 || since != 0);
    left = false;
    return close_nbx(ep, param);
}

/* Both sides, and an address of side 1. */
static void open_pair(t_pair *pair, unsigned char *address, uint64_t room, uint64_t *length)
{
    t_pair_listen(pair, NULL);
    CHECK_OK(hws_worker_address(pair->worker[1], 0, address, room, length));
    if (progress == NULL) {
        progress = hws__ucx.ucp_worker_progress;
        hws__ucx.ucp_worker_progress = progress_slowly;
        close_nbx = hws__ucx.ucp_ep_close_nbx;
        hws__ucx.ucp_ep_close_nbx = close_watched;
    }
}

static void step(t_pair *pair)
{
    for (int i = 0; i < 20; i++) {
        CHECK(hws_worker_progress(pair->worker[1]) >= 0);
    }
    t_sleep(T_MS / 5);
    may = true;
    CHECK(hws_worker_progress(pair->worker[0]) >= 0);
}

/* Connected, with a flush that so many steps were made of. */
static hws_id flush_for(t_pair *pair, int steps, hws_id op[2])
{
    unsigned char address[4096];
    static const uint64_t out = 1;
    uint64_t length;
    hws_id endpoint = 0, connect = 0;
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .close_timeout_ns = 1};
    int32_t code;

    open_pair(pair, address, sizeof(address), &length);
    CHECK_OK(
        hws_connect_address(pair->worker[0], address, length, &opts, NULL, &endpoint, &connect));
    WAIT_OK(pair, connect);
    watched = hws__worker_find(pair->worker[0], &code)->addressed[HWS__ADDRESSED_PLAIN]->ucx;
    slow = true;
    CHECK_OK(hws_tag_send_sync(endpoint, &out, 8, 7, NULL, &op[0]));
    CHECK_OK(hws_flush(endpoint, NULL, &op[1]));
    for (int i = 0; i < steps; i++) {
        step(pair);
    }
    return endpoint;
}

static void leave(int32_t (*how)(hws_id))
{
    for (int steps = 0; steps < STEPS; steps++) {
        t_pair pair;
        hws_id op[2], endpoint = flush_for(&pair, steps, op);
        bool flushes = hws_wait(op[1], 0, NULL) == HWS_E_TIMED_OUT;

        left = flushes && how == hws_abort;
        since = 0;
        CHECK_OK(how(endpoint));
        slow = false;
        (void)WAIT(&pair, op[0]);
        if (flushes) {
            (void)WAIT(&pair, op[1]);
        }
        UNTIL(&pair, hws_kind(endpoint) == HWS_E_STALE);
        t_pair_close(&pair);
    }
}

CASE(aborted)
{
    leave(hws_abort);
}

CASE(closed_too_late)
{
    leave(hws_close);
}

CASE(all_closed)
{
    for (int steps = 0; steps < STEPS; steps++) {
        t_pair pair;
        hws_id op[2];

        (void)flush_for(&pair, steps, op);
        slow = false;
        t_pair_close(&pair);
    }
}

/* The peer makes no progress: the close ends all the same. */
CASE(the_peer_sleeps)
{
    t_pair pair;
    unsigned char address[4096];
    hws_id endpoint = 0, connect = 0;
    hws_endpoint_opts opts = {
        .struct_size = sizeof(opts), .flags = HWS_ENDPOINT_LAZY, .close_timeout_ns = 50 * T_MS};
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
    uint64_t length, start;

    open_pair(&pair, address, sizeof(address), &length);
    CHECK_OK(
        hws_connect_address(pair.worker[0], address, length, &opts, NULL, &endpoint, &connect));
    WAIT_OK(&pair, connect);
    CHECK_OK(hws_tag_send_sync(endpoint, "unheard", 8, 7, &detached, NULL));
    start = t_now();
    CHECK_OK(hws_close_wait(endpoint, 10 * T_SECOND));
    CHECK(t_now() - start < 2 * T_SECOND);
    t_pair_close(&pair);
}

CASES_MAIN
