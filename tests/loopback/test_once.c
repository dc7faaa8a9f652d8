/*
 * Every accepted operation ends in exactly one final event, and none comes afterwards: thousands of
 * operations of every sort from several threads, with cancels, deadlines and closes at random.
 *
 * TIMEOUT: 120
 * SOAK: 1800
 */
#include "support/pair.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3
#define CONNECTIONS 3
#define OPS_MAX 40000
#define ROUND_NS (2 * T_SECOND)

/* One operation, from before it is posted. Buffers are its own: what comes late is seen. */
struct op {
    _Atomic uint32_t finals;
    _Atomic uint32_t accepted; /* 1: accepted, 2: refused or inline */
    _Atomic hws_id id;
    char *memory;
    uint32_t length;
    uint32_t kind;   /* as chosen in post_one() */
    uint32_t queued; /* 1: told by the queue, 0: by the callback */
    uint32_t flags;
    uint64_t timeout_ns;
    hws_id endpoint;
};

static struct op ops[OPS_MAX];
static _Atomic uint32_t used;
static _Atomic hws_id current[2][CONNECTIONS];
static _Atomic int stop;
static uint64_t started; /* the round */
static t_pair pair;
static hws_id queue;

static void on_final(void *arg, const hws_event *event)
{
    struct op *op = arg;

    CHECK(event->kind < 32);
    CHECK(op >= ops && op < ops + OPS_MAX);
    atomic_fetch_add(&op->finals, 1);
}

static void on_message(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;

    (void)arg;
    if (event->kind != HWS_EVENT_AM || event->status < 0) {
        return;
    }
    if (event->flags & HWS_EVENT_FLAG_RNDV) {
        CHECK_OK(hws_close(detail->buffer)); /* drops it */
    }
}

/* Where and how its end is told, at random. */
static hws_op_opts random_opts(struct op *op, uint64_t *random)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .user = (uint64_t)(op - ops)};

    opts.flags = t_random(random) % 4 == 0 ? HWS_OP_INLINE : 0;
    if (t_random(random) % 4 == 0) {
        opts.timeout_ns = t_random(random) % (20 * T_MS);
        if (t_random(random) % 64 == 0) {
            opts.flags |= HWS_OP_DEADLINE_ABORT;
        }
    }
    if (t_random(random) % 3 == 0) {
        opts.queue = queue;
    } else {
        opts.callback = on_final;
        opts.callback_arg = op;
    }
    op->queued = opts.queue != 0;
    op->flags = opts.flags;
    op->timeout_ns = opts.timeout_ns;
    return opts;
}

/* The call that op->kind stands for. */
static int32_t post(struct op *op, hws_id worker, const hws_op_opts *opts, uint64_t *random,
                    hws_id *id)
{
    hws_id endpoint = op->endpoint, source = t_random(random) % 4 == 0 ? worker : endpoint;
    uint64_t tag = t_random(random) % 4;

    switch (op->kind) {
    case 0:
    case 1:
    case 2:
        return hws_tag_send(endpoint, op->memory, op->length, tag, opts, id);
    case 3:
        return hws_tag_send_sync(endpoint, op->memory, op->length, tag, opts, id);
    case 4:
    case 5:
    case 6:
        return hws_tag_recv(source, op->memory, op->length, tag, t_random(random) % 2 ? 0 : ~0ull,
                            opts, id);
    case 7:
        return hws_am_send(endpoint, 1 + t_random(random) % 3, "header", 6, op->memory, op->length,
                           opts, id);
    case 8:
        return hws_stream_send(endpoint, op->memory, op->length, opts, id);
    default:
        return t_random(random) % 2 ? hws_stream_recv(endpoint, op->memory, op->length, opts, id)
                                    : hws_flush(source, opts, id);
    }
}

/* Refused as it may be in the middle of all this, or done at once. */
static void check_refusal(int32_t code, uint32_t kind)
{
    CHECK(code == HWS_DONE || hws_error_category(code)[0] != '\0');
    if (code < 0 && code != HWS_E_STALE && code != HWS_E_CLOSING && code != HWS_E_QUEUE_FULL &&
        code != HWS_E_BAD_ID && code != HWS_E_INVALID &&
        strcmp(hws_error_category(code), "peer") != 0) {
        t_fail(__FILE__, __LINE__, "posting kind %u gave %s", kind, hws_error_name(code));
    }
}

