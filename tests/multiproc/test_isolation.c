/*
 * Isolated workers between real processes: no shared-memory peer ever lands on a shared UCX worker,
 * the cap sends peers to TCP, and raw peers are isolated or refused. TIMEOUT: 120
 */
#include "support/pair.h"
#include "support/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIENTS 6

static hws_id context, worker, listener;
static t_record record;
static uint16_t port;

static void step(void)
{
    CHECK(hws_worker_wait(worker, 2 * T_MS) >= 0);
}

#define STEP_UNTIL(condition)                                        \
    for (uint64_t since_ = t_now(); !(condition);                    \
         t_check_patience(__FILE__, __LINE__, since_, #condition)) { \
        step();                                                      \
    }

/* ---- Client processes ---- */

/*
 * client PORT FLAGS: connects and says what became of it, "STATUS isolated reason transports
 * redials fallbacks"; then "ping" is answered by one message, the end of input by a goodbye.
 */
static int client(uint16_t to, uint32_t flags)
{
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = flags};
    hws_op_opts told = {.struct_size = sizeof(told),
                        .callback = t_record_event,
                        .callback_arg = &record,
                        .timeout_ns = 20 * T_SECOND};
    hws_endpoint_info info = {.struct_size = sizeof(info)};
    hws_id endpoint = 0, op = 0;
    uint64_t value = 1;
    char line[64];
    t_seen seen;
    int heard;

    t_child_begin();
    t_record_init(&record);
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, NULL, &worker));
    CHECK_OK(hws_connect(worker, "127.0.0.1", to, &opts, &told, &endpoint, NULL));
    STEP_UNTIL(t_record_find(&record, HWS_EVENT_CONNECT, 0, 0, &seen));
    if (seen.event.status == HWS_OK) {
        CHECK_OK(hws_endpoint_query(endpoint, &info));
    }
    hws_stats stats = t_stats(context);
    t_say(NULL, "%d %u %u %u %u %u", seen.event.status, info.isolated, info.reason, info.transports,
          (unsigned)stats.redials, (unsigned)stats.fallbacks);
    while ((heard = t_hear_for(NULL, line, sizeof(line), 0)) >= 0) {
        if (heard > 0) {
            CHECK_STR(line, "ping");
            CHECK_OK(hws_tag_send(endpoint, &value, 8, 5, NULL, &op));
            CHECK_OK(hws_wait(op, t_patience(), NULL));
            t_say(NULL, "sent");
        }
        step();
    }
    CHECK_OK(hws_close_wait(context, t_patience()));
    return 0;
}

/* What a client said. */
struct answer {
    int32_t status;
    unsigned isolated, reason, transports, redials, fallbacks;
};

static void start(t_child *child, uint32_t flags)
{
    char port_text[16], flags_text[16];
    const char *args[] = {"client", port_text, flags_text, NULL};

    snprintf(port_text, sizeof(port_text), "%u", port);
    snprintf(flags_text, sizeof(flags_text), "%u", flags);
    t_spawn(child, args);
}

/* Serves until the client has said how it went. */
static struct answer answer_of(t_child *child)
{
    struct answer a;
    char line[128];
    int heard = 0;

    STEP_UNTIL((heard = t_hear_for(child, line, sizeof(line), 0)) != 0);
    CHECK(heard > 0);
    CHECK(sscanf(line, "%d %u %u %u %u %u", &a.status, &a.isolated, &a.reason, &a.transports,
                 &a.redials, &a.fallbacks) == 6);
    return a;
}

static void end(t_child *child)
{
    int heard;
    char line[64];

    close(child->in);
    child->in = -1;
    STEP_UNTIL((heard = t_hear_for(child, line, sizeof(line), 0)) < 0);
    CHECK_EQ(t_join(child), 0);
}

/* ---- The server ---- */

