/* Unit tests of match.c: which receive takes a message, and which message a receive. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "match.h"
#include "message.h"
#include "op.h"
#include "support/check.h"

#define ALL UINT64_MAX
#define MANY 300

static struct hws__scope ep, worker;
static struct hws__op *ops;
static struct hws__message *messages;
static uint64_t sequence;

static void setup(void)
{
    hws__scope_init(&ep);
    hws__scope_init(&worker);
    ops = calloc(MANY, sizeof *ops);
    messages = calloc(MANY, sizeof *messages);
    cr_assert(ops != NULL && messages != NULL);
    sequence = 0;
}

static void teardown(void)
{
    free(ops);
    free(messages);
}

TestSuite(match, .init = setup, .fini = teardown);

static void post(struct hws__scope *scope, int i, uint64_t tag, uint64_t mask)
{
    ops[i].tag = tag;
    ops[i].mask = mask;
    ops[i].sequence = ++sequence;
    hws__match_post(scope, &ops[i]);
    cr_assert_eq(ops[i].stage, HWS__STAGE_MATCHING);
}

/* The index of the receive that takes a message, -1: none. */
static int arrive(uint64_t tag)
{
    struct hws__op *op = hws__match_arrived(&ep, &worker, tag);

    return op == NULL ? -1 : (int)(op - ops);
}

static void wait_message(int i, uint64_t tag, uint64_t length)
{
    messages[i].tag = tag;
    messages[i].length = length;
    hws__match_wait(&ep, &worker, &messages[i]);
}

static int find(struct hws__scope *scope, uint64_t tag, uint64_t mask)
{
    struct hws__message *m = hws__match_find(scope, scope == &worker, tag, mask);

    return m == NULL ? -1 : (int)(m - messages);
}

Test(match, nothing_is_posted)
{
    cr_assert_eq(arrive(1), -1);
    cr_assert_eq(find(&ep, 1, ALL), -1);
    cr_assert_eq(find(&worker, 1, 0), -1);
}

Test(match, only_the_tag_counts)
{
    post(&ep, 0, 5, ALL);
    cr_assert_eq(arrive(6), -1);
    cr_assert_eq(arrive(5), 0);
    cr_assert_eq(ops[0].stage, HWS__STAGE_OWN);
    cr_assert_eq(arrive(5), -1, "it is taken once");
    cr_assert_eq(ep.receives, 0);
}

Test(match, the_first_posted_wins_whatever_its_scope)
{
    post(&worker, 0, 5, ALL);
    post(&ep, 1, 5, ALL);
    post(&worker, 2, 5, ALL);
    post(&ep, 3, 5, ALL);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(arrive(5), i);
    }
}

Test(match, the_first_posted_wins_whatever_its_mask)
{
    post(&ep, 0, 0, 0); /* takes everything */
    post(&ep, 1, 5, ALL);
    post(&worker, 2, 5, 0xff);
    post(&worker, 3, 5, ALL);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(arrive(5), i);
    }
    post(&ep, 4, 5, ALL);
    post(&ep, 5, 0, 0);
    cr_assert_eq(arrive(5), 4);
    cr_assert_eq(arrive(5), 5);
}

Test(match, a_mask_says_which_bits_count)
{
    post(&ep, 0, 0xab00, 0xff00);
    cr_assert_eq(arrive(0xac12), -1);
    cr_assert_eq(arrive(0xffab12), 0);
    post(&worker, 1, UINT64_C(1) << 63, UINT64_C(1) << 63);
    cr_assert_eq(arrive(UINT64_MAX >> 1), -1);
    cr_assert_eq(arrive(UINT64_MAX), 1);
}

Test(match, a_masked_receive_that_does_not_fit_is_passed_by)
{
    post(&ep, 0, 1, 0xf);
    post(&ep, 1, 2, 0xf);
    post(&ep, 2, 2, 0xf);
    cr_assert_eq(arrive(0x12), 1);
    cr_assert_eq(arrive(0x12), 2);
    cr_assert_eq(arrive(0x12), -1);
    cr_assert_eq(arrive(0x11), 0);
}

