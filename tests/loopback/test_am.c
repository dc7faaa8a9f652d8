/*
 * Active messages: ids, headers, order, replies, and what becomes of messages that nobody takes. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/am.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static const size_t sizes[] = {0, 1, 8, 200, 4096, 8192, 65536, 1000003, (17u << 20) + 3};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

CASE_BOTH(every_size)
{
    t_pair pair;
    t_am_seen last;
    char *out = t_alloc(sizes[SIZES - 1]);

    t_pair_open_flags(&pair, flags);
    t_am_handle(pair.worker[1], 7, 0, &last);
    for (size_t i = 0; i < SIZES; i++) {
        t_fill(out, sizes[i], i);
        hws_id op = t_am_send(pair.endpoint[0], 7, NULL, 0, out, sizes[i], 0);
        UNTIL(&pair, last.count == (int)i + 1);
        hws_event sent = WAIT_OK(&pair, op);
        CHECK_EQ(sent.kind, HWS_EVENT_AM_SEND);
        CHECK_EQ(sent.length, sizes[i]);
        CHECK_EQ(sent.tag, 7);
        CHECK_OK(last.status);
        CHECK_EQ(last.am_id, 7);
        CHECK_EQ(last.user, 97);
        CHECK_EQ(last.length, sizes[i]);
        CHECK_EQ(last.header_length, 0);
        CHECK_EQ(last.sum, t_checksum(out, sizes[i]));
        CHECK_EQ(last.flags & HWS_EVENT_FLAG_RNDV, 0);
        CHECK(last.source == pair.endpoint[1]);
        CHECK(last.endpoint == pair.endpoint[1]);
    }
    free(out);
    t_pair_close(&pair);
}

CASE_BOTH(headers)
{
    t_pair pair;
    t_am_seen last;
    uint64_t max = 0;
    char *out = t_alloc(MIB);
    hws_id op = 0;
    int count = 0;

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_am_header_max(pair.worker[0], &max));
    CHECK(max >= 256);
    t_am_handle(pair.worker[1], 1, 0, &last);
    char *header = t_alloc(max + 1);
    size_t lengths[] = {0, 1, 8, 63, 64, 65, 129, max - 1, max};
    size_t data[] = {0, 8, 5000, MIB};
    for (int h = 0; h < 9; h++) {
        for (int d = 0; d < 4; d++) {
            t_fill(header, lengths[h], 5);
            t_fill(out, data[d], 6);
            uint64_t sum = t_checksum(header, lengths[h]);
            op = t_am_send(pair.endpoint[0], 1, lengths[h] == 0 ? NULL : header, lengths[h], out,
                           data[d], 0);
            memset(header, 0xee, max); /* it was copied */
            UNTIL(&pair, last.count == count + 1);
            count++;
            WAIT_OK(&pair, op);
            CHECK_OK(last.status);
            CHECK_EQ(last.header_length, lengths[h]);
            CHECK_EQ(last.header_sum, sum);
            CHECK_EQ(last.length, data[d]);
            CHECK_EQ(last.sum, t_checksum(out, data[d]));
        }
    }
    CHECK_CODE(hws_am_send(pair.endpoint[0], 1, header, max + 1, out, 8, NULL, &op), HWS_E_TOO_BIG);
    free(header);
    free(out);
    t_pair_close(&pair);
}

