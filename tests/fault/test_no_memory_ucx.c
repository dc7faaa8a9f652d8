/*
 * A receiver whose process has no memory left, so that UCX gets none either: its connection fails on both sides and
 * says why, nothing is lost behind an end that says otherwise, and all works again once there is memory.
 *
 * TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/check.h"
#include "support/proc.h"
#include "support/spawn.h"

#include <hawser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define TAG 7
#define SIZE 20000 /* several of UCX's fragments */
#define SENDS 100

static hws_id context, worker, peer;
static int32_t lost;

static void on_peer(void *arg, const hws_event *event)
{
    (void)arg;
    if (event->kind == HWS_EVENT_ACCEPTED) {
        peer = event->source;
    } else if (event->kind == HWS_EVENT_DISCONNECTED) {
        lost = event->status;
        hws_close(event->source);
    }
}

static void open_worker(void)
{
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, NULL, &worker));
}

static void progress_until(const int32_t *done)
{
    for (uint64_t since = t_now(); *done == 0;) {
        hws_worker_wait(worker, T_MS);
        t_check_patience(__FILE__, __LINE__, since, "what is waited for");
    }
}

/* Every byte that malloc() has, in a chain. */
static void **take_all(void)
{
    void **chain = NULL;

    t_limit(RLIMIT_AS, 4096);
    for (size_t size = 1 << 20; size >= 32;) {
        void **block = malloc(size);

        if (block == NULL) {
            size /= 2;
            continue;
        }
        *block = chain;
        chain = block;
    }
    return chain;
}

static void give_back(void **chain)
{
    t_limit(RLIMIT_AS, UINT64_MAX);
    while (chain != NULL) {
        void **next = *chain;

        free(chain);
        chain = next;
    }
}

static void await_peer(void)
{
    peer = 0;
    for (uint64_t since = t_now(); peer == 0;) {
        hws_worker_wait(worker, T_MS);
        t_check_patience(__FILE__, __LINE__, since, "a connection");
    }
}

/* The receiver. Its own receive waits, so that of the library only UCX needs memory for what comes. */
static int serve(void)
{
    hws_listener_opts opts = {.struct_size = sizeof opts,
                              .sink = {.callback = on_peer},
                              .endpoint_sink = {.callback = on_peer}};
    hws_listener_info info = {.struct_size = sizeof info};
    hws_id listener = 0, op = 0, again = 0;
    hws_event event;
    void **chain;
    char line[64];

    t_child_begin();
    open_worker();
    CHECK_OK(hws_listen(worker, "127.0.0.1", 0, &opts, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    t_say(NULL, "%u", info.port);
    await_peer();
    CHECK_OK(hws_multi_recv(peer, TAG, UINT64_MAX, NULL, NULL, &op));
    while (t_hear_for(NULL, line, sizeof line, 0) == 0) { /* "connected" */
        hws_worker_wait(worker, T_MS);
    }
    chain = take_all();
    t_say(NULL, "without");
    progress_until(&lost);
    give_back(chain);
    t_say(NULL, "%s", hws_error_name(lost));
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_EQ(event.status, lost);
    await_peer();
    CHECK_OK(hws_multi_recv(peer, TAG, UINT64_MAX, NULL, NULL, &again));
    CHECK_OK(hws_wait(again, t_patience(), &event));
    CHECK_OK(event.status);
    CHECK_EQ(event.length, SIZE);
    t_say(NULL, "received");
    CHECK_OK(hws_close_wait(context, t_patience()));
    return 0;
}

static hws_id dial(uint16_t port, uint32_t flags)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts, .flags = flags};
    hws_id endpoint = 0, op = 0;

    CHECK_OK(hws_connect(worker, "127.0.0.1", port, &opts, NULL, &endpoint, &op));
    CHECK_OK(hws_wait(op, t_patience(), NULL));
    return endpoint;
}

static int32_t send_one(hws_id endpoint)
{
    static char data[SIZE];
    hws_segment segment = {.base = data, .length = sizeof data};
    hws_id op = 0;
    int32_t r = hws_multi_send(endpoint, TAG, &segment, 1, NULL, NULL, &op);

    return r < 0 ? r : hws_wait(op, t_patience(), NULL);
}

static int32_t flush(hws_id endpoint)
{
    hws_id op = 0;
    int32_t r = hws_flush(endpoint, NULL, &op);

    return r < 0 ? r : hws_wait(op, t_patience(), NULL);
}

static void run(uint32_t flags)
{
    const char *const args[] = {"serve", NULL};
    t_child server;
    char line[64];
    hws_id endpoint;
    int32_t r = HWS_OK;
    uint16_t port;

    if (t_sanitized()) {
        SKIP("a sanitizer needs more address space than can be taken away");
    }
    open_worker();
    t_spawn(&server, args);
    t_hear(&server, line, sizeof line);
    port = (uint16_t)atoi(line);
    endpoint = dial(port, flags);
    t_say(&server, "connected");
    HEAR(&server, "without");
    for (int i = 0; i < SENDS && r == HWS_OK; i++) {
        r = send_one(endpoint);
    }
    CHECK(r < 0 || flush(endpoint) < 0);
    HEAR(&server, "NO_MEMORY");
    CHECK_OK(send_one(dial(port, flags)));
    HEAR(&server, "received");
    CHECK_OK(hws_close_wait(context, t_patience()));
    CHECK_EQ(t_join(&server), 0);
}

CASE_BOTH(receiver_without_memory)
{
    run(flags);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "serve") == 0) {
        return serve();
    }
    return t_cases_run(argc, argv, 1);
}
