/*
 * Memory and remote keys: what is refused, what lives how long, and memory reached by a pointer.
 */
#include "support/cases.h"
#include "support/remote.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A key with every length and every single bit changed is refused; a random one too. */
CASE(damaged_keys)
{
    t_pair pair;
    t_remote remote;
    uint64_t length, state = 1;
    hws_id rkey = 0;

    t_remote_pair(&pair, 0);
    t_remote_open(&remote, &pair, 1, 1, 4096);
    char *packed = t_pack(remote.memory, &length), *copy = t_alloc(length + 8);
    for (uint64_t n = 0; n <= length + 8; n++) {
        memset(copy, 0, length + 8);
        memcpy(copy, packed, n < length ? n : length);
        if (n != length) {
            CHECK_CODE(hws_rkey_unpack(pair.endpoint[0], copy, n, 0, &rkey), HWS_E_INVALID);
        }
    }
    for (uint64_t bit = 0; bit < 8 * length; bit++) {
        memcpy(copy, packed, length);
        copy[bit / 8] = (char)(copy[bit / 8] ^ (1 << bit % 8));
        int32_t code = hws_rkey_unpack(pair.endpoint[0], copy, length, 0, &rkey);
        CHECK(code == HWS_E_INVALID || code == HWS_E_PEER_VERSION);
    }
    for (int i = 0; i < 20000; i++) {
        for (uint64_t k = i % 2 ? 0 : 5; k < length; k++) {
            copy[k] = (char)t_random(&state);
        }
        memcpy(copy, packed, i % 2 ? 0 : 5);
        CHECK_CODE(
            hws_rkey_unpack(pair.endpoint[0], copy, t_random(&state) % (length + 8), 0, &rkey),
            HWS_E_INVALID);
    }
    CHECK_CODE(hws_rkey_unpack(pair.endpoint[0], packed, length, HWS_RKEY_RAW, &rkey),
               HWS_E_INVALID);
    CHECK_EQ(rkey, 0);
    CHECK_OK(hws_rkey_unpack(pair.endpoint[0], packed, length, 0, &rkey));
    /* Plain UCX programs need UCX's own remote access at this end. */
    CHECK_CODE(hws_rkey_pack(remote.memory, HWS_RKEY_RAW, NULL, 0, NULL),
               access("/sys/class/infiniband", F_OK) == 0 ? HWS_E_TOO_BIG : HWS_E_UNSUPPORTED);
    free(copy);
    free(packed);
    t_remote_close(&remote);
    t_pair_close(&pair);
}

CASE(arguments)
{
    t_pair pair;
    char buffer[64];
    hws_id memory = 0;
    hws_mem_opts opts = {.struct_size = sizeof(opts), .flags = 4};
    hws_mem_info info = {.struct_size = sizeof(info)};

    t_remote_pair(&pair, 0);
    CHECK_CODE(hws_mem_register(pair.context, NULL, 8, NULL, &memory), HWS_E_INVALID);
    CHECK_CODE(hws_mem_register(pair.context, buffer, 0, NULL, &memory), HWS_E_INVALID);
    CHECK_CODE(hws_mem_register(pair.context, buffer, UINT64_MAX, NULL, &memory), HWS_E_INVALID);
    CHECK_CODE(hws_mem_alloc(pair.context, 0, NULL, &memory), HWS_E_INVALID);
    CHECK_CODE(hws_mem_alloc(pair.context, 8, &opts, &memory), HWS_E_INVALID);
    opts = (hws_mem_opts){.struct_size = sizeof(opts), .flags = HWS_MEM_FIXED};
    CHECK_CODE(hws_mem_alloc(pair.context, 8, &opts, &memory), HWS_E_INVALID);
    opts = (hws_mem_opts){.struct_size = sizeof(opts), .memory_kind = 7};
    CHECK_CODE(hws_mem_alloc(pair.context, 8, &opts, &memory), HWS_E_BUFFER_KIND);
    CHECK_CODE(hws_mem_alloc(pair.context, UINT64_C(1) << 50, NULL, &memory), HWS_E_NO_MEMORY);
    CHECK_EQ(memory, 0);
    CHECK_OK(hws_mem_register(pair.context, buffer, sizeof(buffer), NULL, &memory));
    CHECK_CODE(hws_mem_advise(memory, 60, 5, HWS_MEM_ADVISE_NORMAL), HWS_E_INVALID);
    CHECK_CODE(hws_mem_advise(memory, 0, 8, 2), HWS_E_INVALID);
    CHECK_OK(hws_mem_advise(memory, 0, sizeof(buffer), HWS_MEM_ADVISE_WILLNEED));
    CHECK_OK(hws_close(memory));
    CHECK_CODE(hws_mem_query(memory, &info), HWS_E_STALE);
    CHECK_CODE(hws_close(memory), HWS_E_STALE);
    CHECK_OK(hws_mem_alloc(pair.context, 100, NULL, &memory)); /* ends with the context */
    t_pair_close(&pair);
    CHECK_CODE(hws_mem_query(memory, &info), HWS_E_STALE);
}

