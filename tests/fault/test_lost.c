/*
 * Nothing is lost where memory, operations or an object end at a bad moment: each call says so, each
 * operation and object has its final event, and an event's text outlives its object.
 *
 * INTERNAL
 * WRAP: malloc realloc aligned_alloc
 */
#include "support/cases.h"
#include "support/pair.h"

#include "op.h"
#include "progress.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

static _Atomic int failing;

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_malloc(size_t size)
{
    return failing ? NULL : __real_malloc(size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return failing ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return failing ? NULL : __real_aligned_alloc(alignment, size);
}

/* A deadline that cannot be kept must not be promised. */
/* So many operations are there from now on, without memory. */
static void provide_operations(t_pair *pair, hws_id *ops, int count)
{
    char in[8];

    for (int i = 0; i < count; i++) {
        CHECK_OK(hws_tag_recv(pair->endpoint[1], in, 8, 1, ALL, NULL, &ops[i]));
    }
    for (int i = 0; i < count; i++) {
        CHECK_OK(hws_cancel(ops[i]));
        CHECK_CODE(WAIT(pair, ops[i]).status, HWS_E_CANCELED);
    }
}

CASE(no_memory_for_a_deadline)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .timeout_ns = 3600 * T_SECOND};
    int refused = 0, taken = 0;
    hws_id ops[300];
    char in[8];
    t_pair pair;

    t_pair_open(&pair, NULL);
    provide_operations(&pair, ops, 300);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], in, 8, 1, ALL, &opts, &ops[taken++]));
    failing = 1;
    for (int i = 1; i < 300; i++) {
        int32_t r = hws_tag_recv(pair.endpoint[1], in, 8, 1, ALL, &opts, &ops[taken]);

        if (r == HWS_OK) {
            taken++;
        } else {
            CHECK_CODE(r, HWS_E_NO_MEMORY);
            refused++;
        }
    }
    failing = 0;
    CHECK(taken > 0 && refused > 0);
    for (int i = 0; i < taken; i++) {
        CHECK_OK(hws_cancel(ops[i]));
        CHECK_CODE(WAIT(&pair, ops[i]).status, HWS_E_CANCELED);
    }
    t_pair_close(&pair);
}

/* CLOSED and DISCONNECTED come also when there is no memory left for them. */
CASE(no_memory_for_the_last_events)
{
    hws_id endpoint;
    t_pair pair;

    t_pair_open(&pair, NULL);
    endpoint = pair.endpoint[0];
    failing = 1;
    CHECK_OK(hws_abort(pair.endpoint[1]));
    CHECK_OK(hws_close(endpoint));
    for (uint64_t start = t_now(); hws_kind(endpoint) > 0 || hws_kind(pair.endpoint[1]) > 0;) {
        (void)hws_worker_progress(pair.worker[0]);
        (void)hws_worker_progress(pair.worker[1]);
        t_check_patience(__FILE__, __LINE__, start, "the end of both endpoints");
    }
    failing = 0;
    CHECK_EQ(t_record_kinds(&pair.record[0], HWS_EVENT_CLOSED, endpoint), 1);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_CLOSED, pair.endpoint[1]), 1);
    t_pair_close(&pair);
}

/* A message that waits is not taken for a receive that gets no operation. */
CASE(no_operation_for_a_message_that_waits)
{
    static hws_id ops[4096];
    int count = 0;
    char in[8] = {0}, out[8] = "waiting";
    hws_op_opts detached = {.struct_size = sizeof detached, .flags = HWS_OP_DETACHED};
    hws_id op = 0;
    t_pair pair;

    hws__op_limit(512);
    t_pair_open(&pair, NULL);
    CHECK_OK(hws_tag_send(pair.endpoint[0], out, 8, 1, &detached, NULL));
    UNTIL(&pair, t_stats(pair.worker[1]).unexpected == 1);
    while (hws_tag_recv(pair.endpoint[1], in, 8, 2, ALL, NULL, &ops[count]) == HWS_OK) {
        CHECK(++count < 4096);
    }
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], in, 8, 1, ALL, NULL, &op), HWS_E_TOO_MANY);
    CHECK_EQ(t_stats(pair.worker[1]).unexpected, 1);
    for (int i = 0; i < count; i++) {
        CHECK_OK(hws_cancel(ops[i]));
        CHECK_CODE(WAIT(&pair, ops[i]).status, HWS_E_CANCELED);
    }
    CHECK_OK(hws_tag_recv(pair.endpoint[1], in, 8, 1, ALL, NULL, &op));
    WAIT_OK(&pair, op);
    CHECK_STR(in, "waiting");
    t_pair_close(&pair);
}

