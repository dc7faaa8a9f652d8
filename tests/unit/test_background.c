/* Unit tests of background.c: the thread for what may take long. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "background.h"
#include "support/check.h"
#include "support/proc.h"

struct counted {
    struct hws__job job;
    int number;
    uint64_t ran_at;
    struct hws__background *again; /* joins the queue once more when it has run */
};

static _Atomic int ran;
static int order[1000];
static pthread_t thread;

static void count(struct hws__job *job)
{
    struct counted *c = hws__container(job, struct counted, job);

    c->ran_at = t_now();
    thread = pthread_self();
    order[atomic_load(&ran)] = c->number;
    if (c->again != NULL) {
        struct hws__background *b = c->again;

        c->again = NULL;
        cr_assert(hws__background_add(b, job));
    }
    atomic_fetch_add(&ran, 1);
}

static void count_too(struct hws__job *job)
{
    count(job);
}

static void until(int n)
{
    for (uint64_t start = t_now(); atomic_load(&ran) < n; t_sleep(T_MS / 10)) {
        t_check_patience(__FILE__, __LINE__, start, "the jobs run");
    }
}

Test(background, the_thread_starts_when_first_needed)
{
    struct hws__background b;
    uint64_t before = t_thread_count();
    struct counted c = {.job.run = count};

    hws__background_init(&b);
    cr_assert_eq(t_thread_count(), before);
    cr_assert(hws__background_add(&b, &c.job));
    until(1);
    cr_assert_not(pthread_equal(thread, pthread_self()));
    cr_assert_eq(t_thread_count(), before + 1);
    hws__background_stop(&b);
    cr_assert_eq(t_thread_count(), before);
}

Test(background, stop_without_a_job)
{
    struct hws__background b;

    hws__background_init(&b);
    hws__background_stop(&b);
}

Test(background, jobs_run_in_order)
{
    static struct counted jobs[1000];
    struct hws__background b;

    hws__background_init(&b);
    for (int i = 0; i < 1000; i++) {
        jobs[i] = (struct counted){.job.run = count, .number = i};
        cr_assert(hws__background_add(&b, &jobs[i].job));
    }
    hws__background_stop(&b);
    cr_assert_eq(ran, 1000);
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(order[i], i);
    }
}

Test(background, a_delayed_job_waits_and_others_pass_it)
{
    struct counted late = {.job.run = count, .number = 1}, soon = {.job.run = count, .number = 2};
    struct hws__background b;
    uint64_t start = t_now();

    hws__background_init(&b);
    cr_assert(hws__background_later(&b, &late.job, 50 * T_MS));
    cr_assert(hws__background_add(&b, &soon.job));
    until(2);
    cr_assert(order[0] == 2 && order[1] == 1);
    cr_assert_geq(late.ran_at - start, 50 * T_MS);
    hws__background_stop(&b);
}

Test(background, hurry_runs_delayed_jobs_now)
{
    struct counted jobs[] = {{.job.run = count, .number = 0}, {.job.run = count, .number = 1}};
    struct hws__background b;

    hws__background_init(&b);
    cr_assert(hws__background_later(&b, &jobs[0].job, 3600 * T_SECOND));
    cr_assert(hws__background_later(&b, &jobs[1].job, 7200 * T_SECOND));
    t_sleep(10 * T_MS);
    cr_assert_eq(ran, 0);
    hws__background_hurry(&b, NULL, NULL);
    until(2);
    hws__background_stop(&b);
}

Test(background, hurry_of_one_function_leaves_the_others)
{
    struct counted jobs[] = {{.job.run = count, .number = 1}, {.job.run = count_too, .number = 2}};
    struct hws__background b;

    hws__background_init(&b);
    cr_assert(hws__background_later(&b, &jobs[0].job, 3600 * T_SECOND));
    cr_assert(hws__background_later(&b, &jobs[1].job, 3600 * T_SECOND));
    hws__background_hurry(&b, NULL, count_too);
    until(1);
    t_sleep(10 * T_MS);
    cr_assert(ran == 1 && order[0] == 2);
    hws__background_stop(&b);
    cr_assert_eq(ran, 2);
}

Test(background, hurry_leaves_the_jobs_of_others)
{
    struct counted jobs[] = {{.job = {.run = count, .owner = &ran}, .number = 1},
                             {.job = {.run = count, .owner = &order}, .number = 2}};
    struct hws__background b;

    hws__background_init(&b);
    cr_assert(hws__background_later(&b, &jobs[0].job, 3600 * T_SECOND));
    cr_assert(hws__background_later(&b, &jobs[1].job, 3600 * T_SECOND));
    hws__background_hurry(&b, &order, NULL);
    until(1);
    t_sleep(10 * T_MS);
    cr_assert(ran == 1 && order[0] == 2);
    hws__background_stop(&b);
    cr_assert_eq(ran, 2);
}

Test(background, stop_runs_what_is_left_delayed_jobs_too)
{
    struct counted jobs[3] = {{.job.run = count}, {.job.run = count}, {.job.run = count}};
    struct hws__background b;

    hws__background_init(&b);
    cr_assert(hws__background_later(&b, &jobs[0].job, 3600 * T_SECOND));
    cr_assert(hws__background_add(&b, &jobs[1].job));
    cr_assert(hws__background_later(&b, &jobs[2].job, UINT64_MAX));
    hws__background_stop(&b);
    cr_assert_eq(ran, 3);
}

Test(background, a_job_may_add_a_job)
{
    struct hws__background b;
    struct counted c = {.job.run = count, .again = &b};

    hws__background_init(&b);
    cr_assert(hws__background_add(&b, &c.job));
    until(2);
    hws__background_stop(&b);
    cr_assert_eq(ran, 2);
}

static void *add_many(void *arg)
{
    struct counted *jobs = calloc(200, sizeof *jobs);

    for (int i = 0; i < 200; i++) {
        jobs[i].job.run = count;
        cr_assert(hws__background_later(arg, &jobs[i].job, i % 3 == 0 ? T_MS : 0));
    }
    return jobs;
}

Test(background, many_threads_add)
{
    struct hws__background b;
    pthread_t threads[4];
    void *jobs[4];

    hws__background_init(&b);
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, add_many, &b);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &jobs[i]);
    }
    until(800);
    hws__background_stop(&b);
    for (int i = 0; i < 4; i++) {
        free(jobs[i]);
    }
    cr_assert_eq(ran, 800);
}

static sigset_t blocked;

static void ask_signals(struct hws__job *job)
{
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    count(job);
}

/* The program's signals are handled on the program's threads. */
Test(background, the_thread_takes_no_signals)
{
    struct counted c = {.job.run = ask_signals};
    struct hws__background b;
    sigset_t mine;

    hws__background_init(&b);
    cr_assert(hws__background_add(&b, &c.job));
    hws__background_stop(&b);
    cr_assert(sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM) &&
              sigismember(&blocked, SIGUSR1));
    pthread_sigmask(SIG_BLOCK, NULL, &mine);
    cr_assert_not(sigismember(&mine, SIGUSR1), "the caller's mask is as before");
}
