/* Unit tests of isolated_budget.c: the user's limit holds, whoever asks at the same time. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>

#include "isolated.h"

#define ROUNDS 100000

static struct hws__context context;
static _Atomic uint32_t most;

static void *reserve_and_give_back(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        if (hws__isolated_reserve(&context)) {
            uint32_t now = atomic_load(&context.isolated);

            if (now > atomic_load(&most)) {
                atomic_store(&most, now);
            }
            hws__isolated_unreserve(&context);
        }
    }
    return NULL;
}

Test(isolated_budget, the_limit_holds_for_all_threads_together)
{
    pthread_t threads[3];

    context.isolated_max = 1;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, reserve_and_give_back, NULL), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_assert_eq(most, 1, "%u at once", most);
    cr_assert_eq(context.isolated, 0);
}
