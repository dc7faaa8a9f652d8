/*
 * What a program may do inside a callback: answer, post the next receive, close and abort what the event
 * is about or anything else, dial, listen, change handlers; and what it may not. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <string.h>

#define PING 3
#define PONG 4
#define TAG 77

/** What the callbacks of a case share. */
struct state {
    t_pair pair;
    t_record more; /* of what callbacks open */
    uint64_t next; /* number that must come next */
    uint64_t last;
    int depth, calls;
    void (*then)(struct state *, const hws_event *); /* what the callback does */
    uint64_t in[2];
};

static hws_op_opts detached(void)
{
    return (hws_op_opts){.struct_size = sizeof(hws_op_opts),
                         .flags = HWS_OP_INLINE | HWS_OP_DETACHED};
}

static void send_number(hws_id endpoint, uint32_t am_id, const uint64_t *number)
{
    hws_op_opts opts = detached();
    int32_t r = hws_am_send(endpoint, am_id, NULL, 0, number, sizeof(*number), &opts, NULL);

    CHECK(r == HWS_OK || r == HWS_DONE);
}

static void on_message(void *arg, const hws_event *event)
{
    struct state *s = arg;

    CHECK_EQ(++s->depth, 1); /* never one inside another */
    s->calls++;
    s->then(s, event);
    s->depth--;
}

static void handle(struct state *s, int side, uint32_t am_id)
{
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .sink = {.callback = on_message, .callback_arg = s}};

    CHECK_OK(hws_am_handler(s->pair.worker[side], am_id, &opts));
}

static void begin(struct state *s, uint32_t flags, uint32_t mode,
                  void (*then)(struct state *, const hws_event *))
{
    t_pair_opts opts = {.endpoint_flags = flags,
                        .listener_flags = flags & HWS_ENDPOINT_RAW ? HWS_LISTENER_RAW : 0,
                        .mode = mode};

    memset(s, 0, sizeof(*s));
    t_record_init(&s->more);
    s->then = then;
    t_pair_open(&s->pair, &opts);
    handle(s, 1, PING);
}

static void end(struct state *s)
{
    t_pair_close(&s->pair);
    t_record_free(&s->more);
}

/* ---- answers --------------------------------------------------------------------------------- */

static uint64_t numbers[20000];

static void answer(struct state *s, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    uint64_t number = 0;

    CHECK_EQ(detail->data_length, sizeof(number));
    CHECK_EQ((uintptr_t)detail->data % 16, 0);
    memcpy(&number, detail->data, sizeof(number));
    if (event->tag == PONG) {
        CHECK_EQ(number, s->next++);
        return;
    }
    CHECK_EQ(number, s->last++);
    send_number(detail->endpoint, PONG, &numbers[number]);
}

static void many_answers(uint32_t flags, uint32_t mode)
{
    const uint64_t count = mode == HWS_PROGRESS_MANUAL ? 20000 : 2000;
    struct state s;

    for (uint64_t i = 0; i < count; i++) {
        numbers[i] = i;
    }
    begin(&s, flags, mode, answer);
    if (mode != HWS_PROGRESS_MANUAL) {
        t_pair_close(&s.pair); /* the two sides' threads must not share the state */
        t_pair_open(&s.pair, &(t_pair_opts){.mode = mode, .one_worker = 1});
        handle(&s, 1, PING);
    }
    handle(&s, 0, PONG);
    for (uint64_t i = 0; i < count; i++) {
        send_number(s.pair.endpoint[0], PING, &numbers[i]);
    }
    UNTIL(&s.pair, *(volatile uint64_t *)&s.next == count);
    CHECK_EQ(s.last, count);
    end(&s);
}

CASE_BOTH(answers)
{
    many_answers(flags, HWS_PROGRESS_MANUAL);
}

CASE(answers_by_a_thread)
{
    many_answers(0, HWS_PROGRESS_THREAD);
}

CASE(answers_raw)
{
    many_answers(HWS_ENDPOINT_RAW, HWS_PROGRESS_MANUAL);
}

/* Each message sends the next to the own worker. */
static void send_on(struct state *s, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    hws_id other =
        detail->endpoint == s->pair.endpoint[0] ? s->pair.endpoint[1] : s->pair.endpoint[0];

    CHECK_EQ(*(const uint64_t *)detail->data, s->next);
    if (++s->next < 5000) {
        send_number(other, PING, &numbers[s->next]);
    }
}

