/* Unit tests of list.h. */
#include <criterion/criterion.h>

#include "list.h"

struct item {
    int value;
    struct hws__list link;
};

static void fill(struct hws__list *head, struct item *items, int count, int from)
{
    hws__list_init(head);
    for (int i = 0; i < count; i++) {
        items[i].value = from + i;
        hws__list_append(head, &items[i].link);
    }
}

static int pop(struct hws__list *head)
{
    struct hws__list *n = hws__list_pop(head);

    return n != NULL ? hws__container(n, struct item, link)->value : -1;
}

Test(list, a_new_one_is_empty)
{
    struct hws__list head;

    hws__list_init(&head);
    cr_assert(hws__list_empty(&head));
    cr_assert_eq(hws__list_pop(&head), NULL);
}

Test(list, nodes_come_out_in_order)
{
    struct item items[3];
    struct hws__list head;

    fill(&head, items, 3, 1);
    cr_assert_not(hws__list_empty(&head));
    cr_assert_eq(pop(&head), 1);
    cr_assert_eq(pop(&head), 2);
    cr_assert_eq(pop(&head), 3);
    cr_assert_eq(pop(&head), -1);
}

Test(list, a_node_leaves_from_the_middle_and_twice_is_harmless)
{
    struct item items[3];
    struct hws__list head;

    fill(&head, items, 3, 1);
    hws__list_remove(&items[1].link);
    cr_assert(hws__list_empty(&items[1].link), "it points to itself");
    hws__list_remove(&items[1].link);
    cr_assert_eq(pop(&head), 1);
    cr_assert_eq(pop(&head), 3);
    cr_assert(hws__list_empty(&head));
}

Test(list, a_popped_node_can_join_again)
{
    struct item items[2];
    struct hws__list head;

    fill(&head, items, 2, 1);
    hws__list_append(&head, hws__list_pop(&head));
    cr_assert_eq(pop(&head), 2);
    cr_assert_eq(pop(&head), 1);
}

Test(list, splice_moves_all_to_the_end)
{
    struct item a[2], b[2];
    struct hws__list to, from;

    fill(&to, a, 2, 1);
    fill(&from, b, 2, 3);
    hws__list_splice(&to, &from);
    cr_assert(hws__list_empty(&from));
    for (int i = 1; i <= 4; i++) {
        cr_assert_eq(pop(&to), i);
    }
    cr_assert(hws__list_empty(&to));
}

Test(list, splice_of_nothing_and_into_nothing)
{
    struct item items[2];
    struct hws__list to, from;

    hws__list_init(&to);
    hws__list_init(&from);
    hws__list_splice(&to, &from);
    cr_assert(hws__list_empty(&to));
    fill(&from, items, 2, 1);
    hws__list_splice(&to, &from);
    cr_assert_eq(pop(&to), 1);
    cr_assert_eq(pop(&to), 2);
}
