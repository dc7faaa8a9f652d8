/*
 * UCX keeps some requests of a connection that was cut for as long as its worker exists (1.13). The operations end all
 * the same, and what had come before waits for its receiver.
 * INTERNAL
 */
#include "endpoint.h"
#include "support/cases.h"
#include "support/pair.h"
#include "ucx_loader.h"

#include <string.h>

#define LENGTH 4000u

static char request;
static ucs_status_ptr_t (*real_send)(ucp_ep_h, unsigned, const void *, size_t, const void *, size_t,
                                     const ucp_request_param_t *);

static ucs_status_ptr_t keep(ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
                             const void *buffer, size_t count, const ucp_request_param_t *param)
{
    (void)ep;
    (void)id;
    (void)header;
    (void)header_length;
    (void)buffer;
    (void)count;
    (void)param;
    hws__ucx.ucp_am_send_nbx = real_send;
    return &request;
}

/* Side 0 has got messages that nobody has received, one posted a send that UCX keeps. Its end is the result. */
static hws_id stuck(t_pair *pair, const char *data)
{
    const hws_segment segments[] = {
        {.base = (void *)(uintptr_t)data, .length = LENGTH - 1000},
        {.base = (void *)(uintptr_t)(data + LENGTH - 1000), .length = 1000}};
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
    hws_id op = 0;

    CHECK_OK(hws_tag_send(pair->endpoint[1], data, LENGTH, 1, &detached, NULL));
    CHECK_OK(hws_multi_send(pair->endpoint[1], 2, segments, 2, NULL, &detached, NULL));
    UNTIL(pair, hws_tag_probe(pair->endpoint[0], 1, UINT64_MAX, NULL, NULL) == HWS_OK);
    t_pair_idle(pair, 50 * T_MS);
    real_send = hws__ucx.ucp_am_send_nbx;
    hws__ucx.ucp_am_send_nbx = keep;
    CHECK_OK(hws_tag_send(pair->endpoint[0], data, LENGTH, 1, NULL, &op));
    CHECK(hws__ucx.ucp_am_send_nbx == real_send);
    CHECK(op != 0);
    return op;
}

static void fill(char *data)
{
    for (uint32_t i = 0; i < LENGTH; i++) {
        data[i] = (char)(i * 7 + i / 256);
    }
}

CASE(unreceived_messages_hold_nothing_up)
{
    static char data[LENGTH], in[LENGTH];
    t_pair pair;
    hws_id op, receive = 0;
    uint64_t start = t_now();

    fill(data);
    t_pair_open(&pair, NULL);
    op = stuck(&pair, data);
    CHECK_OK(hws_abort(pair.endpoint[1]));
    CHECK(WAIT(&pair, op).status < 0);
    CHECK(t_now() - start < 5 * T_SECOND);
    CHECK_OK(hws_tag_recv(pair.worker[0], in, LENGTH, 1, UINT64_MAX, NULL, &receive));
    CHECK_EQ(WAIT_OK(&pair, receive).length, LENGTH);
    CHECK_EQ(memcmp(in, data, LENGTH), 0);
    t_pair_close(&pair);
}

CASE(nor_do_segments)
{
    static char data[LENGTH];
    const hws_multi_detail *detail;
    t_pair pair;
    hws_id op, receive = 0;
    hws_event event;

    fill(data);
    t_pair_open(&pair, NULL);
    op = stuck(&pair, data);
    CHECK_OK(hws_abort(pair.endpoint[1]));
    CHECK(WAIT(&pair, op).status < 0);
    CHECK_OK(hws_multi_recv(pair.worker[0], 2, UINT64_MAX, NULL, NULL, &receive));
    event = WAIT_OK(&pair, receive);
    detail = event.detail;
    CHECK_EQ(detail->count, 2);
    CHECK_EQ(memcmp(detail->segments[0].base, data, LENGTH - 1000), 0);
    CHECK_EQ(memcmp(detail->segments[1].base, data + LENGTH - 1000, 1000), 0);
    CHECK_OK(hws_close(detail->buffer));
    t_pair_close(&pair);
}

CASES_MAIN
