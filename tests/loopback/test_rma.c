/*
 * Put and get: every transport, kind of memory and direction.
 */
#include "support/cases.h"
#include "support/remote.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t sizes[] = {1, 8, 100, 4096, 65536, 1000003, T_REMOTE_SIZE};

CASE_REMOTE(put_and_get)
{
    char *out = t_alloc(T_REMOTE_SIZE), *in = t_alloc(T_REMOTE_SIZE);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        uint64_t n = sizes[i], at = T_REMOTE_SIZE - n;
        hws_event event;
        hws_id op = 0;

        t_fill(out, n, i);
        memset(remote->base, 0, remote->length);
        CHECK_OK(hws_put(remote->rkey, remote->address + at, out, n, NULL, &op));
        event = WAIT_OK(pair, op);
        CHECK_EQ(event.kind, HWS_EVENT_PUT);
        CHECK_EQ(event.length, n);
        CHECK(event.source == pair->endpoint[user]);
        t_flush(pair, user);
        CHECK_FILLED(remote->base + at, n, i);
        for (uint64_t k = 0; k < at && k < 64; k++) {
            CHECK_EQ(remote->base[at - 1 - k], 0);
        }
        memset(in, 0, n);
        CHECK_OK(hws_get(remote->rkey, remote->address + at, in, n, NULL, &op));
        event = WAIT_OK(pair, op);
        CHECK_EQ(event.kind, HWS_EVENT_GET);
        CHECK_EQ(event.length, n);
        CHECK_FILLED(in, n, i);
    }
    free(out);
    free(in);
}

/* Many at once, each with its own event; the flush stands behind them all. */
CASE_REMOTE(many)
{
    enum { COUNT = 1000, SIZE = 1024 };
    char *out = t_alloc(COUNT * SIZE);
    hws_id puts[COUNT];

    t_fill(out, COUNT * SIZE, 5);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK_OK(hws_put(remote->rkey, remote->address + i * SIZE, out + i * SIZE, SIZE, NULL,
                         &puts[i]));
    }
    t_flush(pair, user);
    CHECK_FILLED(remote->base, COUNT * SIZE, 5);
    for (int i = 0; i < COUNT; i++) {
        WAIT_OK(pair, puts[i]);
    }
    free(out);
}

struct chain {
    t_remote *remote;
    uint64_t takes_ns; /* each callback */
    _Atomic uint64_t count, heard;
    _Atomic int over;
};

static void next_put(void *arg, const hws_event *event)
{
    struct chain *chain = arg;
    static const char byte = 1;
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = next_put, .callback_arg = chain};

    CHECK_OK(event->status);
    atomic_fetch_add(&chain->count, 1);
    for (uint64_t start = t_now(); t_now() - start < chain->takes_ns;) {}
    if (!atomic_load(&chain->over)) {
        CHECK_OK(hws_put(chain->remote->rkey, chain->remote->address, &byte, 1, &opts, NULL));
    }
}

static void heard(void *arg, const hws_event *event)
{
    struct chain *chain = arg;

    CHECK_OK(event->status);
    atomic_fetch_add(&chain->heard, 1);
}

/* Puts that end at once, each posted by the callback of the one before: progress returns all the same, messages
 * arrive and are told of, and waits end in time. */
