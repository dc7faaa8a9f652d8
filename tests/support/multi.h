/*
 * Multi-buffer messages of tests: shapes, posting that succeeds, and what must be there.
 */
#ifndef TESTS_SUPPORT_MULTI_H
#define TESTS_SUPPORT_MULTI_H

#include "support/pair.h"

/* A message as it is sent: segment i is filled with seed + i. */
typedef struct t_shape {
    uint64_t count;
    uint64_t seed;
    uint64_t total;
    hws_segment *segments;
} t_shape;

t_shape t_shape_make(const uint64_t *sizes, uint64_t count, uint64_t seed);
void t_shape_drop(t_shape *s);

/* Sizes of segments. */
static const uint64_t none[] = {0};
static const uint64_t one_empty[] = {0};
static const uint64_t tiny[] = {1, 0, 100, 7, 100, 0, 512, 3};
static const uint64_t edge[] = {4096, 4096};
static const uint64_t over_edge[] = {4096, 4096, 1};
static const uint64_t medium[] = {65535, 20000, 0, 60000, 1, 65535};
static const uint64_t dask[] = {40, 700, 3000000, 12, 65536, 1000003};
static const uint64_t large[] = {1 << 20, 1 << 20, 65536, (5 << 20) + 3};

static const struct {
    const uint64_t *sizes;
    uint64_t count;
} shapes[] = {{none, 0},      {one_empty, 1}, {tiny, 8}, {edge, 2},
              {over_edge, 3}, {medium, 6},    {dask, 6}, {large, 4}};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Posts; the operation has an id, which is returned. */
hws_id t_multi_send(hws_id endpoint, uint64_t tag, const t_shape *s);
hws_id t_multi_recv(hws_id source, uint64_t tag, uint64_t mask, uint32_t flags);

/* The event of a receive, or of a list, tells of this message: its detail. */
const hws_multi_detail *t_multi_check_list(const hws_event *event, hws_id endpoint, uint64_t tag,
                                           const t_shape *s);
void t_multi_check_data(const hws_segment *got, const t_shape *s);
/* Takes a message in one step: the library provides the memory. */
void t_multi_take(t_pair *pair, hws_id op, hws_id endpoint, uint64_t tag, const t_shape *s);

/* Progress until so many messages wait at a worker. */
void t_multi_waiting(t_pair *pair, hws_id worker, uint64_t messages);

#endif
