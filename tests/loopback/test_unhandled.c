/*
 * Active messages whose id nobody handles, as a plain UCX program may send them to whoever gave it an address:
 * they are dropped, and the worker goes on. UCX 1.13 would look behind the end of its table of handlers.
 *
 * INTERNAL (ids above HWS_AM_ID_MAX)
 */
#include "support/cases.h"
#include "support/pair.h"

#include "blob.h"
#include "endpoint.h"
#include "progress.h"
#include "ucx_loader.h"

static hws_id dial_plain(t_pair *pair, uint32_t address_flags)
{
    hws_endpoint_opts raw = {.struct_size = sizeof(raw), .flags = HWS_ENDPOINT_RAW};
    unsigned char bytes[16384];
    struct hws__blob blob = {0};
    hws_id endpoint = 0, op = 0;
    uint64_t length = 0;

    CHECK_OK(hws_worker_address(pair->worker[1], address_flags, bytes, sizeof(bytes), &length));
    CHECK_OK(hws__blob_read(bytes, length, &blob));
    CHECK_OK(hws_connect_address(pair->worker[0], blob.address, blob.address_length, &raw, NULL,
                                 &endpoint, &op));
    WAIT_OK(pair, op);
    return endpoint;
}

static void send_am(hws_id endpoint, unsigned id, size_t length)
{
    static char data[100000];
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_REPLY};
    const struct hws__endpoint *ep = hws__obj_find(&hws__objects, endpoint);
    bool nested = hws__own(ep->worker);
    ucs_status_ptr_t sent = hws__ucx.ucp_am_send_nbx(ep->ucx, id, NULL, 0, data, length, &param);

    CHECK(!UCS_PTR_IS_ERR(sent));
    if (sent != NULL) {
        hws__ucx.ucp_request_free(sent);
    }
    hws__disown(ep->worker, nested);
}

/* What arrives behind it shows that it was dropped. */
static void dropped(uint32_t address_flags, unsigned id)
{
    char out[8] = "behind", in[8] = "";
    hws_id endpoint, send = 0, recv = 0;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    endpoint = dial_plain(&pair, address_flags);
    send_am(endpoint, id, 5);
    send_am(endpoint, id, 100000);
    t_pair_idle(&pair, 20 * T_MS);
    t_pair_connect(&pair, NULL, &pair.endpoint[0], &pair.endpoint[1]);
    CHECK_OK(hws_tag_send(pair.endpoint[0], out, 8, 7, NULL, &send));
    CHECK_OK(hws_tag_recv(pair.endpoint[1], in, 8, 7, UINT64_MAX, NULL, &recv));
    WAIT_OK(&pair, recv);
    WAIT_OK(&pair, send);
    CHECK_STR(in, out);
    t_pair_close(&pair);
}

CASE(first_id)
{
    dropped(0, 0);
}

CASE(an_id)
{
    dropped(0, 70);
}

CASE(last_id)
{
    dropped(0, UINT16_MAX);
}

CASE(last_id_where_a_hello_is_expected)
{
    dropped(HWS_ADDRESS_HELLO, UINT16_MAX);
}

CASES_MAIN
