#include "sink.h"
#include "progress.h"
#include "queue.h"
#include <stdlib.h>

int32_t hws__sink_set(struct hws__sink *sink, const hws_sink *from)
{
    int32_t r = HWS_OK;

    *sink = (struct hws__sink){
        .callback = from->callback, .callback_arg = from->callback_arg, .user = from->user};
    if (from->callback == NULL && from->queue != 0) {
        sink->queue = hws__queue_find(from->queue, &r);
        sink->queue_id = from->queue;
    }
    return r;
}

void hws__sink_feed(const struct hws__sink *sink, hws_id worker)
{
    if (sink->queue != NULL && worker != 0) {
        hws__queue_feed(sink->queue, worker);
    }
}

static struct hws__notice *notice_new(void)
{
    return aligned_alloc(_Alignof(struct hws__notice), sizeof(struct hws__notice));
}

void hws__notices_free(struct hws__list *from)
{
    struct hws__list *n;

    while ((n = hws__list_pop(from)) != NULL) {
        free(hws__container(n, struct hws__notice, link));
    }
}

bool hws__notices_reserve(struct hws__list *to, int count)
{
    for (int i = 0; i < count; i++) {
        struct hws__notice *t = notice_new();

        if (t == NULL) {
            hws__notices_free(to);
            return false;
        }
        hws__list_append(to, &t->link);
    }
    return true;
}

/* So many are kept: each endpoint brings its own. */
#define KEEP 128u

void hws__notice_give_back(struct hws__worker *w, struct hws__notice *t)
{
    if (w->free_notices_count < KEEP) {
        w->free_notices_count++;
        hws__list_push(&w->free_notices, &t->link);
    } else {
        free(t);
    }
}

void hws__notice_provide(struct hws__worker *w, struct hws__list *from)
{
    struct hws__list *n = hws__list_pop(from);

    if (n != NULL) {
        hws__notice_give_back(w, hws__container(n, struct hws__notice, link));
    }
}

struct hws__notice *hws__notice_take(struct hws__worker *w, const struct hws__sink *sink)
{
    struct hws__list *n = hws__list_pop(&w->free_notices);
    struct hws__notice *t = n != NULL ? hws__container(n, struct hws__notice, link) : notice_new();

    w->free_notices_count -= n != NULL;
    if (t != NULL) {
        t->callback = sink->callback;
        t->callback_arg = sink->callback_arg;
        t->message = NULL;
        t->counted = false;
        hws__list_append(&w->ready, &t->link);
        w->todo = true;
    }
    return t;
}

struct hws__message *hws__event_message(const hws_event *event, struct hws__message *message)
{
    return message != NULL || (event->flags & HWS_EVENT_FLAG_BUFFER) == 0
               ? message
               : hws__obj_find(&hws__objects, ((const hws_am_detail *)event->detail)->buffer);
}

bool hws__emit(struct hws__worker *w, const struct hws__sink *sink, const hws_event *event,
               struct hws__message *message)
{
    hws_event e = *event;
    struct hws__notice *t;
    bool lost =
        sink->callback != NULL; /* who has no sink loses nothing, nor whose queue is closed */

    e.size = sizeof e;
    e.user = sink->user;
    if (sink->callback != NULL && (t = hws__notice_take(w, sink)) != NULL) {
        t->event = e;
        t->message = message;
        return true;
    }
    if (sink->callback == NULL && sink->queue != NULL) {
        HWS__COUNT(w, events, 1);
        if (hws__queue_push(sink->queue, sink->queue_id, &e, false, &w->count.queue_overflows)) {
            return true;
        }
        lost = atomic_load_explicit(&sink->queue->obj.id, memory_order_relaxed) == sink->queue_id;
    }
    if ((message = hws__event_message(&e, message)) != NULL) {
        hws__message_drop(message);
    }
    return !lost;
}
