/*
 * Bursts that come while no receive takes them, against a model: every way to receive and look finds the messages in
 * their order, of two clients, with other receives posted meanwhile.
 *
 * INTERNAL TIMEOUT: 180
 */
#include "support/burst.h"
#include "support/cases.h"
#include "support/pair.h"

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
    uint64_t posted;              /* early receives */
    uint64_t random, seed, bytes; /* the next one's seed: how many were sent, of so many bytes */
    int rested;                   /* looks at which messages rested */
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
        e->posted = m->posted++;
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
        m->bytes += s->length;
        t_fill(data, s->length, s->seed);
        t_hurry(m->pair.worker[0]);
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
    CHECK_EQ(t_stats(m->pair.worker[1]).received[HWS_TRAFFIC_TAG], m->seed);
    CHECK_EQ(t_stats(m->pair.worker[1]).bytes_received[HWS_TRAFFIC_TAG], m->bytes);
    m->rested += t_rests(l->at);
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
        if (l->count != 0 && draw(m, 4)) {
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
        for (int c = 0; c < CLIENTS; c++) {
            CHECK_EQ(t_waiting(m->line[c].at), m->line[c].count);
        }
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

CASES_MAIN_AT_ONCE(2)
