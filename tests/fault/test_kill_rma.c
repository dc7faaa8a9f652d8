/*
 * The owner of the memory is killed in the middle of puts, gets, atomics and plans: each operation has
 * exactly one final event, and a buffer is not touched after it, neither written (a mark stays) nor, in
 * an ASan build, read (it is poisoned).
 *
 * TIMEOUT: 180
 */
#include "support/check.h"
#include "support/record.h"
#include "support/spawn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (UINT64_C(1) << 20)
#define FEATURES (HWS_FEATURE_AM | HWS_FEATURE_RMA | HWS_FEATURE_ATOMIC)

enum { COUNT = 300, PIECE = 30000 };
enum what { PUT, GET, ATOMIC, PLAN, WHATS };
static const char *const names[WHATS] = {"put", "get", "atomic", "plan"};

static hws_id context, worker;

static void open_worker(void)
{
    hws_context_opts opts = {.struct_size = sizeof(opts), .features = FEATURES};

    CHECK_OK(hws_context_open(&opts, &context));
    CHECK_OK(hws_worker_open(context, NULL, &worker));
}

/* Owns memory, tells its key, and makes progress until it is killed. */
static _Noreturn void owner(int allocated)
{
    hws_listener_info info = {.struct_size = sizeof(info)};
    static unsigned char packed[1024];
    char hex[2 * sizeof(packed) + 1];
    hws_id memory, listener;
    uint64_t length;

    t_child_begin();
    open_worker();
    if (allocated) {
        CHECK_OK(hws_mem_alloc(context, SIZE, NULL, &memory));
    } else {
        CHECK_OK(hws_mem_register(context, t_alloc(SIZE), SIZE, NULL, &memory));
    }
    CHECK_OK(hws_listen(worker, "127.0.0.1", 0, NULL, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    CHECK_OK(hws_rkey_pack(memory, 0, packed, sizeof(packed), &length));
    for (uint64_t i = 0; i < length; i++) {
        sprintf(hex + 2 * i, "%02x", packed[i]);
    }
    t_say(NULL, "%u %s", info.port, hex);
    for (;;) {
        hws_worker_wait(worker, T_SECOND);
    }
}

/* Connects to the child and unpacks its key. */
static hws_id meet(t_child *child, uint32_t flags, hws_rkey_info *info)
{
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = flags};
    static unsigned char packed[1024];
    char line[4000], *hex = line;
    hws_id endpoint = 0, rkey = 0, op = 0;
    uint64_t length = 0;

    t_hear(child, line, sizeof(line));
    CHECK_OK(hws_connect(worker, "127.0.0.1", (uint16_t)strtoul(line, &hex, 10), &opts, NULL,
                         &endpoint, &op));
    CHECK_OK(hws_wait(op, t_patience(), NULL));
    for (hex++; hex[0] != '\0'; hex += 2) {
        char byte[3] = {hex[0], hex[1], '\0'};
        packed[length++] = (unsigned char)strtoul(byte, NULL, 16);
    }
    CHECK_OK(hws_rkey_unpack(endpoint, packed, length, 0, &rkey));
    *info = (hws_rkey_info){.struct_size = sizeof(*info)};
    CHECK_OK(hws_rkey_query(rkey, info));
    return rkey;
}

static struct ended {
    uint32_t times;
    int32_t status;
    uint64_t kind;
} ended[COUNT];
static char *buffers;

static hws_id plans[COUNT];

/* From now on the buffer is ours: a mark that nobody may change. */
static void on_end(void *arg, const hws_event *event)
{
    struct ended *e = arg;
    uint64_t i = (uint64_t)(e - ended);

    e->times++;
    e->status = event->status;
    CHECK_EQ(event->kind, e->kind);
    CHECK(event->status == HWS_OK || event->status <= HWS_E_CLOSING);
    t_fill(buffers + i * PIECE, PIECE, i + 1000);
    t_poison(buffers + i * PIECE, PIECE);
}

/* Each writes the first half of its buffer and reads the second. */
static void open_plans(hws_id rkey, const hws_rkey_info *info)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        hws_transfer list[2] = {{.kind = HWS_EVENT_PUT,
                                 .rkey = rkey,
                                 .address = info->base,
                                 .buffer = buffers + i * PIECE,
                                 .length = PIECE / 2},
                                {.kind = HWS_EVENT_GET,
                                 .rkey = rkey,
                                 .address = info->base + SIZE / 2,
                                 .buffer = buffers + i * PIECE + PIECE / 2,
                                 .length = PIECE / 2}};

        CHECK_OK(hws_plan_open(info->endpoint, list, 2, &plans[i]));
    }
}

