/*
 * Bursts that come while no receive is posted: every way to receive, look and close finds the messages in their order.
 *
 * INTERNAL TIMEOUT: 180
 */
#include "support/cases.h"
#include "support/credit.h"
#include "support/inject.h"

#include "rest.h"
#include "time.h"

#include <string.h>

enum {
    CLIENTS = 2,
    EARLY = 3,
    MOST = 400,
    LARGEST = 300,
    TAGS = 3,
    OF_CLIENT = 16,
    NEVER = 99,
    SEEDS = 12,
    STEPS = 150
};

#define ALL UINT64_MAX

static const hws_op_opts at_once = {.struct_size = sizeof(at_once),
                                    .flags = HWS_OP_INLINE | HWS_OP_DETACHED};

/* What is sent now is a burst, however slow the machine is: as if no time had passed since it began. */
static void hurry(hws_id worker)
{
    struct hws__worker *w = hws__obj_find(&hws__objects, worker);
    bool nested = hws__own(w);

    w->bundles.timed_at = hws__now();
    w->bundles.timed_burst = 0;
    hws__disown(w, nested);
}

/* ---- Against a model ------------------------------------------------------------------------- */

struct sent {
    uint64_t tag, length, seed;
};

/* What a client has sent and nobody has received. */
struct line {
    hws_id from, at;
    struct sent waiting[MOST];
    int count;
};

/* A receive that is posted before its message is sent. */
struct early {
    hws_id op; /* 0: none */
    hws_id source;
    uint64_t tag;
    uint64_t posted; /* earlier ones are less */
    bool met;
    struct sent is;
    char data[LARGEST];
};

struct model {
    t_pair pair;
    struct line line[CLIENTS];
    struct early early[EARLY];
    uint64_t random, seed;
    int rested; /* looks at which messages rested */
};

static uint64_t draw(struct model *m, uint64_t below)
{
    return t_random(&m->random) % below;
}

static uint64_t waiting(const struct model *m, uint64_t *bytes)
{
    uint64_t count = 0;

    *bytes = 0;
    for (int c = 0; c < CLIENTS; c++) {
        for (int i = 0; i < m->line[c].count; i++) {
            *bytes += m->line[c].waiting[i].length;
        }
        count += (uint64_t)m->line[c].count;
    }
    return count;
}

static int rests(hws_id endpoint)
{
    const struct hws__endpoint *ep = hws__obj_find(&hws__objects, endpoint);
    bool nested = hws__own(ep->worker), some = !hws__list_empty(&ep->scope.rests);

    hws__disown(ep->worker, nested);
    return some;
}

/* A tag tells whose it is, which the event of a worker's receive does not. */
static uint64_t tag_of(struct model *m, uint64_t client)
{
    return client * OF_CLIENT + draw(m, TAGS);
}

/* Which of a line is next for a receive; -1: none. */
static int next_of(const struct line *l, uint64_t tag, uint64_t mask)
{
    for (int i = 0; i < l->count; i++) {
        if (((l->waiting[i].tag ^ tag) & mask) == 0) {
            return i;
        }
    }
    return -1;
}

/* A receive of a tag of which nothing waits, now and then of one that never comes. */
static void post_early(struct model *m)
{
    struct early *e = &m->early[draw(m, EARLY)];
    uint64_t client = draw(m, CLIENTS), tag = draw(m, 4) ? tag_of(m, client) : NEVER;
    struct line *l = &m->line[client];

    if (e->op == 0 && next_of(l, tag, ALL) < 0) {
        e->source = draw(m, 2) ? l->at : m->pair.worker[1];
        e->tag = tag;
        e->met = false;
        e->posted = m->seed++;
        CHECK_OK(hws_tag_recv(e->source, e->data, LARGEST, tag, ALL, NULL, &e->op));
    }
}

/* The receive that was posted first of those that take a message; null: none. */
static struct early *met_by(struct model *m, const struct line *l, uint64_t tag)
{
    struct early *first = NULL;

    for (int i = 0; i < EARLY; i++) {
        struct early *e = &m->early[i];

        if (e->op != 0 && !e->met && e->tag == tag &&
            (e->source == l->at || e->source == m->pair.worker[1]) &&
            (first == NULL || e->posted < first->posted)) {
            first = e;
        }
    }
    return first;
}

