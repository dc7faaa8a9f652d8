/*
 * Receives that are cancelled while their message is on its way: the next receive gets it, and not the message behind
 * it. Of one buffer, and of many. Over TCP, where nothing comes as long as the sender makes no progress.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALL UINT64_MAX
#define LARGE (UINT64_C(1) << 20)

struct undo {
    t_pair pair;
    char *out[2], *in[3];
    hws_id sent[2];
};

static hws_id post(hws_id source, void *buffer)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_recv(source, buffer, LARGE, 7, ALL, NULL, &op));
    return op;
}

/* The receiver alone makes progress. */
static void receiver_goes_on(struct undo *u)
{
    for (int i = 0; i < 100; i++) {
        CHECK(hws_worker_progress(u->pair.worker[1]) >= 0);
        usleep(200);
    }
}

static void open_undo(struct undo *u)
{
    t_pair_opts opts = {.endpoint_flags = HWS_ENDPOINT_TCP_ONLY};

    t_pair_open(&u->pair, &opts);
    for (int i = 0; i < 2; i++) {
        u->out[i] = t_alloc(LARGE);
        memset(u->out[i], '1' + i, LARGE);
    }
    for (int i = 0; i < 3; i++) {
        u->in[i] = t_alloc(LARGE);
    }
}

static void send_large(struct undo *u, int i)
{
    CHECK_OK(hws_tag_send(u->pair.endpoint[0], u->out[i], LARGE, 7, NULL, &u->sent[i]));
}

static void close_undo(struct undo *u)
{
    t_pair_close(&u->pair);
    for (int i = 0; i < 2; i++) {
        free(u->out[i]);
    }
    for (int i = 0; i < 3; i++) {
        free(u->in[i]);
    }
}

/* A message of two is on its way to a receive that is cancelled. */
static hws_id begin(struct undo *u, hws_id source)
{
    hws_id op;

    send_large(u, 0);
    send_large(u, 1);
    op = post(source, u->in[0]);
    receiver_goes_on(u);
    CHECK_OK(hws_cancel(op));
    CHECK_PENDING(op); /* UCX has it */
    return op;
}

static void received(struct undo *u, hws_id op, const char *in, int message)
{
    hws_event event = WAIT_OK(&u->pair, op);

    CHECK_EQ(event.length, LARGE);
    CHECK_EQ(event.tag, 7);
    CHECK(memcmp(in, u->out[message], LARGE) == 0);
}

static void both_were_sent(struct undo *u)
{
    (void)WAIT_OK(&u->pair, u->sent[0]);
    (void)WAIT_OK(&u->pair, u->sent[1]);
}

CASE(the_next_receive_waits_for_it)
{
    hws_id first, second, third;
    struct undo u;

    open_undo(&u);
    first = begin(&u, u.pair.endpoint[1]);
    second = post(u.pair.endpoint[1], u.in[1]);
    third = post(u.pair.endpoint[1], u.in[2]);
    CHECK_PENDING(second);
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    received(&u, second, u.in[1], 0);
    received(&u, third, u.in[2], 1);
    both_were_sent(&u);
    close_undo(&u);
}

CASE(a_receive_of_the_worker_waits_for_it)
{
    hws_id first, second, third;
    struct undo u;

    open_undo(&u);
    first = begin(&u, u.pair.endpoint[1]);
    second = post(u.pair.worker[1], u.in[1]);
    third = post(u.pair.endpoint[1], u.in[2]);
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    received(&u, second, u.in[1], 0);
    received(&u, third, u.in[2], 1);
    both_were_sent(&u);
    close_undo(&u);
}

CASE(a_receive_that_was_posted_before_gets_it)
{
    hws_id first, second;
    struct undo u;

    open_undo(&u);
    send_large(&u, 0);
    first = post(u.pair.endpoint[1], u.in[0]);
    receiver_goes_on(&u);
    second = post(u.pair.endpoint[1], u.in[1]);
    CHECK_OK(hws_cancel(first));
    send_large(&u, 1);
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    received(&u, second, u.in[1], 0);
    received(&u, post(u.pair.endpoint[1], u.in[2]), u.in[2], 1);
    both_were_sent(&u);
    close_undo(&u);
}

