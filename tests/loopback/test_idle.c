/*
 * What a worker keeps for its next connection goes when none has been there for a while, the spare only without a
 * listener; then it connects and listens as if for the first time.
 * TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/proc.h"

#include <string.h>

static hws_id listen_again(t_pair *pair)
{
    hws_listener_opts opts = {.struct_size = sizeof opts,
                              .sink = t_record_sink(&pair->record[1], 1),
                              .endpoint_sink = t_record_sink(&pair->record[1], 2)};
    hws_listener_info info = {.struct_size = sizeof info};
    hws_id listener = 0;

    CHECK_OK(hws_listen(pair->worker[1], "127.0.0.1", 0, &opts, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    pair->listener = listener;
    pair->port = (uint16_t)info.port;
    return listener;
}

static void close_listener(t_pair *pair)
{
    CHECK_OK(hws_close(pair->listener));
    UNTIL(pair, hws_kind(pair->listener) < 0);
}

static void exchange(t_pair *pair)
{
    uint64_t out = 11, in = 0;
    hws_id ops[2];

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, sizeof in, 5, UINT64_MAX, NULL, &ops[0]));
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, sizeof out, 5, NULL, &ops[1]));
    WAIT_OK(pair, ops[0]);
    WAIT_OK(pair, ops[1]);
    CHECK_EQ(in, out);
}

static uint64_t spares(const t_pair *pair)
{
    return t_stats(pair->context).spares;
}

/* What a process that has a listener and had no connection holds, it holds again when its last one is over. */
CASE_BOTH(listening)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    hws_worker_opts none = {.struct_size = sizeof none, .spares = UINT32_MAX};
    uint64_t before;
    t_pair pair;

    opts.worker[0] = &none;
    t_pair_listen(&pair, &opts);
    t_pair_idle(&pair, 500 * T_MS); /* the spare is counted as soon as it is ordered */
    before = t_fd_count();
    CHECK_EQ(spares(&pair), 1);
    for (int i = 0; i < 2; i++) {
        t_pair_connect(&pair, &opts, &pair.endpoint[0], &pair.endpoint[1]);
        exchange(&pair);
        CHECK(t_fd_count() > before);
        t_pair_close_both(&pair);
        UNTIL(&pair, spares(&pair) == 1 && t_fd_count() <= before);
    }
    t_pair_close(&pair);
}

/* Connect, exchange, close: twice, with everything given back between. */
static void rounds(uint32_t mode, uint32_t flags)
{
    t_pair_opts opts = {.mode = mode, .endpoint_flags = flags};
    hws_worker_opts worker = {.struct_size = sizeof worker};
    uint64_t before;
    t_pair pair;

    opts.worker[0] = opts.worker[1] = &worker;
    t_pair_listen(&pair, &opts);
    close_listener(&pair);
    UNTIL(&pair, spares(&pair) == 0);
    before = t_fd_count();
    for (int i = 0; i < 2; i++) {
        listen_again(&pair);
        t_pair_connect(&pair, &opts, &pair.endpoint[0], &pair.endpoint[1]);
        exchange(&pair);
        CHECK(t_fd_count() > before);
        t_pair_close_both(&pair);
        UNTIL(&pair, spares(&pair) != 0); /* the listener's, for its next client */
        t_pair_idle(&pair, 3000 * T_MS);
        CHECK(spares(&pair) != 0);
        close_listener(&pair);
        UNTIL(&pair, spares(&pair) == 0 && t_fd_count() <= before);
        CHECK_EQ(t_stats(pair.context).isolated, 0);
    }
    t_pair_close(&pair);
}

CASE_BOTH(manual)
{
    rounds(HWS_PROGRESS_MANUAL, flags);
}

CASE_BOTH(thread)
{
    rounds(HWS_PROGRESS_THREAD, flags);
}

/* A close in the meantime does not wait for the look. */
CASE(close_before)
{
    uint64_t start;
    t_pair pair;

    t_pair_open(&pair, NULL);
    t_pair_close_both(&pair);
    close_listener(&pair);
    start = t_now();
    t_pair_close(&pair);
    CHECK(t_now() - start < 1500 * T_MS);
}

CASES_MAIN_AT_ONCE(4)
