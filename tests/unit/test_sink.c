/* Unit tests of sink.c: where the events of an object go. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "message.h"
#include "progress.h"
#include "queue.h"
#include "sink.h"
#include "support/check.h"

static struct hws__worker *worker;
static hws_id queue;

static void setup(void)
{
    CHECK_OK(hws_queue_open(NULL, &queue));
    worker = calloc(1, sizeof *worker);
    cr_assert_neq(worker, NULL);
    hws__list_init(&worker->ready);
    hws__list_init(&worker->ready_ops);
    hws__list_init(&worker->free_notices);
    hws__list_init(&worker->kept);
    hws__list_init(&worker->dropped);
    hws__list_init(&worker->free_messages[0]);
    hws__list_init(&worker->free_messages[1]);
}

static void teardown(void)
{
    struct hws__list *n;

    while ((n = hws__list_pop(&worker->free_notices)) != NULL) {
        free(hws__container(n, struct hws__notice, link));
    }
    free(worker);
    hws_close(queue);
}

TestSuite(sink, .init = setup, .fini = teardown);

static hws_event seen;
static int calls;

static void see(void *arg, const hws_event *event)
{
    cr_assert_eq(arg, &calls);
    seen = *event;
    calls++;
}

static struct hws__sink sink_of(const hws_sink *from)
{
    struct hws__sink sink;

    cr_assert_eq(hws__sink_set(&sink, from), HWS_OK);
    return sink;
}

static int32_t pop(hws_event *event)
{
    return hws_queue_pop(queue, event, 1, 0);
}

Test(sink, nowhere)
{
    struct hws__sink sink = sink_of(&(hws_sink){.user = 1});
    hws_event e = {.kind = HWS_EVENT_CLOSED};

    cr_assert(hws__sink_none(&sink));
    hws__emit(worker, &sink, &e, NULL);
    cr_assert_not(worker->todo);
    hws__sink_feed(&sink, 1);
}

Test(sink, a_callback_comes_when_the_round_is_over)
{
    struct hws__sink sink =
        sink_of(&(hws_sink){.callback = see, .callback_arg = &calls, .user = 5});
    hws_event e = {.kind = HWS_EVENT_CLOSED, .source = 9};

    cr_assert_not(hws__sink_none(&sink));
    hws__emit(worker, &sink, &e, NULL);
    cr_assert_eq(calls, 0, "not inside UCX");
    cr_assert(worker->todo);
    cr_assert_eq(hws__deliver(worker), 1);
    cr_assert_eq(calls, 1);
    cr_assert_eq(seen.size, sizeof seen);
    cr_assert(seen.kind == HWS_EVENT_CLOSED && seen.source == 9 && seen.user == 5);
    cr_assert_eq(hws__deliver(worker), 0);
}

/* An endpoint brings two, and may use none. */
Test(sink, memory_that_objects_bring_is_not_kept_for_ever)
{
    struct hws__sink sink = sink_of(&(hws_sink){.callback = see, .callback_arg = &calls});
    hws_event e = {.kind = HWS_EVENT_CLOSED};
    uint32_t kept = 0;

    for (int i = 0; i < 1000; i++) {
        struct hws__list own;

        hws__list_init(&own);
        cr_assert(hws__notices_reserve(&own, 2));
        for (int n = 0; n < 2; n++) {
            hws__notice_provide(worker, &own);
            if (i % 2 == 0) {
                hws__emit(worker, &sink, &e, NULL);
            }
        }
        hws__deliver(worker);
    }
    cr_assert_eq(calls, 1000);
    for (struct hws__list *n = worker->free_notices.next; n != &worker->free_notices; n = n->next) {
        kept++;
    }
    cr_assert_eq(kept, worker->free_notices_count);
    cr_assert_leq(kept, 128);
}

Test(sink, a_queue_gets_it_at_once)
{
    struct hws__sink sink = sink_of(&(hws_sink){.queue = queue, .user = 5});
    hws_event e = {.kind = HWS_EVENT_CLOSED, .source = 9};

    hws__emit(worker, &sink, &e, NULL);
    cr_assert_eq(pop(&seen), 1);
    cr_assert_eq(seen.size, sizeof seen);
    cr_assert(seen.kind == HWS_EVENT_CLOSED && seen.source == 9 && seen.user == 5);
}

Test(sink, a_callback_goes_before_a_queue)
{
    struct hws__sink sink =
        sink_of(&(hws_sink){.callback = see, .callback_arg = &calls, .queue = queue});
    hws_event e = {.kind = HWS_EVENT_CLOSED};

    hws__emit(worker, &sink, &e, NULL);
    hws__deliver(worker);
    cr_assert_eq(calls, 1);
    cr_assert_eq(pop(&seen), 0);
}

Test(sink, an_id_that_is_no_queue)
{
    struct hws__sink sink;
    hws_id gone;

    cr_assert_eq(hws__sink_set(&sink, &(hws_sink){.queue = 12345}), HWS_E_BAD_ID);
    CHECK_OK(hws_queue_open(NULL, &gone));
    CHECK_OK(hws_close(gone));
    cr_assert_eq(hws__sink_set(&sink, &(hws_sink){.queue = gone}), HWS_E_STALE);
    /* A callback is given: the queue is not looked at. */
    cr_assert_eq(hws__sink_set(&sink, &(hws_sink){.callback = see, .queue = gone}), HWS_OK);
}

Test(sink, a_queue_that_was_closed_swallows_it)
{
    struct hws__sink sink = sink_of(&(hws_sink){.queue = queue});
    hws_event e = {.kind = HWS_EVENT_CLOSED};

    CHECK_OK(hws_close(queue));
    hws__emit(worker, &sink, &e, NULL);
}

Test(sink, a_message_is_released_after_its_callback)
{
    struct hws__sink sink = sink_of(&(hws_sink){.callback = see, .callback_arg = &calls});
    struct hws__message *m = hws__message_take(worker, HWS_KIND_BUFFER);
    hws_event e = {.kind = HWS_EVENT_AM};

    hws__emit(worker, &sink, &e, m);
    cr_assert(hws__list_empty(&worker->free_messages[1]));
    hws__deliver(worker);
    cr_assert_not(hws__list_empty(&worker->free_messages[1]));
}

/* Not inside UCX, which may be in the middle of handing it over. */
Test(sink, a_message_that_nobody_hears_of_is_released_after_the_sweep)
{
    struct hws__sink sink = sink_of(&(hws_sink){0});
    struct hws__message *m = hws__message_take(worker, HWS_KIND_BUFFER);
    hws_event e = {.kind = HWS_EVENT_AM};

    hws__emit(worker, &sink, &e, m);
    cr_assert(hws__list_empty(&worker->free_messages[1]));
    cr_assert(worker->todo);
    hws__messages_drop(worker);
    cr_assert_not(hws__list_empty(&worker->free_messages[1]));
}

Test(sink, a_buffer_is_released_if_its_queue_is_gone)
{
    struct hws__sink sink = sink_of(&(hws_sink){.queue = queue});
    struct hws__message *m = hws__message_take(worker, HWS_KIND_BUFFER);
    hws_event e = {.kind = HWS_EVENT_AM, .flags = HWS_EVENT_FLAG_BUFFER, .detail = &m->detail};
    hws_id id = m->detail.buffer = hws__message_publish(m);

    CHECK_OK(hws_close(queue));
    hws__emit(worker, &sink, &e, NULL);
    hws__messages_drop(worker);
    cr_assert_eq(hws_kind(id), HWS_E_STALE);
    cr_assert_not(hws__list_empty(&worker->free_messages[1]));
}
