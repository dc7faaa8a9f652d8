/*
 * Ids of every wrong sort, and null pointers: each call gives its documented code, sets the last error and leaves
 * everything working.
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/remote.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KIND_BIT(kind) (1u << (kind))
#define ANY_KIND 0xffffffffu

static void no_event(void *arg, const hws_event *event)
{
    t_fail(__FILE__, __LINE__, "an event of kind %u for %p", event->kind, arg);
}

static _Atomic int tasks_may_run;

static void no_task(void *arg)
{
    CHECK(arg == NULL && atomic_load(&tasks_may_run));
}

static char buffer[64];

/* Every function that takes an id, called with everything else in order. */
#define CALL(name, kinds, expression)     \
    static int32_t call_##name(hws_id id) \
    {                                     \
        return (expression);              \
    }
#include "support/calls.h"
#undef CALL

struct call {
    const char *name;
    uint32_t kinds; /* of the ids it takes */
    int32_t (*run)(hws_id id);
};

static const struct call calls[] = {
#define CALL(name, kinds, expression) {#name, (kinds), call_##name},
#include "support/calls.h"
#undef CALL
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static void expect(const struct call *call, hws_id id, int32_t code)
{
    hws_error error = {.struct_size = sizeof(error)};
    int32_t got = call->run(id);

    if (got != code) {
        t_fail(__FILE__, __LINE__, "%s(%#llx) gave %s, not %s", call->name, (unsigned long long)id,
               hws_error_name(got), hws_error_name(code));
    }
    CHECK_OK(hws_last_error(&error));
    if (error.code != code || error.text[0] == '\0') {
        t_fail(__FILE__, __LINE__, "%s(%#llx): last error %s \"%s\", not %s", call->name,
               (unsigned long long)id, hws_error_name(error.code), error.text,
               hws_error_name(code));
    }
}

/* One living id of each kind, in the order of HWS_KIND_*; 0 where there is none. */
#define KINDS 11

static void keep_message(void *arg, const hws_event *event)
{
    if (event->kind == HWS_EVENT_AM) {
        *(hws_id *)arg = ((const hws_am_detail *)event->detail)->buffer;
    }
}

static void one_of_each(t_pair *pair, hws_id ids[KINDS])
{
    static hws_id kept;
    hws_am_opts handler = {.struct_size = sizeof(handler),
                           .flags = HWS_AM_BUFFER,
                           .sink = {.callback = keep_message, .callback_arg = &kept}};
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};

    memset(ids, 0, KINDS * sizeof(*ids));
    t_pair_open(pair, NULL);
    ids[HWS_KIND_CONTEXT] = pair->context;
    ids[HWS_KIND_WORKER] = pair->worker[1];
    ids[HWS_KIND_LISTENER] = pair->listener;
    ids[HWS_KIND_ENDPOINT] = pair->endpoint[1];
    CHECK_OK(hws_queue_open(NULL, &ids[HWS_KIND_QUEUE]));
    CHECK_OK(hws_tag_recv(pair->endpoint[1], buffer, 8, 99, UINT64_MAX, NULL, &ids[HWS_KIND_OP]));
    CHECK_OK(hws_tag_send(pair->endpoint[0], "message", 8, 1, &detached, NULL));
    UNTIL(pair, hws_tag_probe(pair->endpoint[1], 1, UINT64_MAX, NULL, &ids[HWS_KIND_MESSAGE]) == 0);
    kept = 0;
    CHECK_OK(hws_am_handler(pair->worker[1], 1, &handler));
    CHECK_OK(hws_am_send(pair->endpoint[0], 1, "h", 1, "data", 5, &detached, NULL));
    UNTIL(pair, kept != 0);
    ids[HWS_KIND_BUFFER] = kept;
    for (int kind = 0; kind < KINDS; kind++) {
        if (ids[kind] != 0) {
            CHECK_EQ(hws_kind(ids[kind]), kind);
            CHECK(ids[kind] < UINT64_C(1) << 53);
        }
    }
}

CASE(zero_and_numbers_that_are_no_ids)
{
    static const hws_id numbers[] = {
        0, 1, 12345, UINT64_MAX, UINT64_C(1) << 53, UINT64_C(1) << 63, (UINT64_C(1) << 53) - 1};
    t_pair pair;
    hws_id ids[KINDS];

    /* Before anything was ever opened, and after. */
    for (int opened = 0; opened < 2; opened++) {
        for (size_t i = 0; i < CALLS; i++) {
            for (size_t j = 0; j < sizeof(numbers) / sizeof(numbers[0]); j++) {
                expect(&calls[i], numbers[j], HWS_E_BAD_ID);
            }
        }
        if (!opened) {
            one_of_each(&pair, ids);
        }
    }
    t_pair_close(&pair);
}

