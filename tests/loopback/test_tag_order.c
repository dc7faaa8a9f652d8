/*
 * Which receive gets which tagged message: masks, order, the endpoint's receives and the worker's. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/tag.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

CASE_BOTH(masks)
{
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    hws_id from = pair.endpoint[0], to = pair.endpoint[1];
    t_tag_send_number(&pair, from, 0x1122334455667788, 1);
    t_tag_send_number(&pair, from, 0x1122334455667799, 2);
    t_tag_send_number(&pair, from, 0xff22334455667788, 3);
    t_tag_send_number(&pair, from, 0x0000000000000000, 4);
    t_tag_arrived(&pair, to, 0);
    CHECK_CODE(hws_tag_probe(to, 0x1122334455667700, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    CHECK_CODE(hws_tag_probe(to, 0x80, 0x80, NULL, NULL), HWS_OK);
    /* Bits of the wanted tag that the mask leaves out do not count. */
    CHECK_EQ(t_tag_take_number(&pair, to, 0xff00000000000001, 0xff00000000000000), 3);
    CHECK_EQ(t_tag_take_number(&pair, to, 0x99, 0xff), 2);
    CHECK_EQ(t_tag_take_number(&pair, to, 0x123, 0), 1);
    CHECK_EQ(t_tag_take_number(&pair, to, 0x123, 0), 4);
    t_pair_close(&pair);
}

#define FIFO 600

/* Messages of one tag come in the order they were sent, whatever their sizes and protocols. */
CASE_BOTH(order)
{
    static const uint32_t lengths[] = {8, 70000, 8, 16, 9000, 8, 300000, 2048, 8};
    t_pair pair;
    char *out = t_alloc(300000 * 9), *in = t_alloc(300000);
    hws_id ops[FIFO];
    uint64_t random = 7;

    t_pair_open_flags(&pair, flags);
    for (int round = 0; round < 2; round++) { /* not, then partly, expected */
        hws_id early[FIFO / 2];
        char *earlier = t_alloc((FIFO / 2) * 8);
        int ahead = round == 0 ? 0 : FIFO / 2;
        for (int i = 0; i < ahead; i++) {
            early[i] = t_tag_recv(pair.endpoint[1], earlier + i * 8, 8, 9, ALL);
        }
        for (int i = 0; i < FIFO; i++) {
            uint32_t length = i < ahead ? 8 : lengths[t_random(&random) % 9];
            char *buffer = t_alloc(length);
            memset(buffer, 0, length);
            memcpy(buffer, &i, sizeof(i));
            hws_op_opts opts = {.struct_size = sizeof(opts), .user = (uintptr_t)buffer};
            CHECK_OK(hws_tag_send(pair.endpoint[0], buffer, length, 9, &opts, &ops[i]));
        }
        for (int i = 0; i < ahead; i++) {
            int number;
            WAIT_OK(&pair, early[i]);
            memcpy(&number, earlier + i * 8, sizeof(number));
            CHECK_EQ(number, i);
        }
        for (int i = ahead; i < FIFO; i++) {
            int number = -1;
            WAIT_OK(&pair, t_tag_recv(pair.endpoint[1], in, 300000, 9, ALL));
            memcpy(&number, in, sizeof(number));
            CHECK_EQ(number, i);
        }
        for (int i = 0; i < FIFO; i++) {
            free((void *)(uintptr_t)WAIT_OK(&pair, ops[i]).user);
        }
        free(earlier);
    }
    free(out);
    free(in);
    t_pair_close(&pair);
}

CASE(taken_in_any_order_of_tags)
{
    t_pair pair;
    uint64_t order[500], random = 3;

    t_pair_open_flags(&pair, 0);
    for (uint64_t i = 0; i < 500; i++) {
        t_tag_send_number(&pair, pair.endpoint[0], i, i * 3);
        order[i] = i;
    }
    t_tag_arrived(&pair, pair.endpoint[1], 499);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 500);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected_bytes, 4000);
    for (uint64_t i = 0; i < 500; i++) {
        uint64_t j = i + t_random(&random) % (500 - i), tag = order[j];
        order[j] = order[i];
        CHECK_EQ(t_tag_take_number(&pair, i % 2 ? pair.endpoint[1] : pair.worker[1], tag, ALL),
                 tag * 3);
    }
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 0);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected_bytes, 0);
    t_pair_close(&pair);
}

