/*
 * What happens to the messages of a burst that nobody has received: order, memory, credit and the end of their endpoint.
 *
 * INTERNAL TIMEOUT: 180
 */
#include "support/burst.h"
#include "support/cases.h"
#include "support/credit.h"
#include "support/inject.h"

#include "rest.h"

#include <string.h>

enum { BURST = 200, NUMBERS = 1000, LARGEST = 300 };

#define ALL UINT64_MAX

static const hws_op_opts at_once = {.struct_size = sizeof(at_once),
                                    .flags = HWS_OP_INLINE | HWS_OP_DETACHED};

/* A number; UCX may need it for a while. */
static void send_number(t_pair *pair, uint64_t i)
{
    static uint64_t numbers[NUMBERS];

    numbers[i] = i;
    t_hurry(pair->worker[0]);
    CHECK(hws_tag_send(pair->endpoint[0], &numbers[i], sizeof(i), 7, &at_once, NULL) >= 0);
}

static void burst(t_pair *pair, uint64_t first)
{
    for (uint64_t i = first; i < first + BURST; i++) {
        send_number(pair, i);
    }
}

static uint64_t unexpected(const t_pair *pair)
{
    return t_stats(pair->worker[1]).unexpected;
}

/* Receives that take what rests where it is. */
static void take_numbers(t_pair *pair, uint64_t from, uint64_t to)
{
    static const hws_op_opts in_place = {.struct_size = sizeof(in_place), .flags = HWS_OP_INLINE};
    hws_id op;

    for (uint64_t value; from < to; from++) {
        CHECK_CODE(hws_tag_recv(pair->endpoint[1], &value, sizeof(value), 7, ALL, &in_place, &op),
                   HWS_DONE);
        CHECK_EQ(value, from);
    }
}

/* A burst that rests at the server, of numbers from 0 on. One that the machine held up goes in single messages. */
static void send_rested(t_pair *pair)
{
    for (int tries = 0; tries < 20; tries++) {
        burst(pair, 0);
        UNTIL(pair, unexpected(pair) == BURST);
        if (t_rests(pair->endpoint[1])) {
            return;
        }
        take_numbers(pair, 0, BURST);
    }
    t_fail(__FILE__, __LINE__, "no burst rests");
}

static void open_rested(t_pair *pair, uint32_t flags)
{
    t_pair_open_flags(pair, flags);
    send_rested(pair);
}

/* What came before the end is there to be received after it. */
CASE_BOTH(after_the_peer_has_gone)
{
    t_pair pair;

    open_rested(&pair, flags);
    take_numbers(&pair, 0, 50);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) != 0);
    for (uint64_t i = 50, value; i < BURST; i++) {
        hws_id op = 0;

        CHECK_OK(hws_tag_recv(pair.endpoint[1], &value, sizeof(value), 7, ALL, NULL, &op));
        WAIT_OK(&pair, op);
        CHECK_EQ(value, i);
    }
    t_pair_close(&pair);
}

/* Behind those that rest comes one that comes alone, and one that is too large to rest. */
CASE_BOTH(behind_them)
{
    char large[LARGEST] = {0};
    t_pair pair;
    hws_id op = 0;

    open_rested(&pair, flags);
    t_pair_idle(&pair, T_MS);
    for (uint64_t i = BURST; i < BURST + 3; i++) {
        send_number(&pair, i);
        UNTIL(&pair, unexpected(&pair) == i + 1);
        CHECK(t_rests(pair.endpoint[1]));
    }
    take_numbers(&pair, 0, 10);
    CHECK(hws_tag_send(pair.endpoint[0], large, sizeof(large), 7, &at_once, NULL) >= 0);
    UNTIL(&pair, unexpected(&pair) == BURST + 3 - 10 + 1);
    CHECK(!t_rests(pair.endpoint[1]));
    take_numbers(&pair, 10, BURST + 3);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], large, sizeof(large), 7, ALL, NULL, &op));
    CHECK_EQ(WAIT_OK(&pair, op).length, sizeof(large));
    t_pair_close(&pair);
}

