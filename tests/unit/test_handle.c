/*
 * Unit tests of handle.c at widths so small that a test reaches the end of them: 2 bits of
 * generation, 2 of slot. The errors of ids of the real table are in tests/loopback/test_badids.c.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "handle.h"
#include "op.h"
#include "support/check.h"

#define GENERATION_BITS 2
#define SLOT_BITS 2
#define SLOTS (1 << SLOT_BITS)
#define GENERATIONS ((1 << GENERATION_BITS) - 1) /* 0 is never issued */

struct thing {
    struct hws__obj obj;
    uint64_t value;
};

static struct hws__table table;

static void setup(void)
{
    cr_assert_eq(hws__table_init(&table, GENERATION_BITS, SLOT_BITS), HWS_OK);
}

static void teardown(void)
{
    hws__table_destroy(&table);
}

TestSuite(handle, .init = setup, .fini = teardown);

static struct thing *make(uint32_t kind)
{
    return (struct thing *)(void *)hws__obj_alloc(&table, kind, sizeof(struct thing), 0);
}

static hws_id publish(struct thing *t)
{
    return hws__obj_publish(&table, &t->obj);
}

Test(handle, an_id_is_below_2_to_the_53_and_finds_its_object)
{
    struct thing *t = make(HWS_KIND_ENDPOINT);
    hws_id id = publish(t);

    cr_assert_neq(id, 0);
    cr_assert_eq(id >> 53, 0);
    cr_assert_eq(hws__id_kind(id), HWS_KIND_ENDPOINT);
    cr_assert_eq(hws__obj_find(&table, id), t);
}

Test(handle, an_object_is_found_only_while_it_is_published)
{
    struct thing *t = make(HWS_KIND_QUEUE);
    hws_id id;

    cr_assert_eq(hws__obj_find(&table, 0), NULL);
    id = publish(t);
    hws__obj_hide(&t->obj);
    cr_assert_eq(hws__obj_find(&table, id), NULL);
    cr_assert_eq(hws__id_error(&table, id, HWS_KIND_QUEUE), HWS_E_STALE);
    hws__obj_free(&table, &t->obj);
    cr_assert_eq(hws__obj_find(&table, id), NULL);
}

Test(handle, memory_comes_back_zeroed_under_another_id)
{
    struct thing *t = make(HWS_KIND_WORKER);
    hws_id first = publish(t), second;

    t->value = 7;
    atomic_store(&t->obj.user, 9);
    hws__obj_free(&table, &t->obj);
    cr_assert_eq(make(HWS_KIND_WORKER), t, "the memory is used again");
    cr_assert_eq(t->value, 0);
    cr_assert_eq(atomic_load(&t->obj.user), 0);
    second = publish(t);
    cr_assert_neq(second, first);
    cr_assert_eq(hws__obj_find(&table, first), NULL);
    cr_assert_eq(hws__obj_find(&table, second), t);
    cr_assert_eq(hws__id_error(&table, first, HWS_KIND_WORKER), HWS_E_STALE);
}

Test(handle, what_is_asked_of_an_object_that_is_gone_reaches_no_other)
{
    struct thing *t = make(HWS_KIND_WORKER);
    hws_id first = publish(t), second;

    cr_assert(hws__obj_ask(&t->obj, first, HWS__ASKED_CLOSE));
    cr_assert(hws__obj_ask(&t->obj, first, HWS__ASKED_CREDIT));
    cr_assert_eq(hws__obj_asked(&t->obj), HWS__ASKED_CLOSE | HWS__ASKED_CREDIT);
    cr_assert_eq(hws__obj_asked(&t->obj), 0, "told once");
    cr_assert(hws__obj_ask(&t->obj, first, HWS__ASKED_ABORT));
    hws__obj_free(&table, &t->obj);
    cr_assert_not(hws__obj_ask(&t->obj, first, HWS__ASKED_CLOSE));
    cr_assert_eq(make(HWS_KIND_WORKER), t, "the memory is used again");
    second = publish(t);
    cr_assert_not(hws__obj_ask(&t->obj, first, HWS__ASKED_CLOSE));
    cr_assert_eq(hws__obj_asked(&t->obj), 0);
    cr_assert(hws__obj_ask(&t->obj, second, HWS__ASKED_CLOSE));
}

