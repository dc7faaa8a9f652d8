/*
 * A peer is killed in the middle of multi-buffer messages, as sender and as receiver, by shared
 * memory and by TCP: each operation on this side ends exactly once, memory that came back is not
 * touched any more, and nothing is left.
 *
 * TIMEOUT: 120
 * SOAK: 900
 */
#include "support/check.h"
#include "support/spawn.h"

#include <hawser.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS 6
#define AT_ONCE 8
#define TAG 5
#define WHOLE(bytes) (((bytes) + 8) & ~UINT64_C(7)) /* a poisoned piece ends at 8 bytes */

static const uint64_t sizes[SEGMENTS] = {100, 70000, 0, 3000000, 20000, 1 << 20};

static hws_id context, worker, peer;
static uint64_t posted, ended, succeeded;
static int gone;

/* One message's memory on this side: free, or the library's. */
typedef struct slot {
    hws_segment segments[SEGMENTS];
    int busy;
    uint64_t round;
} slot;

static slot slots[AT_ONCE];

static void on_event(void *arg, const hws_event *event)
{
    (void)arg;
    if (event->kind == HWS_EVENT_ACCEPTED) {
        peer = event->source;
    } else if (event->kind == HWS_EVENT_DISCONNECTED) {
        gone = 1;
        (void)hws_close(event->source);
    }
}

static void open_worker(void)
{
    hws_worker_opts opts = {.struct_size = sizeof opts, .sink = {.callback = on_event}};

    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, &opts, &worker));
    for (int i = 0; i < AT_ONCE; i++) {
        for (int k = 0; k < SEGMENTS; k++) {
            slots[i].segments[k] =
                (hws_segment){.base = t_alloc(WHOLE(sizes[k])), .length = sizes[k]};
        }
    }
}

static void on_end(void *arg, const hws_event *event);

/* Counts what was accepted: that many final events must come. */
static int accepted(int32_t code)
{
    posted += code == HWS_OK;
    return code == HWS_OK;
}

static void receive(slot *s, uint32_t flags)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_end, .callback_arg = s};
    hws_multi_recv_opts recv = {.struct_size = sizeof recv, .flags = flags};

    s->busy = accepted(hws_multi_recv(peer, TAG, UINT64_MAX, &recv, &opts, NULL));
}

static void send(slot *s)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_end, .callback_arg = s};

    for (int k = 0; k < SEGMENTS; k++) {
        t_fill(s->segments[k].base, sizes[k], TAG);
    }
    s->busy = accepted(hws_multi_send(peer, TAG, s->segments, SEGMENTS, NULL, &opts, NULL));
}

static void check_data(const hws_segment *segments)
{
    for (int k = 0; k < SEGMENTS; k++) {
        if (sizes[k] != 0) {
            CHECK_FILLED(segments[k].base, sizes[k], TAG);
        }
    }
}

static void on_end(void *arg, const hws_event *event)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_end, .callback_arg = arg};
    const hws_multi_detail *detail = event->detail;
    slot *s = arg;

    CHECK(s->busy);
    ended++;
    s->busy = 0;
    if (event->status < 0) {
        /* The memory is ours: nobody may touch it any more. */
        for (int k = 0; k < SEGMENTS; k++) {
            memset(s->segments[k].base, 0x77, WHOLE(sizes[k]));
            t_poison(s->segments[k].base, WHOLE(sizes[k]));
        }
        return;
    }
    succeeded++;
    if (event->kind == HWS_EVENT_MULTI_LIST) {
        s->busy = accepted(hws_multi_fetch(detail->buffer, s->segments, SEGMENTS, &opts, NULL));
        if (!s->busy) {
            CHECK_OK(hws_close(detail->buffer));
        }
        return;
    }
    if (event->kind == HWS_EVENT_MULTI_RECV) {
        check_data(detail != NULL ? detail->segments : s->segments);
        if (detail != NULL) {
            CHECK_OK(hws_close(detail->buffer));
        }
        receive(s, s->round++ % 2 ? HWS_MULTI_LIST : 0);
    } else {
        send(s);
    }
}

