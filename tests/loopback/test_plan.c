/*
 * Plans: posted again and again, one final event each time, everything in place when it comes.
 */
#include "support/cases.h"
#include "support/remote.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 200, SIZE = 4096 };

/* Even entries are written, odd ones read. */
static hws_id prepare(t_pair *pair, int user, const t_remote *remote, char *local, hws_id memory)
{
    static hws_transfer list[COUNT];
    hws_id plan = 0;

    for (uint64_t i = 0; i < COUNT; i++) {
        list[i] = (hws_transfer){.kind = i % 2 ? HWS_EVENT_GET : HWS_EVENT_PUT,
                                 .rkey = remote->rkey,
                                 .address = remote->address + i * SIZE,
                                 .buffer = local + i * SIZE,
                                 .length = i == 4 ? 0 : SIZE,
                                 .memory = memory};
    }
    CHECK_OK(hws_plan_open(pair->endpoint[user], list, COUNT, &plan));
    return plan;
}

static void check(const t_remote *remote, const char *local, uint64_t round)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        const char *at = i % 2 ? local : remote->base;
        if (i != 4) {
            CHECK_FILLED(at + i * SIZE, SIZE, round + i);
        }
    }
}

static void set(const t_remote *remote, char *local, uint64_t round)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        t_fill((i % 2 ? remote->base : local) + i * SIZE, SIZE, round + i);
    }
}

CASE_REMOTE(posted_often)
{
    char *local = t_alloc(COUNT * SIZE);
    hws_mem_info info = {.struct_size = sizeof(info)};
    hws_id memory = 0, plan;

    CHECK_OK(hws_mem_register(pair->context, local, COUNT * SIZE, NULL, &memory));
    plan = prepare(pair, user, remote, local, memory);
    CHECK_OK(hws_mem_query(memory, &info));
    CHECK_EQ(info.uses, COUNT);
    CHECK_OK(hws_close(memory)); /* stays until the plan goes */
    for (uint64_t round = 0; round < 20; round++) {
        hws_id op = 0;
        hws_event event;

        set(remote, local, 1000 * round);
        CHECK_OK(hws_plan_post(plan, NULL, &op));
        event = WAIT_OK(pair, op);
        CHECK_EQ(event.kind, HWS_EVENT_PLAN);
        CHECK_EQ(event.length, (COUNT - 1) * SIZE);
        check(remote, local, 1000 * round);
    }
    CHECK_OK(hws_close(plan));
    CHECK_CODE(hws_plan_post(plan, NULL, &(hws_id){0}), HWS_E_STALE);
    free(local);
}

/* Closed under way: the posting ends as if it were not. */
CASE_REMOTE(closed_under_way)
{
    char *local = t_alloc(COUNT * SIZE);
    hws_id plan = prepare(pair, user, remote, local, 0), op = 0;

    set(remote, local, 7);
    CHECK_OK(hws_plan_post(plan, NULL, &op));
    CHECK_OK(hws_close(plan));
    WAIT_OK(pair, op);
    check(remote, local, 7);
    free(local);
}

CASE_REMOTE(refused)
{
    char local[8];
    hws_transfer t = {.kind = HWS_EVENT_PUT,
                      .rkey = remote->rkey,
                      .address = remote->address,
                      .buffer = local,
                      .length = 8};
    hws_id plan = 0, endpoint = pair->endpoint[user], other;

    CHECK_CODE(hws_plan_open(endpoint, &t, 0, &plan), HWS_E_INVALID);
    CHECK_CODE(hws_plan_open(endpoint, NULL, 1, &plan), HWS_E_INVALID);
    CHECK_CODE(hws_plan_open(pair->endpoint[1 - user], &t, 1, &plan), HWS_E_INVALID);
    t.kind = HWS_EVENT_ATOMIC;
    CHECK_CODE(hws_plan_open(endpoint, &t, 1, &plan), HWS_E_INVALID);
    t.kind = HWS_EVENT_GET;
    t.address--;
    CHECK_CODE(hws_plan_open(endpoint, &t, 1, &plan), HWS_E_INVALID);
    t.address++;
    t.memory = remote->rkey;
    CHECK_CODE(hws_plan_open(endpoint, &t, 1, &plan), HWS_E_KIND);
    CHECK_OK(hws_context_open(NULL, &other));
    CHECK_OK(hws_mem_register(other, local, sizeof local, NULL, &t.memory));
    CHECK_CODE(hws_plan_open(endpoint, &t, 1, &plan), HWS_E_INVALID);
    CHECK_EQ(plan, 0);
    CHECK_OK(hws_close_wait(other, t_patience())); /* nothing holds its memory */
}

/* The peer goes while a plan is under way: one final event. */
CASE_REMOTE(peer_gone)
{
    char *local = t_alloc(COUNT * SIZE);
    hws_id plan = prepare(pair, user, remote, local, 0), op = 0;
    hws_event event;

    CHECK_OK(hws_plan_post(plan, NULL, &op));
    CHECK_OK(hws_abort(pair->endpoint[1 - user]));
    event = WAIT(pair, op);
    CHECK_EQ(event.kind, HWS_EVENT_PLAN);
    CHECK(event.status == HWS_OK || event.status <= HWS_E_CLOSING);
    UNTIL(pair, t_endpoint_info(pair->endpoint[user]).state == HWS_STATE_FAILED);
    CHECK(hws_plan_post(plan, NULL, &op) < 0);
    CHECK_OK(hws_close(plan));
    free(local);
}

CASES_MAIN
