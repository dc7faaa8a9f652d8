/*
 * No memory for a message that rests when it has to wait on its own: the endpoint fails, what came before that one is
 * received, and nothing behind it.
 *
 * INTERNAL
 * WRAP: malloc calloc realloc aligned_alloc strdup
 * WITH: failing.c
 */
#include "fault/failing.h"
#include "support/burst.h"
#include "support/cases.h"
#include "support/pair.h"

#include "tag.h"

enum { BURST = 600 }; /* three bundles and more */

#define ALL UINT64_MAX

static const hws_op_opts at_once = {.struct_size = sizeof(at_once),
                                    .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
static uint64_t numbers[BURST];

static uint64_t unexpected(const t_pair *pair)
{
    return t_stats(pair->worker[1]).unexpected;
}

/* The next number that is received; -1: the endpoint has failed, and there is none. */
static int64_t receive(const t_pair *pair)
{
    uint64_t value = 0;
    int32_t r = hws_tag_recv(pair->endpoint[1], &value, sizeof(value), 7, ALL, &at_once, NULL);

    CHECK(r == HWS_DONE || r == HWS_E_NO_MEMORY);
    return r == HWS_DONE ? (int64_t)value : -1;
}

static void send_burst(t_pair *pair)
{
    for (uint64_t i = 0; i < BURST; i++) {
        numbers[i] = i;
        t_hurry(pair->worker[0]);
        CHECK(hws_tag_send(pair->endpoint[0], &numbers[i], sizeof(i), 7, &at_once, NULL) >= 0);
    }
    UNTIL(pair, unexpected(pair) == BURST);
}

/* Numbers that rest at the server. No thread of the library allocates anything meanwhile. */
static void open_rested(t_pair *pair, uint32_t flags)
{
    static const hws_worker_opts plain = {.struct_size = sizeof(plain), .spares = UINT32_MAX};
    t_pair_opts opts = {.endpoint_flags = flags, .worker = {&plain, &plain}};

    t_pair_open(pair, &opts);
    for (int tries = 0; tries < 20; tries++) {
        send_burst(pair);
        if (t_rests(pair->endpoint[1])) {
            return;
        }
        for (int64_t i = 0; i < BURST; i++) {
            CHECK_EQ(receive(pair), i);
        }
    }
    t_fail(__FILE__, __LINE__, "no burst rests");
}

/* What is left is the first of the numbers, then comes the endpoint's failure. */
static void check_first(t_pair *pair)
{
    uint64_t left = unexpected(pair);

    CHECK(!t_rests(pair->endpoint[1]));
    CHECK(left < BURST);
    CHECK_EQ(t_endpoint_info(pair->endpoint[1]).status, HWS_E_NO_MEMORY);
    for (uint64_t i = 0; i < left; i++) {
        CHECK_EQ(receive(pair), i);
    }
    CHECK_EQ(receive(pair), -1);
    UNTIL(pair, t_record_kinds(&pair->record[1], HWS_EVENT_DISCONNECTED, pair->endpoint[1]) != 0);
    CHECK_EQ(t_stats(pair->worker[1]).unexpected_bytes, 0);
    t_pair_close(pair);
}

CASE_BOTH(when_somebody_looks)
{
    t_pair pair;

    open_rested(&pair, flags);
    failing_countdown = 1;
    CHECK_CODE(hws_tag_probe(pair.endpoint[1], 8, ALL, NULL, NULL), HWS_E_NOT_FOUND);
    failing_countdown = 0;
    check_first(&pair);
}

CASE_BOTH(when_one_comes_that_is_too_large_to_rest)
{
    struct hws__endpoint *ep;
    char large[300] = {0};
    t_pair pair;
    bool nested;

    open_rested(&pair, flags);
    ep = hws__obj_find(&hws__objects, pair.endpoint[1]);
    nested = hws__own(ep->worker);
    failing_countdown = 1;
    CHECK_EQ(hws__tag_arrived(ep, ep->uworker, 7, large, sizeof(large), 0), UCS_OK);
    failing_countdown = 0;
    hws__disown(ep->worker, nested);
    check_first(&pair);
}

CASES_MAIN