/* Nor does one rest whose data is at the sender, however small. */
CASE_BOTH(behind_them_one_to_be_fetched)
{
    uint64_t number = BURST, value = 0;
    hws_id ops[2];
    t_pair pair;

    open_rested(&pair, flags);
    CHECK_OK(hws_tag_send_sync(pair.endpoint[0], &number, sizeof(number), 7, NULL, &ops[0]));
    UNTIL(&pair, unexpected(&pair) == BURST + 1);
    CHECK(!t_rests(pair.endpoint[1]));
    take_numbers(&pair, 0, BURST);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &value, sizeof(value), 7, ALL, NULL, &ops[1]));
    WAIT_OK(&pair, ops[1]);
    CHECK_EQ(value, BURST);
    WAIT_OK(&pair, ops[0]);
    t_pair_close(&pair);
}

/* What the endpoint may tell its peer that was taken. */
static uint64_t credited(const t_pair *pair)
{
    return t_server_of(pair)->credit.in[HWS__CREDIT_TAG].messages;
}

/* Numbers from 0 on, as a bundle that has come. */
static void inject_numbers(t_pair *pair, uint64_t count)
{
    enum { LENGTH = sizeof(struct hws__record) + sizeof(uint64_t) };
    static char data[BURST * LENGTH];

    for (uint64_t i = 0; i < count; i++) {
        struct hws__record r = {.tag = 7, .length = sizeof(i), .kind = HWS_EVENT_TAG_SEND};

        memcpy(data + i * LENGTH, &r, sizeof(r));
        memcpy(data + i * LENGTH + sizeof(r), &i, sizeof(i));
    }
    t_inject(pair, hws__bundle_cb, data, count * LENGTH, 0);
}

/* Bytes of the longest block at the server's endpoint. */
static size_t longest_rest(const t_pair *pair)
{
    const struct hws__list *rests = &t_server_of(pair)->scope.rests;
    size_t longest = 0;

    for (struct hws__list *n = rests->next; n != rests; n = n->next) {
        size_t bytes = hws__container(n, struct hws__rest, in_ep)->end;

        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

/* What no honest peer sends in one bundle rests in pieces, however long it is. */
CASE(more_than_a_bundle_has)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    inject_numbers(&pair, 10);
    CHECK(t_rests(pair.endpoint[1]));
    take_numbers(&pair, 0, 10);
    CHECK_EQ(credited(&pair), 10);
    CHECK_EQ(t_server_of(&pair)->credit.in[HWS__CREDIT_TAG].bytes, 10 * sizeof(uint64_t));
    inject_numbers(&pair, BURST);
    CHECK_EQ(unexpected(&pair), BURST);
    CHECK(longest_rest(&pair) != 0 && longest_rest(&pair) <= HWS__BUNDLE_BYTES);
    take_numbers(&pair, 0, BURST);
    t_pair_close(&pair);
}

/* The first of those that rest has another tag than the receive, or is longer. */
CASE(a_receive_that_cannot_have_the_first)
{
    hws_event result = {0};
    hws_op_opts in_place = {
        .struct_size = sizeof(in_place), .flags = HWS_OP_INLINE, .result = &result};
    uint64_t value = 99;
    t_pair pair;
    hws_id op;

    t_pair_open(&pair, NULL);
    inject_numbers(&pair, 3);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &value, sizeof(value), 8, ALL, &in_place, &op));
    CHECK_PENDING(op);
    CHECK_OK(hws_cancel(op));
    CHECK_EQ(WAIT(&pair, op).status, HWS_E_CANCELED);
    take_numbers(&pair, 0, 3);
    inject_numbers(&pair, 3);
    CHECK(t_rests(pair.endpoint[1]));
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], &value, 1, 7, ALL, &in_place, &op), HWS_DONE);
    CHECK_EQ(result.status, HWS_E_TRUNCATED);
    CHECK_EQ(result.length, sizeof(value));
    CHECK_EQ(value >> 8, 0);
    take_numbers(&pair, 1, 3);
    inject_numbers(&pair, 1);
    CHECK(t_rests(pair.endpoint[1]));
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], &value, sizeof(value), 0, 0, &in_place, &op),
               HWS_DONE);
    CHECK_EQ(result.tag, 7);
    CHECK_EQ(value, 0);
    t_pair_close(&pair);
}