/* Tags that share a bucket are told apart. */
Test(match, a_full_bucket)
{
    uint64_t tags[40];
    int n = 0;

    for (uint64_t tag = 0; n < 40; tag++) {
        if (hws__bucket(tag) == 7) {
            tags[n++] = tag;
        }
    }
    for (int i = 0; i < n; i++) {
        post(i % 2 ? &ep : &worker, i, tags[i], ALL);
    }
    for (int i = n; i-- > 0;) {
        cr_assert_eq(arrive(tags[i]), i);
    }
}

Test(match, a_receive_can_be_taken_back)
{
    post(&ep, 0, 5, ALL);
    post(&ep, 1, 5, 0xff);
    post(&ep, 2, 5, ALL);
    hws__match_unpost(&ops[0]);
    hws__match_unpost(&ops[1]);
    cr_assert_eq(ep.receives, 1);
    cr_assert_eq(ep.masked, 0);
    cr_assert_eq(arrive(5), 2);
}

Test(match, messages_wait_in_both_scopes_in_order)
{
    wait_message(0, 5, 100);
    wait_message(1, 6, 10);
    wait_message(2, 5, 1);
    cr_assert_eq(worker.messages, 3);
    cr_assert_eq(ep.messages, 3);
    cr_assert_eq(worker.bytes, 111);
    cr_assert_eq(find(&ep, 5, ALL), 0);
    cr_assert_eq(find(&worker, 5, ALL), 0);
    cr_assert_eq(find(&worker, 6, ALL), 1);
    cr_assert_eq(find(&worker, 0, 0), 0, "anything: the first to arrive");
    cr_assert_eq(find(&ep, 6, 0xf), 1);
    cr_assert_eq(find(&ep, 7, ALL), -1);
    cr_assert_eq(find(&ep, 7, 0xf), -1);
    hws__match_unwait(&messages[0]);
    hws__match_unwait(&messages[0]);
    cr_assert_eq(worker.messages, 2, "twice is harmless");
    cr_assert_eq(worker.bytes, 11);
    cr_assert_eq(find(&ep, 5, ALL), 2);
    cr_assert_eq(find(&worker, 0, 0), 1);
}

Test(match, an_endpoint_sees_only_its_own_messages)
{
    struct hws__scope other;

    hws__scope_init(&other);
    wait_message(0, 5, 1);
    messages[1].tag = 5;
    hws__match_wait(&other, &worker, &messages[1]);
    cr_assert_eq(find(&worker, 5, ALL), 0);
    hws__match_unwait(&messages[0]);
    cr_assert_eq(find(&worker, 5, ALL), 1);
    cr_assert_eq(find(&ep, 5, ALL), -1);
    cr_assert_eq(hws__match_find(&other, false, 5, ALL), &messages[1]);
    hws__match_unwait(&messages[1]);
}

/* Against the definition, by walking over everything. */
Test(match, random_posts_and_arrivals_agree_with_the_definition)
{
    uint64_t state = 42;
    static int scope_of[MANY]; /* 0: free, 1: endpoint, 2: worker */

    for (int round = 0; round < 200000; round++) {
        int i = (int)(t_random(&state) % MANY);
        uint64_t tag = t_random(&state) % 16;

        if (scope_of[i] == 0 && t_random(&state) % 2 == 0) {
            const uint64_t masks[] = {ALL, ALL, 3, 12, 0};

            scope_of[i] = 1 + (int)(t_random(&state) % 2);
            post(scope_of[i] == 1 ? &ep : &worker, i, tag, masks[t_random(&state) % 5]);
        } else if (scope_of[i] != 0 && t_random(&state) % 8 == 0) {
            hws__match_unpost(&ops[i]);
            scope_of[i] = 0;
        } else {
            int expected = -1, got;

            for (int k = 0; k < MANY; k++) {
                if (scope_of[k] != 0 && ((ops[k].tag ^ tag) & ops[k].mask) == 0 &&
                    (expected < 0 || ops[k].sequence < ops[expected].sequence)) {
                    expected = k;
                }
            }
            got = arrive(tag);
            cr_assert_eq(got, expected);
            if (got >= 0) {
                scope_of[got] = 0;
            }
        }
    }
}
