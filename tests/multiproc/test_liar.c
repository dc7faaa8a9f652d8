/*
 * A client that lies: a plain UCX program that claims, by its client id, to use TCP only, but comes
 * with shared memory. It must not get onto the shared UCX worker, and nobody else must notice.
 *
 * INTERNAL (the client id is no part of the public header) TIMEOUT: 60
 */
#include "support/pair.h"
#include "support/spawn.h"

#include "hello.h"
#include "lanes.h"
#include "ucx_loader.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- The liar ---- */

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    *(ucs_status_t *)arg = status;
}

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    (void)status;
    (void)user_data;
    hws__ucx.ucp_request_free(request);
}

/* liar PORT ID: dials with plain UCX, floods until it is thrown out, says "out" or "in". */
static int liar(uint16_t to, int tcp_claim)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                                       UCP_WORKER_PARAM_FIELD_CLIENT_ID,
                                         .thread_mode = UCS_THREAD_MODE_SINGLE,
                                         .client_id = hws__client_id(tcp_claim)};
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(to), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static ucs_status_t failed = UCS_OK;
    ucp_ep_params_t ep_params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID,
        .sockaddr = {(struct sockaddr *)&address, sizeof(address)},
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_error, &failed}};
    static const char data[64];
    hws_library_info info = {.struct_size = sizeof(info)};
    ucp_config_t *config = NULL;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    uint64_t start;
    unsigned lanes = 0, flags;
    char text[128];

    t_child_begin();
    /* The server needs error handling of shared memory on this side too, for the lane to appear. */
    setenv("UCX_SYSV_ERROR_HANDLING", "y", 1);
    setenv("UCX_MM_ERROR_HANDLING", "y", 1);
    CHECK_OK(hws_library_open(NULL, &info));
    CHECK_EQ(hws__ucx.ucp_config_read(NULL, NULL, &config), UCS_OK);
    CHECK_EQ(hws__ucx.ucp_init_version(1, 13, &params, config, &context), UCS_OK);
    CHECK_EQ(hws__ucx.ucp_worker_create(context, &worker_params, &worker), UCS_OK);
    CHECK_EQ(hws__ucx.ucp_ep_create(worker, &ep_params, &ep), UCS_OK);
    start = t_now();
    while (failed == UCS_OK && t_now() - start < 8 * T_SECOND) {
        ucp_request_param_t send = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = on_sent};
        if (t_now() - start < 2 * T_SECOND) {
            (void)hws__ucx.ucp_am_send_nbx(ep, HWS__AM_TAG, NULL, 0, data, sizeof(data), &send);
        }
        for (int i = 0; i < 100; i++) {
            hws__ucx.ucp_worker_progress(worker);
        }
        flags = 0;
        hws__ucx_ep_lanes(ep, text, sizeof(text), &flags);
        lanes |= flags;
    }
    /* The server may cut it before a lane shows up on this side; if it lets it in, it must not be by
     * shared memory on a shared worker: that is what the server checks. */
    (void)lanes;
    t_say(NULL, failed == UCS_OK ? "in" : "out");
    (void)pause();
    return 0;
}

/* ---- The server ---- */

static t_pair pair_of_test;

static void lied_to(int tcp_claim, uint32_t listener_flags)
{
    t_pair_opts opts = {.listener_flags = listener_flags};
    hws_listener_info info = {.struct_size = sizeof(info)};
    char port[16], claim[16], line[16] = "";
    const char *args[] = {"liar", port, claim, NULL};
    uint64_t in = 0, out = 1;
    hws_id recv = 0, send = 0;
    t_child child;
    int heard = 0;

    t_pair_open(&pair_of_test, &opts);
    t_pair *pair = &pair_of_test;
    snprintf(port, sizeof(port), "%u", pair->port);
    snprintf(claim, sizeof(claim), "%d", tcp_claim);
    t_spawn(&child, args);
    UNTIL(pair, (heard = t_hear_for(&child, line, sizeof(line), 0)) != 0);
    CHECK(heard > 0);
    CHECK_STR(line, "out");
    /* Nothing of it was let in, and it was counted. */
    CHECK_EQ(t_record_kinds(&pair->record[1], HWS_EVENT_ACCEPTED, 0), 1);
    CHECK_EQ(t_stats(pair->worker[1]).unexpected, 0);
    CHECK_OK(hws_listener_query(pair->listener, &info));
    CHECK(t_stats(pair->context).lane_violations + info.strangers >= 1);
    t_kill(&child, 9);
    t_join(&child);
    /* The innocent peer of before is served, and new ones are. */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, UINT64_MAX, NULL, &recv));
        CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, NULL, &send));
        WAIT_OK(pair, send);
        WAIT_OK(pair, recv);
        t_pair_connect(pair, NULL, &pair->endpoint[0], &pair->endpoint[1]);
    }
    t_pair_close(pair);
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        return liar((uint16_t)atoi(argv[2]), atoi(argv[3]));
    }
    lied_to(1, 0); /* "TCP only", but with shared memory */
    lied_to(0, 0); /* speaks of a hello that never comes, floods instead */
    return 0;
}