struct dial {
    t_pair *pair;
    hws_id endpoint, op;
};

static void *dial_and_cancel(void *arg)
{
    struct dial *d = arg;

    CHECK_OK(hws_connect(d->pair->worker[0], "127.0.0.1", d->pair->port, NULL, NULL, &d->endpoint,
                         &d->op));
    CHECK_OK(hws_cancel(d->op));
    return NULL;
}

/* A connect handed to the owner and refused by it leaves no endpoint. */
CASE(a_cancelled_submitted_connect)
{
    struct hws__worker *w;
    struct dial d = {0};
    hws_event event = {0};
    pthread_t thread;
    t_pair pair;

    t_pair_open(&pair, NULL);
    d.pair = &pair;
    w = hws__obj_find(&hws__objects, pair.worker[0]);
    hws__own(w);
    CHECK_EQ(pthread_create(&thread, NULL, dial_and_cancel, &d), 0);
    pthread_join(thread, NULL);
    hws__disown(w, false);
    /* The cancel was submitted behind the connect: either it never ran, or it was cut short. */
    event = WAIT(&pair, d.op);
    CHECK_CODE(event.status, HWS_E_CANCELED);
    if (hws_kind(d.endpoint) > 0) {
        CHECK_OK(hws_close(d.endpoint));
    }
    UNTIL(&pair, hws_kind(d.endpoint) < 0);
    /* One that the closing worker turns down. */
    hws__own(w);
    d = (struct dial){.pair = &pair};
    CHECK_EQ(pthread_create(&thread, NULL, dial_and_cancel, &d), 0);
    pthread_join(thread, NULL);
    CHECK_OK(hws_close(pair.worker[0]));
    hws__disown(w, false);
    UNTIL(&pair, hws_kind(d.endpoint) < 0);
    t_pair_close(&pair);
}

/* The text of an event in a queue is the same when its endpoint is another's. */
CASE(the_text_of_an_event_outlives_its_endpoint)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts};
    hws_id op = 0, client = 0, other = 0;
    hws_event event = {0};
    t_seen seen = {0};
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_queue_open(NULL, &opts.sink.queue));
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, &opts, NULL, &client, &op));
    WAIT_OK(&pair, op);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 1, &seen));
    CHECK_OK(hws_abort(seen.event.source));
    UNTIL(&pair, t_endpoint_info(client).struct_size != 0 &&
                     hws_tag_send(client, "x", 1, 1,
                                  &(hws_op_opts){.struct_size = sizeof(hws_op_opts),
                                                 .flags = HWS_OP_DETACHED},
                                  NULL) < 0);
    t_pair_idle(&pair, 20 * T_MS);
    CHECK_OK(hws_close(client));
    UNTIL(&pair, hws_kind(client) < 0);
    /* Its memory is used again. */
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, NULL, NULL, &other, &op));
    WAIT_OK(&pair, op);
    CHECK_EQ(hws_queue_pop(opts.sink.queue, &event, 1, 0), 1);
    CHECK_EQ(event.kind, HWS_EVENT_DISCONNECTED);
    CHECK(event.status < 0);
    CHECK(strncmp(event.detail, "the peer is gone", 16) == 0);
    t_pair_close(&pair);
    CHECK_OK(hws_close(opts.sink.queue));
}

CASES_MAIN
