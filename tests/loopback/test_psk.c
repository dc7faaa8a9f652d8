/*
 * Pre-shared keys: both sides prove that they have it before anything of the user is reached.
 */
#include "support/check.h"
#include "support/pair.h"

#include <stdio.h>
#include <string.h>

/* One side with its own context. */
struct side {
    hws_id context, worker;
    t_record record;
};

static int stepped; /* both sides of the running case */
static struct side sides[2];
static hws_id listener;
static uint16_t port;
static int handler_calls;

static void on_message(void *arg, const hws_event *event)
{
    (void)arg;
    handler_calls += event->kind == HWS_EVENT_AM;
}

static void step(void)
{
    for (int i = 0; i < 2; i++) {
        CHECK(hws_worker_progress(sides[i].worker) >= 0);
    }
    stepped++;
}

#define STEP_UNTIL(condition)                                        \
    for (uint64_t since_ = t_now(); !(condition);                    \
         t_check_patience(__FILE__, __LINE__, since_, #condition)) { \
        step();                                                      \
    }

static void open_side(int i, const char *key)
{
    hws_context_opts context = {
        .struct_size = sizeof(context), .psk = key, .psk_length = key == NULL ? 0 : strlen(key)};
    hws_worker_opts worker = {.struct_size = sizeof(worker)};
    hws_am_opts handler = {.struct_size = sizeof(handler), .sink = {.callback = on_message}};
    char copy[64] = "";

    t_record_init(&sides[i].record);
    if (key != NULL) { /* the key is copied */
        snprintf(copy, sizeof(copy), "%s", key);
        context.psk = copy;
    }
    CHECK_OK(hws_context_open(&context, &sides[i].context));
    memset(copy, 0, sizeof(copy));
    worker.sink = t_record_sink(&sides[i].record, 0);
    CHECK_OK(hws_worker_open(sides[i].context, &worker, &sides[i].worker));
    CHECK_OK(hws_am_handler(sides[i].worker, 1, &handler));
}

static void open_both(const char *client_key, const char *server_key)
{
    hws_listener_opts listen = {.struct_size = sizeof(listen), .hello_timeout_ns = 2 * T_SECOND};
    hws_listener_info info = {.struct_size = sizeof(info)};

    handler_calls = 0;
    open_side(0, client_key);
    open_side(1, server_key);
    listen.sink = t_record_sink(&sides[1].record, 0);
    CHECK_OK(hws_listen(sides[1].worker, "127.0.0.1", 0, &listen, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    port = (uint16_t)info.port;
}

static void close_both(void)
{
    for (int i = 0; i < 2; i++) {
        CHECK_OK(hws_close(sides[i].context));
    }
    for (uint64_t since = t_now();
         hws_kind(sides[0].context) >= 0 || hws_kind(sides[1].context) >= 0;) {
        for (int i = 0; i < 2; i++) {
            (void)hws_worker_progress(sides[i].worker);
            (void)hws_close_wait(sides[i].context, T_MS);
        }
        t_check_patience(__FILE__, __LINE__, since, "close of both sides");
    }
    t_record_free(&sides[0].record);
    t_record_free(&sides[1].record);
}

/* Connects; gives the final status and the endpoint. */
static int32_t dial(uint32_t flags, hws_id *endpoint)
{
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = flags};
    hws_op_opts told = {
        .struct_size = sizeof(told), .callback = t_record_event, .timeout_ns = t_patience()};
    t_seen seen;

    told.callback_arg = &sides[0].record;
    opts.sink = t_record_sink(&sides[0].record, 0);
    CHECK_OK(hws_connect(sides[0].worker, "127.0.0.1", port, &opts, &told, endpoint, NULL));
    STEP_UNTIL(t_record_find(&sides[0].record, HWS_EVENT_CONNECT, *endpoint, 0, &seen));
    return seen.event.status;
}

static hws_listener_info counters(void)
{
    hws_listener_info info = {.struct_size = sizeof(info)};

    CHECK_OK(hws_listener_query(listener, &info));
    return info;
}

static void good_key(uint32_t flags)
{
    hws_id endpoint = 0;
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};

    open_both("a key of the two of them", "a key of the two of them");
    CHECK_OK(dial(flags, &endpoint));
    STEP_UNTIL(t_record_kinds(&sides[1].record, HWS_EVENT_ACCEPTED, 0) == 1);
    CHECK_OK(hws_am_send(endpoint, 1, NULL, 0, "x", 1, &detached, NULL));
    STEP_UNTIL(handler_calls == 1);
    CHECK_EQ(counters().bad_auth, 0);
    CHECK_EQ(counters().accepted, 1);
    close_both();
}

static void bad_key(const char *client_key, const char *server_key, uint32_t flags)
{
    hws_id endpoint = 0, op = 0;

    open_both(client_key, server_key);
    for (uint64_t i = 1; i <= 3; i++) {
        CHECK_CODE(dial(flags, &endpoint), HWS_E_AUTH);
        CHECK(hws_am_send(endpoint, 1, NULL, 0, "x", 1, NULL, &op) < 0);
        /* The server counts it where it can tell, and tells the user nothing. */
        STEP_UNTIL(counters().bad_auth == i);
    }
    CHECK_EQ(counters().accepted, 0);
    CHECK_EQ(t_record_kinds(&sides[1].record, HWS_EVENT_ACCEPTED, 0), 0);
    CHECK_EQ(t_record_kinds(&sides[1].record, HWS_EVENT_REQUEST, 0), 0);
    CHECK_EQ(handler_calls, 0);
    close_both();
}

int main(void)
{
    hws_library_info info = {.struct_size = sizeof(info)};
    uint32_t flags[] = {0, HWS_ENDPOINT_TCP_ONLY};

    CHECK_OK(hws_library_open(NULL, &info));
    if (!info.has_sodium) {
        hws_context_opts context = {
            .struct_size = sizeof(context), .psk = "0123456789abcdef", .psk_length = 16};
        hws_id out = 0;
        CHECK_CODE(hws_context_open(&context, &out), HWS_E_NO_SODIUM);
        SKIP("this build has no libsodium");
    }
    for (int i = 0; i < 2; i++) {
        good_key(flags[i]);
        bad_key("a key of the two of them", "a key of the two of us!!", flags[i]);
        bad_key("a key of the two of them", "a key of the two of them, longer", flags[i]);
        bad_key(NULL, "a key of the two of them", flags[i]);
        bad_key("a key of the two of them", NULL, flags[i]);
    }
    return 0;
}
