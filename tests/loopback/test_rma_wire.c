/*
 * Questions of remote memory access that wait for their answers: so many at once and no more, whatever is
 * posted, and whoever asks more is cut off.
 *
 * INTERNAL TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/remote.h"

#include "memory.h"
#include "progress.h"
#include "rma.h"

#include <stdlib.h>
#include <string.h>

#define WORDS 3000

static struct hws__endpoint *side(const t_pair *pair, int i)
{
    return hws__obj_find(&hws__objects, pair->endpoint[i]);
}

/* A get of each word, and now and then a fetching atomic on a word that stays zero. */
static void ask(t_remote *remote, uint64_t *in, hws_id *ops, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t word = (uint64_t)(i % WORDS) * 8;

        if (i % 7 == 6) {
            CHECK_OK(hws_atomic(remote->rkey, remote->address + WORDS * 8ULL,
                                HWS_ATOMIC_ADD | HWS_ATOMIC_FETCH, 8, 0, 0, &in[i], NULL, &ops[i]));
        } else {
            CHECK_OK(hws_get(remote->rkey, remote->address + word, &in[i], 8, NULL, &ops[i]));
        }
    }
}

/* Both sides ask each other at the same time, far more than may wait: neither waits behind its own questions. */
CASE(both_ask_at_once)
{
    enum { COUNT = 5 * HWS__RMA_ASKS };
    uint64_t *in[2] = {t_alloc(COUNT * 8ULL), t_alloc(COUNT * 8ULL)};
    hws_id *ops[2] = {t_alloc(COUNT * sizeof(hws_id)), t_alloc(COUNT * sizeof(hws_id))};
    t_remote remote[2]; /* used by side i */
    uint32_t asked = 0;
    t_pair pair;

    t_remote_pair(&pair, HWS_ENDPOINT_TCP_ONLY);
    for (int i = 0; i < 2; i++) {
        t_remote_open(&remote[i], &pair, 1 - i, 0, T_REMOTE_SIZE);
        for (uint64_t k = 0; k < WORDS; k++) {
            uint64_t value = k * 3 + (uint64_t)i;

            memcpy(remote[i].base + k * 8, &value, 8);
        }
        memset(remote[i].base + WORDS * 8ULL, 0, 8);
    }
    ask(&remote[0], in[0], ops[0], COUNT);
    ask(&remote[1], in[1], ops[1], COUNT);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < COUNT; k++) {
            uint32_t now = side(&pair, 1 - i)->rma.asked;

            asked = now > asked ? now : asked;
            WAIT_OK(&pair, ops[i][k]);
            CHECK_EQ(in[i][k], k % 7 == 6 ? 0 : (uint64_t)(k % WORDS) * 3 + (uint64_t)i);
        }
    }
    CHECK(asked > HWS__RMA_ASKS / 2 && asked <= HWS__RMA_ASKS);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(side(&pair, i)->rma.asked, 0);
        CHECK_EQ(side(&pair, i)->rma.answering, 0);
        t_remote_close(&remote[i]);
        free(in[i]);
        free(ops[i]);
    }
    t_pair_close(&pair);
}

/* What waits for room ends like any other operation. */
CASE(canceled_while_it_waits)
{
    enum { COUNT = 2 * HWS__RMA_ASKS };
    uint64_t *in = t_alloc(COUNT * 8ULL), out = 7, seen = 0;
    hws_id *ops = t_alloc(COUNT * sizeof(hws_id)), put = 0, get = 0;
    t_remote remote;
    t_pair pair;

    t_remote_pair(&pair, HWS_ENDPOINT_TCP_ONLY);
    t_remote_open(&remote, &pair, 1, 0, T_REMOTE_SIZE);
    memset(remote.base, 0, T_REMOTE_SIZE);
    ask(&remote, in, ops, COUNT);
    CHECK_OK(hws_put(remote.rkey, remote.address + T_REMOTE_SIZE - 8, &out, 8, NULL, &put));
    for (int i = COUNT; i-- > 0;) {
        CHECK_OK(hws_cancel(ops[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        hws_event event = WAIT(&pair, ops[i]);

        CHECK(event.status == HWS_OK || event.status == HWS_E_CANCELED);
    }
    WAIT_OK(&pair, put);
    t_flush(&pair, 0);
    CHECK_OK(hws_get(remote.rkey, remote.address + T_REMOTE_SIZE - 8, &seen, 8, NULL, &get));
    WAIT_OK(&pair, get);
    CHECK_EQ(seen, out);
    UNTIL(&pair, side(&pair, 0)->rma.asked == 0);
    t_remote_close(&remote);
    free(in);
    free(ops);
    t_pair_close(&pair);
}

/* As no honest peer does: as if UCX had received one question after the other. */
CASE(a_flood_is_cut_off)
{
    struct hws__rma_msg m = {.type = HWS__RMA_GET, .length = 8};
    ucp_am_recv_param_t param = {0};
    struct hws__memory *memory;
    struct hws__endpoint *ep;
    t_remote remote;
    t_pair pair;
    t_seen seen;
    bool nested;
    int sent = 0;

    t_remote_pair(&pair, 0);
    t_remote_open(&remote, &pair, 1, 0, T_REMOTE_SIZE);
    ep = side(&pair, 1);
    memory = hws__obj_find(&hws__objects, remote.memory);
    m.memory = remote.memory;
    m.key = memory->key;
    m.address = remote.address;
    nested = hws__own(ep->worker);
    while (!ep->failed) {
        CHECK_EQ(hws__rma_cb(ep->uworker, &m, sizeof m, NULL, 0, &param), UCS_OK);
        CHECK(++sent <= 3 * (int)HWS__RMA_ASKS);
    }
    CHECK(sent > (int)HWS__RMA_ASKS);
    hws__disown(ep->worker, nested);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, 0, 0, &seen));
    CHECK_EQ(seen.event.status, HWS_E_PROTOCOL);
    t_remote_close(&remote);
    t_pair_close(&pair);
}

CASES_MAIN
