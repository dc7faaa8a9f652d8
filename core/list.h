/*
 * Intrusive doubly linked lists with a sentinel head. A node that is in no list points to itself,
 * so removing twice is harmless.
 */
#ifndef HWS_CORE_LIST_H
#define HWS_CORE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct hws__list {
    struct hws__list *prev, *next;
};

#define hws__container(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void hws__list_init(struct hws__list *l)
{
    l->prev = l->next = l;
}

static inline bool hws__list_empty(const struct hws__list *l)
{
    return l->next == l;
}

static inline void hws__list_append(struct hws__list *head, struct hws__list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/** At the front: what was used last is in the cache. */
static inline void hws__list_push(struct hws__list *head, struct hws__list *node)
{
    hws__list_append(head->next, node);
}

static inline void hws__list_remove(struct hws__list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    hws__list_init(node);
}

/** Take the first node, or null. */
static inline struct hws__list *hws__list_pop(struct hws__list *head)
{
    struct hws__list *n = head->next;

    if (n == head) {
        return NULL;
    }
    hws__list_remove(n);
    return n;
}

/** Move every node of `from` to the end of `to`. */
static inline void hws__list_splice(struct hws__list *to, struct hws__list *from)
{
    if (hws__list_empty(from)) {
        return;
    }
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    hws__list_init(from);
}

#endif
