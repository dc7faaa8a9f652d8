/*
 * A peer is killed while its receiver keeps the memory of a message of it: what was under way with that peer ends all
 * the same, and the message stays readable until it is released.
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

/* KEPT stays in memory of UCX's. LONG is announced, and fetched in pieces that the sender must write: no cma. */
enum { AM_ID = 5, TAG = 7, KEPT = 6000, LONG = 4 << 20, RECEIVES = 4, SENDS = 90, SENT = 40000 };

static const char *const config[] = {"TLS", "sysv,self,tcp", NULL};

static char data[LONG], place[RECEIVES][LONG];

/* child PORT */
static int child(char **args)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_EAGER};
    hws_context_opts how = {.struct_size = sizeof(how), .config = config};
    hws_id worker = 0, endpoint, op = 0;
    char line[16];

    endpoint = t_child_dial(args[0], &how, 0, &worker);
    t_say(NULL, "open");
    t_hear(NULL, line, sizeof(line));
    memset(data, 'k', sizeof(data));
    CHECK(hws_am_send(endpoint, AM_ID, NULL, 0, data, KEPT, &opts, &op) >= 0);
    for (int i = 0; i < RECEIVES; i++) {
        CHECK(hws_tag_send(endpoint, data, sizeof(data), TAG, NULL, &op) >= 0);
    }
    t_say(NULL, "sent");
    t_hear(NULL, line, sizeof(line)); /* it makes no progress until it is killed here */
    return 1;
}

static hws_am_detail kept;

static void on_message(void *arg, const hws_event *event)
{
    (void)arg;
    CHECK_OK(event->status);
    kept = *(const hws_am_detail *)event->detail;
}

static int32_t send_one(hws_id endpoint, int i, hws_id *op)
{
    const hws_segment segment = {.base = data, .length = SENT};

    switch (i % 3) {
    case 0:
        return hws_tag_send(endpoint, data, SENT, TAG, NULL, op);
    case 1:
        return hws_am_send(endpoint, AM_ID, NULL, 0, data, SENT, NULL, op);
    default:
        return hws_multi_send(endpoint, TAG, &segment, 1, NULL, NULL, op);
    }
}

/* `of_worker`: the receives are posted on the worker, from whichever peer. */
static void ends_with_the_peer(int cancelled, int of_worker)
{
    hws_am_opts told = {
        .struct_size = sizeof(told), .flags = HWS_AM_BUFFER, .sink = {.callback = on_message}};
    t_pair_opts opts = {.config = config};
    hws_id op[RECEIVES + SENDS];
    char port[16], line[16] = "";
    const char *const args[] = {"child", port, NULL};
    t_seen seen;
    t_child c;
    t_pair pair;

    t_pair_listen(&pair, &opts);
    CHECK_OK(hws_am_handler(pair.worker[1], AM_ID, &told));
    snprintf(port, sizeof(port), "%u", pair.port);
    t_spawn(&c, args);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    for (int i = 0; i < RECEIVES; i++) {
        hws_id source = of_worker ? pair.worker[1] : seen.event.source;

        CHECK_OK(hws_tag_recv(source, place[i], LONG, TAG, UINT64_MAX, NULL, &op[i]));
    }
    for (int i = RECEIVES; i < RECEIVES + SENDS; i++) {
        CHECK_OK(send_one(seen.event.source, i, &op[i]));
    }
    UNTIL(&pair, t_hear_for(&c, line, sizeof(line), 0) != 0);
    CHECK_STR(line, "open");
    t_say(&c, "send");
    HEAR(&c, "sent");
    UNTIL(&pair, kept.buffer != 0);
    t_pair_idle(&pair, 100 * T_MS);
    CHECK_PENDING(op[0]);
    for (int i = 0; cancelled && i < RECEIVES + SENDS; i++) {
        CHECK_OK(hws_cancel(op[i])); /* which UCX may not do before the peer says something */
    }
    t_kill(&c, SIGKILL);
    CHECK_EQ(t_join(&c), 256 + SIGKILL);
    for (int i = 0; i < RECEIVES + SENDS; i++) {
        hws_event end = WAIT(&pair, op[i]);

        CHECK(end.status == (cancelled ? HWS_E_CANCELED : HWS_E_CONNECTION_RESET) ||
              end.status == HWS_E_KEEPALIVE);
    }
    CHECK_EQ(kept.data_length, KEPT);
    for (int i = 0; i < KEPT; i++) {
        CHECK_EQ(((const char *)kept.data)[i], 'k');
    }
    CHECK_OK(hws_close(kept.buffer));
    kept.buffer = 0;
    t_pair_close(&pair);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "child") == 0) {
        return child(argv + 2);
    }
    if (t_address_sanitizer()) {
        puts("SKIP: what a killed process leaves open is a leak to the address sanitizer");
        return 77;
    }
    for (int of_worker = 0; of_worker < 2; of_worker++) {
        ends_with_the_peer(0, of_worker);
        ends_with_the_peer(1, of_worker);
    }
    puts("ok");
    return 0;
}
