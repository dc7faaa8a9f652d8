#include "support/address.h"

#include <stdlib.h>
#include <string.h>

t_address t_address_of(hws_id worker, uint32_t flags)
{
    t_address b = {0};

    CHECK_OK(hws_worker_address(worker, flags, NULL, 0, &b.length));
    CHECK(b.length > 0 && b.length <= sizeof(b.data));
    CHECK_CODE(hws_worker_address(worker, flags, b.data, b.length - 1, NULL), HWS_E_TOO_BIG);
    CHECK_OK(hws_worker_address(worker, flags, b.data, sizeof(b.data), &b.length));
    return b;
}

hws_id t_address_dial(t_pair *pair, int side, const t_address *b, uint32_t flags)
{
    hws_endpoint_opts opts = {
        .struct_size = sizeof(opts), .flags = flags, .sink = t_record_sink(&pair->record[side], 9)};
    hws_id endpoint = 0, op = 0;
    hws_event event;

    CHECK_OK(
        hws_connect_address(pair->worker[side], b->data, b->length, &opts, NULL, &endpoint, &op));
    event = WAIT_OK(pair, op);
    CHECK_EQ(event.kind, HWS_EVENT_CONNECT);
    return endpoint;
}

void t_address_exchange(t_pair *pair, hws_id from, hws_id source, uint64_t tag)
{
    static const size_t lengths[] = {0, 8, 4096, 100000, 1 << 20};
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    for (size_t i = 0; i < 10; i++) {
        size_t length = lengths[i % 5];
        hws_id send = 0, recv = 0;
        hws_event event;

        t_fill(out, length, i + tag);
        if (i < 5) {
            CHECK_OK(hws_tag_recv(source, in, 1 << 20, tag + i, UINT64_MAX, NULL, &recv));
        }
        CHECK_OK(hws_tag_send(from, out, length, tag + i, NULL, &send));
        if (i >= 5) {
            UNTIL(pair, hws_tag_probe(source, tag + i, UINT64_MAX, NULL, NULL) == HWS_OK);
            CHECK_OK(hws_tag_recv(source, in, 1 << 20, tag + i, UINT64_MAX, NULL, &recv));
        }
        event = WAIT_OK(pair, recv);
        WAIT_OK(pair, send);
        CHECK_EQ(event.length, length);
        CHECK_EQ(event.tag, tag + i);
        CHECK_FILLED(in, length, i + tag);
        CHECK_OK(hws_tag_return(source, in, length, tag + i));
        memset(in, 0, length);
        CHECK_OK(hws_tag_recv(source, in, 1 << 20, tag + i, UINT64_MAX, NULL, &recv));
        CHECK_EQ(WAIT_OK(pair, recv).length, length);
        CHECK_FILLED(in, length, i + tag);
    }
    free(out);
    free(in);
}