CASE(ids)
{
    t_pair pair;
    t_am_seen last[3];
    hws_id op = 0;
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .sink = {.callback = t_am_note, .callback_arg = &last[0]}};
    uint32_t ids[] = {0, 500, HWS_AM_ID_MAX};

    t_pair_open_flags(&pair, 0);
    for (int i = 0; i < 3; i++) {
        t_am_handle(pair.worker[1], ids[i], 0, &last[i]);
    }
    for (int i = 0; i < 3; i++) {
        WAIT_OK(&pair, t_am_send(pair.endpoint[0], ids[i], "h", 1, "data", 4, 0));
        UNTIL(&pair, last[i].count == 1);
        CHECK_EQ(last[i].am_id, ids[i]);
    }
    CHECK_CODE(hws_am_handler(pair.worker[1], HWS_AM_ID_MAX + 1, &opts), HWS_E_INVALID);
    CHECK_CODE(hws_am_handler(pair.worker[1], UINT32_MAX, &opts), HWS_E_INVALID);
    CHECK_CODE(hws_am_send(pair.endpoint[0], HWS_AM_ID_MAX + 1, NULL, 0, "x", 1, NULL, &op),
               HWS_E_INVALID);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(last[i].count, 1);
    }
    t_pair_close(&pair);
}

CASE_BOTH(order_of_eager_messages)
{
    enum { COUNT = 2000 };
    t_pair pair;
    hws_id queue = 0;
    hws_am_opts opts = {.struct_size = sizeof(opts)};
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
    hws_event events[64];
    uint32_t next = 0;

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_queue_open(NULL, &queue));
    opts.sink.queue = queue;
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &opts));
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK_OK(hws_am_send(pair.endpoint[0], 3, &i, sizeof(i), NULL, 0, &detached, NULL));
        t_pair_step(&pair);
    }
    uint64_t start = t_now();
    while (next < COUNT) {
        int32_t n = hws_queue_pop(queue, events, 64, 0);
        CHECK(n >= 0);
        for (int32_t i = 0; i < n; i++, next++) {
            const hws_am_detail *detail = events[i].detail;
            CHECK_EQ(detail->header_length, sizeof(next));
            CHECK_EQ(memcmp(detail->header, &next, sizeof(next)), 0);
            if (detail->buffer != 0) {
                CHECK_OK(hws_close(detail->buffer));
            }
        }
        t_pair_step(&pair);
        t_check_patience(__FILE__, __LINE__, start, "all messages");
    }
    CHECK_OK(hws_close(queue));
    t_pair_close(&pair);
}

/* ---- Replies, handlers that come and go ---- */

struct echo {
    char memory[100][64];
    int count;
};

static void reply(void *arg, const hws_event *event)
{
    struct echo *echo = arg;
    const hws_am_detail *detail = event->detail;
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_DETACHED};
    char *out = echo->memory[echo->count++];

    CHECK_OK(event->status);
    memcpy(out, detail->data, detail->data_length);
    CHECK_OK(hws_am_send(detail->endpoint, 2, detail->header, detail->header_length, out,
                         detail->data_length, &opts, NULL));
}

CASE_BOTH(replies_inside_the_callback)
{
    t_pair pair;
    t_am_seen last;
    struct echo echo = {.count = 0};
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .sink = {.callback = reply, .callback_arg = &echo}};
    char out[64];

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_am_handler(pair.worker[1], 1, &opts));
    t_am_handle(pair.worker[0], 2, 0, &last);
    for (int i = 0; i < 100; i++) {
        t_fill(out, 50, (uint64_t)i);
        WAIT_OK(&pair, t_am_send(pair.endpoint[0], 1, out, 9, out, 50, 0));
        UNTIL(&pair, last.count == i + 1);
        CHECK_EQ(last.sum, t_checksum(out, 50));
        CHECK_EQ(last.header_sum, t_checksum(out, 9));
        CHECK(last.endpoint == pair.endpoint[0]);
    }
    t_pair_close(&pair);
}

CASE_BOTH(nobody_takes_it)
{
    t_pair pair;
    char *out = t_alloc(MIB);
    size_t lengths[] = {0, 8, 5000, MIB};

    t_pair_open_flags(&pair, flags);
    for (uint64_t i = 0; i < 4; i++) {
        hws_id op = t_am_send(pair.endpoint[0], 9, "h", 1, out, lengths[i], 0);
        UNTIL(&pair, t_stats(pair.worker[1]).am_dropped == i + 1);
        (void)WAIT(&pair, op);
    }
    /* Dropping is no failure of the connection. */
    t_am_seen last;
    t_am_handle(pair.worker[1], 9, 0, &last);
    WAIT_OK(&pair, t_am_send(pair.endpoint[0], 9, "h", 1, out, 8, 0));
    UNTIL(&pair, last.count == 1);
    CHECK_EQ(t_stats(pair.worker[1]).am_dropped, 4);
    free(out);
    t_pair_close(&pair);
}

