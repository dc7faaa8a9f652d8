/*
 * The ends of the tables: no slot for an operation, none for an object. Every call says so by its
 * code, nothing that is open suffers, and all goes on once slots are free again.
 *
 * INTERNAL
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/remote.h"

#include "handle.h"
#include "op.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 512u /* the smallest number that two workers can share: each takes 256 at a time */

static void check_last(int32_t code)
{
    hws_error e = {.struct_size = sizeof e};

    CHECK_OK(hws_last_error(&e));
    CHECK_EQ(e.code, code);
}

static void echo(t_pair *pair)
{
    uint64_t out = 5, in = 0;
    hws_id send = 0, receive = 0;

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, UINT64_MAX, NULL, &receive));
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(pair, send);
    WAIT_OK(pair, receive);
    CHECK_EQ(in, 5);
}

CASE_BOTH(operations)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    static uint64_t in[SLOTS], out = 7;
    static hws_id posted[SLOTS];
    uint32_t count = 0;
    t_pair pair;
    hws_id op, id = 0;
    int32_t r;

    t_pair_open(&pair, &opts);
    hws__op_limit(SLOTS);
    while ((r = hws_tag_recv(pair.worker[1], &in[count], 8, 100 + count, UINT64_MAX, NULL, &op)) ==
           HWS_OK) {
        CHECK(count < SLOTS - 1);
        posted[count++] = op;
    }
    CHECK_EQ(r, HWS_E_TOO_MANY);
    check_last(HWS_E_TOO_MANY);
    CHECK(count >= 200);
    /* Whatever needs an operation says the same; what needs none works. */
    CHECK_CODE(hws_stream_recv(pair.endpoint[1], &in[count], 8, NULL, &op), HWS_E_TOO_MANY);
    CHECK_CODE(hws_flush(pair.endpoint[1], NULL, &op), HWS_E_TOO_MANY);
    CHECK_CODE(hws_connect(pair.worker[1], "127.0.0.1", pair.port, NULL, NULL, &id, &op),
               HWS_E_TOO_MANY);
    CHECK_EQ(hws_kind(pair.endpoint[1]), HWS_KIND_ENDPOINT);
    CHECK_CODE(hws_tag_probe(pair.endpoint[1], 1, 0, NULL, NULL), HWS_E_NOT_FOUND);
    /* A message finds its receive all the same, and gives its slot back. */
    out = 7;
    hws_op_opts inlined = {.struct_size = sizeof inlined, .flags = HWS_OP_INLINE};
    CHECK((r = hws_tag_send(pair.endpoint[0], &out, 8, 100, &inlined, &op)) >= 0);
    if (r == HWS_OK) {
        WAIT_OK(&pair, op);
    }
    WAIT_OK(&pair, posted[0]);
    CHECK_EQ(in[0], 7);
    CHECK_OK(hws_tag_recv(pair.worker[1], &in[0], 8, 100, UINT64_MAX, NULL, &posted[0]));
    CHECK_CODE(hws_tag_recv(pair.worker[1], &in[count], 8, 99, UINT64_MAX, NULL, &op),
               HWS_E_TOO_MANY);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_OK(hws_cancel(posted[i]));
        CHECK_EQ(WAIT(&pair, posted[i]).status, HWS_E_CANCELED);
    }
    echo(&pair);
    t_pair_close(&pair);
}

CASE(operations_at_the_end_of_a_context)
{
    static uint64_t in[SLOTS];
    uint32_t count = 0;
    t_pair pair;
    hws_id op;

    t_pair_open(&pair, NULL);
    hws__op_limit(SLOTS);
    while (hws_tag_recv(pair.worker[1], &in[count], 8, 1, UINT64_MAX, NULL, &op) == HWS_OK) {
        count++;
    }
    t_pair_close(&pair); /* needs no operation that is not there */
}

/* No slot comes back: every one is of a receive that ended and that nobody asks about. */
CASE(ended_receives_that_nobody_takes_at_the_end_of_a_context)
{
    static uint64_t in[SLOTS + 1]; /* and the one that is refused */
    static hws_id posted[SLOTS + 1];
    uint32_t count = 0;
    t_pair pair;

    t_pair_open(&pair, NULL);
    hws__op_limit(SLOTS);
    for (int side = 0; side < 2; side++) {
        while (hws_tag_recv(pair.worker[side], &in[count], 8, 1, UINT64_MAX, NULL,
                            &posted[count]) == HWS_OK) {
            count++;
        }
    }
    CHECK(count > SLOTS / 2);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_OK(hws_cancel(posted[i]));
    }
    CHECK_OK(hws_close_wait(pair.context, t_patience()));
    for (uint32_t i = 0; i < count; i++) {
        CHECK_EQ(WAIT(&pair, posted[i]).status, HWS_E_CANCELED);
    }
    t_pair_close(&pair);
}