/* What late comers may still touch. */
Test(handle, some_of_the_memory_is_kept_if_asked_for)
{
    struct hws__obj *o = hws__obj_alloc(&table, HWS_KIND_QUEUE, sizeof(struct thing), 8);

    cr_assert_eq(((struct thing *)(void *)o)->value, 0, "zero the first time");
    ((struct thing *)(void *)o)->value = 7;
    hws__obj_free(&table, o);
    cr_assert_eq(hws__obj_alloc(&table, HWS_KIND_QUEUE, sizeof(struct thing), 8), o);
    cr_assert_eq(((struct thing *)(void *)o)->value, 7);
}

Test(handle, memory_of_one_kind_is_never_used_for_another)
{
    struct thing *t = make(HWS_KIND_WORKER);

    publish(t);
    hws__obj_free(&table, &t->obj);
    cr_assert_neq(make(HWS_KIND_ENDPOINT), t);
}

Test(handle, every_wrong_id_has_its_error)
{
    struct thing *t = make(HWS_KIND_ENDPOINT);
    hws_id id = publish(t);
    hws_id other_kind = (id & ~(UINT64_C(15) << HWS__KIND_SHIFT)) | (uint64_t)HWS_KIND_WORKER
                                                                        << HWS__KIND_SHIFT;

    cr_assert_eq(hws__id_error(&table, 0, HWS_KIND_ENDPOINT), HWS_E_BAD_ID);
    cr_assert_eq(hws__id_error(&table, id, HWS_KIND_WORKER), HWS_E_KIND);
    cr_assert_eq(hws__id_error(&table, other_kind, HWS_KIND_WORKER), HWS_E_BAD_ID);
    cr_assert_eq(hws__id_error(&table, id | UINT64_C(1) << 53, HWS_KIND_ENDPOINT), HWS_E_BAD_ID);
    cr_assert_eq(hws__id_error(&table, UINT64_MAX, 0), HWS_E_BAD_ID);
    /* A generation that was never issued, a slot that was never used. */
    cr_assert_eq(
        hws__id_error(&table, id + (UINT64_C(1) << (HWS__KIND_SHIFT - GENERATION_BITS)), 0),
        HWS_E_BAD_ID);
    cr_assert_eq(hws__id_error(&table, id + 1, HWS_KIND_ENDPOINT), HWS_E_BAD_ID);
    cr_assert_eq(hws__id_error(&table, id & ((1 << SLOT_BITS) - 1), 0), HWS_E_BAD_ID);
}

Test(handle, random_numbers_find_nothing_and_never_crash)
{
    struct thing *t = make(HWS_KIND_ENDPOINT);
    hws_id id = publish(t);
    uint64_t state = 1;

    for (int i = 0; i < 1000000; i++) {
        uint64_t random = t_random(&state) >> (i % 64);

        if (random == id) {
            continue;
        }
        cr_assert_eq(hws__obj_find(&table, random), NULL);
        cr_assert_lt(hws__id_error(&table, random, HWS_KIND_ENDPOINT), 0);
    }
}

Test(handle, slots_run_out)
{
    struct thing *things[SLOTS];

    for (int i = 0; i < SLOTS; i++) {
        cr_assert_neq(things[i] = make(HWS_KIND_MESSAGE), NULL);
        publish(things[i]);
    }
    cr_assert_eq(make(HWS_KIND_MESSAGE), NULL);
    cr_assert_eq(make(HWS_KIND_ENDPOINT), NULL);
    hws__obj_free(&table, &things[2]->obj);
    cr_assert_eq(make(HWS_KIND_ENDPOINT), NULL, "a slot stays with its kind");
    cr_assert_eq(make(HWS_KIND_MESSAGE), things[2]);
}

