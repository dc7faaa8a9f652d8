/*
 * Wrong use of every function: ids of every wrong sort, null pointers, sizes of structures. Each
 * call gives its documented code, sets the last error and leaves everything working.
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

/* ---- Sizes of structures ---- */

/* Room for any structure of the library and a tail. */
union sized {
    uint32_t struct_size;
    hws_context_opts context;
    hws_worker_opts worker;
    hws_listener_opts listener;
    hws_endpoint_opts endpoint;
    hws_op_opts op;
    hws_queue_opts queue;
    hws_am_opts am;
    char bytes[4096];
};

static t_pair sizes_pair;

static int32_t with_context(void *opts)
{
    hws_id out = 0;
    int32_t code = hws_context_open(opts, &out);

    return code < 0 ? code : hws_close_wait(out, t_patience());
}

static int32_t with_worker(void *opts)
{
    hws_id out = 0;
    int32_t code = hws_worker_open(sizes_pair.context, opts, &out);

    return code < 0 ? code : hws_close_wait(out, t_patience());
}

static int32_t with_listener(void *opts)
{
    hws_id out = 0;
    int32_t code = hws_listen(sizes_pair.worker[1], "127.0.0.1", 0, opts, &out);

    return code < 0 ? code : hws_close_wait(out, t_patience());
}

static int32_t with_endpoint(void *opts)
{
    hws_id out = 0, op = 0;
    int32_t code =
        hws_connect(sizes_pair.worker[0], "127.0.0.1", t_closed_port(), opts, NULL, &out, &op);

    if (code == HWS_OK) {
        (void)WAIT(&sizes_pair, op);
        code = hws_close_wait(out, t_patience());
    }
    return code == HWS_E_STALE ? HWS_OK : code;
}

static int32_t with_op(void *opts)
{
    hws_id op = 0;
    int32_t code = hws_tag_recv(sizes_pair.endpoint[1], buffer, 8, 1, 1, opts, &op);

    if (code == HWS_OK) {
        CHECK_OK(hws_cancel(op));
        (void)WAIT(&sizes_pair, op);
    }
    return code;
}

static int32_t with_queue(void *opts)
{
    hws_id out = 0;
    int32_t code = hws_queue_open(opts, &out);

    return code < 0 ? code : hws_close(out);
}

static int32_t with_am(void *opts)
{
    return hws_am_handler(sizes_pair.worker[1], 1, opts);
}

static int32_t with_library_info(void *out)
{
    return hws_library_open(NULL, out);
}

static int32_t with_listener_info(void *out)
{
    return hws_listener_query(sizes_pair.listener, out);
}

static int32_t with_endpoint_info(void *out)
{
    return hws_endpoint_query(sizes_pair.endpoint[1], out);
}

static int32_t with_stats(void *out)
{
    return hws_stats_get(sizes_pair.context, out);
}

static int32_t with_message_info(void *out)
{
    return hws_tag_probe(sizes_pair.endpoint[1], 77, UINT64_MAX, out, NULL);
}

CASE(sizes_of_option_structures)
{
    static const struct {
        uint32_t size;
        int32_t (*run)(void *opts);
    } kinds[] = {
        {sizeof(hws_context_opts), with_context},
        {sizeof(hws_worker_opts), with_worker},
        {sizeof(hws_listener_opts), with_listener},
        {sizeof(hws_endpoint_opts), with_endpoint},
        {sizeof(hws_op_opts), with_op},
        {sizeof(hws_queue_opts), with_queue},
        {sizeof(hws_am_opts), with_am},
    };

    t_pair_open(&sizes_pair, NULL);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        union sized opts;
        uint32_t size = kinds[i].size;
        memset(&opts, 0, sizeof(opts));
        CHECK_CODE(kinds[i].run(&opts), HWS_E_INVALID); /* no size */
        opts.struct_size = 3;
        CHECK_CODE(kinds[i].run(&opts), HWS_E_INVALID); /* does not hold itself */
        opts.struct_size = UINT32_MAX;
        CHECK_CODE(kinds[i].run(&opts), HWS_E_INVALID); /* absurd: must not be read */
        opts.struct_size = size;
        CHECK_OK(kinds[i].run(&opts));
        opts.struct_size = 4; /* an older program: what is missing has its default */
        CHECK_OK(kinds[i].run(&opts));
        opts.struct_size = size + 64; /* a newer program that asks for nothing new */
        CHECK_OK(kinds[i].run(&opts));
        opts.bytes[size + 63] = 1; /* and one that does */
        CHECK_CODE(kinds[i].run(&opts), HWS_E_NEWER);
        opts.bytes[size + 63] = 0;
        opts.bytes[size] = 1;
        CHECK_CODE(kinds[i].run(&opts), HWS_E_NEWER);
        opts.struct_size = size; /* behind the end: not looked at */
        CHECK_OK(kinds[i].run(&opts));
    }
    t_pair_close(&sizes_pair);
}