CASE(random_numbers)
{
    t_pair pair;
    hws_id ids[KINDS];
    uint64_t random = 42;

    one_of_each(&pair, ids);
    for (size_t i = 0; i < CALLS; i++) {
        for (int j = 0; j < 2000; j++) {
            /* Any 64 bits; any valid kind; a living id with some bits changed. */
            hws_id id = t_random(&random);
            if (j % 4 == 1) {
                id &= (UINT64_C(1) << 53) - 1;
            } else if (j % 4 == 2) {
                id = (id % KINDS) << 49 | (id >> 20 & 0xff) << 28 | (id >> 40 & 0x1f);
            } else if (j % 4 == 3) {
                id = ids[1 + id % (KINDS - 1)] ^ UINT64_C(1) << (id >> 32) % 64;
            }
            if (hws_kind(id) > 0) {
                continue; /* hit a living one */
            }
            int32_t code = calls[i].run(id);
            if (code != HWS_E_BAD_ID && code != HWS_E_STALE && code != HWS_E_KIND) {
                t_fail(__FILE__, __LINE__, "%s(%#llx) gave %d %s", calls[i].name,
                       (unsigned long long)id, code, hws_error_name(code));
            }
        }
    }
    t_pair_close(&pair);
}

CASE(wrong_kind)
{
    t_pair pair;
    hws_id ids[KINDS];

    one_of_each(&pair, ids);
    for (size_t i = 0; i < CALLS; i++) {
        for (uint32_t kind = 1; kind < KINDS; kind++) {
            if (ids[kind] != 0 && (calls[i].kinds & KIND_BIT(kind)) == 0) {
                expect(&calls[i], ids[kind], HWS_E_KIND);
            }
        }
    }
    /* Nothing of that harmed them. */
    for (int kind = 0; kind < KINDS; kind++) {
        if (ids[kind] != 0) {
            CHECK_EQ(hws_kind(ids[kind]), kind);
        }
    }
    t_pair_close(&pair);
}

CASE(stale)
{
    t_pair pair;
    hws_id ids[KINDS];
    hws_event event;

    one_of_each(&pair, ids);
    CHECK_OK(hws_cancel(ids[HWS_KIND_OP]));
    UNTIL(&pair, hws_wait(ids[HWS_KIND_OP], 0, &event) == HWS_OK);
    CHECK_OK(hws_close(ids[HWS_KIND_MESSAGE]));
    CHECK_OK(hws_close(ids[HWS_KIND_BUFFER]));
    CHECK_OK(hws_close(ids[HWS_KIND_QUEUE]));
    CHECK_OK(hws_close(pair.context));
    UNTIL(&pair, hws_kind(pair.context) == HWS_E_STALE);
    for (size_t i = 0; i < CALLS; i++) {
        for (uint32_t kind = 1; kind < KINDS; kind++) {
            if (ids[kind] == 0) {
                continue;
            }
            if (calls[i].kinds & KIND_BIT(kind)) {
                expect(&calls[i], ids[kind], HWS_E_STALE);
            } else {
                int32_t code = calls[i].run(ids[kind]);
                CHECK(code == HWS_E_KIND || code == HWS_E_STALE);
            }
        }
    }
    /* Also once their slots are used again. */
    t_pair second;
    hws_id others[KINDS];
    one_of_each(&second, others);
    for (size_t i = 0; i < CALLS; i++) {
        for (uint32_t kind = 1; kind < KINDS; kind++) {
            if (ids[kind] != 0) {
                CHECK(ids[kind] != others[kind]);
                int32_t code = calls[i].run(ids[kind]);
                CHECK(code == HWS_E_KIND || code == HWS_E_STALE);
            }
        }
    }
    t_pair_close(&second);
}