static void check_early(struct model *m)
{
    for (int i = 0; i < EARLY; i++) {
        struct early *e = &m->early[i];

        if (e->op != 0 && e->met) {
            CHECK_EQ(WAIT_OK(&m->pair, e->op).length, e->is.length);
            CHECK_FILLED(e->data, e->is.length, e->is.seed);
            e->op = 0;
        }
    }
}

/* A burst of one tag or of all; all of it arrives, and is counted. */
static void send_burst(struct model *m)
{
    uint64_t client = draw(m, CLIENTS), tag = tag_of(m, client), bytes, n = draw(m, 200);
    struct line *l = &m->line[client];
    bool mixed = draw(m, 2);

    for (uint64_t i = 0; i < n && l->count < MOST; i++) {
        struct sent *s = &l->waiting[l->count];
        struct early *e;
        char data[LARGEST];
        int32_t r;

        *s = (struct sent){.tag = mixed ? tag_of(m, client) : tag,
                           .length = draw(m, 20) ? draw(m, 40) : draw(m, LARGEST),
                           .seed = m->seed++};
        t_fill(data, s->length, s->seed);
        hurry(m->pair.worker[0]);
        r = hws_tag_send(l->from, data, s->length, s->tag, &at_once, NULL);
        CHECK(r == HWS_OK || r == HWS_DONE);
        if ((e = met_by(m, l, s->tag)) != NULL) {
            e->met = true;
            e->is = *s;
        } else {
            l->count++;
        }
        if (r == HWS_OK) { /* UCX still needs the buffer, which ends here */
            UNTIL(&m->pair, t_stats(l->from).ops_pending == 0);
        }
    }
    n = waiting(m, &bytes);
    UNTIL(&m->pair, t_stats(m->pair.worker[1]).unexpected == n);
    CHECK_EQ(t_stats(m->pair.worker[1]).unexpected_bytes, bytes);
    m->rested += rests(l->at);
    check_early(m);
}

static void remove_at(struct line *l, int i)
{
    memmove(&l->waiting[i], &l->waiting[i + 1], sizeof(*l->waiting) * (size_t)(l->count - i - 1));
    l->count--;
}

/* What was received is the next of its client's line. */
static void check_next(struct model *m, uint64_t tag, uint64_t mask, const hws_event *e,
                       const void *data, uint64_t room)
{
    struct line *l = &m->line[e->tag / OF_CLIENT];
    int i = next_of(l, tag, mask);
    const struct sent *s = &l->waiting[i];

    CHECK(i >= 0);
    CHECK_EQ(e->tag, s->tag);
    CHECK_EQ(e->length, s->length);
    CHECK_EQ(e->status, s->length > room ? HWS_E_TRUNCATED : HWS_OK);
    if (s->length <= room) {
        CHECK_FILLED(data, s->length, s->seed);
    }
    remove_at(l, i);
}

/* A source, a tag and a mask; whether something waits for a receive of them. */
static int choose(struct model *m, hws_id *source, uint64_t *tag, uint64_t *mask)
{
    uint64_t c = draw(m, 2 * CLIENTS + 1);

    *tag = tag_of(m, c % CLIENTS);
    *mask = draw(m, 3) ? ALL : draw(m, 2);
    *source = m->pair.worker[1];
    if (c < 2 * CLIENTS) { /* mostly from an endpoint, and what is there */
        const struct line *l = &m->line[c % CLIENTS];

        *source = l->at;
        if (l->count != 0) {
            *tag = l->waiting[0].tag;
        }
        return next_of(l, *tag, *mask) >= 0;
    }
    return next_of(&m->line[0], *tag, *mask) >= 0 || next_of(&m->line[1], *tag, *mask) >= 0;
}

static void receive(struct model *m)
{
    char data[LARGEST];
    hws_event result = {0};
    hws_op_opts opts = {
        .struct_size = sizeof(opts), .flags = draw(m, 4) ? HWS_OP_INLINE : 0, .result = &result};
    uint64_t tag, mask, room = draw(m, 10) ? sizeof(data) : 5;
    hws_id source, op = 0;
    int there = choose(m, &source, &tag, &mask);
    int32_t r = hws_tag_recv(source, data, room, tag, mask, &opts, &op);

    if (!there) {
        CHECK_EQ(r, HWS_OK);
        CHECK_PENDING(op);
        CHECK_OK(hws_cancel(op));
        CHECK_EQ(WAIT(&m->pair, op).status, HWS_E_CANCELED);
        return;
    }
    CHECK(r == HWS_DONE || r == HWS_OK || r == HWS_E_TRUNCATED);
    if (r == HWS_OK) {
        result = WAIT(&m->pair, op);
    }
    check_next(m, tag, mask, &result, data, room);
}

