/*
 * Two processes exchange everything that can be sent, both ways, over shared memory and over TCP;
 * every byte is checked on the side that gets it. TIMEOUT: 120
 */
#include "support/pair.h"
#include "support/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static const size_t sizes[] = {0, 1, 8, 200, 4096, 8192, 65536, 1000003, 17 * MIB + 3};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST (17 * MIB + 3)

enum { AM_PLAIN = 1, AM_DEFERRED = 2 };

/* One side; the other one runs the same script in another process. */
struct side {
    hws_id context, worker, listener, endpoint;
    t_record record;
    int number; /* 0: client, 1: server */
    char *out, *in;
    /* what arrived as an active message */
    _Atomic int arrived;
    uint64_t header, length, sum;
    hws_id buffer;
    uint32_t flags;
};

static hws_event finish(hws_id op)
{
    hws_event event = {0};

    CHECK_OK(hws_wait(op, t_patience(), &event));
    if (event.status != HWS_OK) {
        t_fail(__FILE__, __LINE__, "operation of kind %u: %s", event.kind,
               (const char *)event.detail);
    }
    return event;
}

static void on_message(void *arg, const hws_event *event)
{
    struct side *s = arg;
    const hws_am_detail *detail = event->detail;

    CHECK_OK(event->status);
    CHECK_EQ(detail->header_length, sizeof(s->header));
    memcpy(&s->header, detail->header, sizeof(s->header));
    s->length = detail->data_length;
    s->buffer = detail->buffer;
    s->flags = event->flags;
    s->sum = detail->data == NULL ? 0 : t_checksum(detail->data, detail->data_length);
    s->arrived++;
}

/* The seed of what side `from` sends in step `step`. */
static uint64_t seed(int from, uint64_t step)
{
    return step * 2 + (uint64_t)from + 1;
}

static void tagged(struct side *s, size_t length, uint64_t step, int sync)
{
    hws_id send = 0, recv = 0;

    t_fill(s->out, length, seed(s->number, step));
    CHECK_OK(hws_tag_recv(step % 2 ? s->endpoint : s->worker, s->in, LARGEST, step, UINT64_MAX,
                          NULL, &recv));
    if (sync) {
        CHECK_OK(hws_tag_send_sync(s->endpoint, s->out, length, step, NULL, &send));
    } else {
        CHECK_OK(hws_tag_send(s->endpoint, s->out, length, step, NULL, &send));
    }
    CHECK_EQ(finish(recv).length, length);
    finish(send);
    CHECK_FILLED(s->in, length, seed(1 - s->number, step));
}

static void streamed(struct side *s, size_t length, uint64_t step)
{
    hws_op_opts all = {.struct_size = sizeof(all), .flags = HWS_OP_WAIT_ALL};
    hws_id send = 0, recv = 0;

    if (length == 0) {
        return;
    }
    t_fill(s->out, length, seed(s->number, step));
    CHECK_OK(hws_stream_recv(s->endpoint, s->in, length, &all, &recv));
    CHECK_OK(hws_stream_send(s->endpoint, s->out, length, NULL, &send));
    CHECK_EQ(finish(recv).length, length);
    finish(send);
    CHECK_FILLED(s->in, length, seed(1 - s->number, step));
}

static void active(struct side *s, size_t length, uint64_t step, uint32_t am_id)
{
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .flags = am_id == AM_DEFERRED ? HWS_OP_RNDV : 0};
    hws_id send = 0, fetch = 0;
    uint64_t start = t_now();

    t_fill(s->out, length, seed(s->number, step));
    CHECK_OK(hws_am_send(s->endpoint, am_id, &step, sizeof(step), s->out, length, &opts, &send));
    while (s->arrived == 0) {
        CHECK(hws_worker_wait(s->worker, 10 * T_MS) >= 0);
        t_check_patience(__FILE__, __LINE__, start, "an active message");
    }
    CHECK_EQ(s->arrived, 1);
    s->arrived = 0;
    CHECK_EQ(s->header, step);
    CHECK_EQ(s->length, length);
    if (s->flags & HWS_EVENT_FLAG_RNDV) {
        CHECK_OK(hws_am_recv(s->buffer, s->in, LARGEST, NULL, &fetch));
        finish(fetch);
        CHECK_FILLED(s->in, length, seed(1 - s->number, step));
    } else {
        t_fill(s->in, length, seed(1 - s->number, step));
        CHECK_EQ(s->sum, t_checksum(s->in, length));
    }
    if (s->buffer != 0) {
        CHECK_OK(hws_close(s->buffer));
    }
    finish(send);
}

