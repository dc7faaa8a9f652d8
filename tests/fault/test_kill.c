/*
 * Senders are killed in the middle of a burst, over shared memory: after each kill the server still
 * serves an innocent peer at once, hears of the death, and loses nothing.
 *
 * TIMEOUT: 180
 * SOAK: 1800
 */
#include "support/check.h"
#include "support/proc.h"
#include "support/spawn.h"

#include <hawser.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AM_BURST 1
#define AM_PING 2
#define AM_PONG 3
#define TAG_BURST 77
#define RECEIVES 16

static const uint64_t sizes[] = {8, 4096, 65536, 1 << 20};

static hws_id context, worker;
static int accepted, gone, pongs;

static void on_peer(void *arg, const hws_event *event)
{
    (void)arg;
    if (event->kind == HWS_EVENT_ACCEPTED) {
        accepted++;
    } else if (event->kind == HWS_EVENT_DISCONNECTED) {
        gone++;
        hws_close(event->source);
    }
}

static void on_message(void *arg, const hws_event *event)
{
    static uint64_t payload;
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    const hws_am_detail *detail = event->detail;

    (void)arg;
    if (event->status < 0) {
        return;
    }
    if (event->tag == AM_PING) {
        (void)hws_am_send(detail->endpoint, AM_PONG, NULL, 0, &payload, 8, &opts, NULL);
    } else if (event->tag == AM_PONG) {
        pongs++;
    }
}

static void open_worker(void)
{
    hws_worker_opts opts = {.struct_size = sizeof opts, .sink = {.callback = on_peer}};
    hws_am_opts am = {.struct_size = sizeof am, .sink = {.callback = on_message}};

    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, &opts, &worker));
    for (uint32_t id = AM_BURST; id <= AM_PONG; id++) {
        CHECK_OK(hws_am_handler(worker, id, &am));
    }
}

static hws_id dial(const char *port)
{
    hws_id endpoint = 0, op = 0;

    CHECK_OK(hws_connect(worker, "127.0.0.1", (uint16_t)atoi(port), NULL, NULL, &endpoint, &op));
    CHECK_OK(hws_wait(op, t_patience(), NULL));
    return endpoint;
}

/* Sends as fast as it can until it is killed. */
static int sender(const char *port, uint64_t size, int tagged)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    hws_stats stats = {.struct_size = sizeof stats};
    char *data = t_alloc(size);
    hws_id endpoint, op;

    t_child_begin();
    open_worker();
    endpoint = dial(port);
    t_say(NULL, "sending");
    for (;;) {
        if (tagged) {
            CHECK(hws_tag_send(endpoint, data, size, TAG_BURST, &opts, &op) >= 0);
        } else {
            CHECK(hws_am_send(endpoint, AM_BURST, NULL, 0, data, size, &opts, &op) >= 0);
        }
        do {
            (void)hws_worker_progress(worker);
            CHECK_OK(hws_stats_get(worker, &stats));
        } while (stats.ops_pending > 64);
    }
}

/* Pings the server each time it is told to. */
static int innocent(const char *port)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    uint64_t payload = 0;
    char line[16];
    hws_id endpoint, op;

    t_child_begin();
    open_worker();
    endpoint = dial(port);
    t_say(NULL, "ready");
    for (;;) {
        uint64_t start;
        int before = pongs;

        t_hear(NULL, line, sizeof line);
        if (strcmp(line, "end") == 0) {
            CHECK_OK(hws_close_wait(context, t_patience()));
            return 0;
        }
        start = t_now();
        CHECK(hws_am_send(endpoint, AM_PING, NULL, 0, &payload, 8, &opts, &op) >= 0);
        while (pongs == before) {
            (void)hws_worker_wait(worker, T_SECOND);
            t_check_patience(__FILE__, __LINE__, start, "the server's answer");
        }
        t_say(NULL, "served");
    }
}

/* Keeps receives posted and makes progress until the condition's line arrives from the child. */
static void serve_until(t_child *child, const char *expected)
{
    static char in[1 << 20];
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    uint64_t start = t_now();
    char line[16] = "";

    while (t_hear_for(child, line, sizeof line, 0) == 0) {
        hws_stats stats = {.struct_size = sizeof stats};
        hws_id op;

        (void)hws_worker_wait(worker, T_MS);
        CHECK_OK(hws_stats_get(worker, &stats));
        for (uint64_t i = stats.ops_pending; i < RECEIVES; i++) {
            CHECK(hws_tag_recv(worker, in, sizeof in, TAG_BURST, UINT64_MAX, &opts, &op) >= 0);
        }
        t_check_patience(__FILE__, __LINE__, start, expected);
    }
    CHECK_STR(line, expected);
}