CASE_REMOTE(a_chain_of_callbacks)
{
    struct chain chain = {.remote = remote, .takes_ns = T_MS / 50};
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = next_put, .callback_arg = &chain};
    hws_am_opts told = {.struct_size = sizeof(told),
                        .sink = {.callback = heard, .callback_arg = &chain}};
    uint64_t in = 0, out = 9, before;
    hws_id send = 0, receive = 0, nothing = 0;

    CHECK_OK(hws_am_handler(pair->worker[user], 3, &told));
    CHECK_OK(hws_put(remote->rkey, remote->address, "a", 1, &opts, NULL));
    CHECK_OK(hws_tag_recv(pair->endpoint[user], &in, 8, 1, UINT64_MAX, NULL, &receive));
    CHECK_OK(hws_tag_send(pair->endpoint[1 - user], &out, 8, 1, NULL, &send));
    WAIT_OK(pair, receive);
    WAIT_OK(pair, send);
    CHECK_EQ(in, 9);
    CHECK_OK(hws_am_send(pair->endpoint[1 - user], 3, NULL, 0, &out, 8, NULL, &send));
    UNTIL(pair, atomic_load(&chain.heard) != 0);
    WAIT_OK(pair, send);
    CHECK_OK(hws_tag_recv(pair->endpoint[user], &in, 8, 2, UINT64_MAX, NULL, &nothing));
    before = t_now();
    CHECK_CODE(hws_wait(nothing, 50 * T_MS, NULL), HWS_E_TIMED_OUT);
    CHECK(t_now() - before < 2 * T_SECOND);
    CHECK_OK(hws_cancel(nothing));
    CHECK_CODE(WAIT(pair, nothing).status, HWS_E_CANCELED);
    before = atomic_load(&chain.count);
    UNTIL(pair, atomic_load(&chain.count) > before + 5000);
    before = atomic_load(&chain.count);
    atomic_store(&chain.over, 1);
    UNTIL(pair, atomic_load(&chain.count) > before);
    t_flush(pair, user);
}

CASE_REMOTE(messages_and_puts_flushed_together)
{
    uint64_t value = 77, in = 0;
    hws_id send = 0, put = 0, receive = 0;

    for (int i = 0; i < 5; i++, value++) {
        CHECK_OK(hws_tag_send(pair->endpoint[user], &value, 8, 1, NULL, &send));
        CHECK_OK(hws_put(remote->rkey, remote->address, &value, 8, NULL, &put));
        t_flush(pair, user);
        CHECK_OK(hws_wait(send, 0, NULL));
        CHECK_OK(hws_wait(put, 0, NULL));
        CHECK_EQ(memcmp(remote->base, &value, 8), 0);
        CHECK_OK(hws_tag_recv(pair->endpoint[1 - user], &in, 8, 1, UINT64_MAX, NULL, &receive));
        WAIT_OK(pair, receive);
        CHECK_EQ(in, value);
        CHECK_OK(hws_put(remote->rkey, remote->address, &in, 8, NULL, &put));
        t_flush(pair, user); /* only remote memory access since the last one */
        WAIT_OK(pair, put);
    }
}

CASE_REMOTE(empty)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_INLINE};
    hws_id op = 0;

    CHECK_EQ(hws_put(remote->rkey, remote->address, NULL, 0, &opts, &op), HWS_DONE);
    CHECK_EQ(hws_get(remote->rkey, remote->address + remote->length, NULL, 0, &opts, &op),
             HWS_DONE);
    CHECK_OK(hws_put(remote->rkey, remote->address, NULL, 0, NULL, &op));
    CHECK_EQ(WAIT_OK(pair, op).length, 0);
    CHECK(user == 0 || user == 1);
    CHECK_EQ(t_stats(pair->endpoint[user]).sent[HWS_TRAFFIC_PUT], 2);
    CHECK_EQ(t_stats(pair->endpoint[user]).sent[HWS_TRAFFIC_GET], 1);
    CHECK_EQ(t_stats(pair->endpoint[user]).bytes_sent[HWS_TRAFFIC_PUT], 0);
}

