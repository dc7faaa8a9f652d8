#include "support/record.h"
#include "support/check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void t_record_init(t_record *record)
{
    memset(record, 0, sizeof(*record));
    pthread_mutex_init(&record->lock, NULL);
}

void t_record_free(t_record *record)
{
    free(record->seen);
    pthread_mutex_destroy(&record->lock);
    memset(record, 0, sizeof(*record));
}

void t_record_event(void *arg, const hws_event *event)
{
    t_record *record = arg;
    t_seen *seen;

    CHECK_EQ(event->size, sizeof(hws_event));
    pthread_mutex_lock(&record->lock);
    if (record->count == record->room) {
        uint32_t room = record->room == 0 ? 64 : record->room * 2;
        t_seen *more = realloc(record->seen, room * sizeof(*more));
        CHECK(more != NULL);
        record->seen = more;
        record->room = room;
    }
    seen = &record->seen[record->count];
    memset(seen, 0, sizeof(*seen));
    seen->event = *event;
    seen->event.detail = NULL;
    seen->thread = syscall(SYS_gettid);
    if (event->status < 0) {
        CHECK(event->detail != NULL);
        snprintf(seen->text, sizeof(seen->text), "%s", (const char *)event->detail);
        CHECK(seen->text[0] != '\0');
    }
    record->count++;
    pthread_mutex_unlock(&record->lock);
    if (record->then != NULL) {
        record->then(record->then_arg, event);
    }
}

hws_sink t_record_sink(t_record *record, uint64_t user)
{
    hws_sink sink = {.callback = t_record_event, .callback_arg = record, .user = user};

    return sink;
}

uint32_t t_record_count(t_record *record)
{
    uint32_t count;

    pthread_mutex_lock(&record->lock);
    count = record->count;
    pthread_mutex_unlock(&record->lock);
    return count;
}

static int matches(const t_seen *seen, uint32_t kind, hws_id source)
{
    return seen->event.kind == kind && (source == 0 || seen->event.source == source);
}

uint32_t t_record_kinds(t_record *record, uint32_t kind, hws_id source)
{
    uint32_t i, count = 0;

    pthread_mutex_lock(&record->lock);
    for (i = 0; i < record->count; i++) {
        count += (uint32_t)matches(&record->seen[i], kind, source);
    }
    pthread_mutex_unlock(&record->lock);
    return count;
}

t_seen t_record_at(t_record *record, uint32_t index)
{
    t_seen seen;

    pthread_mutex_lock(&record->lock);
    CHECK(index < record->count);
    seen = record->seen[index];
    pthread_mutex_unlock(&record->lock);
    return seen;
}

int t_record_find(t_record *record, uint32_t kind, hws_id source, uint32_t nth, t_seen *out)
{
    uint32_t i;
    int found = 0;

    pthread_mutex_lock(&record->lock);
    for (i = 0; i < record->count && !found; i++) {
        if (matches(&record->seen[i], kind, source) && nth-- == 0) {
            *out = record->seen[i];
            found = 1;
        }
    }
    pthread_mutex_unlock(&record->lock);
    return found;
}

void t_record_clear(t_record *record)
{
    pthread_mutex_lock(&record->lock);
    record->count = 0;
    pthread_mutex_unlock(&record->lock);
}

void t_count_event(void *arg, const hws_event *event)
{
    CHECK_OK(event->status);
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}
