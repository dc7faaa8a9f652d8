#include "conformance.h"
#include "support/check.h"

#include <dlfcn.h>
#include <string.h>

void *find_function(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* The first event of a kind; events of other kinds are of no interest. */
static hws_event take(world *w, uint32_t kind)
{
    hws_event event = {0};
    uint64_t start = t_now();

    while (event.kind != kind) {
        int32_t n = hws_queue_pop(w->queue, &event, 1, 10 * T_MS);
        CHECK(n >= 0);
        t_check_patience(__FILE__, __LINE__, start, "an event");
    }
    CHECK_EQ(event.status, HWS_OK);
    return event;
}

/* The server's endpoint, once the client knows too that it is connected: either may be first. */
static hws_id take_both(world *w)
{
    hws_event event;
    hws_id server = 0;
    int connected = 0;
    uint64_t start = t_now();

    while (server == 0 || !connected) {
        if (hws_queue_pop(w->queue, &event, 1, 10 * T_MS) == 1) {
            CHECK_EQ(event.status, HWS_OK);
            connected = connected || event.kind == HWS_EVENT_CONNECT;
            server = event.kind == HWS_EVENT_ACCEPTED ? event.source : server;
        }
        t_check_patience(__FILE__, __LINE__, start, "a connection");
    }
    return server;
}

static void connect_pair(world *w, hws_id ids[KINDS], hws_id *client)
{
    hws_context_opts context = {.struct_size = sizeof(context), .features = 31};
    hws_worker_opts worker = {.struct_size = sizeof(worker)};
    hws_listener_opts listener = {.struct_size = sizeof(listener)};
    hws_listener_info info = {.struct_size = sizeof(info)};
    hws_op_opts told = {.struct_size = sizeof(told)};

    CHECK_OK(hws_queue_open(NULL, &w->queue));
    CHECK_OK(hws_context_open(&context, &w->context));
    worker.sink.queue = listener.sink.queue = listener.endpoint_sink.queue = told.queue = w->queue;
    CHECK_OK(hws_worker_open(w->context, &worker, &w->worker));
    CHECK_OK(hws_listen(w->worker, "127.0.0.1", 0, &listener, &ids[HWS_KIND_LISTENER]));
    CHECK_OK(hws_listener_query(ids[HWS_KIND_LISTENER], &info));
    CHECK_OK(hws_connect(w->worker, "127.0.0.1", (uint16_t)info.port, NULL, &told, client, NULL));
    ids[HWS_KIND_ENDPOINT] = take_both(w);
    ids[HWS_KIND_CONTEXT] = w->context;
    ids[HWS_KIND_WORKER] = w->worker;
    CHECK_OK(hws_queue_open(NULL, &ids[HWS_KIND_QUEUE]));
}

/* Memory, a key of it, and a plan that moves nothing. */
static void open_memory(hws_id ids[KINDS])
{
    hws_mem_info info = {.struct_size = sizeof(info)};
    hws_transfer nothing = {.kind = HWS_EVENT_GET};
    char packed[4096];
    uint64_t needed;

    CHECK_OK(hws_mem_alloc(ids[HWS_KIND_CONTEXT], 4096, NULL, &ids[HWS_KIND_MEMORY]));
    CHECK_OK(hws_mem_query(ids[HWS_KIND_MEMORY], &info));
    CHECK_OK(hws_rkey_pack(ids[HWS_KIND_MEMORY], 0, packed, sizeof(packed), &needed));
    CHECK_OK(hws_rkey_unpack(ids[HWS_KIND_ENDPOINT], packed, needed, 0, &ids[HWS_KIND_RKEY]));
    nothing.rkey = ids[HWS_KIND_RKEY];
    nothing.address = (uintptr_t)info.base;
    CHECK_OK(hws_plan_open(ids[HWS_KIND_ENDPOINT], &nothing, 1, &ids[HWS_KIND_PLAN]));
}

static void open_each(world *w, hws_id ids[KINDS])
{
    static char received[64];
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};
    hws_am_opts handler = {.struct_size = sizeof(handler)};
    hws_id client;
    uint64_t start = t_now();
    hws_event event;

    connect_pair(w, ids, &client);
    CHECK_OK(hws_tag_recv(ids[HWS_KIND_ENDPOINT], received, sizeof(received), 99, UINT64_MAX, NULL,
                          &ids[HWS_KIND_OP]));
    CHECK_OK(hws_tag_send(client, "message", 8, 1, &detached, NULL));
    while (hws_tag_probe(ids[HWS_KIND_ENDPOINT], 1, UINT64_MAX, NULL, &ids[HWS_KIND_MESSAGE]) !=
           0) {
        hws_worker_progress(w->worker);
        t_check_patience(__FILE__, __LINE__, start, "a message");
    }
    handler.sink.queue = w->queue;
    CHECK_OK(hws_am_handler(w->worker, 1, &handler));
    CHECK_OK(hws_am_send(client, 1, "h", 1, "data", 5, &detached, NULL));
    event = take(w, HWS_EVENT_AM);
    ids[HWS_KIND_BUFFER] = ((const hws_am_detail *)event.detail)->buffer;
    open_memory(ids);
}

void world_open(world *w)
{
    hws_event event;

    memset(w, 0, sizeof(*w));
    open_each(w, w->stale);
    CHECK_OK(hws_cancel(w->stale[HWS_KIND_OP]));
    CHECK_OK(hws_wait(w->stale[HWS_KIND_OP], 10000 * T_MS, &event));
    CHECK_OK(hws_close(w->stale[HWS_KIND_MESSAGE]));
    CHECK_OK(hws_close(w->stale[HWS_KIND_BUFFER]));
    CHECK_OK(hws_close(w->stale[HWS_KIND_QUEUE]));
    CHECK_OK(hws_close_wait(w->context, 10000 * T_MS));
    CHECK_OK(hws_close(w->queue));
    open_each(w, w->living);
}

void world_close(world *w)
{
    for (uint32_t kind = 1; kind < KINDS; kind++) {
        if (w->living[kind] != 0) {
            CHECK_EQ(hws_kind(w->living[kind]), kind);
        }
    }
    CHECK_OK(hws_close_wait(w->context, 10000 * T_MS));
    CHECK_OK(hws_close(w->living[HWS_KIND_QUEUE]));
    CHECK_OK(hws_close(w->queue));
}