CASE(who_waits_for_it_is_cancelled_too)
{
    hws_id first, second, third;
    struct undo u;

    open_undo(&u);
    first = begin(&u, u.pair.endpoint[1]);
    second = post(u.pair.endpoint[1], u.in[1]);
    third = post(u.pair.endpoint[1], u.in[2]);
    receiver_goes_on(&u);
    CHECK_OK(hws_cancel(second));
    CHECK_CODE(hws_wait(second, T_SECOND, NULL), HWS_E_CANCELED);
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    /* The third had met the second message before. */
    received(&u, third, u.in[2], 1);
    received(&u, post(u.pair.endpoint[1], u.in[0]), u.in[0], 0);
    both_were_sent(&u);
    close_undo(&u);
}

CASE(nobody_waits_for_it)
{
    hws_message_info info = {.struct_size = sizeof info};
    hws_id first, message = 0, op = 0;
    struct undo u;

    open_undo(&u);
    first = begin(&u, u.pair.endpoint[1]);
    CHECK_CODE(hws_tag_probe(u.pair.endpoint[1], 7, ALL, &info, &message), HWS_E_NOT_FOUND);
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    CHECK_OK(hws_tag_probe(u.pair.endpoint[1], 7, ALL, &info, &message));
    CHECK_EQ(info.length, LARGE);
    CHECK_OK(hws_message_recv(message, u.in[1], LARGE, NULL, &op));
    received(&u, op, u.in[1], 0);
    received(&u, post(u.pair.endpoint[1], u.in[2]), u.in[2], 1);
    both_were_sent(&u);
    close_undo(&u);
}

CASE(it_was_probed_before)
{
    hws_message_info info = {.struct_size = sizeof info};
    hws_id first = 0, second, message = 0;
    struct undo u;

    open_undo(&u);
    send_large(&u, 0);
    send_large(&u, 1);
    receiver_goes_on(&u);
    CHECK_OK(hws_tag_probe(u.pair.endpoint[1], 7, ALL, &info, &message));
    CHECK_OK(hws_message_recv(message, u.in[0], LARGE, NULL, &first));
    CHECK_OK(hws_cancel(first));
    CHECK_PENDING(first);
    second = post(u.pair.endpoint[1], u.in[1]);
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    received(&u, second, u.in[1], 0);
    received(&u, post(u.pair.endpoint[1], u.in[2]), u.in[2], 1);
    both_were_sent(&u);
    close_undo(&u);
}

CASE(the_message_itself_is_taken)
{
    hws_op_opts take = {.struct_size = sizeof take, .flags = HWS_OP_TAKE};
    hws_id first, second = 0, op = 0;
    hws_event event;
    struct undo u;

    open_undo(&u);
    first = begin(&u, u.pair.endpoint[1]);
    CHECK_OK(hws_tag_recv(u.pair.endpoint[1], NULL, 0, 7, ALL, &take, &second));
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    event = WAIT_OK(&u.pair, second);
    CHECK_EQ(event.length, LARGE);
    CHECK_OK(hws_message_recv(event.source, u.in[1], LARGE, NULL, &op));
    received(&u, op, u.in[1], 0);
    received(&u, post(u.pair.endpoint[1], u.in[2]), u.in[2], 1);
    both_were_sent(&u);
    close_undo(&u);
}

/* How a receive that is cancelled on its way, and the one after it, come about. */
struct sort {
    hws_id (*begin)(struct undo *u);
    hws_id (*post)(struct undo *u);
    bool data; /* the second one brings data into in[1] */
};

/* Who waits for what never comes is told, and nothing is left. */
static void end_in_between(const struct sort *sort, void (*end)(struct undo *u), bool waits)
{
    hws_id first, second = 0;
    struct undo u;
    int32_t status;

    open_undo(&u);
    first = sort->begin(&u);
    if (waits) {
        second = sort->post(&u);
    }
    end(&u);
    /* What is closed properly may receive it still, which nobody could receive again. */
    status = WAIT(&u.pair, first).status;
    CHECK(status == HWS_E_CANCELED || status == HWS_OK);
    if (waits && WAIT(&u.pair, second).status >= 0 && sort->data) { /* it came in time */
        CHECK_EQ(status, HWS_E_CANCELED);
        CHECK(memcmp(u.in[1], u.out[0], LARGE) == 0);
    }
    close_undo(&u);
}

static void end_either_way(const struct sort *sort, void (*end)(struct undo *u))
{
    end_in_between(sort, end, true);
    end_in_between(sort, end, false);
}

static hws_id begin_one(struct undo *u)
{
    return begin(u, u->pair.endpoint[1]);
}

static hws_id post_next(struct undo *u)
{
    return post(u->pair.endpoint[1], u->in[1]);
}

static const struct sort one_buffer = {begin_one, post_next, true};

