/* Unit tests of heap.c: the deadlines of a worker. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "heap.h"
#include "support/check.h"

#define COUNT 500

static struct hws__worker *worker;
static struct hws__op *ops;

static void setup(void)
{
    worker = calloc(1, sizeof *worker);
    ops = calloc(COUNT, sizeof *ops);
    cr_assert(worker != NULL && ops != NULL);
}

static void teardown(void)
{
    free(worker->heap);
    free(worker);
    free(ops);
}

TestSuite(heap, .init = setup, .fini = teardown);

/* Every parent is due before its children, and each operation knows its place. */
static void check_shape(void)
{
    for (uint32_t i = 0; i < worker->heap_size; i++) {
        cr_assert_eq(worker->heap[i]->heap, i + 1);
        if (i > 0) {
            cr_assert_leq(worker->heap[(i - 1) / 2]->deadline, worker->heap[i]->deadline);
        }
    }
}

static void add(int i, uint64_t deadline)
{
    ops[i].deadline = deadline;
    cr_assert(hws__heap_add(worker, &ops[i]));
}

Test(heap, one)
{
    add(0, 5);
    cr_assert_eq(worker->heap_size, 1);
    cr_assert_eq(ops[0].heap, 1);
    hws__heap_remove(worker, &ops[0]);
    cr_assert_eq(worker->heap_size, 0);
    cr_assert_eq(ops[0].heap, 0);
}

Test(heap, the_earliest_comes_first)
{
    uint64_t state = 3, last = 0;

    for (int i = 0; i < COUNT; i++) {
        add(i, t_random(&state) % 100); /* many are equal */
        check_shape();
    }
    for (int i = 0; i < COUNT; i++) {
        struct hws__op *op = worker->heap[0];

        cr_assert_geq(op->deadline, last);
        last = op->deadline;
        hws__heap_remove(worker, op);
        cr_assert_eq(op->heap, 0);
        check_shape();
    }
    cr_assert_eq(worker->heap_size, 0);
}

Test(heap, any_place_can_be_left)
{
    uint64_t state = 9;
    uint32_t size = COUNT;

    for (int i = 0; i < COUNT; i++) {
        add(i, t_random(&state));
    }
    while (size > 0) {
        hws__heap_remove(worker, worker->heap[t_random(&state) % size]);
        cr_assert_eq(worker->heap_size, --size);
        check_shape();
    }
}

/* What moves into the hole may belong above it. */
Test(heap, the_last_one_may_have_to_rise)
{
    const uint64_t deadlines[] = {0, 10, 1, 20, 21, 2, 3};

    for (int i = 0; i < 7; i++) {
        add(i, deadlines[i]);
    }
    hws__heap_remove(worker, &ops[3]);
    check_shape();
}

Test(heap, forever_is_last)
{
    add(0, UINT64_MAX);
    add(1, 1);
    add(2, UINT64_MAX);
    cr_assert_eq(worker->heap[0], &ops[1]);
}