/* Posts one random operation. */
static void post_one(uint64_t *random)
{
    static const uint32_t lengths[] = {0, 8, 100, 4000, 20000, 300000};
    uint32_t index = atomic_fetch_add(&used, 1);
    struct op *op = &ops[index];
    int side = (int)(t_random(random) % 2);
    hws_op_opts opts = random_opts(op, random);
    hws_id id = 0;
    int32_t code;

    op->kind = (uint32_t)(t_random(random) % 10);
    op->endpoint = atomic_load(&current[side][t_random(random) % CONNECTIONS]);
    op->length = lengths[t_random(random) % (t_random(random) % 8 == 0 ? 6 : 4)];
    op->memory = t_alloc(op->length);
    code = post(op, pair.worker[side], &opts, random, &id);
    if (code == HWS_OK) {
        atomic_store(&op->id, id);
        atomic_store(&op->accepted, 1);
    } else {
        check_refusal(code, op->kind);
        atomic_store(&op->accepted, 2);
    }
    /* Sometimes at once, sometimes an older one. */
    if (t_random(random) % 6 == 0) {
        hws_id victim = atomic_load(&ops[t_random(random) % (index + 1)].id);
        if (victim != 0) {
            code = hws_cancel(victim);
            CHECK(code == HWS_OK || code == HWS_E_STALE);
        }
    }
}

static void *poster(void *arg)
{
    uint64_t random = (uintptr_t)arg;

    /* Spread over the round: the endpoints must come and go meanwhile. */
    while (!atomic_load(&stop) && atomic_load(&used) < OPS_MAX - THREADS) {
        if (atomic_load(&used) < (t_now() - started) * OPS_MAX / ROUND_NS) {
            post_one(&random);
        } else {
            sched_yield();
        }
    }
    return NULL;
}

static void *popper(void *arg)
{
    hws_event events[32];

    (void)arg;
    while (atomic_load(&stop) < 2) {
        int32_t n = hws_queue_pop(queue, events, 32, 10 * T_MS);
        CHECK(n >= 0);
        for (int32_t i = 0; i < n; i++) {
            CHECK(events[i].user < OPS_MAX && events[i].kind < 32);
            atomic_fetch_add(&ops[events[i].user].finals, 1);
        }
    }
    return NULL;
}

static void *stepper(void *arg)
{
    (void)arg;
    while (atomic_load(&stop) < 2) {
        for (int side = 0; side < 2; side++) {
            (void)hws_worker_progress(pair.worker[side]);
        }
    }
    return NULL;
}

/* Opens connection `i` (again). The posters meet closing, closed and fresh endpoints. */
static void reconnect(int i, uint64_t *random)
{
    t_pair_opts opts = {.endpoint_flags = t_random(random) % 3 ? 0 : HWS_ENDPOINT_TCP_ONLY};
    hws_id ids[2];

    for (int side = 0; side < 2; side++) {
        hws_id old = atomic_load(&current[side][i]);
        if (old != 0 && t_random(random) % 4 != 0) { /* else: the other side's end is enough */
            (void)(t_random(random) % 2 ? hws_close(old) : hws_abort(old));
        }
    }
    for (int side = 0; side < 2; side++) {
        hws_id old = atomic_load(&current[side][i]);
        if (old != 0) {
            (void)hws_close(old);
        }
    }
    t_pair_connect(&pair, &opts, &ids[0], &ids[1]);
    atomic_store(&current[0][i], ids[0]);
    atomic_store(&current[1][i], ids[1]);
}

static uint64_t unfinished(void)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < atomic_load(&used); i++) {
        count += atomic_load(&ops[i].accepted) == 1 && atomic_load(&ops[i].finals) == 0;
    }
    return count;
}

static void complain(uint32_t i)
{
    hws_id id = atomic_load(&ops[i].id);
    hws_endpoint_info info = {.struct_size = sizeof(info)};
    int32_t living = hws_kind(id), endpoint = hws_endpoint_query(ops[i].endpoint, &info);

    fprintf(stderr,
            "operation %u, id %#llx (%s), kind %u, length %u, flags %u, timeout %llu ns, told by "
            "%s, endpoint %s, state %u: never ended\n",
            i, (unsigned long long)id, living > 0 ? "lives" : hws_error_name(living), ops[i].kind,
            ops[i].length, ops[i].flags, (unsigned long long)ops[i].timeout_ns,
            ops[i].queued ? "queue" : "callback", hws_error_name(endpoint), info.state);
}

static void check_all(void)
{
    uint32_t accepted = 0;

    for (uint32_t i = 0; i < atomic_load(&used); i++) {
        uint32_t expected = atomic_load(&ops[i].accepted) == 1;
        accepted += expected;
        if (atomic_load(&ops[i].finals) != expected) {
            t_fail(__FILE__, __LINE__, "operation %u of %u: %u final events, not %u", i,
                   atomic_load(&used), atomic_load(&ops[i].finals), expected);
        }
    }
    CHECK(accepted > 100);
}

