/*
 * Operations that many threads post to one worker. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/pair.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

struct submitter {
    t_pair *pair;
    uint64_t tag, count;
    _Atomic uint64_t *ended;
    uint64_t *in, *out;
};

static void *submit(void *arg)
{
    struct submitter *s = arg;
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .callback = t_count_event,
                        .callback_arg = (void *)(uintptr_t)s->ended};

    for (uint64_t i = 0; i < s->count; i++) {
        s->out[i] = s->tag << 32 | i;
        CHECK_OK(hws_tag_recv(s->pair->endpoint[1], &s->in[i], 8, s->tag, ALL, &opts, NULL));
        CHECK_OK(hws_tag_send(s->pair->endpoint[0], &s->out[i], 8, s->tag, &opts, NULL));
    }
    return NULL;
}

static void many_submitters(uint32_t mode, uint32_t flags)
{
    enum { THREADS = 4 };
    t_pair_opts opts = {.mode = mode, .endpoint_flags = flags};
    uint64_t count = t_sanitized() ? 1000 : 5000;
    t_pair pair;
    struct submitter submitters[THREADS];
    pthread_t threads[THREADS];
    _Atomic uint64_t ended = 0;

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){.pair = &pair,
                                           .tag = i,
                                           .count = count,
                                           .ended = &ended,
                                           .in = t_alloc(count * 8),
                                           .out = t_alloc(count * 8)};
        CHECK_EQ(pthread_create(&threads[i], NULL, submit, &submitters[i]), 0);
    }
    UNTIL(&pair, atomic_load(&ended) == THREADS * count * 2);
    for (uint64_t i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        /* In the order in which each thread sent. */
        for (uint64_t j = 0; j < count; j++) {
            CHECK(submitters[i].in[j] == (i << 32 | j));
        }
        free(submitters[i].in);
        free(submitters[i].out);
    }
    CHECK_EQ(t_stats(pair.context).safety_wakeups, 0);
    CHECK_EQ(t_stats(pair.context).ops_pending, 0);
    t_pair_close(&pair);
}

CASE(four_submitters_manual)
{
    many_submitters(HWS_PROGRESS_MANUAL, 0);
}

CASE(four_submitters_thread_shm)
{
    many_submitters(HWS_PROGRESS_THREAD, 0);
}

CASE(four_submitters_thread_tcp)
{
    many_submitters(HWS_PROGRESS_THREAD, HWS_ENDPOINT_TCP_ONLY);
}

CASE(four_submitters_polling_thread)
{
    many_submitters(HWS_PROGRESS_THREAD_POLLING, 0);
}

/* Buffers, headers and piece lists of submissions are kept although the call has returned. */
static void *submit_headers(void *arg)
{
    struct submitter *s = arg;
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .callback = t_count_event,
                        .flags = HWS_OP_IOV,
                        .callback_arg = (void *)(uintptr_t)s->ended};

    for (uint64_t i = 0; i < s->count; i++) {
        char header[200];
        size_t length = 1 + (i * 7) % sizeof(header);
        hws_iov iov[2] = {{&s->out[0], 4}, {(char *)&s->out[0] + 4, 4}};
        memset(header, (int)(length & 0xff), length);
        CHECK_OK(hws_am_send(s->pair->endpoint[0], 1, header, length, iov, 2, &opts, NULL));
        memset(header, 0xff, sizeof(header));
        memset(iov, 0xff, sizeof(iov));
    }
    return NULL;
}

static void check_header(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    const unsigned char *header = detail->header;

    CHECK_OK(event->status);
    CHECK_EQ(detail->data_length, 8);
    CHECK_EQ(memcmp(detail->data, "datadata", 8), 0);
    for (uint64_t i = 0; i < detail->header_length; i++) {
        CHECK_EQ(header[i], detail->header_length & 0xff);
    }
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}

CASE(submitted_headers_are_copied)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_THREAD};
    t_pair pair;
    struct submitter submitters[3];
    pthread_t threads[3];
    _Atomic uint64_t ended = 0, arrived = 0;
    uint64_t data;
    hws_am_opts handler = {
        .struct_size = sizeof(handler),
        .sink = {.callback = check_header, .callback_arg = (void *)(uintptr_t)&arrived}};

    memcpy(&data, "datadata", 8);
    t_pair_open(&pair, &opts);
    CHECK_OK(hws_am_handler(pair.worker[1], 1, &handler));
    for (int i = 0; i < 3; i++) {
        submitters[i] =
            (struct submitter){.pair = &pair, .count = 1000, .ended = &ended, .out = &data};
        CHECK_EQ(pthread_create(&threads[i], NULL, submit_headers, &submitters[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    EVENTUALLY(atomic_load(&ended) == 3000 && atomic_load(&arrived) == 3000);
    t_pair_close(&pair);
}

CASES_MAIN