static void probe(struct model *m)
{
    hws_message_info info = {.struct_size = sizeof(info)};
    uint64_t tag, mask;
    hws_id source, message = 0, op = 0;
    int there = choose(m, &source, &tag, &mask), take = (int)draw(m, 2);
    int32_t r = hws_tag_probe(source, tag, mask, &info, take ? &message : NULL);
    char data[LARGEST];
    hws_event e;

    CHECK_EQ(r, there ? HWS_OK : HWS_E_NOT_FOUND);
    if (r == HWS_OK && take) {
        CHECK_OK(hws_message_recv(message, data, sizeof(data), NULL, &op));
        e = WAIT_OK(&m->pair, op);
        CHECK(info.endpoint == m->line[e.tag / OF_CLIENT].at);
        check_next(m, tag, mask, &e, data, sizeof(data));
    }
}

static void open_model(struct model *m, uint32_t flags)
{
    t_pair_opts opts = {.endpoint_flags = flags};

    t_pair_open(&m->pair, &opts);
    m->line[0].from = m->pair.endpoint[0];
    m->line[0].at = m->pair.endpoint[1];
    t_pair_connect(&m->pair, &opts, &m->line[1].from, &m->line[1].at);
}

static void end_early(struct model *m)
{
    for (int i = 0; i < EARLY; i++) {
        if (m->early[i].op != 0) {
            CHECK_OK(hws_cancel(m->early[i].op));
            CHECK_EQ(WAIT(&m->pair, m->early[i].op).status, HWS_E_CANCELED);
        }
    }
}

/* 20 receives in a row now and then: what rests is taken one by one. */
static void run_steps(struct model *m)
{
    for (int i = 0; i < STEPS; i++) {
        uint64_t what = draw(m, 10), bytes, n;

        if (what < 2) {
            post_early(m);
            send_burst(m);
        } else if (what < 3) {
            probe(m);
        } else {
            for (uint64_t k = what < 6 ? 20 : 1; k != 0; k--) {
                receive(m);
            }
        }
        n = waiting(m, &bytes);
        CHECK_EQ(t_stats(m->pair.worker[1]).unexpected, n);
        CHECK_EQ(t_stats(m->pair.worker[1]).unexpected_bytes, bytes);
    }
}

CASE_BOTH(whatever_receives_them)
{
    static struct model m;

    open_model(&m, flags);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        m.random = seed;
        run_steps(&m);
    }
    CHECK(m.rested > 0);
    end_early(&m);
    t_pair_close(&m.pair); /* with what is left */
}

/* ---- What else happens to them --------------------------------------------------------------- */

enum { BURST = 200, NUMBERS = 1000 };

/* A number; UCX may need it for a while. */
static void send_number(t_pair *pair, uint64_t i)
{
    static uint64_t numbers[NUMBERS];

    numbers[i] = i;
    hurry(pair->worker[0]);
    CHECK(hws_tag_send(pair->endpoint[0], &numbers[i], sizeof(i), 7, &at_once, NULL) >= 0);
}

static void burst(t_pair *pair, uint64_t first)
{
    for (uint64_t i = first; i < first + BURST; i++) {
        send_number(pair, i);
    }
}

static uint64_t unexpected(const t_pair *pair)
{
    return t_stats(pair->worker[1]).unexpected;
}

static void take_numbers(t_pair *pair, uint64_t from, uint64_t to)
{
    for (uint64_t value; from < to; from++) {
        CHECK_CODE(hws_tag_recv(pair->endpoint[1], &value, sizeof(value), 7, ALL, &at_once, NULL),
                   HWS_DONE);
        CHECK_EQ(value, from);
    }
}

/* A burst that rests at the server, of numbers from 0 on. One that the machine held up goes in single messages. */
static void send_rested(t_pair *pair)
{
    for (int tries = 0; tries < 20; tries++) {
        burst(pair, 0);
        UNTIL(pair, unexpected(pair) == BURST);
        if (rests(pair->endpoint[1])) {
            return;
        }
        take_numbers(pair, 0, BURST);
    }
    t_fail(__FILE__, __LINE__, "no burst rests");
}