static void listen_both(uint32_t mode, uint64_t seed)
{
    /* Every other round much waits for credit. */
    hws_worker_opts tight = {
        .struct_size = sizeof(tight), .credit_messages = 16, .credit_bytes = 64 << 10};
    const hws_worker_opts *worker = seed % 2 == 0 ? &tight : NULL;
    t_pair_opts opts = {.mode = mode, .close_timeout_ns = 200 * T_MS, .worker = {worker, worker}};
    hws_queue_opts queue_opts = {.struct_size = sizeof(queue_opts), .capacity = 1 << 14};
    hws_am_opts handler = {.struct_size = sizeof(handler), .sink = {.callback = on_message}};

    CHECK_OK(hws_queue_open(&queue_opts, &queue));
    t_pair_listen(&pair, &opts);
    for (int side = 0; side < 2; side++) {
        handler.flags = HWS_AM_DEFER;
        CHECK_OK(hws_am_handler(pair.worker[side], 1, &handler));
        handler.flags = 0;
        CHECK_OK(hws_am_handler(pair.worker[side], 2, &handler));
    }
}

/* Posts for a while, as connections come and go. */
static void post_meanwhile(uint64_t seed)
{
    pthread_t threads[THREADS];
    uint64_t random = seed;

    for (int i = 0; i < CONNECTIONS; i++) {
        reconnect(i, &random);
    }
    for (uint64_t i = 0; i < THREADS; i++) {
        void *number = (void *)(uintptr_t)(seed * 1000 + i);
        CHECK_EQ(pthread_create(&threads[i], NULL, poster, number), 0);
    }
    while (t_now() - started < ROUND_NS) {
        reconnect((int)(t_random(&random) % CONNECTIONS), &random);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
}

/* Everything that can still wait belongs to the workers: end it. */
static void end_all(void)
{
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < CONNECTIONS; i++) {
            (void)hws_close(atomic_load(&current[side][i]));
        }
    }
    for (uint32_t i = 0; i < atomic_load(&used); i++) {
        if (atomic_load(&ops[i].accepted) == 1) {
            (void)hws_cancel(atomic_load(&ops[i].id));
        }
    }
    for (uint64_t start = t_now(); unfinished() > 0;) {
        t_sleep(T_MS);
        if (t_now() - start < t_patience()) {
            continue;
        }
        for (uint32_t i = 0; i < atomic_load(&used); i++) {
            if (atomic_load(&ops[i].accepted) == 1 && atomic_load(&ops[i].finals) == 0) {
                complain(i);
            }
        }
        t_fail(__FILE__, __LINE__, "%llu operations never ended", (unsigned long long)unfinished());
    }
    UNTIL(&pair, t_stats(pair.context).ops_pending == 0);
}

static void close_context(void)
{
    uint64_t start = t_now();

    CHECK_OK(hws_close(pair.context));
    while (hws_kind(pair.context) >= 0) {
        t_sleep(T_MS);
        t_check_patience(__FILE__, __LINE__, start, "close of the context");
    }
}

/* No object spoke after its CLOSED. */
static void check_silence(const t_record *record)
{
    for (uint32_t i = 0; i < record->count; i++) {
        if (record->seen[i].event.kind == HWS_EVENT_CLOSED) {
            for (uint32_t j = i + 1; j < record->count; j++) {
                CHECK(record->seen[j].event.source != record->seen[i].event.source);
            }
        }
    }
}

static void round_of(uint32_t mode, uint64_t seed)
{
    pthread_t pop_thread, step_thread;

    memset(ops, 0, sizeof(ops));
    memset(current, 0, sizeof(current));
    atomic_store(&used, 0);
    atomic_store(&stop, 0);
    started = t_now();
    listen_both(mode, seed);
    CHECK_EQ(pthread_create(&pop_thread, NULL, popper, NULL), 0);
    CHECK_EQ(pthread_create(&step_thread, NULL, stepper, NULL), 0);
    post_meanwhile(seed);
    end_all();
    check_all();
    close_context();
    atomic_store(&stop, 2);
    CHECK_EQ(pthread_join(pop_thread, NULL), 0);
    CHECK_EQ(pthread_join(step_thread, NULL), 0);
    check_all();
    check_silence(&pair.record[0]);
    check_silence(&pair.record[1]);
    printf("mode %u seed %llu: %u operations, %u events of objects\n", mode,
           (unsigned long long)seed, atomic_load(&used),
           t_record_count(&pair.record[0]) + t_record_count(&pair.record[1]));
    fflush(stdout);
    CHECK_OK(hws_close(queue));
    for (uint32_t i = 0; i < atomic_load(&used); i++) {
        free(ops[i].memory);
    }
    t_record_free(&pair.record[0]);
    t_record_free(&pair.record[1]);
}

int main(void)
{
    uint64_t rounds = getenv("HAWSER_SOAK") != NULL ? 100 : 2;
    uint64_t seed = t_env("HAWSER_SEED", 1);

    rounds = t_env("HAWSER_ROUNDS", rounds);
    for (uint64_t i = 0; i < rounds; i++, seed++) {
        round_of(HWS_PROGRESS_MANUAL, seed);
        round_of(HWS_PROGRESS_THREAD, seed);
        round_of(HWS_PROGRESS_THREAD_POLLING, seed);
    }
    return 0;
}