CASE(round_one_worker)
{
    struct state s = {.then = send_on};

    for (uint64_t i = 0; i < 5000; i++) {
        numbers[i] = i;
    }
    t_record_init(&s.more);
    t_pair_open(&s.pair, &(t_pair_opts){.one_worker = 1});
    handle(&s, 0, PING);
    send_number(s.pair.endpoint[0], PING, &numbers[0]);
    UNTIL(&s.pair, s.next == 5000);
    end(&s);
}

/* ---- receives -------------------------------------------------------------------------------- */

static void on_received(void *arg, const hws_event *event);

static void post_receive(struct state *s, int which)
{
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .callback = on_received,
                        .callback_arg = s,
                        .user = (uint64_t)which};

    CHECK_OK(hws_tag_recv(s->pair.endpoint[1], &s->in[which], sizeof(s->in[which]), TAG, UINT64_MAX,
                          &opts, NULL));
}

static void on_received(void *arg, const hws_event *event)
{
    struct state *s = arg;

    if (event->status == HWS_E_CANCELED) {
        return; /* the end of the case */
    }
    CHECK_EQ(++s->depth, 1);
    CHECK_OK(event->status);
    CHECK_EQ(s->in[event->user], s->next++);
    post_receive(s, (int)event->user);
    s->depth--;
}

/* Two receives take turns; half of the messages meet one that waits, half come before it. */
CASE_BOTH(receives)
{
    struct state s;
    hws_op_opts opts = detached();

    begin(&s, flags, HWS_PROGRESS_MANUAL, answer);
    post_receive(&s, 0);
    post_receive(&s, 1);
    for (uint64_t i = 0; i < 4000; i++) {
        int32_t r;

        numbers[i] = i;
        r = hws_tag_send(s.pair.endpoint[0], &numbers[i], sizeof(numbers[i]), TAG, &opts, NULL);
        CHECK(r == HWS_OK || r == HWS_DONE);
        if (i % 7 == 0) {
            t_pair_step(&s.pair);
        }
    }
    UNTIL(&s.pair, s.next == 4000);
    end(&s);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void close_it(struct state *s, const hws_event *event)
{
    (void)s;
    CHECK_OK(hws_close(event->source));
}

static void abort_it(struct state *s, const hws_event *event)
{
    (void)s;
    CHECK_OK(hws_abort(event->source));
}

static void ends_by(uint32_t flags, void (*how)(struct state *, const hws_event *))
{
    struct state s;
    uint64_t number = 1;

    for (int i = 0; i < 20; i++) {
        begin(&s, flags, HWS_PROGRESS_MANUAL, how);
        for (int k = 0; k < 10; k++) { /* more on the way */
            send_number(s.pair.endpoint[0], PING, &number);
        }
        UNTIL(&s.pair, hws_kind(s.pair.endpoint[1]) < 0);
        CHECK(s.calls >= 1);
        CHECK_EQ(t_record_kinds(&s.pair.record[1], HWS_EVENT_CLOSED, s.pair.endpoint[1]), 1);
        UNTIL(&s.pair,
              t_record_kinds(&s.pair.record[0], HWS_EVENT_DISCONNECTED, s.pair.endpoint[0]) == 1);
        end(&s);
    }
}

CASE_BOTH(close_inside)
{
    ends_by(flags, close_it);
}

CASE_BOTH(abort_inside)
{
    ends_by(flags, abort_it);
}

static void close_worker(struct state *s, const hws_event *event)
{
    (void)event;
    CHECK_OK(hws_close(s->pair.worker[1]));
}

CASE_BOTH(close_the_worker_inside)
{
    struct state s;
    uint64_t number = 1;

    begin(&s, flags, HWS_PROGRESS_MANUAL, close_worker);
    send_number(s.pair.endpoint[0], PING, &number);
    UNTIL(&s.pair, hws_kind(s.pair.worker[1]) < 0);
    CHECK_EQ(t_record_kinds(&s.pair.record[1], HWS_EVENT_CLOSED, s.pair.endpoint[1]), 1);
    end(&s);
}

static void close_listener(struct state *s, const hws_event *event)
{
    (void)event;
    CHECK_OK(hws_close(s->pair.listener));
}

CASE_BOTH(close_the_listener_inside)
{
    struct state s;
    uint64_t number = 1;

    begin(&s, flags, HWS_PROGRESS_MANUAL, close_listener);
    send_number(s.pair.endpoint[0], PING, &number);
    UNTIL(&s.pair, hws_kind(s.pair.listener) < 0);
    s.then = answer;
    s.last = number;
    handle(&s, 0, PONG);
    numbers[1] = s.next = 1;
    send_number(s.pair.endpoint[0], PING, &number);
    UNTIL(&s.pair, s.next == 2); /* the connection lives */
    end(&s);
}

/* ---- beginnings ------------------------------------------------------------------------------ */

static void dial(struct state *s, const hws_event *event)
{
    hws_listener_opts listener = {.struct_size = sizeof(listener)};
    hws_endpoint_opts endpoint = {.struct_size = sizeof(endpoint)};
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .callback = t_record_event, .callback_arg = &s->more};
    hws_listener_info info = {.struct_size = sizeof(info)};
    hws_id l = 0, ep = 0;

    listener.sink = listener.endpoint_sink = endpoint.sink = t_record_sink(&s->more, 0);
    (void)event;
    CHECK_OK(hws_listen(s->pair.worker[1], "127.0.0.1", 0, &listener, &l));
    CHECK_OK(hws_listener_query(l, &info));
    CHECK_OK(hws_connect(s->pair.worker[1], "127.0.0.1", (uint16_t)info.port, &endpoint, &opts, &ep,
                         NULL));
    CHECK_OK(
        hws_connect(s->pair.worker[1], "127.0.0.1", s->pair.port, &endpoint, &opts, &ep, NULL));
}

