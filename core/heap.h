/*
 * The deadlines of a worker's operations: a binary heap.
 */
#ifndef HWS_CORE_HEAP_H
#define HWS_CORE_HEAP_H

#include "worker.h"

/** Make room for one more, so that the next hws__heap_add() cannot fail. False: no memory. */
bool hws__heap_reserve(struct hws__worker *w);
/** Add with op->deadline set. False: no memory. */
bool hws__heap_add(struct hws__worker *w, struct hws__op *op);
void hws__heap_remove(struct hws__worker *w, struct hws__op *op);

#endif