CASE(null_pointers)
{
    t_pair pair;
    hws_id ids[KINDS], op = 0;
    hws_op_opts told = {.struct_size = sizeof(told), .callback = no_event};

    one_of_each(&pair, ids);
    hws_id worker = ids[HWS_KIND_WORKER], endpoint = ids[HWS_KIND_ENDPOINT];
    CHECK_CODE(hws_last_error(NULL), HWS_E_INVALID);
    CHECK_CODE(hws_context_open(NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_worker_open(pair.context, NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_worker_fd(worker, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_user_get(endpoint, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_listen(worker, "127.0.0.1", 0, NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_listener_query(pair.listener, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_connect(worker, NULL, 1, NULL, &told, &op, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_connect(worker, "127.0.0.1", 1, NULL, &told, NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_connect(worker, "127.0.0.1", 1, NULL, NULL, &op, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_endpoint_query(endpoint, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_queue_open(NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_queue_fd(ids[HWS_KIND_QUEUE], NULL), HWS_E_INVALID);
    CHECK_CODE(hws_queue_pop(ids[HWS_KIND_QUEUE], NULL, 1, 0), HWS_E_INVALID);
    CHECK_CODE(hws_wait_many(NULL, 1, HWS_WAIT_ANY, 0, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_flush(endpoint, NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_task(worker, NULL, NULL, 0, &told, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_tag_send(endpoint, NULL, 8, 1, &told, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_tag_send(endpoint, buffer, 8, 1, NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_tag_send_sync(endpoint, NULL, 8, 1, &told, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_tag_recv(endpoint, NULL, 8, 1, 1, &told, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_message_recv(ids[HWS_KIND_MESSAGE], NULL, 8, &told, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_stream_send(endpoint, NULL, 8, &told, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_stream_recv(endpoint, NULL, 8, &told, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_am_send(endpoint, 1, NULL, 8, NULL, 0, &told, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_am_send(endpoint, 1, NULL, 0, NULL, 8, &told, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_am_header_max(worker, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_describe(worker, NULL, 10, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_stats_get(worker, NULL), HWS_E_INVALID);
    /* A message whose receive was refused is still the caller's. */
    CHECK_EQ(hws_kind(ids[HWS_KIND_MESSAGE]), HWS_KIND_MESSAGE);
    told.flags = HWS_OP_IOV;
    CHECK_CODE(hws_tag_send(endpoint, NULL, 2, 1, &told, NULL), HWS_E_INVALID);
    t_pair_close(&pair);
}

CASE(error_texts)
{
    hws_error error = {.struct_size = sizeof(error)};

    CHECK_STR(hws_error_name(HWS_E_TIMED_OUT), "TIMED_OUT");
    CHECK_STR(hws_error_name(HWS_OK), "OK");
    CHECK_STR(hws_error_name(-3000), "UNKNOWN");
    CHECK_STR(hws_error_name(INT32_MIN), "UNKNOWN");
    CHECK_STR(hws_error_category(HWS_E_STALE), "usage");
    CHECK_STR(hws_error_category(-3000), "");
    for (int32_t code = -200; code <= 2; code++) {
        CHECK(hws_error_text(code) != NULL && hws_error_text(code)[0] != '\0');
    }
    CHECK_OK(hws_last_error(&error));
    CHECK_EQ(error.code, 0);
    error.struct_size = 0;
    CHECK_CODE(hws_last_error(&error), HWS_E_INVALID);
    error.struct_size = sizeof(error);
    CHECK_CODE(hws_close(1), HWS_E_BAD_ID);
    CHECK_OK(hws_last_error(&error));
    CHECK_EQ(error.code, HWS_E_BAD_ID);
    CHECK_EQ(error.id, 1);
}

static void *other_thread(void *arg)
{
    hws_error *error = arg;

    error->struct_size = sizeof(*error);
    CHECK_OK(hws_last_error(error));
    return NULL;
}

CASE(the_last_error_belongs_to_its_thread)
{
    hws_error error = {.code = 5};
    pthread_t thread;

    CHECK_CODE(hws_close(1), HWS_E_BAD_ID);
    CHECK_EQ(pthread_create(&thread, NULL, other_thread, &error), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(error.code, 0);
}

struct racing {
    _Atomic hws_id id;
    _Atomic int stop;
};

static void *use(void *arg)
{
    struct racing *r = arg;

    while (!atomic_load(&r->stop)) {
        for (size_t i = 0; i < CALLS; i++) {
            /* Not those that would close it, nor the one that leaves connections behind. */
            if (strncmp(calls[i].name, "close", 5) == 0 || strcmp(calls[i].name, "abort") == 0 ||
                strcmp(calls[i].name, "connect") == 0) {
                continue;
            }
            int32_t code = calls[i].run(atomic_load(&r->id));
            CHECK(code >= 0 || hws_error_category(code)[0] != '\0');
        }
        t_sleep(T_MS / 10); /* nobody takes the results: a million would be too many */
    }
    return NULL;
}

CASE(closed_by_another_thread)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD};
    t_pair pair;
    struct racing racing = {.id = 0};
    pthread_t threads[2];

    t_pair_listen(&pair, &opts);
    atomic_store(&tasks_may_run, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, use, &racing), 0);
    }
    for (int i = 0; i < 40; i++) {
        hws_id client = 0, server = 0, worker = 0;
        if (i % 4 == 3) {
            CHECK_OK(hws_worker_open(pair.context, NULL, &worker));
            atomic_store(&racing.id, worker);
            t_sleep(T_MS);
            CHECK_OK(hws_close_wait(worker, t_patience()));
        } else {
            t_pair_connect(&pair, NULL, &client, &server);
            atomic_store(&racing.id, i % 2 ? client : server);
            t_sleep(T_MS);
            CHECK_OK(hws_abort(i % 2 ? client : server));
            UNTIL(&pair, hws_kind(i % 2 ? client : server) == HWS_E_STALE);
            CHECK_OK(hws_abort(i % 2 ? server : client));
        }
    }
    atomic_store(&racing.stop, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    t_pair_close(&pair);
}

CASES_MAIN
