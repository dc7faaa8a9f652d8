/*
 * Unit tests of op.c and op_pool.c: ids, their end, pieces of buffers. How operations end is tested with real
 * connections, in tests/loopback.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "handle.h"
#include "op.h"
#include "support/check.h"
#include "worker.h"

#define GENERATIONS (1u << HWS__OP_GENERATION_BITS)

static struct hws__worker *worker;
static const hws_op_opts options = {.struct_size = sizeof options, .user = 7};

static void setup(void)
{
    hws_id any;

    CHECK_OK(hws_queue_open(NULL, &any)); /* makes the table of the process */
    cr_assert_neq(worker = calloc(1, sizeof *worker), NULL);
    hws__list_init(&worker->ops);
    hws__list_init(&worker->ready_ops);
}

static void teardown(void)
{
    hws__op_drain(worker);
    free(worker);
}

TestSuite(op, .init = setup, .fini = teardown);

static struct hws__op *take(void)
{
    struct hws__post p = {.worker = worker, .opts = &options, .kind = HWS_EVENT_TAG_RECV};
    struct hws__op *op = hws__op_take(&p);

    if (op != NULL) {
        op->stage = HWS__STAGE_OWN;
    }
    return op;
}

static void give_back(struct hws__op *op)
{
    hws__op_leave(op);
    hws__op_release(op);
}

Test(op, an_id_is_below_2_to_the_53_and_finds_its_operation)
{
    struct hws__op *op = take();
    hws_id id = op->id;

    cr_assert_eq(id >> 53, 0);
    cr_assert_eq(hws__id_kind(id), HWS_KIND_OP);
    cr_assert_eq(hws__op_find(id), op);
    cr_assert_eq(hws_kind(id), HWS_KIND_OP);
    give_back(op);
    cr_assert_eq(hws__op_find(id), NULL);
    CHECK_CODE(hws_kind(id), HWS_E_STALE);
}

Test(op, the_last_free_one_is_used_first)
{
    struct hws__op *op = take();

    give_back(op);
    cr_assert_eq(take(), op, "its memory is still in the cache");
    give_back(op);
}

Test(op, wrong_ids)
{
    struct hws__op *op = take();
    hws_id queue, id = op->id;

    CHECK_OK(hws_queue_open(NULL, &queue));
    cr_assert_eq(hws__op_id_error(queue), HWS_E_KIND);
    cr_assert_eq(hws__op_id_error(0), HWS_E_BAD_ID);
    cr_assert_eq(hws__op_id_error(UINT64_MAX), HWS_E_BAD_ID);
    cr_assert_eq(hws__op_id_error((uint64_t)HWS_KIND_OP << HWS__KIND_SHIFT | 1), HWS_E_BAD_ID,
                 "generation 0 is never issued");
    cr_assert_eq(hws__op_id_error(id | ((1u << HWS__OP_SLOT_BITS) - 1)), HWS_E_BAD_ID,
                 "a slot that was never used");
    cr_assert_eq(hws__op_id_error(id ^ (UINT64_C(1) << (HWS__KIND_SHIFT - 1))), HWS_E_STALE);
    CHECK_CODE(hws_cancel(queue), HWS_E_KIND);
    give_back(op);
    cr_assert_eq(hws__op_id_error(id), HWS_E_STALE);
    CHECK_OK(hws_close(queue));
}

Test(op, generations_wrap_and_leave_out_0)
{
    struct hws__op *op = take();
    hws_id last, id;

    op->generation = GENERATIONS - 2;
    give_back(op);
    cr_assert_eq(take(), op);
    last = op->id;
    cr_assert_eq(hws__id_kind(last), HWS_KIND_OP, "the last generation stays inside its bits");
    cr_assert_eq(op->generation, GENERATIONS - 1);
    give_back(op);
    cr_assert_eq(take(), op);
    id = op->id;
    cr_assert_eq(hws__id_kind(id), HWS_KIND_OP);
    cr_assert_eq(op->generation, 1);
    cr_assert_eq(hws__op_find(id), op);
    cr_assert_eq(hws__op_find(last), NULL);
    cr_assert_eq(hws__op_id_error(last), HWS_E_STALE);
    give_back(op);
}

