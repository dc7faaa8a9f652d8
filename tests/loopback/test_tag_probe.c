/*
 * Tagged messages that are looked at before they are received, or dropped. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/tag.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

CASE_BOTH(probe_and_message_recv)
{
    static const size_t lengths[] = {0, 8, 4096, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    t_pair_open_flags(&pair, flags);
    for (int i = 0; i < 4; i++) {
        for (int level = 0; level < 2; level++) {
            hws_message_info info = {.struct_size = sizeof(info)};
            hws_id source = level ? pair.worker[1] : pair.endpoint[1];
            hws_id message = 0, op = 0, send;
            t_fill(out, lengths[i], 3);
            send = t_tag_send(pair.endpoint[0], out, lengths[i], 33);
            t_tag_arrived(&pair, source, 33);
            CHECK_OK(hws_tag_probe(source, 33, ALL, &info, NULL));
            CHECK_EQ(info.length, lengths[i]);
            CHECK_EQ(info.tag, 33);
            CHECK(info.endpoint == pair.endpoint[1]);
            memset(&info, 0, sizeof(info));
            info.struct_size = sizeof(info);
            CHECK_OK(hws_tag_probe(source, 32, ~UINT64_C(1), &info, &message));
            CHECK_EQ(info.length, lengths[i]);
            CHECK_EQ(hws_kind(message), HWS_KIND_MESSAGE);
            /* It is out of matching now. */
            CHECK_CODE(hws_tag_probe(pair.endpoint[1], 33, ALL, NULL, NULL), HWS_E_NOT_FOUND);
            CHECK_CODE(hws_tag_probe(pair.worker[1], 33, ALL, NULL, NULL), HWS_E_NOT_FOUND);
            CHECK_OK(hws_message_recv(message, in, 1 << 20, NULL, &op));
            CHECK_CODE(hws_message_recv(message, in, 1 << 20, NULL, &op), HWS_E_STALE);
            hws_event event = WAIT_OK(&pair, op);
            CHECK_EQ(event.kind, HWS_EVENT_TAG_RECV);
            CHECK_EQ(event.length, lengths[i]);
            CHECK_EQ(event.tag, 33);
            CHECK_FILLED(in, lengths[i], 3);
            WAIT_OK(&pair, send);
        }
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE_BOTH(probed_message_dropped)
{
    static const size_t lengths[] = {8, 4096, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20);

    t_pair_open_flags(&pair, flags);
    for (int i = 0; i < 3; i++) {
        hws_id message = 0, send = t_tag_send(pair.endpoint[0], out, lengths[i], 1);
        t_tag_arrived(&pair, pair.endpoint[1], 1);
        CHECK_OK(hws_tag_probe(pair.endpoint[1], 1, ALL, NULL, &message));
        CHECK_OK(hws_close(message));
        CHECK_CODE(hws_close(message), HWS_E_STALE);
        /* The sender ends, with whatever status, and the connection goes on. */
        (void)WAIT(&pair, send);
        CHECK_CODE(hws_tag_probe(pair.endpoint[1], 1, ALL, NULL, NULL), HWS_E_NOT_FOUND);
        t_tag_send_number(&pair, pair.endpoint[0], 1, 5);
        CHECK_EQ(t_tag_take_number(&pair, pair.endpoint[1], 1, ALL), 5);
    }
    CHECK_EQ(t_stats(pair.context).unexpected, 0);
    free(out);
    t_pair_close(&pair);
}

CASE_BOTH(probed_message_truncated)
{
    static const size_t lengths[] = {200, 1 << 20};
    t_pair pair;
    char *out = t_alloc(1 << 20), *in = t_alloc(1 << 20);

    t_pair_open_flags(&pair, flags);
    for (int i = 0; i < 2; i++) {
        hws_id message = 0, op = 0, send = t_tag_send(pair.endpoint[0], out, lengths[i], 1);
        t_tag_arrived(&pair, pair.endpoint[1], 1);
        CHECK_OK(hws_tag_probe(pair.endpoint[1], 1, ALL, NULL, &message));
        CHECK_OK(hws_message_recv(message, in, 100, NULL, &op));
        CHECK_CODE(WAIT(&pair, op).status, HWS_E_TRUNCATED);
        (void)WAIT(&pair, send);
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

/* A taken message whose connection ends: it is still the holder's to receive or drop. */
CASE(probed_message_outlives_its_connection)
{
    t_pair pair;
    hws_id message = 0, op = 0;
    uint64_t in = 0;

    t_pair_open_flags(&pair, 0);
    t_tag_send_number(&pair, pair.endpoint[0], 1, 99);
    t_tag_arrived(&pair, pair.endpoint[1], 1);
    CHECK_OK(hws_tag_probe(pair.endpoint[1], 1, ALL, NULL, &message));
    CHECK_OK(hws_close(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) == 1);
    int32_t code = hws_message_recv(message, &in, 8, NULL, &op);
    CHECK_OK(code);
    WAIT_OK(&pair, op);
    CHECK_EQ(in, 99);
    t_pair_close(&pair);
}

CASES_MAIN
