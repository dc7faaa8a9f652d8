/*
 * A message for which the receiver has no memory ends its connection, and none that came behind it stands in its
 * place: what is received before the end are the first messages that were sent, each once.
 *
 * INTERNAL
 * UCX: both
 * WRAP: malloc calloc realloc aligned_alloc strdup
 * WITH: failing.c
 */
#include "fault/failing.h"
#include "support/cases.h"
#include "support/pair.h"

#include <stdbool.h>

enum { MESSAGES = 100, AM_ID = 5, TAG = 7, ALLOCATIONS = 100, STEP = 7 };

static int received;

static void on_am(void *arg, const hws_event *event)
{
    const hws_am_detail *d = event->detail;

    (void)arg;
    CHECK_OK(event->status);
    CHECK_EQ(*(const int *)d->data, received++);
}

static void send_all(hws_id endpoint, bool tagged)
{
    static const hws_op_opts opts = {.struct_size = sizeof(opts),
                                     .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    static int data[MESSAGES][2];

    for (int i = 0; i < MESSAGES; i++) {
        data[i][0] = i;
        CHECK((tagged ? hws_tag_send(endpoint, data[i], sizeof(data[i]), TAG, &opts, NULL)
                      : hws_am_send(endpoint, AM_ID, NULL, 0, data[i], sizeof(data[i]), &opts,
                                    NULL)) >= 0);
    }
}

static void receive_all(hws_id endpoint)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_INLINE};
    hws_id op = 0;
    int data[2];

    while (hws_tag_recv(endpoint, data, sizeof(data), TAG, UINT64_MAX, &opts, &op) == HWS_DONE) {
        CHECK_EQ(data[0], received++);
    }
    if (op != 0) {
        CHECK_OK(hws_cancel(op));
        CHECK_OK(hws_close(op));
    }
}

/* The n-th allocation fails from the time on when all is sent. */
static void run(uint32_t flags, bool tagged, int64_t n)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    hws_am_opts told = {
        .struct_size = sizeof(told), .flags = HWS_AM_BUFFER, .sink = {.callback = on_am}};
    bool failed;
    t_pair pair;
    t_seen seen;

    received = 0;
    t_pair_open(&pair, &opts);
    CHECK_OK(hws_am_handler(pair.worker[1], AM_ID, &told));
    send_all(pair.endpoint[0], tagged);
    failing_countdown = n;
    UNTIL(&pair, failing_countdown <= 0 || received == MESSAGES ||
                     (tagged && t_stats(pair.worker[1]).unexpected == MESSAGES));
    t_pair_idle(&pair, T_MS);
    failing_countdown = 0;
    t_pair_idle(&pair, T_MS);
    if (tagged) {
        receive_all(pair.endpoint[1]);
    }
    failed = t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, 0, 0, &seen) != 0 ||
             t_record_find(&pair.record[0], HWS_EVENT_DISCONNECTED, 0, 0, &seen) != 0;
    CHECK(failed || received == MESSAGES);
    t_pair_close(&pair);
}

CASE_BOTH(tagged_messages)
{
    for (int64_t n = 1; n < ALLOCATIONS; n += STEP) {
        run(flags, true, n);
    }
}

CASE_BOTH(active_messages)
{
    for (int64_t n = 1; n < ALLOCATIONS; n += STEP) {
        run(flags, false, n);
    }
}

CASES_MAIN