static void begin(int sending)
{
    for (int i = 0; i < AT_ONCE; i++) {
        if (sending) {
            send(&slots[i]);
        } else {
            receive(&slots[i], i % 2 ? HWS_MULTI_LIST : 0);
        }
    }
}

/* victim PORT SENDING FLAGS: exchanges until it is killed. */
static int victim(char **argv)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts, .flags = (uint32_t)atoi(argv[4])};
    hws_id op = 0;

    t_child_begin();
    open_worker();
    CHECK_OK(hws_connect(worker, "127.0.0.1", (uint16_t)atoi(argv[2]), &opts, NULL, &peer, &op));
    CHECK_OK(hws_wait(op, t_patience(), NULL));
    begin(atoi(argv[3]));
    t_say(NULL, "ready");
    while (!gone) {
        (void)hws_worker_progress(worker);
    }
    return 1;
}

static void kill_one(uint32_t port, int n)
{
    char number[16], flags[8];
    const char *args[] = {"victim", number, n % 2 ? "1" : "0", flags, NULL};
    uint64_t start, before = succeeded;
    char line[16] = "";
    t_child child;

    gone = 0;
    peer = 0;
    snprintf(number, sizeof number, "%u", port);
    snprintf(flags, sizeof flags, "%d", n / 2 % 2 ? HWS_ENDPOINT_TCP_ONLY : 0);
    t_spawn(&child, args);
    for (start = t_now(); peer == 0 || t_hear_for(&child, line, sizeof line, 0) == 0;) {
        (void)hws_worker_wait(worker, T_MS);
        t_check_patience(__FILE__, __LINE__, start, "the victim");
    }
    CHECK_STR(line, "ready");
    begin(n % 2 == 0);
    while (succeeded - before < 3) {
        (void)hws_worker_progress(worker);
        t_check_patience(__FILE__, __LINE__, start, "messages before the kill");
    }
    for (start = t_now(); t_now() - start < (uint64_t)(1 + n % 7) * T_MS;) {
        (void)hws_worker_progress(worker);
    }
    t_kill(&child, SIGKILL);
    CHECK_EQ(t_join(&child), 256 + SIGKILL);
    start = t_now();
    while (!gone || ended != posted) {
        (void)hws_worker_wait(worker, T_MS);
        t_check_patience(__FILE__, __LINE__, start, "the ends of all operations");
    }
    /* Whatever came late would show: the memory was painted when it came back. */
    for (start = t_now(); t_now() - start < 120 * T_MS;) {
        (void)hws_worker_wait(worker, T_MS);
    }
    CHECK_EQ(ended, posted);
    for (int i = 0; i < AT_ONCE; i++) {
        CHECK(!slots[i].busy);
        for (int k = 0; k < SEGMENTS; k++) {
            t_unpoison(slots[i].segments[k].base, WHOLE(sizes[k]));
        }
    }
}

static void server(int kills)
{
    hws_listener_opts opts = {.struct_size = sizeof opts,
                              .sink = {.callback = on_event},
                              .endpoint_sink = {.callback = on_event}};
    hws_listener_info info = {.struct_size = sizeof info};
    hws_stats stats = {.struct_size = sizeof stats};
    hws_id listener = 0;

    open_worker();
    CHECK_OK(hws_listen(worker, "127.0.0.1", 0, &opts, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    for (int n = 0; n < kills; n++) {
        kill_one(info.port, n);
    }
    CHECK_OK(hws_stats_get(worker, &stats));
    CHECK_EQ(stats.ops_pending, 0);
    CHECK_EQ(stats.unexpected, 0);
    CHECK_OK(hws_close_wait(context, t_patience()));
    printf("%d kills, %llu operations, %llu of them succeeded\n", kills, (unsigned long long)posted,
           (unsigned long long)succeeded);
}

int main(int argc, char **argv)
{
    if (argc == 5) {
        return victim(argv);
    }
    server(getenv("HAWSER_SOAK") != NULL ? 400 : 16);
    return 0;
}