CASE_BOTH(listen_and_dial_inside)
{
    struct state s;
    uint64_t number = 1;

    begin(&s, flags, HWS_PROGRESS_MANUAL, dial);
    send_number(s.pair.endpoint[0], PING, &number);
    UNTIL(&s.pair, t_record_kinds(&s.more, HWS_EVENT_CONNECT, 0) == 2);
    for (uint32_t i = 0; i < 2; i++) {
        t_seen seen;

        CHECK(t_record_find(&s.more, HWS_EVENT_CONNECT, 0, i, &seen));
        CHECK_OK(seen.event.status);
    }
    end(&s);
}

static void other_handler(void *arg, const hws_event *event)
{
    struct state *s = arg;

    (void)event;
    s->next++;
}

static void change_handler(struct state *s, const hws_event *event)
{
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .sink = {.callback = other_handler, .callback_arg = s}};

    CHECK_OK(hws_am_handler(s->pair.worker[1], (uint32_t)event->tag, NULL));
    CHECK_OK(hws_am_handler(s->pair.worker[1], (uint32_t)event->tag, &opts));
}

static void changes(uint32_t flags)
{
    struct state s;
    uint64_t number = 1;

    begin(&s, flags, HWS_PROGRESS_MANUAL, change_handler);
    send_number(s.pair.endpoint[0], PING, &number);
    UNTIL(&s.pair, s.calls == 1);
    send_number(s.pair.endpoint[0], PING, &number);
    UNTIL(&s.pair, s.next == 1);
    CHECK_EQ(s.calls, 1);
    end(&s);
}

CASE_BOTH(change_the_handler_inside)
{
    changes(flags);
}

CASE(change_the_handler_inside_raw)
{
    changes(HWS_ENDPOINT_RAW);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void try_waits(struct state *s, const hws_event *event)
{
    hws_op_opts opts = {.struct_size = sizeof(opts)};
    hws_event got;
    hws_id op = 0, queue = 0;

    (void)event;
    CHECK_CODE(hws_worker_progress(s->pair.worker[1]), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_wait(s->pair.worker[1], 0), HWS_E_DEADLOCK);
    CHECK_CODE(hws_worker_arm(s->pair.worker[1]), HWS_E_DEADLOCK);
    CHECK_CODE(hws_close_wait(s->pair.endpoint[1], 0), HWS_E_DEADLOCK);
    CHECK_OK(hws_queue_open(NULL, &queue));
    CHECK_CODE(hws_queue_pop(queue, &got, 1, 0), HWS_E_DEADLOCK);
    CHECK_OK(hws_close(queue));
    CHECK_OK(hws_tag_recv(s->pair.endpoint[1], &s->in[0], sizeof(s->in[0]), TAG, UINT64_MAX, &opts,
                          &op));
    CHECK_CODE(hws_wait(op, 0, NULL), HWS_E_DEADLOCK);
    CHECK_OK(hws_cancel(op));
    CHECK_OK(hws_close(op));
}

CASE_BOTH(waits_inside)
{
    struct state s;
    uint64_t number = 1;

    begin(&s, flags, HWS_PROGRESS_MANUAL, try_waits);
    send_number(s.pair.endpoint[0], PING, &number);
    UNTIL(&s.pair, s.calls == 1);
    t_pair_idle(&s.pair, T_MS);
    end(&s);
}

/* ---- Multi-buffer messages ---- */

static void on_multi(void *arg, const hws_event *event);

static void receive_multi(struct state *s, uint32_t how)
{
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .callback = on_multi, .callback_arg = s, .user = how};
    hws_multi_recv_opts list = {.struct_size = sizeof(list), .flags = how};
    hws_id op = 0;

    CHECK_OK(hws_multi_recv(s->pair.endpoint[1], TAG, UINT64_MAX, &list, &opts, &op));
}

