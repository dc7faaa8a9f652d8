/*
 * Where the events of an object go, resolved from hws_sink.
 */
#ifndef HWS_CORE_SINK_H
#define HWS_CORE_SINK_H

#include "list.h"
#include <hawser.h>
#include <stdbool.h>

struct hws__queue;
struct hws__worker;
struct hws__message;
struct hws__notice;

struct hws__sink {
    hws_event_fn callback;
    void *callback_arg;
    struct hws__queue *queue;
    hws_id queue_id;
    uint64_t user;
};

/** Resolve; 0, or the error of the queue id. */
int32_t hws__sink_set(struct hws__sink *sink, const hws_sink *from);

/** The worker's events will go there: a pop of the queue makes progress on it. */
void hws__sink_feed(const struct hws__sink *sink, hws_id worker);

static inline bool hws__sink_none(const struct hws__sink *s)
{
    return s->callback == NULL && s->queue == NULL;
}

/** Memory for events that must not be lost: put aside with their object. False: no memory. */
bool hws__notices_reserve(struct hws__list *to, int count);
/** Have the next hws__emit() find memory: one of these, unless there is enough. */
void hws__notice_provide(struct hws__worker *w, struct hws__list *from);
void hws__notices_free(struct hws__list *from);
/** A notice that was told of. Owner only. */
void hws__notice_give_back(struct hws__worker *w, struct hws__notice *t);

/**
 * Hand an event that nobody posted to its sink: queues at once, callbacks when the progress round
 * is over. A message that comes with it is released after a callback. False: there was no memory for it. Owner only.
 */
bool hws__emit(struct hws__worker *w, const struct hws__sink *sink, const hws_event *event,
               struct hws__message *message);

/** The message that an event is about: `message`, or the one that was published as its buffer; or null. */
struct hws__message *hws__event_message(const hws_event *event, struct hws__message *message);

/** A notice that is due, for the caller to write its event into. Owner only. Null: no memory. */
struct hws__notice *hws__notice_take(struct hws__worker *w, const struct hws__sink *sink);

#endif