Test(op, slots_run_out_and_come_back)
{
    struct hws__op *op, *taken = NULL;
    uint32_t count = 0;

    hws__op_limit(512);
    for (; (op = take()) != NULL; count++) {
        cr_assert_lt(op->slot, 512);
        op->next = taken;
        taken = op;
    }
    cr_assert_eq(count, 512);
    cr_assert_eq(hws__op_pool_take(), NULL);
    {
        hws_error e = {.struct_size = sizeof e};

        CHECK_OK(hws_last_error(&e));
        cr_assert_eq(e.code, HWS_E_TOO_MANY);
    }
    while ((op = taken) != NULL) {
        taken = op->next;
        give_back(op);
    }
    cr_assert_neq(op = take(), NULL);
    give_back(op);
}

Test(op, what_other_threads_give_back_is_used)
{
    struct hws__op *op = take();

    hws__op_limit(256);
    while (worker->free_ops != NULL) {
        take();
    }
    cr_assert_eq(take(), NULL);
    hws__op_leave(op);
    hws__op_release_any(op);
    cr_assert_eq(take(), op);
}

Test(op, a_worker_that_ends_gives_all_back_to_the_pool)
{
    struct hws__op *op = take();

    hws__op_limit(256);
    give_back(op);
    cr_assert_eq(hws__op_pool_take(), NULL, "the worker has them all");
    hws__op_drain(worker);
    cr_assert_neq(op = hws__op_pool_take(), NULL);
    hws__op_release(op);
}

static void *take_and_release(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50000; i++) {
        struct hws__op *op = hws__op_pool_take();

        cr_assert_neq(op, NULL);
        cr_assert_eq(op->buffer, NULL, "nobody else has it");
        op->buffer = op;
        op->buffer = NULL;
        hws__op_release(op);
    }
    return NULL;
}

Test(op, threads_share_the_pool)
{
    pthread_t threads[4];

    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, take_and_release, NULL);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

Test(op, random_ids_find_nothing)
{
    struct hws__op *op = take();
    uint64_t state = 5;

    for (int i = 0; i < 1000000; i++) {
        hws_id id = (t_random(&state) & ((UINT64_C(1) << HWS__KIND_SHIFT) - 1)) |
                    (uint64_t)HWS_KIND_OP << HWS__KIND_SHIFT;

        if (id != op->id) {
            cr_assert_eq(hws__op_find(id), NULL);
            cr_assert_lt(hws__op_id_error(id), 0);
        }
    }
    give_back(op);
}

Test(op, the_event_says_what_happened)
{
    struct hws__op *op = take();
    hws_event e;

    op->status = HWS_E_TRUNCATED;
    op->done_length = 3;
    op->done_tag = 4;
    op->source = 5;
    op->event_flags = 6;
    op->detail = "why";
    hws__op_event(op, &e);
    cr_assert_eq(e.size, sizeof e);
    cr_assert(e.kind == HWS_EVENT_TAG_RECV && e.op == op->id && e.source == 5 && e.flags == 6);
    cr_assert(e.status == HWS_E_TRUNCATED && e.length == 3 && e.tag == 4 && e.user == 7);
    cr_assert_str_eq((const char *)e.detail, "why");
    give_back(op);
}

Test(op, bytes_of_a_buffer_and_of_its_pieces)
{
    hws_iov pieces[] = {{NULL, 0}, {(void *)1, 10}, {(void *)1, UINT64_C(5) << 32}};

    cr_assert_eq(hws__bytes("x", 1, 0), 1);
    cr_assert_eq(hws__bytes(NULL, 0, HWS_OP_IOV), 0);
    cr_assert_eq(hws__bytes(pieces, 3, HWS_OP_IOV), (UINT64_C(5) << 32) + 10);
}

Test(op, scatter_fills_pieces_in_order_and_no_more)
{
    char a[3], b[4], c[5];
    hws_iov pieces[] = {{a, 3}, {NULL, 0}, {b, 4}, {c, 5}};

    memset(a, '#', sizeof a);
    memset(b, '#', sizeof b);
    memset(c, '#', sizeof c);
    hws__scatter(pieces, 4, HWS_OP_IOV, "abcdefgh", 8);
    cr_assert_eq(memcmp(a, "abc", 3), 0);
    cr_assert_eq(memcmp(b, "defg", 4), 0);
    cr_assert_eq(memcmp(c, "h####", 5), 0);
    hws__scatter(pieces, 1, HWS_OP_IOV, "xyzw", 4);
    cr_assert_eq(memcmp(a, "xyz", 3), 0, "what does not fit is left");
    hws__scatter(c, 5, 0, "12345", 5);
    cr_assert_eq(memcmp(c, "12345", 5), 0);
    hws__scatter(NULL, 0, 0, NULL, 0);
}
