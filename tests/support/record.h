/*
 * Keeps every event that a sink or an operation delivers, in order, with copies of what `detail`
 * points to. One record may serve many objects and threads.
 */
#ifndef TESTS_SUPPORT_RECORD_H
#define TESTS_SUPPORT_RECORD_H

#include <hawser.h>
#include <pthread.h>

typedef struct t_seen {
    hws_event event; /* detail is null */
    char text[160];  /* of a failure */
    long thread;     /* that delivered it */
} t_seen;

typedef struct t_record {
    pthread_mutex_t lock;
    t_seen *seen;
    uint32_t count, room;
    /* Called after the event was kept, with no lock held; nullable. */
    hws_event_fn then;
    void *then_arg;
} t_record;

void t_record_init(t_record *record);
void t_record_free(t_record *record);

/* The callback: `arg` is the record. */
void t_record_event(void *arg, const hws_event *event);

/* A sink that feeds the record. */
hws_sink t_record_sink(t_record *record, uint64_t user);

uint32_t t_record_count(t_record *record);
/* How many of a kind; from a source, if that is not 0. */
uint32_t t_record_kinds(t_record *record, uint32_t kind, hws_id source);
/* Entry `index`; fails if there is none. */
t_seen t_record_at(t_record *record, uint32_t index);
/* The nth (from 0) of a kind, from a source if that is not 0; 0 if there is none. */
int t_record_find(t_record *record, uint32_t kind, hws_id source, uint32_t nth, t_seen *out);
void t_record_clear(t_record *record);

/* A callback that counts what ended well: `arg` is an _Atomic uint64_t. */
void t_count_event(void *arg, const hws_event *event);

#endif
