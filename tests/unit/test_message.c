/* Unit tests of message.c: messages that keep their data, and their ids. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "support/check.h"
#include "worker.h"

static struct hws__worker *worker;
static struct hws__uworker uworker;

static void setup(void)
{
    hws_id any;

    CHECK_OK(hws_queue_open(NULL, &any)); /* makes the table of the process */
    worker = calloc(1, sizeof *worker);
    cr_assert_neq(worker, NULL);
    uworker.worker = worker;
    hws__list_init(&worker->kept);
    hws__list_init(&worker->free_messages[0]);
    hws__list_init(&worker->free_messages[1]);
    hws__pool_init(&worker->pool, HWS__POOL_BYTES);
}

static void teardown(void)
{
    hws__pool_drain(&worker->pool);
    free(worker);
}

TestSuite(message, .init = setup, .fini = teardown);

Test(message, small_data_is_kept_inside)
{
    struct hws__message *m = hws__message_take(worker, HWS_KIND_MESSAGE);
    char data[HWS__MESSAGE_INLINE];

    t_fill(data, sizeof data, 1);
    cr_assert_eq(hws__message_fill(m, &uworker, data, sizeof data, 0), UCS_OK);
    cr_assert_eq(m->memory, NULL);
    cr_assert_neq(m->data, (void *)data);
    CHECK_FILLED(m->data, sizeof data, 1);
    hws__message_release(m);
}

Test(message, bigger_data_gets_memory)
{
    struct hws__message *m = hws__message_take(worker, HWS_KIND_MESSAGE);
    char data[HWS__MESSAGE_INLINE + 1];

    t_fill(data, sizeof data, 1);
    cr_assert_eq(hws__message_fill(m, &uworker, data, sizeof data, 0), UCS_OK);
    cr_assert_neq(m->memory, NULL);
    CHECK_FILLED(m->data, sizeof data, 1);
    hws__message_release(m);
    cr_assert_eq(m->memory, NULL);
}

Test(message, an_empty_one)
{
    struct hws__message *m = hws__message_take(worker, HWS_KIND_MESSAGE);

    cr_assert_eq(hws__message_fill(m, &uworker, NULL, 0, 0), UCS_OK);
    cr_assert_eq(m->length, 0);
    hws__message_release(m);
}

Test(message, released_ones_are_used_again_for_the_same_kind)
{
    struct hws__message *m = hws__message_take(worker, HWS_KIND_MESSAGE);
    struct hws__message *b = hws__message_take(worker, HWS_KIND_BUFFER);

    hws__message_release(m);
    hws__message_release(b);
    cr_assert_eq(hws__message_take(worker, HWS_KIND_BUFFER), b);
    cr_assert_eq(hws__message_take(worker, HWS_KIND_MESSAGE), m);
}

/* More ids than a slot has generations: a busy receiver gets there within seconds. */
Test(message, ids_outlast_the_generations_of_a_slot)
{
    const uint32_t count = (1u << 21) + (1u << 18);
    hws_id last = 0, first = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct hws__message *m = hws__message_take(worker, HWS_KIND_BUFFER);
        hws_id id = hws__message_publish(m);

        cr_assert_eq(hws__id_kind(id), HWS_KIND_BUFFER, "%u: %#llx", i, (unsigned long long)id);
        cr_assert_eq(hws__obj_find(&hws__objects, id), m);
        cr_assert_neq(id, last);
        hws__message_release(m);
        cr_assert_eq(hws__id_error(&hws__objects, id, HWS_KIND_BUFFER), HWS_E_STALE);
        last = id;
        first = first == 0 ? id : first;
        cr_assert(i == 0 || id != first, "an id came twice");
    }
}

static void *freed;
static uint64_t freed_length;

static void give_back(void *arg, void *memory, uint64_t length)
{
    cr_assert_eq(arg, &freed);
    freed = memory;
    freed_length = length;
}

Test(message, memory_of_the_users_hook_goes_back_to_it)
{
    struct hws__message *m = hws__message_take(worker, HWS_KIND_BUFFER);
    char memory[16];

    m->memory = memory;
    m->length = sizeof memory;
    m->hooked = true;
    m->free_fn = give_back;
    m->alloc_arg = &freed;
    hws__message_release(m);
    cr_assert(freed == memory && freed_length == sizeof memory);
}
