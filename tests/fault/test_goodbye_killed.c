/*
 * A peer says goodbye and is killed before it has let go of what it was sent: that tells of the goodbye, like all else
 * that ends with it, not of a reset.
 */
#include "support/cases.h"
#include "support/dial.h"
#include "support/pair.h"
#include "support/spawn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 7, LENGTH = 4 << 20 };

static char data[LENGTH];

/* child PORT FLAGS */
static int child(char **args)
{
    hws_id worker = 0, endpoint;
    char line[16];

    endpoint = t_child_dial(args[0], NULL, (uint32_t)atoi(args[1]), &worker);
    t_say(NULL, "open");
    t_hear(NULL, line, sizeof(line));
    CHECK_OK(hws_close(endpoint));
    for (int i = 0; i < 100; i++) {
        CHECK(hws_worker_progress(worker) >= 0);
    }
    t_say(NULL, "said"); /* and does not hear the answer */
    t_hear(NULL, line, sizeof(line));
    return 1;
}

CASE_BOTH(sends_end_with_the_goodbye)
{
    const hws_segment segment = {.base = data, .length = LENGTH};
    t_pair_opts opts = {.endpoint_flags = flags};
    char port[16], flag[16], line[16] = "";
    const char *const args[] = {"child", port, flag, NULL};
    hws_id op[2];
    int32_t end;
    t_seen server, gone;
    t_child c;
    t_pair pair;

    t_pair_listen(&pair, &opts);
    snprintf(port, sizeof(port), "%u", pair.port);
    snprintf(flag, sizeof(flag), "%u", flags);
    t_spawn(&c, args);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 0, &server));
    UNTIL(&pair, t_hear_for(&c, line, sizeof(line), 0) != 0);
    CHECK_STR(line, "open");
    CHECK_OK(hws_tag_send(server.event.source, data, LENGTH, TAG, NULL, &op[0]));
    CHECK_OK(hws_multi_send(server.event.source, TAG, &segment, 1, NULL, NULL, &op[1]));
    t_pair_idle(&pair, 50 * T_MS);
    t_say(&c, "close");
    HEAR(&c, "said");
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, 0, 0, &gone));
    CHECK_CODE(gone.event.status, HWS_E_PEER_CLOSED);
    t_kill(&c, SIGKILL);
    CHECK_EQ(t_join(&c), 256 + SIGKILL);
    CHECK_CODE(WAIT(&pair, op[0]).status, HWS_E_PEER_CLOSED);
    end = WAIT(&pair, op[1]).status;
    CHECK(end == HWS_E_PEER_CLOSED || end == HWS_OK); /* it lets go of a list's parts at once */
    t_pair_close(&pair);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "child") == 0) {
        return child(argv + 2);
    }
    return t_cases_run(argc, argv, 1);
}
