/*
 * One of two servers is killed: the client is told within 100 ms, each of its operations on that
 * connection ends exactly once, and its connection with the other server goes on at once.
 *
 * TIMEOUT: 180
 */
#include "support/check.h"
#include "support/proc.h"
#include "support/spawn.h"

#include <hawser.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AM_PING 1
#define AM_PONG 2
#define RECEIVES 8
#define SENDS 32
#define ROUNDS 6
#define WINDOW (8u << 20) /* less than what is sent: some waits for credit */
#define LIMIT_NS (100 * T_MS)

static hws_id context, worker;
static int pongs;

/* A program that outlives a killed server keeps nothing of its connections open. */
static void start_program(void)
{
    static pid_t pid;
    char *args[] = {"sleep", "2", NULL};

    if (pid == 0) {
        CHECK_EQ(posix_spawnp(&pid, args[0], NULL, NULL, args, environ), 0);
    }
}

static void on_message(void *arg, const hws_event *event)
{
    static uint64_t payload;
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    const hws_am_detail *detail = event->detail;

    (void)arg;
    if (event->status == HWS_OK && event->tag == AM_PING) {
        start_program();
        (void)hws_am_send(detail->endpoint, AM_PONG, NULL, 0, &payload, 8, &opts, NULL);
    } else if (event->status == HWS_OK && event->tag == AM_PONG) {
        pongs++;
    }
}

static void open_worker(void)
{
    hws_worker_opts opts = {.struct_size = sizeof opts, .credit_bytes = WINDOW};
    hws_am_opts am = {.struct_size = sizeof am, .sink = {.callback = on_message}};

    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, &opts, &worker));
    CHECK_OK(hws_am_handler(worker, AM_PING, &am));
    CHECK_OK(hws_am_handler(worker, AM_PONG, &am));
}

/* Until it is killed. */
static void serve(void)
{
    hws_listener_info info = {.struct_size = sizeof info};
    hws_id listener;

    t_child_begin();
    open_worker();
    CHECK_OK(hws_listen(worker, "127.0.0.1", 0, NULL, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    t_say(NULL, "%u", info.port);
    for (;;) {
        (void)hws_worker_wait(worker, T_SECOND);
    }
}

/* A connection of the client, and what became of its operations. */
struct connection {
    t_child server;
    hws_id endpoint;
    int posted, ended, disconnected;
    uint64_t told_at;
    int32_t status;
    char in[RECEIVES][8];
};

static void on_peer(void *arg, const hws_event *event)
{
    struct connection *c = arg;

    if (event->kind == HWS_EVENT_DISCONNECTED) {
        c->disconnected++;
        c->told_at = t_now();
        c->status = event->status;
    }
}

static void on_final(void *arg, const hws_event *event)
{
    struct connection *c = arg;

    CHECK(event->kind < 32);
    c->ended++;
}

static void open_connection(struct connection *c, uint32_t flags)
{
    static const char *const args[] = {"serve", NULL};
    hws_endpoint_opts opts = {.struct_size = sizeof opts,
                              .flags = flags,
                              .sink = {.callback = on_peer, .callback_arg = c}};
    char port[16];
    hws_id op = 0;

    memset(c, 0, sizeof *c);
    t_spawn(&c->server, args);
    t_hear(&c->server, port, sizeof port);
    CHECK_OK(
        hws_connect(worker, "127.0.0.1", (uint16_t)atoi(port), &opts, NULL, &c->endpoint, &op));
    CHECK_OK(hws_wait(op, t_patience(), NULL));
}

static void ping(const struct connection *c)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    uint64_t payload = 0, start = t_now();
    int before = pongs;
    hws_id op;

    CHECK(hws_am_send(c->endpoint, AM_PING, NULL, 0, &payload, 8, &opts, &op) >= 0);
    while (pongs == before) {
        (void)hws_worker_wait(worker, T_SECOND);
        t_check_patience(__FILE__, __LINE__, start, "the server's answer");
    }
}

/* Receives that nobody sends for, and sends that nobody receives. */
static void post(struct connection *c, uint64_t size)
{
    static char data[1 << 20];
    hws_op_opts opts = {.struct_size = sizeof opts, .callback = on_final, .callback_arg = c};
    hws_id op;

    for (int i = 0; i < RECEIVES; i++, c->posted++) {
        CHECK_OK(hws_tag_recv(c->endpoint, c->in[i], 8, 9, UINT64_MAX, &opts, &op));
    }
    for (int i = 0; size != 0 && i < SENDS; i++, c->posted++) {
        CHECK_OK(hws_tag_send(c->endpoint, data, size, 7, &opts, &op));
    }
    for (int i = 0; size != 0 && i < SENDS; i++, c->posted++) {
        CHECK_OK(hws_stream_send(c->endpoint, data, size, &opts, &op));
    }
}

static void close_one(struct connection *c)
{
    CHECK_OK(hws_close_wait(c->endpoint, t_patience()));
}

/* How long the client was not told of the death of one of its servers. */
static uint64_t kill_one(uint32_t flags, uint64_t size)
{
    struct connection victim, other;
    uint64_t killed_at;

    open_connection(&other, flags);
    open_connection(&victim, flags);
    ping(&other);
    ping(&victim);
    post(&victim, size);
    post(&other, 0);
    t_kill(&victim.server, SIGKILL);
    killed_at = t_now();
    while (victim.disconnected == 0) {
        (void)hws_worker_wait(worker, 10 * T_MS);
        t_check_patience(__FILE__, __LINE__, killed_at, "the report of the death");
    }
    CHECK(victim.status == HWS_E_CONNECTION_RESET || victim.status == HWS_E_KEEPALIVE);
    CHECK_EQ(t_join(&victim.server), 256 + SIGKILL);
    ping(&other);
    close_one(&victim);
    CHECK_EQ(victim.ended, victim.posted);
    ping(&other);
    CHECK_EQ(victim.ended, victim.posted);
    CHECK_EQ(victim.disconnected, 1);
    CHECK_EQ(other.disconnected, 0);
    CHECK_EQ(other.ended, 0);
    close_one(&other);
    CHECK_EQ(other.ended, other.posted);
    t_kill(&other.server, SIGKILL);
    t_join(&other.server);
    return victim.told_at - killed_at;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The median counts: one late report may be the machine's. */
static void rounds(uint32_t flags, uint64_t size)
{
    uint64_t late[ROUNDS], fds = 0;

    for (int i = 0; i < ROUNDS; i++) {
        late[i] = kill_one(flags, size);
        fds = i == 1 ? t_fd_count() : fds;
    }
    qsort(late, ROUNDS, sizeof *late, compare);
    printf("%s, %7llu B in flight: told after %.1f ms (median), %.1f ms (most)\n",
           flags != 0 ? "tcp" : "shm", (unsigned long long)size, (double)late[ROUNDS / 2] / 1e6,
           (double)late[ROUNDS - 1] / 1e6);
    fflush(stdout);
    CHECK(late[ROUNDS / 2] <= LIMIT_NS * (uint64_t)(t_sanitized() ? 5 : 1));
    CHECK(t_fd_count() <= fds + 30); /* a spare, and UCX workers on their way out */
}

int main(int argc, char **argv)
{
    const uint64_t sizes[] = {0, 8, 1 << 20};

    if (argc == 2 && strcmp(argv[1], "serve") == 0) {
        serve();
    }
    open_worker();
    for (int i = 0; i < 3; i++) {
        rounds(0, sizes[i]);
        rounds(HWS_ENDPOINT_TCP_ONLY, sizes[i]);
    }
    CHECK_OK(hws_close_wait(context, t_patience()));
    return 0;
}
