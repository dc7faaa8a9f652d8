/*
 * Deadlines that UCX cannot honour: what it has begun to send or to fill it gives back only when the peer goes on.
 * Whoever waits is told at the deadline all the same; the buffer stays held until the final event, as after a cancel.
 */
#include "op.h"

/* The library's own end of an operation comes first, if there is one. */
#define GRACE_NS 20000000u

static uint64_t due(const struct op *op)
{
    return op->deadline + GRACE_NS;
}

bool late_is(const struct op *op)
{
    return op->deadline != 0 && now_ns() >= due(op);
}

bool late_stop(struct op *op)
{
    op->late = true;
    op->late = op_stop(op);
    return op->late;
}

void late_unlink(struct op *op)
{
    *op->late_link = op->late_next;
    if (op->late_next != NULL) {
        op->late_next->late_link = op->late_link;
    }
    op->late_link = NULL;
}

/* Have the loop look at its operations then. */
static int look_at(struct binding *b, uint64_t when)
{
    uint64_t now = now_ns();

    if (b->looks_at != 0 && b->looks_at <= when) {
        return 0;
    }
    if (binding_call_later(b, when > now ? (double)(when - now) / 1e9 : 0.0) < 0) {
        return -1;
    }
    b->looks_at = when;
    return 0;
}

int late_watch(struct op *op, struct binding *b)
{
    if (b->loop == NULL) {
        return 0; /* unbound meanwhile: nothing would take it out of the list */
    }
    op->late_next = b->timed;
    op->late_link = &b->timed;
    if (b->timed != NULL) {
        b->timed->late_link = &op->late_next;
    }
    b->timed = op;
    return look_at(b, due(op));
}

/* Others may go, and come, while one that is late is told of. */
static struct op *first_late(struct binding *b, uint64_t now, uint64_t *next)
{
    *next = UINT64_MAX;
    for (struct op *op = b->timed; op != NULL; op = op->late_next) {
        if (now >= due(op)) {
            return op;
        }
        *next = due(op) < *next ? due(op) : *next;
    }
    return NULL;
}

int late_look(struct binding *b)
{
    uint64_t now = now_ns(), next;
    struct op *op;

    b->looks_at = 0;
    while ((op = first_late(b, now, &next)) != NULL) {
        late_unlink(op);
        Py_INCREF((PyObject *)op);
        late_stop(op);
        Py_DECREF((PyObject *)op);
    }
    return next == UINT64_MAX ? 0 : look_at(b, next);
}

void late_forget(struct binding *b)
{
    while (b->timed != NULL) {
        late_unlink(b->timed);
    }
}
