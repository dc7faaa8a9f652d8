/*
 * A peer is killed while a receive of the worker, which any peer may serve, fetches its message, of one buffer or
 * many: the receive ends with what became of the peer. CANCELED would mean that somebody had asked for it.
 *
 * TIMEOUT: 120
 */
#include "support/check.h"
#include "support/dial.h"
#include "support/pair.h"
#include "support/spawn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 64 << 20, ROUNDS = 12, STEPS_BEFORE = 3 };

static char *memory;

static void post(hws_id source, uint64_t tag, int multi, int receive, hws_id *op)
{
    const hws_segment segment = {.base = memory, .length = LENGTH};

    if (receive) {
        CHECK_OK(multi ? hws_multi_recv(source, tag, UINT64_MAX, NULL, NULL, op)
                       : hws_tag_recv(source, memory, LENGTH, tag, UINT64_MAX, NULL, op));
    } else {
        CHECK(multi ? hws_multi_send(source, tag, &segment, 1, NULL, NULL, op) >= 0
                    : hws_tag_send(source, memory, LENGTH, tag, NULL, op) >= 0);
    }
}

/* child PORT FLAGS MULTI TAG */
static int child(char **args)
{
    hws_id worker = 0, endpoint, op = 0;
    char line[16];

    endpoint = t_child_dial(args[0], NULL, (uint32_t)atoi(args[1]), &worker);
    post(endpoint, strtoull(args[3], NULL, 10), atoi(args[2]), 0, &op);
    for (int i = 0; i < STEPS_BEFORE; i++) {
        hws_worker_progress(worker);
    }
    t_say(NULL, "sent");
    while (t_hear_for(NULL, line, sizeof(line), 0) == 0) {
        hws_worker_wait(worker, T_SECOND); /* until it is killed here */
    }
    return 1;
}

/* The receive's end; a message of the pair's own client serves one that had not met the killed peer's. */
static int32_t end_of(t_pair *pair, hws_id op, uint64_t tag, int multi)
{
    hws_id sent = 0;
    hws_event end;

    if (hws_wait(op, 0, &end) == HWS_E_TIMED_OUT) {
        post(pair->endpoint[0], tag, multi, 0, &sent);
        end = WAIT(pair, op);
    }
    if (end.status == HWS_OK && multi) {
        CHECK_OK(hws_close(((const hws_multi_detail *)end.detail)->buffer));
    }
    if (sent != 0) {
        (void)hws_cancel(sent);
    }
    return end.status;
}

/* `after`: how often the receiver makes progress before the sender is killed. */
static void fetch_from_the_killed(t_pair *pair, uint32_t flags, int multi, int after, int close)
{
    static uint64_t tag;
    char port[16], kind[16], many[16], number[32], line[16] = "";
    const char *const args[] = {"child", port, kind, many, number, NULL};
    hws_id op = 0, peer;
    t_seen seen;
    t_child c;
    int32_t status;

    tag++;
    snprintf(port, sizeof(port), "%u", pair->port);
    snprintf(kind, sizeof(kind), "%u", flags);
    snprintf(many, sizeof(many), "%d", multi);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)tag);
    t_record_init(&pair->record[1]);
    post(pair->worker[1], tag, multi, 1, &op);
    t_spawn(&c, args);
    UNTIL(pair, t_record_find(&pair->record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    peer = seen.event.source;
    UNTIL(pair, t_hear_for(&c, line, sizeof(line), 0) != 0);
    CHECK_STR(line, "sent");
    for (int i = 0; i < after; i++) {
        hws_worker_progress(pair->worker[1]);
    }
    t_kill(&c, SIGKILL);
    CHECK_EQ(t_join(&c), 256 + SIGKILL);
    UNTIL(pair, t_record_find(&pair->record[1], HWS_EVENT_DISCONNECTED, peer, 0, &seen));
    if (close) {
        CHECK_OK(hws_close(peer));
    }
    status = end_of(pair, op, tag, multi);
    CHECK(status == HWS_OK || status == HWS_E_CONNECTION_RESET || status == HWS_E_KEEPALIVE);
    (void)hws_close(peer);
}

int main(int argc, char **argv)
{
    t_pair pair;

    memory = t_alloc(LENGTH);
    if (argc == 6 && strcmp(argv[1], "child") == 0) {
        return child(argv + 2);
    }
    if (t_address_sanitizer()) {
        puts("SKIP: what a killed process leaves open is a leak to the address sanitizer");
        return 77;
    }
    t_pair_open(&pair, NULL);
    for (int way = 0; way < 8; way++) {
        for (int after = 0; after < ROUNDS; after++) {
            fetch_from_the_killed(&pair, way & 1 ? HWS_ENDPOINT_TCP_ONLY : 0, (way & 2) != 0, after,
                                  (way & 4) != 0);
        }
    }
    t_pair_close(&pair);
    free(memory);
    puts("ok");
    return 0;
}