/* Receives that nothing will meet take every operation that worker 0 can have. */
static void take_all(t_pair *pair)
{
    hws_op_opts detached = {.struct_size = sizeof detached, .flags = HWS_OP_DETACHED};
    static uint64_t in;
    int32_t r;
    hws_id op;

    hws__op_limit(SLOTS);
    while ((r = hws_tag_recv(pair->worker[0], &in, 8, 1, UINT64_MAX, &detached, &op)) == HWS_OK) {}
    CHECK_EQ(r, HWS_E_TOO_MANY);
}

/* What a want of operations refuses did not happen, and is not counted as if it had. By messages, which need one. */
CASE(remote_access_that_is_refused_is_not_counted)
{
    static uint64_t value;
    t_remote remote;
    hws_stats s;
    t_pair pair;
    hws_id op;

    t_remote_pair(&pair, HWS_ENDPOINT_TCP_ONLY);
    t_remote_open(&remote, &pair, 1, 0, T_REMOTE_SIZE);
    take_all(&pair);
    CHECK_CODE(hws_put(remote.rkey, remote.address, &value, 8, NULL, &op), HWS_E_TOO_MANY);
    CHECK_CODE(hws_get(remote.rkey, remote.address, &value, 8, NULL, &op), HWS_E_TOO_MANY);
    CHECK_CODE(hws_put_notify(remote.rkey, remote.address, &value, 8, 1, NULL, &op),
               HWS_E_TOO_MANY);
    CHECK_CODE(hws_atomic(remote.rkey, remote.address, HWS_ATOMIC_ADD, 8, 1, 0, NULL, NULL, &op),
               HWS_E_TOO_MANY);
    s = t_stats(pair.endpoint[0]);
    CHECK_EQ(s.sent[HWS_TRAFFIC_PUT], 0);
    CHECK_EQ(s.bytes_sent[HWS_TRAFFIC_PUT], 0);
    CHECK_EQ(s.sent[HWS_TRAFFIC_GET], 0);
    CHECK_EQ(s.bytes_sent[HWS_TRAFFIC_GET], 0);
    CHECK_EQ(s.sent[HWS_TRAFFIC_ATOMIC], 0);
    t_remote_close(&remote);
    t_pair_close(&pair);
}

/* Shared memory that is reached directly: what would have no event is not done either, what needs none is. */
CASE(direct_access_that_is_refused_changes_nothing)
{
    hws_op_opts inlined = {.struct_size = sizeof inlined, .flags = HWS_OP_INLINE};
    uint64_t value = 5;
    t_remote remote;
    t_pair pair;
    hws_id op;

    t_remote_pair(&pair, 0);
    t_remote_open(&remote, &pair, 1, 1, T_REMOTE_SIZE);
    memset(remote.base, 0, 8);
    take_all(&pair);
    CHECK_CODE(hws_atomic(remote.rkey, remote.address, HWS_ATOMIC_ADD, 8, 1, 0, NULL, NULL, &op),
               HWS_E_TOO_MANY);
    CHECK_CODE(hws_put(remote.rkey, remote.address, &value, 8, NULL, &op), HWS_E_TOO_MANY);
    CHECK_CODE(hws_get(remote.rkey, remote.address, &value, 8, NULL, &op), HWS_E_TOO_MANY);
    CHECK_EQ(value, 5);
    CHECK_EQ(*(const uint64_t *)(const void *)remote.base, 0);
    CHECK_EQ(hws_atomic(remote.rkey, remote.address, HWS_ATOMIC_ADD, 8, 1, 0, NULL, &inlined, &op),
             HWS_DONE);
    CHECK_EQ(*(const uint64_t *)(const void *)remote.base, 1);
    t_remote_close(&remote);
    t_pair_close(&pair);
}

