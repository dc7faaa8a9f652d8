/*
 * UCX may end the fetch of a rendezvous with an error inside the call that begins it, when the peer is gone
 * already: the receive fails, and does not report data that never came.
 * INTERNAL
 */
#include "endpoint.h"
#include "support/cases.h"
#include "support/pair.h"
#include "ucx_loader.h"

#include <string.h>

#define LENGTH (1u << 20)

static char request;
static void *kept;
static ucs_status_ptr_t (*real_fetch)(ucp_worker_h, void *, void *, size_t,
                                      const ucp_request_param_t *);
static void (*real_free)(void *);

static ucs_status_ptr_t fail_inside(ucp_worker_h worker, void *desc, void *buffer, size_t count,
                                    const ucp_request_param_t *param)
{
    (void)worker;
    (void)buffer;
    (void)count;
    kept = desc;
    param->cb.recv_am(&request, UCS_ERR_CONNECTION_RESET, 0, param->user_data);
    return &request;
}

static void free_request(void *r)
{
    if (r != &request) {
        real_free(r);
    }
}

/* What the receive ends with, posted before or after the message comes. */
static int32_t outcome(int unexpected)
{
    static char from[LENGTH], to[LENGTH];
    hws_id recv = 0, send = 0;
    const struct hws__endpoint *ep;
    int32_t status;
    t_pair pair;

    t_pair_open(&pair, NULL);
    real_fetch = hws__ucx.ucp_am_recv_data_nbx;
    real_free = hws__ucx.ucp_request_free;
    hws__ucx.ucp_am_recv_data_nbx = fail_inside;
    hws__ucx.ucp_request_free = free_request;
    if (!unexpected) {
        CHECK_OK(hws_tag_recv(pair.endpoint[1], to, LENGTH, 7, UINT64_MAX, NULL, &recv));
    }
    CHECK_OK(hws_tag_send(pair.endpoint[0], from, LENGTH, 7, NULL, &send));
    if (unexpected) {
        UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 7, UINT64_MAX, NULL, NULL) == HWS_OK);
        CHECK_OK(hws_tag_recv(pair.endpoint[1], to, LENGTH, 7, UINT64_MAX, NULL, &recv));
    }
    status = WAIT(&pair, recv).status;
    hws__ucx.ucp_am_recv_data_nbx = real_fetch;
    hws__ucx.ucp_request_free = real_free;
    CHECK(kept != NULL);
    ep = hws__obj_find(&hws__objects, pair.endpoint[1]);
    hws__ucx.ucp_am_data_release(ep->uworker->ucx, kept);
    WAIT(&pair, send);
    t_pair_close(&pair);
    return status;
}

CASE(posted_first)
{
    CHECK_CODE(outcome(0), HWS_E_CONNECTION_RESET);
}

CASE(message_first)
{
    CHECK_CODE(outcome(1), HWS_E_CONNECTION_RESET);
}

CASES_MAIN
