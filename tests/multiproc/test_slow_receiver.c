/*
 * A process sends ten times faster than another takes: the receiver's memory stays below what its
 * credits allow, nothing is lost, and the order holds. Without credits the same sender fills it, so
 * the measure means something. TIMEOUT: 120 SOAK: 420
 */
#include "support/pair.h"
#include "support/proc.h"
#include "support/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 4096u
#define WINDOW_MESSAGES 1024u
#define WINDOW_BYTES (UINT64_C(4) << 20)
/* The window, UCX's buffer of 8 KiB and a record for each message, and what else a process grows by. */
#define CEILING_KIB ((uint64_t)(WINDOW_BYTES >> 10) + WINDOW_MESSAGES * 10 + 16384)
#define UNDER_WAY 512u
#define TAG 7u

enum sort { TAGGED, ACTIVE, MULTI, SORTS };
static const char *const names[SORTS] = {"tagged", "active", "multi-buffer"};

/* ---- The sender ------------------------------------------------------------------------------ */

static uint64_t posted, ended;
static char places[UNDER_WAY][LENGTH];

static void on_sent(void *arg, const hws_event *event)
{
    (void)arg;
    CHECK_OK(event->status);
    ended++;
}

static void send_one(hws_id endpoint, enum sort sort)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_sent};
    hws_segment segment = {.base = places[posted % UNDER_WAY], .length = LENGTH};
    hws_id op;

    /* Operations end in order here, so the place is free again. */
    memcpy(segment.base, &posted, sizeof posted);
    switch (sort) {
    case TAGGED:
        CHECK_OK(hws_tag_send(endpoint, segment.base, LENGTH, TAG, &opts, &op));
        break;
    case ACTIVE:
        CHECK_OK(hws_am_send(endpoint, TAG, NULL, 0, segment.base, LENGTH, &opts, &op));
        break;
    default:
        CHECK_OK(hws_multi_send(endpoint, TAG, &segment, 1, NULL, &opts, &op));
        break;
    }
    posted++;
}

static int sender(uint16_t port, uint32_t flags, enum sort sort)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts, .flags = flags};
    hws_worker_opts worker_opts = {.struct_size = sizeof worker_opts};
    hws_id context, worker, endpoint, op;
    hws_event event = {0};
    char line[64];
    int heard = 0, waited = 0;

    t_child_begin();
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, &worker_opts, &worker));
    CHECK_OK(hws_connect(worker, "127.0.0.1", port, &opts, NULL, &endpoint, &op));
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_OK(event.status);
    for (uint64_t i = 0; heard == 0; i++) {
        while (posted - ended < UNDER_WAY) {
            send_one(endpoint, sort);
        }
        hws_worker_progress(worker);
        heard = i % 64 == 0 ? t_hear_for(NULL, line, sizeof line, 0) : 0;
        if (i % 64 == 0 && !waited && t_stats(worker).credit_waits > 0) {
            t_say(NULL, "waited");
            waited = 1;
        }
    }
    CHECK(heard > 0);
    t_say(NULL, "%llu", (unsigned long long)posted);
    for (uint64_t start = t_now(); ended < posted;) {
        hws_worker_progress(worker);
        t_check_patience(__FILE__, __LINE__, start, "the end of all sends");
    }
    CHECK_OK(hws_close_wait(context, t_patience()));
    return 0;
}

/* ---- The receiver ---------------------------------------------------------------------------- */

static hws_id worker, queue, accepted;
static uint64_t taken;

static void on_event(void *arg, const hws_event *event)
{
    (void)arg;
    if (event->kind == HWS_EVENT_ACCEPTED) {
        accepted = event->source;
    }
}

static void count(const void *data)
{
    uint64_t number;

    memcpy(&number, data, sizeof number);
    CHECK_EQ(number, taken);
    taken++;
}

static void take_message(void)
{
    static char in[LENGTH];
    hws_event event = {0};
    hws_id op = 0;

    CHECK_OK(hws_tag_recv(worker, in, sizeof in, TAG, UINT64_MAX, NULL, &op));
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_OK(event.status);
    count(in);
}

static void take_active(void)
{
    const hws_am_detail *detail;
    hws_event event;

    CHECK_EQ(hws_queue_pop(queue, &event, 1, t_patience()), 1);
    detail = event.detail;
    count(detail->data);
    CHECK_OK(hws_close(detail->buffer));
}

static void take_multi(void)
{
    const hws_multi_detail *detail;
    hws_event event = {0};
    hws_id op = 0;

    CHECK_OK(hws_multi_recv(worker, TAG, UINT64_MAX, NULL, NULL, &op));
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_OK(event.status);
    detail = event.detail;
    count(detail->segments[0].base);
    CHECK_OK(hws_close(detail->buffer));
}

static void take(enum sort sort)
{
    void (*const fn[SORTS])(void) = {take_message, take_active, take_multi};

    fn[sort]();
}

/* How many a second it can take, in a short while. */
static double full_rate(enum sort sort)
{
    uint64_t start = t_now(), first = taken;

    while (t_now() - start < 300 * T_MS) {
        take(sort);
    }
    return (double)(taken - first) / (double)(t_now() - start);
}

/* Take at a rate for a time; the most KiB that memory grew by. Ends early once `enough` is reached. */
static uint64_t take_slowly(enum sort sort, double per_ns, uint64_t time_ns, uint64_t enough)
{
    uint64_t start = t_now(), first = taken, before = t_rss_kib(), most = 0, now;

    for (uint64_t i = 0; (now = t_now()) - start < time_ns && most < enough; i++) {
        if ((double)(taken - first) < (double)(now - start) * per_ns) {
            take(sort);
        }
        hws_worker_progress(worker);
        if (i % 4096 == 0) {
            now = t_rss_kib();
            most = now > before && now - before > most ? now - before : most;
        }
    }
    return most;
}

