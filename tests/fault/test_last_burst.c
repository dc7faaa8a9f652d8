/*
 * A burst of small messages is the last thing that a process does: it ends, is killed, or never calls the library
 * again.
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
#include <unistd.h>

/* As many as find room in UCX's queue, where the machine is too slow for them to look like a burst. */
enum { AM_ID = 5, BURST = 50, ROUNDS = 5 };

static void count(void *arg, const hws_event *event)
{
    CHECK_OK(event->status);
    ++*(int *)arg;
}

/* child PORT FLAGS END */
static int child(char **args)
{
    hws_op_opts at_once = {.struct_size = sizeof(at_once),
                           .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
    static const uint64_t data = 5;
    hws_id worker = 0, endpoint;
    char line[16];

    endpoint = t_child_dial(args[0], NULL, (uint32_t)atoi(args[1]), &worker);
    for (int i = 0; i < BURST; i++) {
        CHECK(hws_am_send(endpoint, AM_ID, NULL, 0, &data, sizeof(data), &at_once, NULL) >= 0);
    }
    if (strcmp(args[2], "killed") == 0) {
        t_sleep(50 * T_MS);
        raise(SIGKILL);
    }
    if (strcmp(args[2], "silent") == 0) {
        t_hear(NULL, line, sizeof(line));
    }
    return 0; /* nothing is closed */
}

static void all_arrive(uint32_t flags, const char *end)
{
    hws_am_opts told = {.struct_size = sizeof(told), .sink = {.callback = count}};
    char port[16], flag[16];
    const char *const args[] = {"child", port, flag, end, NULL};
    int arrived = 0, status;
    t_child c;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    told.sink.callback_arg = &arrived;
    CHECK_OK(hws_am_handler(pair.worker[1], AM_ID, &told));
    snprintf(port, sizeof(port), "%u", pair.port);
    snprintf(flag, sizeof(flag), "%u", flags);
    t_spawn(&c, args);
    UNTIL(&pair, arrived == BURST);
    if (strcmp(end, "silent") == 0) {
        t_say(&c, "end");
    }
    status = t_join(&c);
    CHECK_EQ(status, strcmp(end, "killed") == 0 ? 256 + SIGKILL : 0);
    t_pair_close(&pair);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "child") == 0) {
        return child(argv + 2);
    }
    if (t_address_sanitizer()) {
        puts("SKIP: what a process leaves open at its end is a leak to the address sanitizer");
        return 77;
    }
    for (int i = 0; i < ROUNDS; i++) {
        all_arrive(0, "exit");
        all_arrive(0, "killed");
        all_arrive(0, "silent");
        /* Over TCP UCX may drop what a peer that has ended had sent. */
        all_arrive(HWS_ENDPOINT_TCP_ONLY, "silent");
    }
    printf("ok: %d rounds\n", ROUNDS);
    return 0;
}
