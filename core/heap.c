#include "heap.h"
#include "progress.h"
#include <stdlib.h>

static void put(struct hws__worker *w, uint32_t i, struct hws__op *op)
{
    w->heap[i] = op;
    op->heap = i + 1;
}

static void up(struct hws__worker *w, uint32_t i, struct hws__op *op)
{
    while (i > 0 && w->heap[(i - 1) / 2]->deadline > op->deadline) {
        put(w, i, w->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(w, i, op);
}

static void down(struct hws__worker *w, uint32_t i, struct hws__op *op)
{
    for (;;) {
        uint32_t c = 2 * i + 1;

        if (c + 1 < w->heap_size && w->heap[c + 1]->deadline < w->heap[c]->deadline) {
            c++;
        }
        if (c >= w->heap_size || w->heap[c]->deadline >= op->deadline) {
            break;
        }
        put(w, i, w->heap[c]);
        i = c;
    }
    put(w, i, op);
}

bool hws__heap_reserve(struct hws__worker *w)
{
    if (w->heap_size == w->heap_room) {
        uint32_t room = w->heap_room == 0 ? 64 : 2 * w->heap_room;
        struct hws__op **heap = realloc(w->heap, room * sizeof(struct hws__op *));

        if (heap == NULL) {
            return false;
        }
        w->heap = heap;
        w->heap_room = room;
    }
    return true;
}

bool hws__heap_add(struct hws__worker *w, struct hws__op *op)
{
    if (!hws__heap_reserve(w)) {
        return false;
    }
    up(w, w->heap_size++, op);
    hws__due_at(w, op->deadline);
    return true;
}

void hws__heap_remove(struct hws__worker *w, struct hws__op *op)
{
    uint32_t i = op->heap - 1;
    struct hws__op *last = w->heap[--w->heap_size];

    op->heap = 0;
    if (last == op) {
        return;
    }
    if (i > 0 && w->heap[(i - 1) / 2]->deadline > last->deadline) {
        up(w, i, last);
    } else {
        down(w, i, last);
    }
}