/* Both processes' views are the same memory; the pointer outlives the connection. */
CASE(pointer)
{
    t_pair pair;
    t_remote remote;
    void *at = NULL;

    t_remote_pair(&pair, 0);
    t_remote_open(&remote, &pair, 1, 1, 4096);
    CHECK_OK(hws_rkey_ptr(remote.rkey, remote.address + 8, &at));
    memcpy(at, "written", 8);
    CHECK_STR(remote.base + 8, "written");
    CHECK_CODE(hws_rkey_ptr(remote.rkey, remote.address - 1, &at), HWS_E_INVALID);
    CHECK_OK(hws_abort(pair.endpoint[1]));
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_DISCONNECTED, 0) == 1);
    t_pair_idle(&pair, 300 * T_MS);
    memcpy(at, "later", 6);
    t_remote_close(&remote);
    t_pair_close(&pair);
}

CASE(no_pointer)
{
    for (int i = 0; i < 2; i++) {
        t_pair pair;
        t_remote remote;
        void *at = NULL;

        t_remote_pair(&pair, i ? HWS_ENDPOINT_TCP_ONLY : 0);
        t_remote_open(&remote, &pair, 1, i, 4096);
        CHECK_CODE(hws_rkey_ptr(remote.rkey, remote.address, &at), HWS_E_UNREACHABLE);
        t_remote_close(&remote);
        t_pair_close(&pair);
    }
}

CASE_REMOTE(compare)
{
    uint64_t length;
    hws_id again = 0;
    int32_t order = 7;
    void *packed = t_pack(remote->memory, &length);

    CHECK_OK(hws_rkey_unpack(pair->endpoint[user], packed, length, 0, &again));
    CHECK(again != remote->rkey);
    CHECK_OK(hws_rkey_compare(remote->rkey, remote->rkey, &order));
    CHECK_EQ(order, 0);
    CHECK_OK(hws_rkey_compare(remote->rkey, again, &order));
    CHECK_EQ(order, 0);
    CHECK_OK(hws_close(again));
    CHECK_CODE(hws_rkey_compare(remote->rkey, again, &order), HWS_E_STALE);
    free(packed);
}

/* Who still writes to memory that was released is cut off; nothing is written. */
CASE(released_memory)
{
    t_pair pair;
    t_remote remote;
    hws_id op = 0;
    uint64_t value = 1;
    t_seen seen;

    t_remote_pair(&pair, HWS_ENDPOINT_TCP_ONLY);
    t_remote_open(&remote, &pair, 1, 0, 4096);
    memset(remote.base, 9, 4096);
    CHECK_OK(hws_close(remote.memory));
    CHECK_OK(hws_get(remote.rkey, remote.address, &value, 8, NULL, &op));
    CHECK(WAIT(&pair, op).status < 0);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_DISCONNECTED, 0, 0, &seen));
    CHECK_CODE(seen.event.status, HWS_E_PROTOCOL);
    CHECK_EQ(value, 1);
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_DISCONNECTED, 0) == 1);
    CHECK(hws_put(remote.rkey, remote.address, &value, 8, NULL, &op) < 0);
    CHECK_EQ(remote.base[0], 9);
    free(remote.base);
    t_pair_close(&pair);
}

/* The owner releases memory while answers to gets are under way: once hws_close_wait() returns nobody uses
 * it, and each get has one end. */
CASE_REMOTE(released_under_way)
{
    enum { COUNT = 20, SIZE = 200000 };
    hws_mem_info info = {.struct_size = sizeof(info)};
    char *in = t_alloc(COUNT * SIZE);
    hws_id ops[COUNT];
    uint64_t length;

    for (uint64_t i = 0; i < COUNT; i++) {
        t_fill(remote->base + i * SIZE, SIZE, i);
        CHECK_OK(
            hws_get(remote->rkey, remote->address + i * SIZE, in + i * SIZE, SIZE, NULL, &ops[i]));
    }
    for (int i = 0; i < 3; i++) {
        CHECK(hws_worker_progress(pair->worker[1 - user]) >= 0);
    }
    CHECK_OK(hws_close(remote->memory));
    if (hws_mem_query(remote->memory, &info) == HWS_OK) {
        CHECK(info.uses > 0);
        CHECK_CODE(hws_rkey_pack(remote->memory, 0, NULL, 0, &length), HWS_E_CLOSING);
        CHECK_OK(hws_close_wait(remote->memory, t_patience()));
    }
    CHECK_CODE(hws_mem_query(remote->memory, &info), HWS_E_STALE);
    if (!remote->allocated) {
        memset(remote->base, 0x77, remote->length);
        t_poison(remote->base, remote->length);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        hws_event event = WAIT(pair, ops[i]);

        if (event.status == HWS_OK) {
            CHECK_FILLED(in + i * SIZE, SIZE, i);
        }
    }
    t_pair_idle(pair, 20 * T_MS);
    t_unpoison(remote->base, remote->allocated ? 0 : remote->length);
    CHECK_OK(hws_mem_register(pair->context, in, 64, NULL, &remote->memory)); /* one to close */
    free(in);
}

