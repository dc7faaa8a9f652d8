/*
 * One message of more than 4 GiB: lengths are 64 bits all the way.
 *
 * TIMEOUT: 600
 * LABELS: soak
 */
#include "support/pair.h"
#include "support/proc.h"
#include "support/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GIB ((uint64_t)1 << 30)
#define LENGTH (4 * GIB + 123457)

static char *memory(void)
{
    char *p = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

/* A mark every 16 MiB, at its own offset, and at the end. */
static void mark(char *buffer)
{
    for (uint64_t at = 0; at + 8 <= LENGTH; at += 16 << 20) {
        memcpy(buffer + at, &at, 8);
    }
    memcpy(buffer + LENGTH - 8, "the end!", 8);
}

static void check(const char *buffer)
{
    for (uint64_t at = 0; at + 8 <= LENGTH; at += 16 << 20) {
        uint64_t found;
        memcpy(&found, buffer + at, 8);
        CHECK_EQ(found, at);
    }
    CHECK_EQ(memcmp(buffer + LENGTH - 8, "the end!", 8), 0);
}

static hws_event finish(hws_id op)
{
    hws_event event = {0};

    CHECK_OK(hws_wait(op, 500 * T_SECOND, &event));
    CHECK_OK(event.status);
    return event;
}

static int client(uint16_t port, uint32_t flags)
{
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = flags};
    hws_id context = 0, worker = 0, endpoint = 0, op = 0;
    char *out = memory();

    t_child_begin();
    mark(out);
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, NULL, &worker));
    CHECK_OK(hws_connect(worker, "127.0.0.1", port, &opts, NULL, &endpoint, &op));
    finish(op);
    CHECK_OK(hws_tag_send(endpoint, out, LENGTH, 1, NULL, &op));
    CHECK(finish(op).length == LENGTH);
    /* And scattered: two pieces. */
    hws_iov iov[2] = {{out, LENGTH / 2}, {out + LENGTH / 2, LENGTH - LENGTH / 2}};
    hws_op_opts scattered = {.struct_size = sizeof(scattered), .flags = HWS_OP_IOV};
    CHECK_OK(hws_tag_send(endpoint, iov, 2, 2, &scattered, &op));
    CHECK(finish(op).length == LENGTH);
    CHECK_OK(hws_close_wait(context, t_patience()));
    return 0;
}

static hws_id accepted;

static void on_accepted(void *arg, const hws_event *event)
{
    (void)arg;
    accepted = event->kind == HWS_EVENT_ACCEPTED ? event->source : accepted;
}

static void server(uint32_t flags)
{
    hws_id context = 0, worker = 0, listener = 0, op = 0;
    hws_listener_info info = {.struct_size = sizeof(info)};
    hws_endpoint_info endpoint = {.struct_size = sizeof(endpoint)};
    hws_listener_opts opts = {.struct_size = sizeof(opts), .sink = {.callback = on_accepted}};
    char port[16], flags_text[16];
    const char *args[] = {"client", port, flags_text, NULL};
    char *in = memory();
    t_child child;

    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, NULL, &worker));
    CHECK_OK(hws_listen(worker, "127.0.0.1", 0, &opts, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    snprintf(port, sizeof(port), "%u", info.port);
    snprintf(flags_text, sizeof(flags_text), "%u", flags);
    t_spawn(&child, args);
    for (uint64_t tag = 1; tag <= 2; tag++) {
        CHECK_EQ(madvise(in, LENGTH, MADV_DONTNEED), 0);
        CHECK_OK(hws_tag_recv(worker, in, LENGTH, tag, UINT64_MAX, NULL, &op));
        CHECK(finish(op).length == LENGTH);
        check(in);
    }
    /* The client leaves by itself; its goodbye needs progress here. */
    while (hws_endpoint_query(accepted, &endpoint) == HWS_OK && endpoint.state == HWS_STATE_OPEN) {
        CHECK(hws_worker_wait(worker, 10 * T_MS) >= 0);
    }
    CHECK_EQ(t_join(&child), 0);
    CHECK_OK(hws_close_wait(context, t_patience()));
    munmap(in, LENGTH);
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        return client((uint16_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
    }
    if (t_memory_available() < 2 * LENGTH + 2 * GIB) {
        SKIP("%llu MiB of memory are free, %llu needed",
             (unsigned long long)(t_memory_available() >> 20),
             (unsigned long long)((2 * LENGTH + 2 * GIB) >> 20));
    }
    server(0);
    server(HWS_ENDPOINT_TCP_ONLY);
    return 0;
}
