/*
 * A peer is killed whose large message was told of, and then, or a moment before, its data is fetched: the fetch ends
 * with what became of the peer. CANCELED would mean that somebody had asked for it.
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

enum { LENGTH = 4 << 20, ROUNDS = 6, AM_ID = 3, TAG = 8 };

static char *memory;
static hws_id buffer; /* of the active message that was told of */

static void on_message(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;

    (void)arg;
    CHECK(event->flags & HWS_EVENT_FLAG_RNDV);
    buffer = detail->buffer;
}

/* child PORT FLAGS TAGGED */
static int child(char **args)
{
    hws_id worker = 0, endpoint, op = 0;
    char line[16];

    endpoint = t_child_dial(args[0], NULL, (uint32_t)atoi(args[1]), &worker);
    if (atoi(args[2])) {
        CHECK_OK(hws_tag_send_sync(endpoint, memory, LENGTH, TAG, NULL, &op));
    } else {
        CHECK_OK(hws_am_send(endpoint, AM_ID, NULL, 0, memory, LENGTH, NULL, &op));
    }
    while (t_hear_for(NULL, line, sizeof(line), 0) == 0) {
        hws_worker_wait(worker, T_MS); /* until it is killed here */
    }
    return 1;
}

/* What a call that fetches said, or the status of its operation. */
static int32_t end_of(t_pair *pair, int32_t code, hws_id op)
{
    return code == HWS_OK ? WAIT(pair, op).status : code;
}

static int32_t fetch(hws_id message, hws_id *op)
{
    return message != 0 ? hws_message_recv(message, memory, LENGTH, NULL, op)
                        : hws_am_recv(buffer, memory, LENGTH, NULL, op);
}

/* `before`: fetching begins, and this often progress is made, before the peer is killed; 0: it begins after its end;
 * less: long after that, when nothing of UCX's is left of it. */
static void fetch_from_the_killed(t_pair *pair, uint32_t flags, int tagged, int before)
{
    char port[16], kind[16], how[16];
    const char *const args[] = {"child", port, kind, how, NULL};
    hws_id message = 0, op = 0, peer;
    int32_t code = HWS_OK;
    t_child c;
    t_seen seen;

    snprintf(port, sizeof(port), "%u", pair->port);
    snprintf(kind, sizeof(kind), "%u", flags);
    snprintf(how, sizeof(how), "%d", tagged);
    t_record_clear(&pair->record[1]);
    buffer = 0;
    t_spawn(&c, args);
    UNTIL(pair, t_record_find(&pair->record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    peer = seen.event.source;
    UNTIL(pair, tagged ? hws_tag_probe(peer, TAG, UINT64_MAX, NULL, &message) == 0 : buffer != 0);
    if (before > 0) {
        code = fetch(message, &op);
        for (int i = 0; i < before; i++) {
            hws_worker_progress(pair->worker[1]);
        }
    }
    t_kill(&c, SIGKILL);
    CHECK_EQ(t_join(&c), 256 + SIGKILL);
    UNTIL(pair, t_record_find(&pair->record[1], HWS_EVENT_DISCONNECTED, peer, 0, &seen));
    if (before < 0) {
        t_pair_idle(pair, T_SECOND / 2);
    }
    if (before <= 0) {
        code = fetch(message, &op);
    }
    code = end_of(pair, code, op);
    CHECK(code == HWS_OK || code == HWS_E_CONNECTION_RESET || code == HWS_E_KEEPALIVE);
    CHECK(code == HWS_OK || code == seen.event.status || code == HWS_E_CONNECTION_RESET);
    if (!tagged) {
        CHECK_OK(hws_close(buffer));
    }
    CHECK_OK(hws_close(peer));
}

int main(int argc, char **argv)
{
    hws_am_opts am = {.struct_size = sizeof(am),
                      .flags = HWS_AM_DEFER | HWS_AM_BUFFER,
                      .sink = {.callback = on_message}};
    t_pair pair;

    memory = t_alloc(LENGTH);
    if (argc == 5 && strcmp(argv[1], "child") == 0) {
        return child(argv + 2);
    }
    if (t_address_sanitizer()) {
        puts("SKIP: what a killed process leaves open is a leak to the address sanitizer");
        return 77;
    }
    t_pair_open(&pair, NULL);
    CHECK_OK(hws_am_handler(pair.worker[1], AM_ID, &am));
    for (int way = 0; way < 4; way++) {
        for (int before = -1; before < ROUNDS; before++) {
            fetch_from_the_killed(&pair, way & 1 ? HWS_ENDPOINT_TCP_ONLY : 0, way >> 1, before);
        }
    }
    t_pair_close(&pair);
    free(memory);
    puts("ok");
    return 0;
}