static void script(struct side *s)
{
    uint64_t step = 1;
    hws_id op = 0;

    for (size_t i = 0; i < SIZES; i++) {
        tagged(s, sizes[i], step++, 0);
        tagged(s, sizes[i], step++, 1);
        streamed(s, sizes[i], step++);
        active(s, sizes[i], step++, AM_PLAIN);
        tagged(s, 8, step++, 0); /* keeps the two in step */
        active(s, sizes[i] == 0 ? 1 : sizes[i], step++, AM_DEFERRED);
        tagged(s, 8, step++, 0);
        CHECK_OK(hws_flush(s->endpoint, NULL, &op));
        finish(op);
    }
    CHECK_EQ(t_stats(s->context).unexpected, 0);
    CHECK_EQ(t_stats(s->context).ops_pending, 0);
    CHECK_EQ(t_stats(s->context).am_dropped, 0);
}

static void open_side(struct side *s, int number, uint32_t mode)
{
    hws_worker_opts worker = {.struct_size = sizeof(worker), .mode = mode};
    hws_am_opts handler = {.struct_size = sizeof(handler),
                           .flags = HWS_AM_BUFFER,
                           .sink = {.callback = on_message, .callback_arg = s}};

    memset(s, 0, sizeof(*s));
    s->number = number;
    s->out = t_alloc(LARGEST);
    s->in = t_alloc(LARGEST);
    t_record_init(&s->record);
    worker.sink = t_record_sink(&s->record, 0);
    CHECK_OK(hws_context_open(NULL, &s->context));
    CHECK_OK(hws_worker_open(s->context, &worker, &s->worker));
    CHECK_OK(hws_am_handler(s->worker, AM_PLAIN, &handler));
    handler.flags |= HWS_AM_DEFER;
    CHECK_OK(hws_am_handler(s->worker, AM_DEFERRED, &handler));
}

static void close_side(struct side *s)
{
    CHECK_OK(hws_close_wait(s->context, t_patience()));
    free(s->in);
    free(s->out);
    t_record_free(&s->record);
}

static int client(uint16_t port, uint32_t flags, uint32_t mode)
{
    struct side s;
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = flags};
    hws_id op = 0;
    char line[16];
    int heard;

    t_child_begin();
    open_side(&s, 0, mode);
    CHECK_OK(hws_connect(s.worker, "127.0.0.1", port, &opts, NULL, &s.endpoint, &op));
    finish(op);
    CHECK_EQ((t_endpoint_info(s.endpoint).transports & HWS_TRANSPORT_SHM) != 0, flags == 0);
    script(&s);
    /* The server's last flush needs an answer from here. */
    while ((heard = t_hear_for(NULL, line, sizeof(line), 0)) == 0) {
        CHECK(hws_worker_wait(s.worker, T_MS) >= 0);
    }
    CHECK(heard > 0);
    CHECK_STR(line, "close");
    close_side(&s);
    t_say(NULL, "closed");
    return 0;
}

static void server(uint32_t flags, uint32_t mode)
{
    struct side s;
    hws_listener_info info = {.struct_size = sizeof(info)};
    char port[16], flags_text[16], mode_text[16];
    const char *args[] = {"client", port, flags_text, mode_text, NULL};
    t_child child;
    t_seen seen;
    uint64_t start = t_now();

    open_side(&s, 1, mode);
    CHECK_OK(hws_listen(s.worker, "127.0.0.1", 0, NULL, &s.listener));
    CHECK_OK(hws_listener_query(s.listener, &info));
    snprintf(port, sizeof(port), "%u", info.port);
    snprintf(flags_text, sizeof(flags_text), "%u", flags);
    snprintf(mode_text, sizeof(mode_text), "%u", mode);
    t_spawn(&child, args);
    while (!t_record_find(&s.record, HWS_EVENT_ACCEPTED, 0, 0, &seen)) {
        CHECK(hws_worker_wait(s.worker, 10 * T_MS) >= 0);
        t_check_patience(__FILE__, __LINE__, start, "the client's connection");
    }
    s.endpoint = seen.event.source;
    CHECK_EQ((t_endpoint_info(s.endpoint).transports & HWS_TRANSPORT_SHM) != 0, flags == 0);
    CHECK_EQ(t_endpoint_info(s.endpoint).peer_pid, child.pid);
    script(&s);
    t_say(&child, "close");
    start = t_now();
    while (!t_record_find(&s.record, HWS_EVENT_DISCONNECTED, s.endpoint, 0, &seen)) {
        CHECK(hws_worker_wait(s.worker, 10 * T_MS) >= 0);
        t_check_patience(__FILE__, __LINE__, start, "the client's goodbye");
    }
    CHECK_CODE(seen.event.status, HWS_E_PEER_CLOSED);
    HEAR(&child, "closed");
    CHECK_EQ(t_join(&child), 0);
    CHECK_EQ(t_stats(s.context).failures, 0);
    CHECK_EQ(t_stats(s.context).safety_wakeups, 0);
    close_side(&s);
    printf("flags %u mode %u: ok\n", flags, mode);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc == 5) {
        return client((uint16_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]));
    }
    for (uint32_t mode = HWS_PROGRESS_MANUAL; mode <= HWS_PROGRESS_THREAD_POLLING; mode++) {
        server(0, mode);
        server(HWS_ENDPOINT_TCP_ONLY, mode);
    }
    return 0;
}