CASE(sizes_of_result_structures)
{
    static const struct {
        uint32_t size;
        int32_t (*run)(void *out);
    } kinds[] = {
        {sizeof(hws_library_info), with_library_info},
        {sizeof(hws_listener_info), with_listener_info},
        {sizeof(hws_endpoint_info), with_endpoint_info},
        {sizeof(hws_stats), with_stats},
        {sizeof(hws_message_info), with_message_info},
    };
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};

    t_pair_open(&sizes_pair, NULL);
    CHECK_OK(hws_tag_send(sizes_pair.endpoint[0], "message", 8, 77, &detached, NULL));
    UNTIL(&sizes_pair, hws_tag_probe(sizes_pair.endpoint[1], 77, UINT64_MAX, NULL, NULL) == HWS_OK);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        static union sized out, full;
        uint32_t size = kinds[i].size;
        memset(&out, 0x7f, sizeof(out));
        memset(&full, 0x7f, sizeof(full));
        out.struct_size = 0;
        CHECK_CODE(kinds[i].run(&out), HWS_E_INVALID);
        out.struct_size = 2;
        CHECK_CODE(kinds[i].run(&out), HWS_E_INVALID);
        CHECK_EQ(out.bytes[4], 0x7f);
        full.struct_size = size;
        CHECK_OK(kinds[i].run(&full));
        CHECK_EQ(full.struct_size, size);
        CHECK_EQ(full.bytes[size], 0x7f); /* nothing behind what was offered */
        out.struct_size = 12;             /* an older program */
        CHECK_OK(kinds[i].run(&out));
        CHECK_EQ(out.struct_size, 12);
        CHECK_EQ(out.bytes[12], 0x7f);
        memset(&out, 0x7f, sizeof(out));
        out.struct_size = size + 32; /* a newer one: what is not known is zero */
        CHECK_OK(kinds[i].run(&out));
        for (uint32_t j = size; j < size + 32; j++) {
            CHECK_EQ(out.bytes[j], 0);
        }
        CHECK_EQ(out.bytes[size + 32], 0x7f);
    }
    t_pair_close(&sizes_pair);
}

/* ---- Values ---- */

CASE(values_out_of_range)
{
    t_pair pair;
    hws_id op = 0, out = 0;
    uint64_t key[200] = {0};

    t_pair_open(&pair, NULL);
    hws_op_opts flags = {.struct_size = sizeof(flags), .flags = 1u << 30};
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], buffer, 8, 1, 1, &flags, &op), HWS_E_INVALID);
    hws_am_opts am = {.struct_size = sizeof(am), .flags = 1u << 30, .sink = {.callback = no_event}};
    CHECK_CODE(hws_am_handler(pair.worker[1], 1, &am), HWS_E_INVALID);
    hws_context_opts context = {.struct_size = sizeof(context), .flags = 1u << 30};
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.flags = 0;
    context.features = UINT64_C(1) << 40;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.features = 0;
    context.psk = key;
    context.psk_length = 15;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.psk_length = 1025;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.psk = NULL;
    context.psk_length = 32;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.psk_length = 0;
    context.reserved = 1;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_NEWER);
    am.flags = 0;
    am.reserved = 1;
    CHECK_CODE(hws_am_handler(pair.worker[1], 1, &am), HWS_E_NEWER);
    hws_worker_opts worker = {.struct_size = sizeof(worker), .cpu_words = 1};
    CHECK_CODE(hws_worker_open(pair.context, &worker, &out), HWS_E_INVALID);
    hws_endpoint_opts endpoint = {.struct_size = sizeof(endpoint), .flags = 1u << 30};
    CHECK_CODE(hws_connect(pair.worker[0], "127.0.0.1", 1, &endpoint, NULL, &out, &op),
               HWS_E_INVALID);
    CHECK_CODE(hws_connect(pair.worker[0], "127.0.0.1", 0, NULL, NULL, &out, &op), HWS_E_INVALID);
    CHECK_CODE(hws_connect(pair.worker[0], "", 1, NULL, NULL, &out, &op), HWS_E_INVALID);
    hws_listener_opts listener = {.struct_size = sizeof(listener), .flags = 1u << 30};
    CHECK_CODE(hws_listen(pair.worker[1], "127.0.0.1", 0, &listener, &out), HWS_E_INVALID);
    CHECK_CODE(hws_log_set(-1, NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_log_set(HWS_LOG_TRACE + 1, NULL, NULL), HWS_E_INVALID);
    t_pair_close(&pair);
}