CASE(handler_replaced_and_unset)
{
    t_pair pair;
    t_am_seen first, second;
    hws_am_opts none = {.struct_size = sizeof(none)};

    t_pair_open_flags(&pair, 0);
    t_am_handle(pair.worker[1], 5, 0, &first);
    WAIT_OK(&pair, t_am_send(pair.endpoint[0], 5, NULL, 0, "a", 1, 0));
    UNTIL(&pair, first.count == 1);
    t_am_handle(pair.worker[1], 5, 0, &second);
    WAIT_OK(&pair, t_am_send(pair.endpoint[0], 5, NULL, 0, "b", 1, 0));
    UNTIL(&pair, second.count == 1);
    CHECK_EQ(first.count, 1);
    CHECK_OK(hws_am_handler(pair.worker[1], 5, &none));
    WAIT_OK(&pair, t_am_send(pair.endpoint[0], 5, NULL, 0, "c", 1, 0));
    UNTIL(&pair, t_stats(pair.worker[1]).am_dropped == 1);
    CHECK_EQ(first.count, 1);
    CHECK_EQ(second.count, 1);
    t_pair_close(&pair);
}

/* A handler holds for all endpoints of its worker, and the event names the one to reply to. */
CASE(one_handler_for_all_endpoints)
{
    t_pair pair;
    t_am_seen last;
    hws_id client[3], server[3];

    t_pair_listen(&pair, NULL);
    t_am_handle(pair.worker[1], 5, 0, &last);
    for (int i = 0; i < 3; i++) {
        t_pair_opts opts = {.endpoint_flags = i == 1 ? HWS_ENDPOINT_TCP_ONLY : 0};
        t_pair_connect(&pair, &opts, &client[i], &server[i]);
    }
    for (int i = 0; i < 9; i++) {
        WAIT_OK(&pair, t_am_send(client[i % 3], 5, NULL, 0, "x", 1, 0));
        UNTIL(&pair, last.count == i + 1);
        CHECK(last.endpoint == server[i % 3]);
    }
    t_pair_close(&pair);
}

CASE_BOTH(scattered)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_IOV};
    t_pair pair;
    t_am_seen last;
    char *out = t_alloc(MIB);
    size_t lengths[] = {10, 5000, MIB};
    uint32_t counts[] = {1, 5, 16, 30};
    int count = 0;

    t_pair_open_flags(&pair, flags);
    t_am_handle(pair.worker[1], 5, 0, &last);
    for (int l = 0; l < 3; l++) {
        for (int c = 0; c < 4; c++) {
            hws_iov iov[30];
            uint32_t n = counts[c] > lengths[l] ? (uint32_t)lengths[l] : counts[c];
            size_t piece = lengths[l] / n;
            hws_id op = 0;
            t_fill(out, lengths[l], 7);
            for (uint32_t i = 0; i < n; i++) {
                iov[i].base = out + i * piece;
                iov[i].length = i + 1 < n ? piece : lengths[l] - i * piece;
            }
            CHECK_OK(hws_am_send(pair.endpoint[0], 5, "hh", 2, iov, n, &opts, &op));
            UNTIL(&pair, last.count == count + 1);
            count++;
            CHECK_EQ(WAIT_OK(&pair, op).length, lengths[l]);
            CHECK_EQ(last.length, lengths[l]);
            CHECK_EQ(last.sum, t_checksum(out, lengths[l]));
        }
    }
    free(out);
    t_pair_close(&pair);
}

CASES_MAIN