/* Its process id, for check_segments(). */
static pid_t kill_one(const char *port, int n, t_child *witness)
{
    char size[32], tagged[4];
    const char *args[] = {"sender", port, size, tagged, NULL};
    uint64_t start;
    t_child child;
    int before = gone;

    snprintf(size, sizeof size, "%llu", (unsigned long long)sizes[n % 4]);
    snprintf(tagged, sizeof tagged, "%d", n / 4 % 2);
    t_spawn(&child, args);
    serve_until(&child, "sending");
    start = t_now();
    while (t_now() - start < (uint64_t)(2 + n % 9) * T_MS) {
        (void)hws_worker_progress(worker);
    }
    t_kill(&child, SIGKILL);
    CHECK_EQ(t_join(&child), 256 + SIGKILL);
    if (getenv("HAWSER_VERBOSE") != NULL) {
        printf("kill %d of a sender of %s B\n", n, size);
        fflush(stdout);
    }
    t_say(witness, "ping");
    serve_until(witness, "served");
    start = t_now();
    while (gone == before) {
        (void)hws_worker_wait(worker, 10 * T_MS);
        t_check_patience(__FILE__, __LINE__, start, "the report of the death");
    }
    return child.pid;
}

/* Nothing stays of those that were killed, while the server lives on. */
static void check_segments(const pid_t *killed, int count)
{
    uint64_t start = t_now();

    while (t_segments_left(killed, count) > 0) {
        (void)hws_worker_wait(worker, 10 * T_MS);
        t_check_patience(__FILE__, __LINE__, start, "the end of a killed process's segments");
    }
}

static int server(int kills)
{
    hws_listener_info info = {.struct_size = sizeof info};
    hws_stats stats = {.struct_size = sizeof stats};
    const char *args[] = {"innocent", NULL, NULL};
    pid_t *makers = t_alloc(((size_t)kills + 1) * sizeof *makers);
    uint64_t fds = 0, maps = 0;
    hws_id listener = 0;
    t_child witness;
    char port[16];

    makers[kills] = getpid();
    open_worker();
    CHECK_OK(hws_listen(worker, "127.0.0.1", 0, NULL, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    snprintf(port, sizeof port, "%u", info.port);
    args[1] = port;
    t_spawn(&witness, args);
    serve_until(&witness, "ready");
    for (int n = 0; n < kills; n++) {
        makers[n] = kill_one(port, n, &witness);
        if (n == 15) { /* pools have their size by now */
            fds = t_fd_count();
            maps = t_map_count();
        }
    }
    t_say(&witness, "end");
    CHECK_EQ(t_join(&witness), 0);
    printf("%d kills: descriptors %llu -> %llu, maps %llu -> %llu\n", kills,
           (unsigned long long)fds, (unsigned long long)t_fd_count(), (unsigned long long)maps,
           (unsigned long long)t_map_count());
    CHECK(t_fd_count() <= fds + 30); /* a spare, and a UCX worker on its way out */
    /* A sanitizer maps its own, in steps. */
    CHECK(t_map_count() <= maps + (t_sanitized() ? 200 : 60));
    check_segments(makers, kills + 1);
    free(makers);
    CHECK_EQ(accepted, kills + 1);
    CHECK_OK(hws_stats_get(worker, &stats));
    printf("wake-ups that only the safety net noticed: %llu\n",
           (unsigned long long)stats.safety_wakeups);
    CHECK_OK(hws_close_wait(context, t_patience()));
    return 0;
}

int main(int argc, char **argv)
{
    const char *kills = getenv("HAWSER_KILLS");

    if (argc == 5 && strcmp(argv[1], "sender") == 0) {
        return sender(argv[2], strtoull(argv[3], NULL, 10), atoi(argv[4]));
    }
    if (argc == 3 && strcmp(argv[1], "innocent") == 0) {
        return innocent(argv[2]);
    }
    return server(kills != NULL ? atoi(kills) : getenv("HAWSER_SOAK") != NULL ? 1000 : 60);
}
