/* What another thread makes due wakes who waits for the descriptor of an armed worker. INTERNAL */
#include "support/cases.h"
#include "support/pair.h"
#include "worker.h"

#include <unistd.h>

/* Everything is done, and the descriptor waits. */
static void arm(hws_id worker)
{
    uint64_t start = t_now();

    while (hws_worker_arm(worker) != HWS_OK) {
        (void)hws_worker_progress(worker);
        CHECK(t_now() - start < t_patience());
    }
}

/* Whether it becomes readable within `seconds`. */
static int is_due_within(hws_id worker, uint64_t seconds)
{
    int32_t code = HWS_OK;
    uint64_t at = hws__worker_find(worker, &code)->timer_at;

    return at != 0 && at <= t_now() + seconds * T_SECOND;
}

/* It ends by the library's own deadline, 30 s. */
CASE(a_connect_without_a_deadline)
{
    static const t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING,
                                     .context_flags = HWS_CONTEXT_NO_SHARED_MEMORY};
    hws_id endpoint = 0, connect = 0;
    uint16_t port = 0;
    t_pair pair;
    int fd = t_plain_listener(&port);

    t_pair_open(&pair, &opts);
    t_pair_idle(&pair, 2 * T_SECOND); /* nothing else is due any more */
    arm(pair.worker[0]);
    CHECK(!is_due_within(pair.worker[0], 31));
    CHECK_OK(hws_connect(pair.worker[0], "127.0.0.1", port, NULL, NULL, &endpoint, &connect));
    CHECK(is_due_within(pair.worker[0], 31));
    CHECK_OK(hws_abort(endpoint));
    (void)WAIT(&pair, connect);
    close(fd);
    t_pair_close(&pair);
}

/* Whether its peer's host still answers is looked at a while later. */
CASE(a_send_that_ucx_takes_at_once)
{
    static const hws_op_opts at_once = {.struct_size = sizeof at_once,
                                        .flags = HWS_OP_DETACHED | HWS_OP_INLINE};
    static const t_pair_opts opts = {.mode = HWS_PROGRESS_BLOCKING,
                                     .context_flags = HWS_CONTEXT_NO_SHARED_MEMORY};
    t_pair pair;

    t_pair_open(&pair, &opts);
    t_pair_idle(&pair, 2 * T_SECOND);
    arm(pair.worker[0]);
    CHECK(!is_due_within(pair.worker[0], 5));
    CHECK(hws_tag_send(pair.endpoint[0], "eight by", 8, 1, &at_once, NULL) == HWS_DONE);
    CHECK(is_due_within(pair.worker[0], 5));
    t_pair_close(&pair);
}

CASES_MAIN