static int32_t post(hws_id rkey, uint64_t base, uint64_t i, enum what what)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = on_end, .callback_arg = &ended[i]};
    static const uint32_t kinds[WHATS] = {HWS_EVENT_PUT, HWS_EVENT_GET, HWS_EVENT_ATOMIC,
                                          HWS_EVENT_PLAN};
    char *buffer = buffers + i * PIECE;

    ended[i].kind = kinds[what];
    switch (what) {
    case PUT:
        return i % 2 ? hws_put(rkey, base, buffer, PIECE, &opts, NULL)
                     : hws_put_notify(rkey, base, buffer, PIECE, i, &opts, NULL);
    case GET:
        return hws_get(rkey, base, buffer, PIECE, &opts, NULL);
    case PLAN:
        return hws_plan_post(plans[i], &opts, NULL);
    default:
        return hws_atomic(rkey, base, HWS_ATOMIC_ADD | HWS_ATOMIC_FETCH, 8, 1, 0, buffer, &opts,
                          NULL);
    }
}

static void kill_during(uint32_t flags, int allocated, enum what what)
{
    const char *args[] = {"owner", allocated ? "1" : "0", NULL};
    hws_rkey_info info;
    uint32_t posted = 0, failed = 0;
    t_child child;
    hws_id rkey;

    memset(ended, 0, sizeof(ended));
    t_spawn(&child, args);
    rkey = meet(&child, flags, &info);
    if (what == PLAN) {
        open_plans(rkey, &info);
    }
    for (uint64_t i = 0; i < COUNT; i++, posted++) {
        if (i == COUNT / 2) {
            t_kill(&child, SIGKILL);
        }
        if (post(rkey, info.base, i, what) != HWS_OK) {
            break;
        }
    }
    for (uint64_t start = t_now();;) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < posted; i++) {
            n += ended[i].times != 0;
        }
        if (n == posted) {
            break;
        }
        hws_worker_wait(worker, T_MS);
        t_check_patience(__FILE__, __LINE__, start, "the end of the operations");
    }
    for (uint64_t start = t_now(); t_now() - start < 200 * T_MS;) {
        hws_worker_wait(worker, T_MS);
    }
    for (uint32_t i = 0; i < posted; i++) {
        CHECK_EQ(ended[i].times, 1);
        failed += ended[i].status < 0;
        t_unpoison(buffers + (uint64_t)i * PIECE, PIECE);
        CHECK_FILLED(buffers + (uint64_t)i * PIECE, PIECE, i + 1000);
    }
    printf("%s, %s, %s: %u posted, %u failed\n", flags ? "tcp" : "shm",
           info.direct ? "direct" : "messages", names[what], posted, failed);
    CHECK_EQ(t_join(&child), 256 + SIGKILL);
    /* The direct ones need no peer; all others must have seen it die. */
    CHECK(info.direct || failed + (COUNT - posted) > 0 || what == PUT);
    CHECK_OK(hws_close(info.endpoint));
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "owner") == 0) {
        owner(atoi(argv[2]));
    }
    buffers = t_alloc((uint64_t)COUNT * PIECE);
    open_worker();
    for (enum what what = 0; what < WHATS; what++) {
        kill_during(0, 1, what);
        kill_during(0, 0, what);
        kill_during(HWS_ENDPOINT_TCP_ONLY, 0, what);
    }
    CHECK_OK(hws_close_wait(context, 4 * t_patience()));
    free(buffers);
    return 0;
}
