/*
 * Long puts and gets of memory that is shared: pieces between which everything else goes on.
 */
#include "support/cases.h"
#include "support/remote.h"

#include <stdlib.h>
#include <string.h>

#define SIZE (UINT64_C(25) << 20)
#define LENGTH (SIZE - 12345)

typedef struct long_copy {
    t_pair pair;
    t_remote remote;
    char *out, *in;
} long_copy;

static void set_up(long_copy *c)
{
    t_remote_pair(&c->pair, 0);
    t_remote_open(&c->remote, &c->pair, 1, 1, SIZE);
    c->out = t_alloc(SIZE);
    c->in = t_alloc(SIZE);
    t_fill(c->out, SIZE, 3);
    memset(c->remote.base, 0, SIZE);
}

static void tear_down(long_copy *c)
{
    free(c->out);
    free(c->in);
    t_remote_close(&c->remote);
    t_pair_close(&c->pair);
}

static hws_id put(long_copy *c)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_INLINE};
    hws_id op = 0;

    CHECK_OK(hws_put(c->remote.rkey, c->remote.address + 1, c->out, LENGTH, &opts, &op));
    return op;
}

static void check_put(const long_copy *c)
{
    CHECK_EQ(c->remote.base[0], 0);
    CHECK_FILLED(c->remote.base + 1, LENGTH, 3);
    CHECK_EQ(c->remote.base[1 + LENGTH], 0);
}

CASE(there_and_back)
{
    long_copy c;
    hws_event event;
    hws_id op = 0;

    set_up(&c);
    op = put(&c);
    event = WAIT_OK(&c.pair, op);
    CHECK_EQ(event.kind, HWS_EVENT_PUT);
    CHECK_EQ(event.length, LENGTH);
    check_put(&c);
    CHECK_OK(hws_get(c.remote.rkey, c.remote.address + 1, c.in, LENGTH, NULL, &op));
    event = WAIT_OK(&c.pair, op);
    CHECK_EQ(event.kind, HWS_EVENT_GET);
    CHECK_EQ(event.length, LENGTH);
    CHECK_FILLED(c.in, LENGTH, 3);
    tear_down(&c);
}

CASE(in_pieces_of_the_poster)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_IOV};
    long_copy c;
    hws_id op = 0;

    set_up(&c);
    {
        hws_iov pieces[4] = {{c.out, 1},
                             {NULL, 0},
                             {c.out + 1, UINT64_C(9) << 20},
                             {c.out + 1 + (UINT64_C(9) << 20), LENGTH - 1 - (UINT64_C(9) << 20)}};

        CHECK_OK(hws_put(c.remote.rkey, c.remote.address + 1, pieces, 4, &opts, &op));
        memset(pieces, 0, sizeof(pieces)); /* a short array is copied */
    }
    CHECK_EQ(WAIT_OK(&c.pair, op).length, LENGTH);
    check_put(&c);
    tear_down(&c);
}

/* Each call of progress does a bounded part, and messages come meanwhile. */
CASE(others_go_on)
{
    uint64_t out = 7, in = 0;
    hws_id ops[4], send = 0, receive = 0;
    long_copy c;

    set_up(&c);
    CHECK_OK(hws_tag_recv(c.pair.endpoint[0], &in, 8, 1, UINT64_MAX, NULL, &receive));
    CHECK_OK(hws_tag_send(c.pair.endpoint[1], &out, 8, 1, NULL, &send));
    for (int i = 0; i < 4; i++) {
        ops[i] = put(&c);
        CHECK_PENDING(ops[i]);
    }
    WAIT_OK(&c.pair, receive);
    WAIT_OK(&c.pair, send);
    CHECK_EQ(in, 7);
    CHECK_PENDING(ops[3]);
    for (int i = 0; i < 4; i++) {
        WAIT_OK(&c.pair, ops[i]);
    }
    check_put(&c);
    tear_down(&c);
}

CASE(cancelled)
{
    long_copy c;
    hws_id op;

    set_up(&c);
    op = put(&c);
    CHECK_PENDING(op);
    CHECK_OK(hws_cancel(op));
    CHECK_CODE(WAIT(&c.pair, op).status, HWS_E_CANCELED);
    CHECK_EQ(c.remote.base[LENGTH], 0);
    WAIT_OK(&c.pair, put(&c));
    check_put(&c);
    tear_down(&c);
}

/* Far more to copy than can be copied in time. */
CASE(late)
{
    enum { MANY = 200 };
    hws_op_opts opts = {.struct_size = sizeof(opts), .timeout_ns = T_MS};
    hws_id ops[MANY];
    int late = 0;
    long_copy c;

    set_up(&c);
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(hws_put(c.remote.rkey, c.remote.address, c.out, SIZE, &opts, &ops[i]));
    }
    for (int i = 0; i < MANY; i++) {
        late += WAIT(&c.pair, ops[i]).status == HWS_E_TIMED_OUT;
    }
    CHECK(late > 0);
    tear_down(&c);
}

CASE(a_flush_waits_for_it)
{
    long_copy c;
    hws_id op;

    set_up(&c);
    op = put(&c);
    t_flush(&c.pair, 0);
    check_put(&c);
    CHECK_OK(hws_wait(op, 0, NULL));
    tear_down(&c);
}

CASE(a_fence_keeps_the_order)
{
    hws_id op, later = 0;
    long_copy c;

    set_up(&c);
    op = put(&c);
    CHECK_OK(hws_fence(c.pair.endpoint[0]));
    CHECK_OK(hws_put(c.remote.rkey, c.remote.address + LENGTH, "z", 1, NULL, &later));
    WAIT_OK(&c.pair, later);
    WAIT_OK(&c.pair, op);
    t_flush(&c.pair, 0);
    CHECK_EQ(c.remote.base[LENGTH], 'z');
    tear_down(&c);
}

/* The key stays mapped until the copy ends. */
CASE(the_key_is_closed_meanwhile)
{
    uint64_t length;
    long_copy c;
    void *packed;
    hws_id op;

    set_up(&c);
    op = put(&c);
    CHECK_OK(hws_close(c.remote.rkey));
    WAIT_OK(&c.pair, op);
    check_put(&c);
    packed = t_pack(c.remote.memory, &length);
    CHECK_OK(hws_rkey_unpack(c.pair.endpoint[0], packed, length, 0, &c.remote.rkey));
    free(packed);
    tear_down(&c);
}

CASE(the_endpoint_is_aborted_meanwhile)
{
    long_copy c;
    hws_id op;

    set_up(&c);
    op = put(&c);
    CHECK_PENDING(op);
    CHECK_OK(hws_abort(c.pair.endpoint[0]));
    CHECK_CODE(WAIT(&c.pair, op).status, HWS_E_CANCELED);
    UNTIL(&c.pair, hws_kind(c.pair.endpoint[0]) < 0);
    free(c.out);
    free(c.in);
    CHECK_OK(hws_close(c.remote.memory));
    t_pair_close(&c.pair);
}

CASE(an_endpoint_that_closes_waits_for_it)
{
    long_copy c;

    set_up(&c);
    (void)put(&c);
    CHECK_OK(hws_close(c.pair.endpoint[0]));
    UNTIL(&c.pair, hws_kind(c.pair.endpoint[0]) < 0);
    check_put(&c);
    free(c.out);
    free(c.in);
    CHECK_OK(hws_close(c.remote.memory));
    t_pair_close(&c.pair);
}

CASES_MAIN