/* What was told a peer may be gone when it acts: shared memory, too, whose key UCX cannot bear then. */
CASE(memory_is_gone)
{
    for (int i = 0; i < 4; i++) {
        uint64_t length;
        hws_id rkey = 0, op = 0;
        char byte;
        t_pair pair;
        t_remote remote;

        t_remote_pair(&pair, i & 1 ? HWS_ENDPOINT_TCP_ONLY : 0);
        t_remote_open(&remote, &pair, 1, i < 2, 4096);
        void *packed = t_pack(remote.memory, &length);
        t_remote_close(&remote);
        CHECK_OK(hws_rkey_unpack(pair.endpoint[0], packed, length, 0, &rkey));
        CHECK_OK(hws_get(rkey, remote.address, &byte, 1, NULL, &op));
        int32_t status = WAIT(&pair, op).status; /* the owner has cut this side off */
        CHECK(status == HWS_E_CONNECTION_RESET || status == HWS_E_IO ||
              status == HWS_E_UNREACHABLE || status == HWS_E_KEEPALIVE);
        CHECK_OK(hws_close(rkey));
        free(packed);
        t_pair_close(&pair);
    }
}

/* A key is closed while operations by it are under way: they end as if it were not. */
CASE_REMOTE(key_closed_under_way)
{
    enum { COUNT = 20, SIZE = 200000 };
    char *in = t_alloc(COUNT * SIZE);
    uint64_t length;
    hws_id ops[COUNT];
    void *packed = t_pack(remote->memory, &length);

    for (uint64_t i = 0; i < COUNT; i++) {
        t_fill(remote->base + i * SIZE, SIZE, i);
        CHECK_OK(
            hws_get(remote->rkey, remote->address + i * SIZE, in + i * SIZE, SIZE, NULL, &ops[i]));
    }
    CHECK_OK(hws_close(remote->rkey));
    for (uint64_t i = 0; i < COUNT; i++) {
        WAIT_OK(pair, ops[i]);
        CHECK_FILLED(in + i * SIZE, SIZE, i);
    }
    CHECK_OK(hws_rkey_unpack(pair->endpoint[user], packed, length, 0, &remote->rkey));
    free(packed);
    free(in);
}

/* The key of another process is refused by name. */
CASE(foreign_key)
{
    unsigned char packed[1024];
    int fds[2];
    t_pair pair;
    hws_id rkey = 0;
    hws_error error = {.struct_size = sizeof(error)};
    int64_t length;
    pid_t pid;

    CHECK(pipe(fds) == 0);
    pid = fork(); /* nothing of the library has run */
    CHECK(pid >= 0);
    if (pid == 0) {
        uint64_t n;
        t_remote remote;

        t_remote_pair(&pair, 0);
        t_remote_open(&remote, &pair, 1, 1, 4096);
        void *its = t_pack(remote.memory, &n);
        CHECK(write(fds[1], its, n) == (int64_t)n);
        _exit(0);
    }
    close(fds[1]);
    length = read(fds[0], packed, sizeof(packed));
    CHECK(length > 0);
    close(fds[0]);
    t_remote_pair(&pair, 0);
    CHECK_CODE(hws_rkey_unpack(pair.endpoint[0], packed, (uint64_t)length, 0, &rkey),
               HWS_E_INVALID);
    CHECK_OK(hws_last_error(&error));
    CHECK(strstr(error.text, "of process") != NULL);
    CHECK_EQ(rkey, 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    t_pair_close(&pair);
}

/* What was not registered for writing is not written. */
CASE(read_only_memory)
{
    static uint64_t number = 5;
    hws_mem_opts opts = {.struct_size = sizeof(opts),
                         .access = HWS_MEM_LOCAL_READ | HWS_MEM_REMOTE_READ};
    hws_id memory, rkey, op = 0;
    uint64_t length, in = 0, address = (uint64_t)(uintptr_t)&number;
    t_pair pair;
    void *packed;

    t_remote_pair(&pair, HWS_ENDPOINT_TCP_ONLY);
    CHECK_OK(hws_mem_register(pair.context, &number, 8, &opts, &memory));
    packed = t_pack(memory, &length);
    CHECK_OK(hws_rkey_unpack(pair.endpoint[0], packed, length, 0, &rkey));
    CHECK_OK(hws_get(rkey, address, &in, 8, NULL, &op));
    WAIT_OK(&pair, op);
    CHECK_EQ(in, 5);
    CHECK_OK(hws_atomic(rkey, address, HWS_ATOMIC_SWAP, 8, 6, 0, NULL, NULL, &op));
    CHECK(WAIT(&pair, op).status < 0);
    CHECK_EQ(number, 5);
    free(packed);
    t_pair_close(&pair);
}

CASES_MAIN