/* Nobody will take them, and the peer may send more. */
CASE(that_come_while_it_closes)
{
    uint64_t taken;
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_close(pair.endpoint[1]));
    taken = credited(&pair);
    inject_numbers(&pair, 10);
    CHECK_EQ(credited(&pair), taken + 10);
    CHECK_EQ(unexpected(&pair), 0);
    t_pair_close(&pair);
}

/* Receives that wait get theirs out of the midst of a bundle, and the rest of it rests. */
static void wait_for_numbers(uint32_t flags, int of_worker)
{
    enum { RECEIVES = 100 };
    uint64_t values[RECEIVES];
    hws_id ops[RECEIVES];
    t_pair pair;

    t_pair_open_flags(&pair, flags);
    for (int i = 0; i < RECEIVES; i++) {
        CHECK_OK(hws_tag_recv(of_worker ? pair.worker[1] : pair.endpoint[1], &values[i],
                              sizeof(values[i]), 7, ALL, NULL, &ops[i]));
    }
    burst(&pair, 0);
    for (int i = 0; i < RECEIVES; i++) {
        WAIT_OK(&pair, ops[i]);
        CHECK_EQ(values[i], i);
    }
    UNTIL(&pair, unexpected(&pair) == BURST - RECEIVES);
    take_numbers(&pair, RECEIVES, BURST);
    t_pair_close(&pair);
}

CASE_BOTH(receives_that_wait)
{
    wait_for_numbers(flags, 0);
}

CASE_BOTH(receives_of_the_worker_that_wait)
{
    wait_for_numbers(flags, 1);
}

/* Those behind a message whose data was at a peer that is gone are not received in its place. */
CASE_BOTH(behind_one_that_is_lost)
{
    static char data[8];
    uint64_t value, sent = 0;
    t_pair pair;
    hws_id op;

    t_pair_open_flags(&pair, flags);
    CHECK_OK(hws_tag_send_sync(pair.endpoint[0], data, sizeof(data), 7, NULL, &op));
    UNTIL(&pair, unexpected(&pair) == 1);
    while (!t_rests(pair.endpoint[1])) {
        CHECK(sent + BURST <= NUMBERS);
        burst(&pair, sent);
        sent += BURST;
        UNTIL(&pair, unexpected(&pair) == 1 + sent);
    }
    CHECK_OK(hws_abort(pair.endpoint[0]));
    CHECK_EQ(WAIT(&pair, op).status, HWS_E_CANCELED);
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) != 0);
    CHECK_EQ(unexpected(&pair), 0);
    CHECK(hws_tag_recv(pair.endpoint[1], &value, sizeof(value), 7, ALL, NULL, &op) < 0);
    t_pair_close(&pair);
}

/* One that is given back is received before them. */
CASE_BOTH(one_that_is_given_back)
{
    uint64_t first = 0;
    t_pair pair;

    open_rested(&pair, flags);
    take_numbers(&pair, 0, 40);
    for (first = 40; first-- != 30;) {
        CHECK_OK(hws_tag_return(pair.endpoint[1], &first, sizeof(first), 7));
    }
    for (uint64_t i = 39; i >= 30; i--) { /* in the order in which they were given back */
        take_numbers(&pair, i, i + 1);
    }
    take_numbers(&pair, 40, BURST);
    t_pair_close(&pair);
}

