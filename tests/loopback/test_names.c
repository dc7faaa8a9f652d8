/*
 * Host names: a name server that does not answer holds up nothing but the connections that ask it, and no end.
 * INTERNAL
 * WRAP: getaddrinfo
 */
#include "support/cases.h"
#include "support/pair.h"

#include <netdb.h>
#include <string.h>

#define SLOW "slow.test"

static _Atomic uint64_t answer_after;

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list)
{
    if (strcmp(host, SLOW) == 0 && (hints->ai_flags & AI_NUMERICHOST) == 0) {
        t_sleep(answer_after);
        return EAI_AGAIN;
    }
    return __real_getaddrinfo(host, service, hints, list);
}

static hws_id dial(t_pair *pair, const char *host, uint64_t timeout_ns, hws_id *op)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .timeout_ns = timeout_ns};
    hws_id id = 0;

    CHECK_OK(hws_connect(pair->worker[0], host, pair->port, NULL, &opts, &id, op));
    return id;
}

CASE(others_connect_meanwhile)
{
    enum { OTHERS = 4 };
    hws_id slow, op, others[OTHERS];
    uint64_t start;
    t_pair pair;

    answer_after = 4 * T_SECOND;
    t_pair_listen(&pair, NULL);
    start = t_now();
    slow = dial(&pair, SLOW, 0, &op);
    for (int i = 0; i < OTHERS; i++) {
        hws_id other;

        others[i] = dial(&pair, "127.0.0.1", 0, &other);
        WAIT_OK(&pair, other);
        CHECK(t_endpoint_info(others[i]).transports & HWS_TRANSPORT_SHM);
    }
    CHECK(t_now() - start < answer_after); /* it is still asked */
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_RESOLVE);
    CHECK(t_now() - start >= answer_after);
    CHECK(hws_kind(slow) < 0 || hws_close(slow) >= 0);
    t_pair_close(&pair);
}

CASE(a_deadline_does_not_wait_for_the_answer)
{
    uint64_t start;
    t_pair pair;
    hws_id op;

    answer_after = 2 * T_SECOND;
    t_pair_listen(&pair, NULL);
    start = t_now();
    dial(&pair, SLOW, 100 * T_MS, &op);
    CHECK_CODE(WAIT(&pair, op).status, HWS_E_TIMED_OUT);
    CHECK(t_now() - start < answer_after);
    t_pair_close(&pair);
}

CASE(names_are_asked_at_the_same_time)
{
    enum { NAMES = 8 };
    hws_id ops[NAMES];
    uint64_t start;
    t_pair pair;

    answer_after = 1 * T_SECOND;
    t_pair_listen(&pair, NULL);
    start = t_now();
    for (int i = 0; i < NAMES; i++) {
        dial(&pair, SLOW, 0, &ops[i]);
    }
    for (int i = 0; i < NAMES; i++) {
        CHECK_CODE(WAIT(&pair, ops[i]).status, HWS_E_RESOLVE);
    }
    CHECK(t_now() - start < NAMES / 2 * answer_after);
    t_pair_close(&pair);
}

/* More names than are asked at once: some are still queued. */
CASE(closing_does_not_wait_for_the_answer)
{
    enum { NAMES = 20 };
    hws_id ids[NAMES], ops[NAMES];
    uint64_t start;
    t_pair pair;

    answer_after = 3 * T_SECOND;
    t_pair_listen(&pair, NULL);
    for (int i = 0; i < NAMES; i++) {
        ids[i] = dial(&pair, SLOW, 0, &ops[i]);
    }
    start = t_now();
    CHECK(hws_close(ids[0]) >= 0);
    CHECK_CODE(WAIT(&pair, ops[0]).status, HWS_E_CANCELED);
    CHECK(hws_close(ids[NAMES - 1]) >= 0);
    CHECK_CODE(WAIT(&pair, ops[NAMES - 1]).status, HWS_E_CANCELED);
    t_pair_close(&pair);
    CHECK(t_now() - start < answer_after);
    t_sleep(answer_after); /* the answers come to nobody */
}

CASES_MAIN