/* A plan of three puts, posted with so many operations free: refused it uses no buffer, else it ends. */
static int32_t post_with(t_pair *pair, const t_remote *remote, uint32_t spare)
{
    static char data[3][64];
    hws_id op[8], plan = 0, posted = 0;
    hws_transfer parts[3];
    int32_t r;

    for (int i = 0; i < 3; i++) {
        parts[i] = (hws_transfer){.kind = HWS_EVENT_PUT,
                                  .rkey = remote->rkey,
                                  .address = remote->address,
                                  .buffer = data[i],
                                  .length = sizeof data[i]};
    }
    CHECK_OK(hws_plan_open(pair->endpoint[0], parts, 3, &plan));
    for (uint32_t i = 0; i < spare; i++) {
        CHECK_OK(hws_tag_recv(pair->worker[0], data, 8, 2, UINT64_MAX, NULL, &op[i]));
    }
    take_all(pair);
    for (uint32_t i = 0; i < spare; i++) {
        CHECK_OK(hws_cancel(op[i]));
        CHECK_EQ(WAIT(pair, op[i]).status, HWS_E_CANCELED);
    }
    r = hws_plan_post(plan, NULL, &posted);
    if (r == HWS_OK) {
        r = WAIT(pair, posted).status;
    }
    CHECK_EQ(t_stats(pair->endpoint[0]).ops_pending, 0);
    return r;
}

CASE(plans_that_are_refused_have_no_part_under_way)
{
    int32_t r = HWS_E_TOO_MANY;

    for (uint32_t spare = 0; spare <= 5; spare++) {
        bool enough = r == HWS_OK;
        t_remote remote;
        t_pair pair;

        t_remote_pair(&pair, HWS_ENDPOINT_TCP_ONLY);
        t_remote_open(&remote, &pair, 1, 0, T_REMOTE_SIZE);
        r = post_with(&pair, &remote, spare);
        CHECK(r == HWS_OK || (r == HWS_E_TOO_MANY && !enough));
        CHECK(r == (spare == 0 ? HWS_E_TOO_MANY : HWS_OK) || (spare > 0 && spare < 5));
        t_remote_close(&remote);
        t_pair_close(&pair);
    }
}

/* A table of 64 slots in place of the real one. */
static void small_table(void)
{
    hws_id any;

    CHECK_OK(hws_queue_open(NULL, &any));
    CHECK_OK(hws_close(any));
    hws__table_destroy(&hws__objects);
    CHECK_OK(hws__table_init(&hws__objects, 21, 6));
}

CASE(objects)
{
    hws_id queues[64], any = 0;
    uint32_t count = 0;
    t_pair pair;
    int32_t r;

    small_table();
    t_pair_open(&pair, NULL);
    while ((r = hws_queue_open(NULL, &queues[count])) == HWS_OK) {
        CHECK(++count < 64);
    }
    CHECK_EQ(r, HWS_E_TOO_MANY);
    check_last(HWS_E_TOO_MANY);
    CHECK_CODE(hws_context_open(NULL, &any), HWS_E_TOO_MANY);
    CHECK_CODE(hws_worker_open(pair.context, NULL, &any), HWS_E_TOO_MANY);
    CHECK_CODE(hws_listen(pair.worker[0], "127.0.0.1", 0, NULL, &any), HWS_E_TOO_MANY);
    CHECK_CODE(hws_connect(pair.worker[0], "127.0.0.1", 1, NULL, NULL, &any, &any), HWS_E_TOO_MANY);
    echo(&pair); /* received at once, or kept: the table is not asked */
    for (uint32_t i = 0; i < count; i++) {
        CHECK_OK(hws_close(queues[i]));
    }
    CHECK_OK(hws_queue_open(NULL, &queues[0]));
    CHECK_OK(hws_close(queues[0]));
    t_pair_close(&pair);
}

/* Another peer dials a listener that has no slot for its endpoint: it is turned away. */
CASE(objects_of_a_listener)
{
    hws_id queues[64], client = 0, op = 0;
    uint32_t count = 0;
    t_pair pair;

    small_table();
    t_pair_open(&pair, NULL);
    while (hws_queue_open(NULL, &queues[count]) == HWS_OK) {
        count++;
    }
    CHECK_OK(hws_close(queues[--count]));
    /* A slot stays with its kind: only the endpoint that was closed can come back. */
    CHECK_OK(hws_close(pair.endpoint[0]));
    UNTIL(&pair, hws_kind(pair.endpoint[0]) < 0);
    hws_op_opts opts = {.struct_size = sizeof opts, .timeout_ns = 5 * T_SECOND};
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, NULL, &opts, &client, &op));
    CHECK(WAIT(&pair, op).status < 0);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_OK(hws_close(queues[i]));
    }
    t_pair_close(&pair);
}

CASES_MAIN