/* Every third buffer is kept until the next one that is. */
static void end_buffer(struct state *s, const hws_multi_detail *detail, uint64_t length)
{
    static char into[10][1000];
    hws_segment to[10];
    hws_op_opts opts = detached();

    switch (s->next % 3) {
    case 0:
        if (s->in[0] != 0) {
            CHECK_OK(hws_close(s->in[0]));
        }
        s->in[0] = detail->buffer;
        return;
    case 1:
        CHECK_OK(hws_close(detail->buffer));
        break;
    default:
        for (uint64_t i = 0; i < detail->count; i++) {
            to[i] = (hws_segment){.base = into[i], .length = length};
        }
        CHECK_CODE(hws_multi_fetch(detail->buffer, to, detail->count, &opts, NULL), HWS_DONE);
        CHECK_FILLED(into[detail->count - 1], length, s->next);
    }
    CHECK_CODE(hws_close(detail->buffer), HWS_E_STALE);
    CHECK_CODE(hws_buffer_data(detail->buffer, NULL, NULL), HWS_E_STALE);
}

static void on_multi(void *arg, const hws_event *event)
{
    const hws_multi_detail *detail = event->detail;
    struct state *s = arg;

    if (event->status != HWS_OK) {
        CHECK_EQ(event->status, HWS_E_CANCELED); /* the last one, when its endpoint closes */
        return;
    }
    CHECK_EQ(++s->depth, 1);
    for (uint64_t i = 0; i < detail->count; i++) {
        CHECK_FILLED(detail->segments[i].base, detail->segments[i].length, s->next);
    }
    end_buffer(s, detail, detail->segments[0].length);
    s->next++;
    receive_multi(s, event->user == 0 ? HWS_MULTI_LIST : 0);
    s->depth--;
}

/* Messages whose list is copied, and those whose list UCX keeps, several on their way at once. */
CASE_BOTH(multi_inside)
{
    enum { COUNT = 1000, AHEAD = 4 };
    static char data[AHEAD][1000];
    static const uint64_t lengths[] = {20, 100, 1000};
    hws_segment segments[10];
    hws_id sent[AHEAD] = {0};
    struct state s;

    begin(&s, flags, HWS_PROGRESS_MANUAL, NULL);
    receive_multi(&s, 0);
    for (uint64_t n = 0; n < COUNT; n++) {
        uint64_t length = lengths[n / 3 % 3];

        if (sent[n % AHEAD] != 0) {
            WAIT_OK(&s.pair, sent[n % AHEAD]);
        }
        t_fill(data[n % AHEAD], length, n);
        for (int i = 0; i < 10; i++) {
            segments[i] = (hws_segment){.base = data[n % AHEAD], .length = length};
        }
        CHECK_OK(
            hws_multi_send(s.pair.endpoint[0], TAG, segments, 10, NULL, NULL, &sent[n % AHEAD]));
    }
    for (uint64_t n = 0; n < AHEAD; n++) {
        WAIT_OK(&s.pair, sent[n]);
    }
    UNTIL(&s.pair, s.next == COUNT);
    end(&s);
}

/* What is received again when it ends is refused once the worker closes, whatever it is that ends. */
struct again {
    hws_id worker;
    int taken, ended, refused;
    int multi;
};

static void receive_again(void *arg, const hws_event *event);

static void receive(struct again *a)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = receive_again, .callback_arg = a};
    static char into[8];
    hws_id op = 0;
    int32_t r = a->multi ? hws_multi_recv(a->worker, 1, UINT64_MAX, NULL, &opts, &op)
                         : hws_tag_recv(a->worker, into, sizeof(into), 1, UINT64_MAX, &opts, &op);

    a->taken += r == HWS_OK;
    a->refused += r < 0;
    CHECK(r == HWS_OK || r == HWS_E_CLOSING || r == HWS_E_STALE);
}

static void receive_again(void *arg, const hws_event *event)
{
    struct again *a = arg;

    CHECK(event->status < 0);
    a->ended++;
    receive(a);
}

static void closed_under_receives(int multi)
{
    struct again a = {.multi = multi};
    t_pair pair;

    t_pair_open(&pair, NULL);
    a.worker = pair.worker[0];
    receive(&a);
    t_pair_close(&pair);
    CHECK(a.taken > 0 && a.refused == 1);
    CHECK_EQ(a.ended, a.taken);
}

CASE(receive_again_while_it_closes)
{
    closed_under_receives(0);
    closed_under_receives(1);
}

CASES_MAIN