/*
 * Wait for credit must happen. Where both share a core the sender may have been given too little of
 * it to be ten times faster than this: take even less, until it is.
 */
static uint64_t until_it_waits(t_child *child, enum sort sort, double per_ns, uint64_t most)
{
    uint64_t start = t_now(), grew;
    char line[64];
    int heard;

    while ((heard = t_hear_for(child, line, sizeof line, 0)) == 0) {
        grew = take_slowly(sort, per_ns, T_SECOND / 10, UINT64_MAX);
        most = grew > most ? grew : most;
        per_ns /= 2;
        t_check_patience(__FILE__, __LINE__, start, "the sender's wait for credit");
    }
    CHECK(heard > 0 && strcmp(line, "waited") == 0);
    return most;
}

static void open_receiver(hws_id *context, hws_id *listener, uint32_t messages)
{
    hws_worker_opts opts = {
        .struct_size = sizeof opts, .credit_messages = messages, .credit_bytes = WINDOW_BYTES};
    hws_listener_opts listen = {.struct_size = sizeof listen, .sink = {.callback = on_event}};
    hws_am_opts handler = {.struct_size = sizeof handler};

    CHECK_OK(hws_context_open(NULL, context));
    CHECK_OK(hws_worker_open(*context, &opts, &worker));
    CHECK_OK(hws_queue_open(NULL, &queue));
    handler.sink.queue = queue;
    CHECK_OK(hws_am_handler(worker, TAG, &handler));
    CHECK_OK(hws_listen(worker, "127.0.0.1", 0, &listen, listener));
}

static int receiver(uint32_t flags, enum sort sort, int limited)
{
    uint64_t time_ns = getenv("HAWSER_SOAK") != NULL ? 30 * T_SECOND : T_SECOND, most;
    hws_listener_info info = {.struct_size = sizeof info};
    char port[16], flags_text[16], sort_text[16], line[64];
    const char *args[] = {"sender", port, flags_text, sort_text, NULL};
    unsigned long long posts;
    hws_id context, listener;
    t_child child;
    double rate;

    t_child_begin();
    open_receiver(&context, &listener, limited ? WINDOW_MESSAGES : UINT32_MAX);
    CHECK_OK(hws_listener_query(listener, &info));
    snprintf(port, sizeof port, "%u", info.port);
    snprintf(flags_text, sizeof flags_text, "%u", flags);
    snprintf(sort_text, sizeof sort_text, "%u", sort);
    t_spawn(&child, args);
    for (uint64_t start = t_now(); accepted == 0;) {
        hws_worker_progress(worker);
        t_check_patience(__FILE__, __LINE__, start, "the sender's connection");
    }
    rate = full_rate(sort);
    most = take_slowly(sort, rate / 10, limited ? time_ns : 60 * T_SECOND,
                       limited ? UINT64_MAX : 2 * CEILING_KIB);
    if (limited) {
        most = until_it_waits(&child, sort, rate / 10, most);
    }
    fprintf(
        stderr,
        "%s, %s, credits %s: %.0f messages/s at full speed; at a tenth memory grew by %llu KiB, "
        "the ceiling is %llu\n",
        names[sort], flags != 0 ? "TCP" : "shared memory", limited ? "on" : "off", rate * 1e9,
        (unsigned long long)most, (unsigned long long)CEILING_KIB);
    CHECK(limited ? most < CEILING_KIB : most >= 2 * CEILING_KIB);
    if (!limited) {
        return 0; /* the sender ends with its parent */
    }
    t_say(&child, "stop");
    /* It needs no credit to hear that, and may have sent no more than was taken. */
    while (t_hear_for(&child, line, sizeof line, 0) == 0) {
        hws_worker_progress(worker);
    }
    CHECK(sscanf(line, "%llu", &posts) == 1);
    while (taken < posts) {
        take(sort);
    }
    for (uint64_t start = t_now(); t_stats(context).endpoints != 0;) {
        hws_worker_progress(worker);
        t_check_patience(__FILE__, __LINE__, start, "the sender's goodbye");
        hws_close(accepted);
    }
    CHECK_EQ(t_join(&child), 0);
    CHECK_OK(hws_close_wait(context, t_patience()));
    return 0;
}

/* In a process of its own, so that what one freed is not there for the next. */
static void run(uint32_t flags, enum sort sort, int limited)
{
    char flags_text[16], sort_text[16], limited_text[16];
    const char *args[] = {"receiver", flags_text, sort_text, limited_text, NULL};
    t_child child;

    snprintf(flags_text, sizeof flags_text, "%u", flags);
    snprintf(sort_text, sizeof sort_text, "%u", sort);
    snprintf(limited_text, sizeof limited_text, "%d", limited);
    t_spawn(&child, args);
    CHECK_EQ(t_join(&child), 0);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "sender") == 0) {
        return sender((uint16_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), (enum sort)atoi(argv[4]));
    }
    if (argc == 5) {
        return receiver((uint32_t)atoi(argv[2]), (enum sort)atoi(argv[3]), atoi(argv[4]));
    }
    for (enum sort sort = TAGGED; sort < SORTS; sort++) {
        run(0, sort, 1);
        run(HWS_ENDPOINT_TCP_ONLY, sort, 1);
    }
    run(0, TAGGED, 0);
    return 0;
}