static void peer_leaves(struct undo *u)
{
    CHECK_OK(hws_abort(u->pair.endpoint[0]));
}

static void receiver_leaves(struct undo *u)
{
    CHECK_OK(hws_abort(u->pair.endpoint[1]));
}

static void worker_closes(struct undo *u)
{
    CHECK_OK(hws_close(u->pair.worker[1]));
}

CASE(the_peer_leaves)
{
    end_either_way(&one_buffer, peer_leaves);
}

CASE(the_receiver_leaves)
{
    end_either_way(&one_buffer, receiver_leaves);
}

CASE(the_worker_closes)
{
    end_either_way(&one_buffer, worker_closes);
}

/* ---- Multi-buffer messages ---- */

static void send_parts(struct undo *u, int i)
{
    hws_segment two[2] = {{.base = u->out[i], .length = LARGE / 2},
                          {.base = u->out[i] + LARGE / 2, .length = LARGE / 2}};

    CHECK_OK(hws_multi_send(u->pair.endpoint[0], 7, two, 2, NULL, NULL, &u->sent[i]));
}

static hws_id post_list(struct undo *u)
{
    hws_multi_recv_opts list = {.struct_size = sizeof list, .flags = HWS_MULTI_LIST};
    hws_id op = 0;

    CHECK_OK(hws_multi_recv(u->pair.endpoint[1], 7, ALL, &list, NULL, &op));
    return op;
}

/* The data of a list that was received, into in[i]. */
static hws_id fetch(struct undo *u, hws_id list, int i)
{
    const hws_multi_detail *detail = WAIT_OK(&u->pair, list).detail;
    hws_segment two[2] = {{.base = u->in[i], .length = LARGE / 2},
                          {.base = u->in[i] + LARGE / 2, .length = LARGE / 2}};
    hws_id op = 0;

    CHECK_EQ(detail->count, 2);
    CHECK_EQ(detail->total, LARGE);
    CHECK_OK(hws_multi_fetch(detail->buffer, two, 2, NULL, &op));
    return op;
}

/* One of two messages is being fetched, and that is cancelled. */
static hws_id begin_parts(struct undo *u)
{
    hws_id list, op;

    list = post_list(u);
    send_parts(u, 0);
    op = fetch(u, list, 0);
    send_parts(u, 1);
    receiver_goes_on(u);
    CHECK_OK(hws_cancel(op));
    return op;
}

static void fetched(struct undo *u, hws_id op, int i, int message)
{
    CHECK_EQ(WAIT_OK(&u->pair, op).length, LARGE);
    CHECK(memcmp(u->in[i], u->out[message], LARGE) == 0);
}

CASE(parts_are_waited_for)
{
    hws_id first, second, third;
    struct undo u;

    open_undo(&u);
    first = begin_parts(&u);
    CHECK_PENDING(first);
    second = post_list(&u);
    CHECK_PENDING(second);
    third = post_list(&u);
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    fetched(&u, fetch(&u, second, 1), 1, 0);
    fetched(&u, fetch(&u, third, 2), 2, 1);
    both_were_sent(&u);
    close_undo(&u);
}

CASE(nobody_waits_for_parts)
{
    struct undo u;
    hws_id first;

    open_undo(&u);
    first = begin_parts(&u);
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    fetched(&u, fetch(&u, post_list(&u), 1), 1, 0);
    fetched(&u, fetch(&u, post_list(&u), 2), 2, 1);
    both_were_sent(&u);
    close_undo(&u);
}

CASE(who_waits_for_parts_is_cancelled_too)
{
    hws_id first, second;
    struct undo u;

    open_undo(&u);
    first = begin_parts(&u);
    second = post_list(&u);
    CHECK_OK(hws_cancel(second));
    CHECK_CODE(hws_wait(second, T_SECOND, NULL), HWS_E_CANCELED);
    CHECK_EQ(WAIT(&u.pair, first).status, HWS_E_CANCELED);
    fetched(&u, fetch(&u, post_list(&u), 1), 1, 0);
    fetched(&u, fetch(&u, post_list(&u), 2), 2, 1);
    both_were_sent(&u);
    close_undo(&u);
}

static const struct sort parts = {begin_parts, post_list, false};

CASE(the_peer_leaves_between_parts)
{
    end_either_way(&parts, peer_leaves);
}

CASE(the_receiver_leaves_between_parts)
{
    end_either_way(&parts, receiver_leaves);
}

CASE(the_worker_closes_between_parts)
{
    end_either_way(&parts, worker_closes);
}

CASES_MAIN