/* With 4 slots of 3 generations, 12 ids can ever be given out: all different, none twice. */
Test(handle, generations_run_out_and_no_id_comes_twice)
{
    hws_id ids[SLOTS * GENERATIONS];
    struct thing *t;
    int count = 0;

    for (; (t = make(HWS_KIND_ENDPOINT)) != NULL; count++) {
        cr_assert_lt(count, SLOTS * GENERATIONS);
        ids[count] = publish(t);
        cr_assert_eq(hws__id_kind(ids[count]), HWS_KIND_ENDPOINT);
        cr_assert_eq(hws__obj_find(&table, ids[count]), t);
        for (int i = 0; i < count; i++) {
            cr_assert_neq(ids[i], ids[count]);
            cr_assert_eq(hws__obj_find(&table, ids[i]), NULL);
            cr_assert_eq(hws__id_error(&table, ids[i], HWS_KIND_ENDPOINT), HWS_E_STALE);
        }
        hws__obj_free(&table, &t->obj);
    }
    cr_assert_eq(count, SLOTS * GENERATIONS);
}

/* ---- Threads -------------------------------------------------------------------------------- */

#define ROUNDS 20000
#define READERS 2

static struct hws__table wide;
static _Atomic hws_id shared;
static _Atomic int stop;

static void *read_ids(void *arg)
{
    uint64_t found = 0;

    (void)arg;
    while (!atomic_load(&stop)) {
        hws_id id = atomic_load(&shared);
        const struct thing *t = hws__obj_find(&wide, id);

        if (t != NULL) {
            found++;
            cr_assert_eq(t->obj.kind, HWS_KIND_BUFFER);
        } else if (id != 0) {
            int32_t r = hws__id_error(&wide, id, HWS_KIND_BUFFER);

            /* It may be the next one by now, never another's. */
            cr_assert(r == HWS_E_STALE, "%d", r);
        }
    }
    return (void *)(uintptr_t)found;
}

Test(handle, a_reader_never_meets_a_half_made_or_freed_object)
{
    pthread_t readers[READERS];

    cr_assert_eq(hws__table_init(&wide, 20, 12), HWS_OK);
    for (int i = 0; i < READERS; i++) {
        pthread_create(&readers[i], NULL, read_ids, NULL);
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct hws__obj *o = hws__obj_alloc(&wide, HWS_KIND_BUFFER, sizeof(struct thing), 0);

        cr_assert_neq(o, NULL);
        atomic_store(&shared, hws__obj_publish(&wide, o));
        hws__obj_free(&wide, o);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i], NULL);
    }
    hws__table_destroy(&wide);
}

static void *alloc_and_free(void *arg)
{
    uint32_t kind = (uint32_t)(uintptr_t)arg;

    for (int i = 0; i < ROUNDS; i++) {
        struct hws__obj *o = hws__obj_alloc(&wide, kind, sizeof(struct thing), 0);
        hws_id id;

        cr_assert_neq(o, NULL);
        id = hws__obj_publish(&wide, o);
        cr_assert_eq(hws__obj_find(&wide, id), o);
        hws__obj_free(&wide, o);
        cr_assert_eq(hws__obj_find(&wide, id), NULL);
    }
    return NULL;
}

Test(handle, threads_that_allocate_do_not_share_objects)
{
    pthread_t threads[4];

    cr_assert_eq(hws__table_init(&wide, 20, 12), HWS_OK);
    for (uintptr_t i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, alloc_and_free, (void *)(HWS_KIND_WORKER + i / 2));
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    hws__table_destroy(&wide);
}

/* ---- The table of the process --------------------------------------------------------------- */

Test(handle, ids_from_before_fork_are_refused)
{
    hws_id id = 0;
    int status = 0;
    pid_t pid;

    CHECK_OK(hws_queue_open(NULL, &id));
    CHECK_EQ(hws_kind(id), HWS_KIND_QUEUE);
    pid = fork();
    if (pid == 0) {
        hws_id other;

        CHECK_CODE(hws_kind(id), HWS_E_FORKED);
        CHECK_CODE(hws_close(id), HWS_E_FORKED);
        CHECK_CODE(hws_queue_open(NULL, &other), HWS_E_FORKED);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_OK(hws_close(id));
}
