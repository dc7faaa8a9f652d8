/*
 * Callbacks: who is told of what, in which order, and for how long before it is the turn of others.
 */
#include "am.h"
#include "endpoint.h"
#include "progress.h"
#include "time.h"

/* The endpoint that an event is about; null if it is about another object, or that one is gone. */
static struct hws__endpoint *about(const struct hws__notice *t)
{
    return hws__id_kind(t->event.source) == HWS_KIND_ENDPOINT
               ? hws__obj_find(&hws__objects, t->event.source)
               : NULL;
}

/* So many of each endpoint are put in order at once. */
#define TURNS 64

/*
 * Where callbacks take long a peer that floods would have all others wait. From `rest` to `due`, so that the endpoints
 * take turns: the first of each, the second of each, and so on. What is about no endpoint does not wait. As many looks
 * as there are notices, however few the endpoints; the time that takes is not the callbacks'.
 */
static void take_turns(struct hws__worker *w, struct hws__list *rest, struct hws__list *due)
{
    struct hws__list turns[TURNS], later, *n;

    hws__list_init(&later);
    for (int i = 0; i < TURNS; i++) {
        hws__list_init(&turns[i]);
    }
    w->told_round++;
    while ((n = hws__list_pop(rest)) != NULL) {
        struct hws__endpoint *ep = about(hws__container(n, struct hws__notice, link));
        uint32_t turn = 0;

        if (ep != NULL) {
            turn = ep->told_round == w->told_round ? ep->told_turn + 1 : 0;
            ep->told_round = w->told_round;
            ep->told_turn = turn;
        }
        hws__list_append(turn < TURNS ? &turns[turn] : &later, n);
    }
    for (int i = 0; i < TURNS; i++) {
        hws__list_splice(due, &turns[i]);
    }
    hws__list_splice(rest, &later);
    w->called_at = hws__now();
}

static void tell_op(struct hws__worker *w, struct hws__list *n)
{
    (void)w;
    hws__op_tell(hws__container(n, struct hws__op, match));
}

/* An object's CLOSED is its last event: callbacks of its operations that are still to come go before, also of those that
 * other threads posted. */
static bool is_too_early(struct hws__worker *w, const struct hws__notice *t)
{
    if (t->event.kind != HWS_EVENT_CLOSED) {
        return false;
    }
    hws__submissions_catch_up(w);
    for (const struct hws__list *n = w->ready_ops.next; n != &w->ready_ops; n = n->next) {
        if (hws__container(n, struct hws__op, match)->source == t->event.source) {
            return true;
        }
    }
    return false;
}

static void tell_notice(struct hws__worker *w, struct hws__list *n)
{
    struct hws__notice *t = hws__container(n, struct hws__notice, link);

    if (is_too_early(w, t)) {
        hws__list_append(&w->ready, n);
        return;
    }
    if (t->event.kind != HWS_EVENT_AM || hws__am_due(w, t)) {
        HWS__COUNT(w, events, 1);
        hws__call(t->callback, t->callback_arg, &t->event);
    }
    if (t->message != NULL) {
        hws__message_release(t->message);
    }
    hws__notice_give_back(w, t);
}

void hws__calls_look(struct hws__worker *w)
{
    uint64_t before = w->called_at > w->slow_at ? w->called_at : w->slow_at;

    w->called_at = hws__now();
    w->calls_slow = w->called_at - before > HWS__CALLS_NS;
    w->calls_next = atomic_load_explicit(&w->count.events, memory_order_relaxed) +
                    (w->calls_slow ? 1 : HWS__CALLS);
}

/* Messages that no window bounds are all told of before more come. Operations are as many as the program posted. */
static bool bounded(const struct hws__worker *w, const struct hws__list *list)
{
    return list == &w->ready_ops || (w->raw_count == 0 && w->credit_messages != 0);
}

/* What is in the list now. */
static int tell_all(struct hws__worker *w, struct hws__list *list,
                    void (*tell)(struct hws__worker *, struct hws__list *))
{
    uint64_t start = w->calls_slow ? hws__now() : 0;
    struct hws__list rest, due, *n;
    bool turns = false;
    int done = 0;

    hws__list_init(&rest);
    hws__list_init(&due);
    hws__list_splice(&rest, list);
    while (!hws__list_empty(&due) || !hws__list_empty(&rest)) {
        turns |= w->calls_slow && list == &w->ready;
        if (turns && hws__list_empty(&due)) {
            take_turns(w, &rest, &due);
            start = w->called_at;
        }
        n = hws__list_pop(turns ? &due : &rest);
        tell(w, n);
        done++;
        if (hws__calls_due(w)) {
            hws__calls_look(w);
            start = start == 0 ? w->called_at : start;
            if (w->called_at - start >= HWS__CALLS_NS && bounded(w, list)) {
                break;
            }
        }
    }
    hws__list_splice(&due, &rest);
    hws__list_splice(&due, list);
    hws__list_splice(list, &due);
    return done;
}

/*
 * A callback may post, and what it posts may end at once, and so on: what is added while callbacks run is due the next
 * time, after UCX, what came in otherwise and the clock.
 */
int hws__deliver(struct hws__worker *w)
{
    int done = 0;

    if (!hws__list_empty(&w->ready_ops)) {
        done += tell_all(w, &w->ready_ops, tell_op);
    }
    if (!hws__list_empty(&w->ready)) {
        done += tell_all(w, &w->ready, tell_notice);
    }
    w->todo |= !hws__list_empty(&w->ready_ops) || !hws__list_empty(&w->ready);
    return done;
}

void hws__deliver_all(struct hws__worker *w)
{
    while (hws__deliver(w) != 0) {}
}