/* Among the receives that match, the one posted first takes the message, wherever it was posted. */
CASE_BOTH(endpoint_and_worker_receives_compete_in_order)
{
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (unsigned pattern = 0; pattern < 16; pattern++) {
        uint64_t values[4] = {ALL, ALL, ALL, ALL};
        hws_id ops[4];
        for (unsigned i = 0; i < 4; i++) {
            hws_id source = pattern & (1u << i) ? pair.worker[1] : pair.endpoint[1];
            ops[i] = t_tag_recv(source, &values[i], 8, i, i % 2 ? ALL : 0);
        }
        /* Tag 3 is wanted by the wild receives 0 and 2, and by 3; tag 1 by 0, 1 and 2. */
        t_tag_send_number(&pair, pair.endpoint[0], 3, 100); /* 0 */
        t_tag_send_number(&pair, pair.endpoint[0], 1, 101); /* 1 */
        t_tag_send_number(&pair, pair.endpoint[0], 3, 102); /* 2 */
        t_tag_send_number(&pair, pair.endpoint[0], 3, 103); /* 3 */
        for (unsigned i = 0; i < 4; i++) {
            WAIT_OK(&pair, ops[i]);
            CHECK_EQ(values[i], 100 + i);
        }
    }
    t_pair_close(&pair);
}

CASE_BOTH(an_endpoint_receives_only_from_its_peer)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    t_pair pair;
    hws_id client[2], server[2];
    uint64_t own = 0, any = 0;

    t_pair_open(&pair, &opts);
    client[0] = pair.endpoint[0];
    server[0] = pair.endpoint[1];
    t_pair_connect(&pair, &opts, &client[1], &server[1]);
    hws_id from_second = t_tag_recv(server[1], &own, 8, 5, ALL);
    t_tag_send_number(&pair, client[0], 5, 10);
    t_tag_arrived(&pair, server[0], 5);
    CHECK_CODE(hws_tag_probe(server[1], 5, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    CHECK_PENDING(from_second);
    hws_id from_any = t_tag_recv(pair.worker[1], &any, 8, 5, ALL);
    WAIT_OK(&pair, from_any);
    CHECK_EQ(any, 10);
    from_any = t_tag_recv(pair.worker[1], &any, 8, 0, 0);
    t_tag_send_number(&pair, client[1], 5, 20);
    WAIT_OK(&pair, from_second);
    CHECK_EQ(own, 20);
    t_tag_send_number(&pair, client[1], 6, 30);
    WAIT_OK(&pair, from_any);
    CHECK_EQ(any, 30);
    t_pair_close(&pair);
}

/* Unexpected messages of several peers: a worker's receive takes the one that came first. */
CASE(worker_takes_the_oldest_arrival)
{
    t_pair pair;
    hws_id client[3], server[3];

    t_pair_open(&pair, NULL);
    client[0] = pair.endpoint[0];
    server[0] = pair.endpoint[1];
    for (int i = 1; i < 3; i++) {
        t_pair_opts opts = {.endpoint_flags = i == 2 ? HWS_ENDPOINT_TCP_ONLY : 0};
        t_pair_connect(&pair, &opts, &client[i], &server[i]);
    }
    for (uint64_t i = 0; i < 30; i++) {
        t_tag_send_number(&pair, client[(i * 7) % 3], i, i);
        t_tag_arrived(&pair, server[(i * 7) % 3], i);
    }
    for (uint64_t i = 0; i < 30; i++) {
        CHECK_EQ(t_tag_take_number(&pair, pair.worker[1], 0, 0), i);
    }
    t_pair_close(&pair);
}

CASES_MAIN