static void serve(uint32_t isolated_max, uint32_t listener_flags)
{
    hws_context_opts opts = {.struct_size = sizeof(opts), .isolated_max = isolated_max};
    hws_worker_opts worker_opts = {.struct_size = sizeof(worker_opts)};
    hws_listener_opts listen = {.struct_size = sizeof(listen), .flags = listener_flags};
    hws_listener_info info = {.struct_size = sizeof(info)};

    t_record_init(&record);
    CHECK_OK(hws_context_open(&opts, &context));
    worker_opts.sink = t_record_sink(&record, 0);
    CHECK_OK(hws_worker_open(context, &worker_opts, &worker));
    CHECK_OK(hws_listen(worker, "127.0.0.1", 0, &listen, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    port = (uint16_t)info.port;
}

static void stop(void)
{
    CHECK_EQ(t_stats(context).lane_violations, 0);
    CHECK_OK(hws_close_wait(context, t_patience()));
    t_record_free(&record);
}

static hws_listener_info counters(void)
{
    hws_listener_info info = {.struct_size = sizeof(info)};

    CHECK_OK(hws_listener_query(listener, &info));
    return info;
}

/* The server's view of the endpoint accepted as the nth. */
static hws_endpoint_info accepted(uint32_t nth)
{
    t_seen seen;

    STEP_UNTIL(t_record_find(&record, HWS_EVENT_ACCEPTED, 0, nth, &seen));
    return t_endpoint_info(seen.event.source);
}

static int has_shm(uint32_t transports)
{
    return (transports & HWS_TRANSPORT_SHM) != 0;
}

static void each_its_own(void)
{
    t_child children[CLIENTS];
    uint32_t isolated = 0;

    serve(0, 0);
    for (int i = 0; i < CLIENTS; i++) {
        start(&children[i], i % 3 == 2 ? HWS_ENDPOINT_TCP_ONLY : 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct answer a = answer_of(&children[i]);
        CHECK_OK(a.status);
        CHECK_EQ(a.isolated, i % 3 != 2);
        CHECK_EQ(has_shm(a.transports), i % 3 != 2);
        CHECK_EQ(a.reason, i % 3 == 2 ? HWS_REASON_TCP_ONLY : HWS_REASON_LOCAL);
        CHECK_EQ(a.redials, 0);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        hws_endpoint_info info = accepted(i);
        /* Shared memory only on a worker of its own. */
        CHECK(!has_shm(info.transports) || info.isolated);
        CHECK_EQ(info.reason, info.isolated ? HWS_REASON_LOCAL : HWS_REASON_TCP_ONLY);
        isolated += info.isolated;
    }
    CHECK_EQ(isolated, CLIENTS - CLIENTS / 3);
    CHECK_EQ(t_stats(worker).isolated, isolated);
    CHECK_EQ(t_stats(worker).fallbacks, 0);
    for (int i = 0; i < CLIENTS; i++) {
        uint64_t in = 0;
        hws_id op = 0;
        hws_event event;
        t_say(&children[i], "ping");
        CHECK_OK(hws_tag_recv(worker, &in, 8, 5, UINT64_MAX, NULL, &op));
        CHECK_OK(hws_wait(op, t_patience(), &event));
        CHECK_OK(event.status);
        HEAR(&children[i], "sent");
    }
    for (int i = 0; i < CLIENTS; i++) {
        end(&children[i]);
    }
    STEP_UNTIL(t_record_kinds(&record, HWS_EVENT_DISCONNECTED, 0) == CLIENTS);
    stop();
}

static void cap_of_one(void)
{
    t_child first, second, third;
    struct answer a;
    t_seen seen;

    serve(1, 0);
    start(&first, 0);
    a = answer_of(&first);
    CHECK_OK(a.status);
    CHECK_EQ(a.isolated, 1);
    CHECK(has_shm(a.transports));
    CHECK_EQ(t_stats(context).isolated_cap, 1);

    start(&second, 0);
    a = answer_of(&second);
    CHECK_OK(a.status);
    CHECK_EQ(a.isolated, 0);
    CHECK_EQ(a.reason, HWS_REASON_CAP);
    CHECK(!has_shm(a.transports));
    CHECK(a.redials <= 1); /* none where connections begin by TCP */
    hws_endpoint_info info = accepted(1);
    CHECK_EQ(info.isolated, 0);
    CHECK_EQ(info.reason, HWS_REASON_CAP);
    CHECK(!has_shm(info.transports));
    CHECK_EQ(counters().redirected, 1);
    CHECK_EQ(t_stats(worker).fallbacks, 1);

    /* One that asks for TCP does not count as a fallback. */
    start(&third, HWS_ENDPOINT_TCP_ONLY);
    a = answer_of(&third);
    CHECK_OK(a.status);
    CHECK_EQ(a.reason, HWS_REASON_TCP_ONLY);
    CHECK_EQ(accepted(2).reason, HWS_REASON_TCP_ONLY);
    CHECK_EQ(counters().redirected, 1);
    end(&second);
    end(&third);

    /* When the first leaves, its place is free again. */
    CHECK(t_record_find(&record, HWS_EVENT_ACCEPTED, 0, 0, &seen));
    end(&first);
    CHECK_OK(hws_close_wait(seen.event.source, t_patience()));
    STEP_UNTIL(t_stats(context).isolated == 0);
    start(&first, 0);
    a = answer_of(&first);
    CHECK_OK(a.status);
    CHECK_EQ(a.isolated, 1);
    CHECK(has_shm(a.transports));
    end(&first);
    stop();
}

static void raw_is_refused(void)
{
    t_child child;
    struct answer a;

    serve(0, 0);
    start(&child, HWS_ENDPOINT_RAW);
    a = answer_of(&child);
    CHECK(a.status < 0);
    CHECK_STR(hws_error_category(a.status), "peer");
    STEP_UNTIL(counters().strangers == 1);
    CHECK_EQ(counters().accepted, 0);
    CHECK_EQ(t_record_kinds(&record, HWS_EVENT_ACCEPTED, 0), 0);
    end(&child);
    /* The listener goes on. */
    start(&child, 0);
    CHECK_OK(answer_of(&child).status);
    end(&child);
    stop();
}

static void raw_is_isolated(void)
{
    t_child first, second;
    struct answer a;

    serve(1, HWS_LISTENER_RAW);
    start(&first, HWS_ENDPOINT_RAW);
    a = answer_of(&first);
    CHECK_OK(a.status);
    CHECK_EQ(a.reason, HWS_REASON_RAW);
    CHECK_EQ(a.isolated, 1);
    hws_endpoint_info info = accepted(0);
    CHECK_EQ(info.reason, HWS_REASON_RAW);
    CHECK_EQ(info.isolated, 1);
    /* Over the cap a raw client is refused: it could not be made to use TCP. */
    start(&second, HWS_ENDPOINT_RAW);
    a = answer_of(&second);
    CHECK(a.status < 0);
    CHECK_EQ(counters().accepted, 1);
    end(&second);
    end(&first);
    stop();
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        return client((uint16_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
    }
    each_its_own();
    cap_of_one();
    raw_is_refused();
    raw_is_isolated();
    return 0;
}