CASE_REMOTE(bounds)
{
    hws_rkey_info info = {.struct_size = sizeof(info)};
    char buffer[64] = {0};
    uint64_t end;
    hws_id op = 0;

    CHECK_OK(hws_rkey_query(remote->rkey, &info));
    CHECK(info.base == remote->address && info.length >= remote->length);
    CHECK(info.endpoint == pair->endpoint[user]);
    end = info.base + info.length;
    CHECK_CODE(hws_put(remote->rkey, end, buffer, 1, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_put(remote->rkey, info.base - 1, buffer, 1, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_get(remote->rkey, end - 63, buffer, 64, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_get(remote->rkey, 0, buffer, 64, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_get(remote->rkey, UINT64_MAX - 8, buffer, 64, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_put(remote->rkey, info.base, buffer, UINT64_MAX, NULL, &op), HWS_E_INVALID);
    CHECK_CODE(hws_put(remote->rkey, info.base, NULL, 8, NULL, &op), HWS_E_INVALID);
    CHECK_EQ(op, 0);
}

/* Posted while another thread owns the worker, so that the operation is handed over. */
static void post_inside(void *arg, const hws_event *event)
{
    t_remote *remote = arg;

    (void)event;
    CHECK_OK(hws_put(remote->rkey, remote->address, "inside", 6,
                     &(hws_op_opts){.struct_size = sizeof(hws_op_opts), .flags = HWS_OP_DETACHED},
                     NULL));
}

CASE_REMOTE(posted_in_a_callback)
{
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .callback = post_inside, .callback_arg = remote};

    memset(remote->base, 0, 8);
    CHECK_OK(hws_put(remote->rkey, remote->address + 8, "x", 1, &opts, NULL));
    UNTIL(pair, memcmp(remote->base, "inside", 6) == 0);
    t_flush(pair, user);
}

CASE(threads_post_together)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD, .features = T_RMA_FEATURES};
    t_remote remote;
    t_pair pair;
    uint64_t value = 1;

    t_pair_open(&pair, &opts);
    t_remote_open(&remote, &pair, 1, 0, 4096);
    for (int i = 0; i < 2000; i++, value++) {
        hws_id op = 0;
        CHECK_OK(hws_put(remote.rkey, remote.address, &value, 8, NULL, &op));
        WAIT_OK(&pair, op);
    }
    t_flush(&pair, 0);
    value--;
    CHECK_EQ(memcmp(remote.base, &value, 8), 0);
    t_remote_close(&remote);
    t_pair_close(&pair);
}

CASE(without_the_feature)
{
    uint64_t length;
    hws_id memory, rkey = 0;
    char buffer[64];
    t_pair pair;
    void *packed;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_mem_register(pair.context, buffer, sizeof(buffer), NULL, &memory));
    packed = t_pack(memory, &length);
    CHECK_CODE(hws_rkey_unpack(pair.endpoint[0], packed, length, 0, &rkey), HWS_E_UNSUPPORTED);
    CHECK_EQ(rkey, 0);
    free(packed);
    t_pair_close(&pair);
}

/* A fence orders what the peer sees: the flag never overtakes the data. */
CASE_REMOTE(fenced)
{
    volatile uint64_t *data = (volatile uint64_t *)(void *)remote->base, *flag = data + 512;
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};

    *data = *flag = 0;
    for (uint64_t i = 1; i < 300; i++) {
        CHECK_OK(hws_put(remote->rkey, remote->address, &i, 8, &detached, NULL));
        CHECK_OK(hws_fence(i % 2 ? pair->endpoint[user] : pair->worker[user]));
        CHECK_OK(hws_put(remote->rkey, remote->address + 4096, &i, 8, &detached, NULL));
        for (uint64_t start = t_now(); *flag != i;
             t_check_patience(__FILE__, __LINE__, start, "the flag")) {
            uint64_t seen = *flag;
            CHECK(*data >= seen);
            t_pair_step(pair);
        }
        CHECK_EQ(*data, i);
    }
}

/* The data is there when the event comes; events come in order, each once. */
CASE_REMOTE(notified)
{
    enum { COUNT = 200, SIZE = 20000 };
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
    t_record *record = &pair->record[1 - user];
    char *out = t_alloc(COUNT * SIZE);

    t_fill(out, COUNT * SIZE, 3);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK_OK(hws_put_notify(remote->rkey, remote->address + i * SIZE, out + i * SIZE,
                                i % 3 == 2 ? 0 : SIZE, i << 40, &detached, NULL));
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        t_seen seen;
        UNTIL(pair, t_record_find(record, HWS_EVENT_NOTIFY, 0, (uint32_t)i, &seen));
        CHECK(seen.event.source == pair->endpoint[1 - user]);
        CHECK_EQ(seen.event.tag, i << 40);
        CHECK_EQ(seen.event.length, i % 3 == 2 ? 0 : SIZE);
        CHECK_EQ(memcmp(remote->base + i * SIZE, out + i * SIZE, seen.event.length), 0);
    }
    t_flush(pair, user);
    t_pair_step(pair);
    CHECK_EQ(t_record_kinds(record, HWS_EVENT_NOTIFY, 0), COUNT);
    free(out);
}