static void open_rested(t_pair *pair, uint32_t flags)
{
    t_pair_open_flags(pair, flags);
    send_rested(pair);
}

/* What came before the end is there to be received after it. */
CASE_BOTH(after_the_peer_has_gone)
{
    t_pair pair;

    open_rested(&pair, flags);
    take_numbers(&pair, 0, 50);
    CHECK_OK(hws_abort(pair.endpoint[0]));
    UNTIL(&pair, t_record_kinds(&pair.record[1], HWS_EVENT_DISCONNECTED, pair.endpoint[1]) != 0);
    for (uint64_t i = 50, value; i < BURST; i++) {
        hws_id op = 0;

        CHECK_OK(hws_tag_recv(pair.endpoint[1], &value, sizeof(value), 7, ALL, NULL, &op));
        WAIT_OK(&pair, op);
        CHECK_EQ(value, i);
    }
    t_pair_close(&pair);
}

/* Behind those that rest comes one that comes alone, and one that is too large to rest. */
CASE_BOTH(behind_them)
{
    char large[LARGEST] = {0};
    t_pair pair;
    hws_id op = 0;

    open_rested(&pair, flags);
    t_pair_idle(&pair, T_MS);
    for (uint64_t i = BURST; i < BURST + 3; i++) {
        send_number(&pair, i);
        UNTIL(&pair, unexpected(&pair) == i + 1);
        CHECK(rests(pair.endpoint[1]));
    }
    take_numbers(&pair, 0, 10);
    CHECK(hws_tag_send(pair.endpoint[0], large, sizeof(large), 7, &at_once, NULL) >= 0);
    UNTIL(&pair, unexpected(&pair) == BURST + 3 - 10 + 1);
    CHECK(!rests(pair.endpoint[1]));
    take_numbers(&pair, 10, BURST + 3);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], large, sizeof(large), 7, ALL, NULL, &op));
    CHECK_EQ(WAIT_OK(&pair, op).length, sizeof(large));
    t_pair_close(&pair);
}

/* One that is given back is received before them. */
CASE_BOTH(one_that_is_given_back)
{
    uint64_t first = 0;
    t_pair pair;

    open_rested(&pair, flags);
    take_numbers(&pair, 0, 40);
    for (first = 40; first-- != 30;) {
        CHECK_OK(hws_tag_return(pair.endpoint[1], &first, sizeof(first), 7));
    }
    for (uint64_t i = 39; i >= 30; i--) { /* in the order in which they were given back */
        take_numbers(&pair, i, i + 1);
    }
    take_numbers(&pair, 40, BURST);
    t_pair_close(&pair);
}

static void close_server(t_pair *pair)
{
    CHECK_OK(hws_close(pair->endpoint[1]));
    UNTIL(pair, t_record_kinds(&pair->record[1], HWS_EVENT_CLOSED, pair->endpoint[1]) != 0);
    CHECK_EQ(t_stats(pair->worker[1]).unexpected, 0);
    CHECK_EQ(t_stats(pair->worker[1]).unexpected_bytes, 0);
    t_pair_close(pair);
}

CASE_BOTH(closed_with_them)
{
    t_pair pair;

    open_rested(&pair, flags);
    close_server(&pair);
}

CASE_BOTH(closed_with_some_taken)
{
    t_pair pair;

    open_rested(&pair, flags);
    take_numbers(&pair, 0, 100);
    burst(&pair, BURST);
    close_server(&pair);
}

/* A window that the burst fills: what rests is in it until it is taken. */
CASE_BOTH(in_a_window)
{
    static const hws_worker_opts narrow = {.struct_size = sizeof(narrow), .credit_messages = BURST};
    t_pair_opts opts = {.endpoint_flags = flags, .worker = {NULL, &narrow}};
    uint64_t value = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    send_rested(&pair);
    for (uint64_t i = BURST; i < NUMBERS; i++) {
        hws_id op = 0;

        send_number(&pair, i);
        t_pair_step(&pair);
        CHECK(unexpected(&pair) <= BURST);
        CHECK_OK(hws_tag_recv(pair.endpoint[1], &value, sizeof(value), 7, ALL, NULL, &op));
        WAIT_OK(&pair, op);
        CHECK_EQ(value, i - BURST);
    }
    CHECK(t_credit_waits(&pair, 0) > 0);
    t_pair_close(&pair);
}

CASES_MAIN_AT_ONCE(2)
