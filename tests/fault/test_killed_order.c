/*
 * A peer is killed while its receiver is busy elsewhere. Of what it had sent, short and long messages in turns, the
 * first ones are received, each once: nothing stands in the place of what died with it, and the reason told is its end.
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

/* UCX cuts the long ones into pieces. All fit into its queue, but for the last ones. */
enum { AM_ID = 5, TAG = 7, MESSAGES = 40, LONG = 12000, SHORT = 100, ROUNDS = 10 };

static const char *const kinds[] = {"active", "tagged", "multi", "announced"};

static uint64_t data[MESSAGES][LONG / sizeof(uint64_t)];

static int send_one(hws_id endpoint, const char *kind, int i)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    uint64_t length = i % 2 ? LONG : SHORT;
    const hws_segment segment = {.base = data[i], .length = length};

    data[i][0] = (uint64_t)i;
    if (strcmp(kind, "multi") == 0) {
        return hws_multi_send(endpoint, TAG, &segment, 1, NULL, &opts, NULL);
    }
    if (strcmp(kind, "tagged") == 0) {
        return hws_tag_send(endpoint, data[i], length, TAG, &opts, NULL);
    }
    if (strcmp(kind, "announced") == 0 && i % 2) {
        return hws_tag_send_sync(endpoint, data[i], SHORT, TAG, &opts, NULL);
    }
    if (strcmp(kind, "announced") == 0) {
        return hws_tag_send(endpoint, data[i], SHORT, TAG, &opts, NULL);
    }
    opts.flags |= HWS_OP_EAGER;
    return hws_am_send(endpoint, AM_ID, NULL, 0, data[i], length, &opts, NULL);
}

/* child PORT KIND */
static int child(char **args)
{
    hws_id worker = 0, endpoint;
    char line[16];

    endpoint = t_child_dial(args[0], NULL, 0, &worker);
    t_say(NULL, "open");
    t_hear(NULL, line, sizeof(line));
    for (int i = 0; i < MESSAGES; i++) {
        CHECK(send_one(endpoint, args[1], i) >= 0);
    }
    t_say(NULL, "sent");
    t_hear(NULL, line, sizeof(line)); /* killed here */
    return 1;
}

static uint64_t received;

static void on_message(void *arg, const hws_event *event)
{
    const hws_am_detail *d = event->detail;

    (void)arg;
    CHECK_OK(event->status);
    CHECK_EQ(*(const uint64_t *)d->data, received++);
}

static void on_multi(void *arg, const hws_event *event)
{
    const hws_multi_detail *d = event->detail;
    uint64_t number;

    (void)arg;
    if (event->status == HWS_OK) {
        memcpy(&number, d->segments[0].base, sizeof(number));
        CHECK_EQ(number, received++);
        CHECK_OK(hws_close(d->buffer));
    }
}

/* Where the receives put them, in the order of their posting, whichever ends first. */
static uint64_t places[MESSAGES][LONG / sizeof(uint64_t)];

static void on_tagged(void *arg, const hws_event *event)
{
    if (event->status == HWS_OK) {
        CHECK_EQ(*(const uint64_t *)arg, event->user);
        received++;
    }
}

static void post_receives(hws_id endpoint, const char *kind)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = on_multi};

    for (int i = 0; i < MESSAGES && strcmp(kind, "active") != 0; i++) {
        if (strcmp(kind, "multi") == 0) {
            CHECK_OK(hws_multi_recv(endpoint, TAG, UINT64_MAX, NULL, &opts, NULL));
            continue;
        }
        opts.callback = on_tagged;
        opts.callback_arg = places[i];
        opts.user = (uint64_t)i;
        CHECK_OK(
            hws_tag_recv(endpoint, places[i], sizeof(places[i]), TAG, UINT64_MAX, &opts, NULL));
    }
}

static void first_ones_come(const char *kind)
{
    hws_am_opts told = {.struct_size = sizeof(told), .sink = {.callback = on_message}};
    char port[16], line[16] = "";
    const char *const args[] = {"child", port, kind, NULL};
    t_seen seen;
    t_child c;
    t_pair pair;

    received = 0;
    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_am_handler(pair.worker[1], AM_ID, &told));
    snprintf(port, sizeof(port), "%u", pair.port);
    t_spawn(&c, args);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &seen));
    post_receives(seen.event.source, kind);
    UNTIL(&pair, t_hear_for(&c, line, sizeof(line), 0) != 0);
    CHECK_STR(line, "open");
    t_say(&c, "send");
    HEAR(&c, "sent");
    t_kill(&c, SIGKILL);
    CHECK_EQ(t_join(&c), 256 + SIGKILL);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, 0, 0, &seen));
    CHECK(seen.event.status == HWS_E_CONNECTION_RESET || seen.event.status == HWS_E_KEEPALIVE);
    UNTIL(&pair, t_stats(pair.worker[1]).ops_pending == 0);
    printf("%s: %llu of %d\n", kind, (unsigned long long)received, MESSAGES);
    t_pair_close(&pair);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "child") == 0) {
        return child(argv + 2);
    }
    if (t_address_sanitizer()) {
        puts("SKIP: what a killed process leaves open is a leak to the address sanitizer");
        return 77;
    }
    for (int i = 0; i < ROUNDS; i++) {
        for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
            first_ones_come(kinds[k]);
        }
    }
    printf("ok: %d rounds\n", ROUNDS);
    return 0;
}