/* The same told by a queue: the memory is the client's, whose endpoint has one. */
CASE_BOTH(notified_by_a_queue)
{
    enum { COUNT = 100, SIZE = 20000 };
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = flags};
    t_pair_opts pair_opts = {.features = T_RMA_FEATURES};
    char *out = t_alloc(COUNT * SIZE), *base = t_alloc(COUNT * SIZE);
    hws_id client = 0, op = 0, memory = 0, rkey = 0;
    uint64_t length, told = 0;
    hws_event events[8];
    t_pair pair;
    t_seen seen;
    void *packed;

    t_pair_listen(&pair, &pair_opts);
    CHECK_OK(hws_queue_open(NULL, &opts.sink.queue));
    opts.sink.user = 12;
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", pair.port, &opts, NULL, &client, &op));
    WAIT_OK(&pair, op);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    CHECK_OK(hws_mem_register(pair.context, base, COUNT * SIZE, NULL, &memory));
    packed = t_pack(memory, &length);
    CHECK_OK(hws_rkey_unpack(seen.event.source, packed, length, 0, &rkey));
    t_fill(out, COUNT * SIZE, 3);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK_OK(hws_put_notify(rkey, (uint64_t)(uintptr_t)base + i * SIZE, out + i * SIZE,
                                i % 3 == 2 ? 0 : SIZE, i << 40, &detached, NULL));
    }
    for (uint64_t start = t_now(); told < COUNT;) {
        int32_t n = hws_queue_pop(opts.sink.queue, events, 8, T_MS);

        for (int32_t k = 0; k < n; k++, told++) {
            CHECK_EQ(events[k].kind, HWS_EVENT_NOTIFY);
            CHECK(events[k].source == client);
            CHECK_EQ(events[k].user, 12);
            CHECK_EQ(events[k].tag, told << 40);
            CHECK_EQ(events[k].length, told % 3 == 2 ? 0 : SIZE);
            CHECK_EQ(memcmp(base + told * SIZE, out + told * SIZE, events[k].length), 0);
        }
        t_pair_step(&pair);
        t_check_patience(__FILE__, __LINE__, start, "all notifications");
    }
    CHECK_EQ(hws_queue_pop(opts.sink.queue, events, 8, 0), 0);
    CHECK_OK(hws_close_wait(memory, t_patience()));
    free(packed);
    free(base);
    free(out);
    t_pair_close(&pair);
    CHECK_OK(hws_close(opts.sink.queue));
}

/* Pieces of all sizes, empty ones too, to and from consecutive memory. */
static void in_pieces(t_pair *pair, int user, t_remote *remote, uint64_t count)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_IOV};
    hws_iov *out = t_alloc(count * sizeof(*out)), *in = t_alloc(count * sizeof(*in));
    uint64_t total = 0, state = count;
    hws_id op = 0;

    for (uint64_t i = 0; i < count; i++) {
        out[i].length = i % 5 == 0 ? 0 : t_random(&state) % 30000;
        out[i].base = t_alloc(out[i].length + 1);
        in[i] = (hws_iov){out[i].length != 0 ? t_alloc(out[i].length) : NULL, out[i].length};
        t_fill(out[i].base, out[i].length, i);
        total += out[i].length;
    }
    CHECK_OK(hws_put(remote->rkey, remote->address + 1, out, count, &opts, &op));
    CHECK_EQ(WAIT_OK(pair, op).length, total);
    t_flush(pair, user);
    for (uint64_t i = 0, at = 1; i < count; at += out[i].length, i++) {
        CHECK_FILLED(remote->base + at, out[i].length, i);
    }
    CHECK_OK(hws_get(remote->rkey, remote->address + 1, in, count, &opts, &op));
    CHECK_EQ(WAIT_OK(pair, op).length, total);
    for (uint64_t i = 0; i < count; i++) {
        CHECK_FILLED(in[i].base, in[i].length, i);
        free(in[i].base);
        free(out[i].base);
    }
    free(in);
    free(out);
}

CASE_REMOTE(iovec)
{
    in_pieces(pair, user, remote, 2);
    in_pieces(pair, user, remote, 16);
    in_pieces(pair, user, remote, 100);
}

CASES_MAIN