/* Every call that takes a buffer says no to one that no memory can be, before UCX sees it. */
static int32_t with_buffer(int call, const t_pair *pair, hws_id rkey, void *at, uint64_t length,
                           const hws_op_opts *opts)
{
    hws_id op = 0, a = pair->endpoint[0], b = pair->endpoint[1];

    switch (call) {
    case 0:
        return hws_tag_send(a, at, length, 1, opts, &op);
    case 1:
        return hws_tag_send_sync(a, at, length, 1, opts, &op);
    case 2:
        return hws_am_send(a, 1, "header", 6, at, length, opts, &op);
    case 3:
        return hws_stream_send(a, at, length, opts, &op);
    case 4:
        return hws_tag_recv(b, at, length, 1, 1, opts, &op);
    case 5:
        return hws_tag_recv(pair->worker[1], at, length, 1, 1, opts, &op);
    case 6:
        return hws_stream_recv(b, at, length, opts, &op);
    case 7:
        return hws_put(rkey, 0, at, length, opts, &op);
    case 8:
        return hws_put_notify(rkey, 0, at, length, 1, opts, &op);
    default:
        return hws_get(rkey, 0, at, length, opts, &op);
    }
}

CASE_BOTH(buffers_that_cannot_be)
{
    t_pair pair;
    t_remote remote;
    hws_op_opts plain = {.struct_size = sizeof plain, .flags = HWS_OP_INLINE};
    hws_op_opts iov = {.struct_size = sizeof iov, .flags = HWS_OP_IOV};
    hws_iov null_piece[] = {{buffer, 4}, {NULL, 0}, {NULL, 1}, {buffer, 4}};
    hws_iov wraps[] = {{buffer, UINT64_C(1) << 63}, {buffer, UINT64_C(1) << 63}, {buffer, 8}};
    hws_iov sums[] = {{buffer, INT64_MAX}, {buffer, 1}};

    t_remote_pair(&pair, flags);
    t_remote_open(&remote, &pair, 1, 1, 64);
    for (int call = 0; call < 10; call++) {
        for (const hws_op_opts *o = &plain;; o = NULL) {
            CHECK_CODE(with_buffer(call, &pair, remote.rkey, NULL, 1, o), HWS_E_INVALID);
            CHECK_CODE(with_buffer(call, &pair, remote.rkey, buffer, UINT64_MAX, o), HWS_E_INVALID);
            CHECK_CODE(with_buffer(call, &pair, remote.rkey, buffer, UINT64_C(1) << 63, o),
                       HWS_E_INVALID);
            if (o == NULL) {
                break;
            }
        }
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, NULL, 1, &iov), HWS_E_INVALID);
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, null_piece, 4, &iov), HWS_E_INVALID);
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, wraps, 3, &iov), HWS_E_INVALID);
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, sums, 2, &iov), HWS_E_INVALID);
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, sums, UINT64_MAX, &iov), HWS_E_INVALID);
    }
    t_remote_close(&remote);
    t_pair_close(&pair);
}

CASE(configuration)
{
    const char *unknown[] = {"NO_SUCH_KEY_AT_ALL", "y", NULL};
    const char *bad[] = {"RNDV_THRESH", "not a number", NULL};
    const char *odd[] = {"RNDV_THRESH", NULL};
    const char *good[] = {"RNDV_THRESH", "16384", NULL};
    hws_context_opts opts = {.struct_size = sizeof(opts)};
    hws_error error = {.struct_size = sizeof(error)};
    hws_id out = 0;

    opts.config = unknown;
    CHECK_CODE(hws_context_open(&opts, &out), HWS_E_CONFIG);
    CHECK_OK(hws_last_error(&error));
    CHECK(strstr(error.text, "NO_SUCH_KEY_AT_ALL") != NULL);
    opts.config = bad;
    CHECK_CODE(hws_context_open(&opts, &out), HWS_E_CONFIG);
    CHECK_OK(hws_last_error(&error));
    CHECK(strstr(error.text, "RNDV_THRESH") != NULL);
    opts.config = odd;
    CHECK(hws_context_open(&opts, &out) < 0);
    CHECK_EQ(out, 0);
    opts.config = good;
    CHECK_OK(hws_context_open(&opts, &out));
    CHECK_OK(hws_close_wait(out, t_patience()));
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

/* ---- Ids that another thread closes meanwhile ---- */

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