static void close_server(t_pair *pair)
{
    uint64_t taken = credited(pair), waiting = t_waiting(pair->endpoint[1]);

    CHECK_OK(hws_close(pair->endpoint[1]));
    CHECK_EQ(credited(pair), taken + waiting);
    UNTIL(pair, t_record_kinds(&pair->record[1], HWS_EVENT_CLOSED, pair->endpoint[1]) != 0);
    CHECK_EQ(t_stats(pair->worker[1]).unexpected, 0);
    CHECK_EQ(t_stats(pair->worker[1]).unexpected_bytes, 0);
    t_pair_close(pair);
}

CASE_BOTH(closed_with_them)
{
    t_pair pair;

    open_rested(&pair, flags);
    close_server(&pair);
}

CASE_BOTH(closed_with_some_taken)
{
    t_pair pair;

    open_rested(&pair, flags);
    take_numbers(&pair, 0, 100);
    burst(&pair, BURST);
    close_server(&pair);
}

/* A window that the burst fills: what rests is in it until it is taken. */
CASE_BOTH(in_a_window)
{
    static const hws_worker_opts narrow = {.struct_size = sizeof(narrow), .credit_messages = BURST};
    t_pair_opts opts = {.endpoint_flags = flags, .worker = {NULL, &narrow}};
    uint64_t value = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    send_rested(&pair);
    for (uint64_t i = BURST; i < NUMBERS; i++) {
        hws_id op = 0;

        send_number(&pair, i);
        t_pair_step(&pair);
        CHECK(unexpected(&pair) <= BURST);
        CHECK_OK(hws_tag_recv(pair.endpoint[1], &value, sizeof(value), 7, ALL, NULL, &op));
        WAIT_OK(&pair, op);
        CHECK_EQ(value, i - BURST);
    }
    CHECK(t_credit_waits(&pair, 0) > 0);
    t_pair_close(&pair);
}

/* More than what is left of a window waits: it goes when all is taken, though that is less than what is told of. */
CASE_BOTH(a_window_that_another_waits_for)
{
    enum { NARROW = 8192 };
    static const hws_worker_opts narrow = {.struct_size = sizeof(narrow), .credit_bytes = NARROW};
    t_pair_opts opts = {.endpoint_flags = flags, .worker = {NULL, &narrow}};
    static char large[NARROW - 40];
    t_pair pair;

    t_pair_open(&pair, &opts);
    send_rested(&pair);
    take_numbers(&pair, 0, 10);
    CHECK(hws_tag_send(pair.endpoint[0], large, sizeof(large), 7, &at_once, NULL) >= 0);
    UNTIL(&pair, t_credit_waits(&pair, 0) > 0);
    t_pair_idle(&pair, T_MS);
    take_numbers(&pair, 10, BURST);
    UNTIL(&pair, unexpected(&pair) == 1);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected_bytes, sizeof(large));
    t_pair_close(&pair);
}

static void count_am(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    uint64_t *count = arg, number;

    CHECK_EQ(event->length, sizeof(number));
    memcpy(&number, detail->data, sizeof(number));
    CHECK_EQ(number, *count);
    ++*count;
}

/* Active messages between them are told of as they come. */
CASE_BOTH(between_active_messages)
{
    static uint64_t numbers[BURST];
    uint64_t count = 0;
    hws_am_opts am = {
        .struct_size = sizeof(am), .sink.callback = count_am, .sink.callback_arg = &count};
    t_pair pair;

    open_rested(&pair, flags);
    CHECK_OK(hws_am_handler(pair.worker[1], 3, &am));
    for (uint64_t i = 0; i < BURST; i++) {
        numbers[i] = i;
        send_number(&pair, BURST + i);
        t_hurry(pair.worker[0]);
        CHECK(hws_am_send(pair.endpoint[0], 3, NULL, 0, &numbers[i], sizeof(i), &at_once, NULL) >=
              0);
    }
    UNTIL(&pair, count == BURST);
    CHECK_EQ(unexpected(&pair), 2 * BURST);
    take_numbers(&pair, 0, 2 * BURST);
    t_pair_close(&pair);
}

CASES_MAIN_AT_ONCE(2)
