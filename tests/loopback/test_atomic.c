/*
 * Atomics: each action on both sizes, fetching and not, against a model.
 */
#include "support/cases.h"
#include "support/remote.h"

#include <string.h>

static uint64_t model(uint32_t action, uint64_t old, uint64_t value, uint64_t compare)
{
    switch (action) {
    case HWS_ATOMIC_ADD:
        return old + value;
    case HWS_ATOMIC_AND:
        return old & value;
    case HWS_ATOMIC_OR:
        return old | value;
    case HWS_ATOMIC_XOR:
        return old ^ value;
    case HWS_ATOMIC_SWAP:
        return value;
    default:
        return old == compare ? value : old;
    }
}

static uint64_t trim(uint64_t value, uint32_t size)
{
    return size == 4 ? (uint32_t)value : value;
}

/* One operation; `guard` around the number must stay as it is. */
static void one(t_pair *pair, int user, t_remote *remote, uint32_t action, uint32_t size,
                uint64_t *state)
{
    uint64_t cells[3] = {t_random(state), t_random(state), t_random(state)};
    uint64_t value = t_random(state), result = 0, now = 0, old = trim(cells[1], size);
    uint64_t compare = t_random(state) % 2 ? old : value;
    uint32_t plain = action & ~(uint32_t)HWS_ATOMIC_FETCH;
    int fetches = action != plain || plain >= HWS_ATOMIC_SWAP;
    hws_id op = 0;

    memcpy(remote->base, cells, sizeof(cells));
    CHECK_OK(hws_atomic(remote->rkey, remote->address + 8, action, size, value, compare,
                        fetches ? &result : NULL, NULL, &op));
    hws_event event = WAIT_OK(pair, op);
    CHECK_EQ(event.kind, HWS_EVENT_ATOMIC);
    CHECK_EQ(event.length, size);
    t_flush(pair, user);
    if (fetches) {
        CHECK_EQ(result, old);
        CHECK_EQ(event.tag, old);
    }
    memcpy(&now, remote->base + 8, size);
    CHECK_EQ(now, trim(model(plain, old, trim(value, size), trim(compare, size)), size));
    CHECK_EQ(memcmp(remote->base, &cells[0], 8), 0);
    CHECK_EQ(memcmp(remote->base + 16, &cells[2], 8), 0);
    if (size == 4) {
        CHECK_EQ(memcmp(remote->base + 12, (char *)&cells[1] + 4, 4), 0);
    }
}

CASE_REMOTE(each_action)
{
    uint64_t state = 1;

    for (int round = 0; round < 20; round++) {
        for (uint32_t action = 0; action <= HWS_ATOMIC_CSWAP; action++) {
            one(pair, user, remote, action, 4, &state);
            one(pair, user, remote, action, 8, &state);
            one(pair, user, remote, action | HWS_ATOMIC_FETCH, 4, &state);
            one(pair, user, remote, action | HWS_ATOMIC_FETCH, 8, &state);
        }
    }
}

/* The old values of many additions are all different: none was lost. */
CASE_REMOTE(a_counter)
{
    enum { COUNT = 500 };
    static uint64_t results[COUNT];
    static char seen[COUNT];
    uint64_t end = 0;
    hws_id ops[COUNT];

    memset(remote->base, 0, 8);
    memset(seen, 0, sizeof(seen));
    for (int i = 0; i < COUNT; i++) {
        CHECK_OK(hws_atomic(remote->rkey, remote->address, HWS_ATOMIC_ADD | HWS_ATOMIC_FETCH, 8, 1,
                            0, &results[i], NULL, &ops[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        WAIT_OK(pair, ops[i]);
        CHECK(results[i] < COUNT && !seen[results[i]]);
        seen[results[i]] = 1;
    }
    memcpy(&end, remote->base, 8);
    CHECK_EQ(end, COUNT);
    CHECK(user == 0 || user == 1);
}

CASE_REMOTE(done_inline_or_by_event)
{
    hws_event result = {.kind = 99};
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .flags = HWS_OP_INLINE, .user = 7, .result = &result};
    uint64_t old = 5, got = 0;
    hws_id op = 0;

    memcpy(remote->base, &old, 8);
    int32_t code =
        hws_atomic(remote->rkey, remote->address, HWS_ATOMIC_SWAP, 8, 6, 0, &got, &opts, &op);
    if (code == HWS_OK) {
        result = WAIT_OK(pair, op);
    } else {
        CHECK_EQ(code, HWS_DONE);
        CHECK_EQ(op, 0);
    }
    CHECK_EQ(result.kind, HWS_EVENT_ATOMIC);
    CHECK_EQ(result.status, HWS_OK);
    CHECK_EQ(result.tag, 5);
    CHECK_EQ(result.user, 7);
    CHECK_EQ(got, 5);
    CHECK(user == 0 || user == 1);
}

CASE_REMOTE(mistakes)
{
    uint64_t result = 0;
    hws_id op = 0;

    for (uint64_t off = 1; off < 8; off++) {
        CHECK_CODE(hws_atomic(remote->rkey, remote->address + off, HWS_ATOMIC_ADD, 8, 1, 0, NULL,
                              NULL, &op),
                   HWS_E_INVALID);
        if (off != 4) {
            CHECK_CODE(hws_atomic(remote->rkey, remote->address + off, HWS_ATOMIC_ADD, 4, 1, 0,
                                  NULL, NULL, &op),
                       HWS_E_INVALID);
        }
    }
    static const uint32_t bad_sizes[] = {0, 1, 2, 3, 5, 16};
    for (size_t i = 0; i < sizeof(bad_sizes) / sizeof(*bad_sizes); i++) {
        CHECK_CODE(hws_atomic(remote->rkey, remote->address, HWS_ATOMIC_ADD, bad_sizes[i], 1, 0,
                              &result, NULL, &op),
                   HWS_E_INVALID);
    }
    CHECK_CODE(hws_atomic(remote->rkey, remote->address, 6, 8, 1, 0, &result, NULL, &op),
               HWS_E_INVALID);
    CHECK_CODE(hws_atomic(remote->rkey, remote->address, 512, 8, 1, 0, &result, NULL, &op),
               HWS_E_INVALID);
    CHECK_CODE(
        hws_atomic(remote->rkey, remote->address - 8, HWS_ATOMIC_ADD, 8, 1, 0, NULL, NULL, &op),
        HWS_E_INVALID);
    CHECK_EQ(op, 0);
    CHECK(user == 0 || pair->endpoint[user] != 0);
}

CASES_MAIN
