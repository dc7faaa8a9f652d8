#include "support/dial.h"
#include "support/spawn.h"

#include <stdlib.h>

hws_id t_dial(t_pair *pair, const char *host, uint16_t port, uint64_t timeout_ns, hws_id *op)
{
    hws_endpoint_opts endpoint = {.struct_size = sizeof(endpoint),
                                  .sink = t_record_sink(&pair->record[0], 3)};
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .callback = t_record_event,
                        .callback_arg = &pair->record[0],
                        .user = T_DIAL_USER,
                        .timeout_ns = timeout_ns};
    hws_id id = 0;

    CHECK_OK(hws_connect(pair->worker[0], host, port, &endpoint, &opts, &id, op));
    return id;
}

t_seen t_dialled(t_pair *pair, hws_id endpoint)
{
    t_seen seen;

    UNTIL(pair, t_record_find(&pair->record[0], HWS_EVENT_CONNECT, endpoint, 0, &seen));
    return seen;
}

void t_exchange(t_pair *pair, hws_id a, hws_id b)
{
    uint64_t out[2] = {11, 22}, in[2] = {0, 0};
    hws_id ops[4];

    CHECK_OK(hws_tag_recv(b, &in[0], 8, 5, UINT64_MAX, NULL, &ops[0]));
    CHECK_OK(hws_tag_recv(a, &in[1], 8, 5, UINT64_MAX, NULL, &ops[1]));
    CHECK_OK(hws_tag_send(a, &out[0], 8, 5, NULL, &ops[2]));
    CHECK_OK(hws_tag_send(b, &out[1], 8, 5, NULL, &ops[3]));
    for (int i = 0; i < 4; i++) {
        WAIT_OK(pair, ops[i]);
    }
    CHECK_EQ(in[0], 11);
    CHECK_EQ(in[1], 22);
}

void t_gone(t_pair *pair, hws_id id)
{
    UNTIL(pair, hws_kind(id) == HWS_E_STALE);
}

hws_listener_info t_listener_info(hws_id listener)
{
    hws_listener_info info = {.struct_size = sizeof(info)};

    CHECK_OK(hws_listener_query(listener, &info));
    return info;
}

hws_id t_child_dial(const char *port, const hws_context_opts *how, uint32_t endpoint_flags,
                    hws_id *worker)
{
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = endpoint_flags};
    hws_id context = 0, endpoint = 0, op = 0;

    t_child_begin();
    CHECK_OK(hws_context_open(how, &context));
    CHECK_OK(hws_worker_open(context, NULL, worker));
    CHECK_OK(hws_connect(*worker, "127.0.0.1", (uint16_t)atoi(port), &opts, NULL, &endpoint, &op));
    CHECK_OK(hws_wait(op, t_patience(), NULL));
    return endpoint;
}
