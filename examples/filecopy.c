/*
 * A file copied between two processes, with a checksum.
 *
 *     ./filecopy receive PORT FILE          (PORT 0: any free one, it is printed)
 *     ./filecopy send HOST PORT FILE [tcp]  (tcp: not over shared memory)
 *
 * The file goes in active messages of 1 MiB, sixteen under way at a time. Each says in its header
 * where in the file its data belongs. The receiver is told of a message before the data moves
 * (HWS_AM_DEFER) and then fetches it straight into the mapped file: no buffer in between.
 */
#include "example.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (UINT64_C(1) << 20)
#define WINDOW 16
#define SECOND UINT64_C(1000000000)

/* Active-message ids. */
#define AM_FILE 0  /* to the receiver, header: struct file */
#define AM_DATA 1  /* to the receiver, header: the offset, data: the bytes */
#define AM_STATE 2 /* to the sender, header: one of the numbers below */

#define STATE_READY 1
#define STATE_RECEIVED 2
#define STATE_VERIFIED 3
#define STATE_DIFFERENT 4

struct file {
    uint64_t size, checksum;
};

/** What a side knows. One thread makes progress and runs the callbacks: no locks are needed. */
struct copy {
    hws_id worker, endpoint;
    struct file file;
    const char *path;
    unsigned char *memory; /* the mapped file */
    uint64_t received;     /* bytes */
    uint64_t state;        /* the last one, of AM_STATE */
    int32_t failure;       /* why it cannot go on */
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* FNV-1a over 64-bit words, in four chains so that the processor can work on them side by side. */
static uint64_t checksum(const unsigned char *data, uint64_t size)
{
    const uint64_t prime = UINT64_C(0x100000001b3);
    uint64_t h[4] = {UINT64_C(0xcbf29ce484222325), 1, 2, 3}, i = 0;

    for (; i + 32 <= size; i += 32) {
        uint64_t words[4];

        memcpy(words, data + i, sizeof words);
        for (int k = 0; k < 4; k++) {
            h[k] = (h[k] ^ words[k]) * prime;
            h[k] ^= h[k] >> 29; /* a multiplication alone never carries downwards */
        }
    }
    for (; i < size; i++) {
        h[0] = (h[0] ^ data[i]) * prime;
    }
    for (int k = 1; k < 4; k++) {
        h[0] = (h[0] ^ h[k]) * prime;
    }
    return h[0] ^ size;
}

static void open_worker(struct copy *c)
{
    hws_worker_opts opts = {.struct_size = sizeof opts, .mode = HWS_PROGRESS_BLOCKING};
    hws_id context;

    check(hws_context_open(NULL, &context), "opening a context");
    check(hws_worker_open(context, &opts, &c->worker), "opening a worker");
}

static void set_handler(struct copy *c, uint32_t id, hws_event_fn callback)
{
    hws_am_opts opts = {.struct_size = sizeof opts,
                        .flags = HWS_AM_DEFER,
                        .sink = {.callback = callback, .callback_arg = c}};

    check(hws_am_handler(c->worker, id, &opts), "setting a handler");
}

/* The peer left, or was lost. Who else comes and goes meanwhile is none of this copy's. */
static void on_endpoint(void *arg, const hws_event *event)
{
    struct copy *c = arg;

    if (event->kind == HWS_EVENT_DISCONNECTED && event->source == c->endpoint && c->failure == 0) {
        c->failure = event->status < 0 ? event->status : HWS_E_PEER_CLOSED;
    }
}

/* ---- receiver -------------------------------------------------------------------------------- */

static void tell(struct copy *c, uint64_t state)
{
    /* Nobody waits for this one: if it cannot be sent the peer is gone, and on_endpoint() tells. */
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_DETACHED};

    hws_am_send(c->endpoint, AM_STATE, &state, sizeof state, NULL, 0, &opts, NULL);
}

static void create(struct copy *c)
{
    int fd = open(c->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    off_t size = (off_t)c->file.size;

    if (fd < 0) {
        die(c->path);
    }
    if (size != 0) {
        /* The room is taken now: a mapped file that finds none later ends the process (SIGBUS). */
        if ((errno = posix_fallocate(fd, 0, size)) != 0) {
            die(c->path);
        }
        c->memory =
            mmap(NULL, c->file.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (c->memory == MAP_FAILED) {
            die(c->path);
        }
    }
    close(fd);
}

/* The sender says what will come. */
static void on_file(void *arg, const hws_event *event)
{
    struct copy *c = arg;
    const hws_am_detail *message = event->detail;

    if (event->status < 0 || message->header_length != sizeof c->file) {
        return;
    }
    if (c->endpoint != 0) { /* one file only: whoever else has one is turned away */
        hws_close(message->endpoint);
        return;
    }
    memcpy(&c->file, message->header, sizeof c->file);
    c->endpoint = message->endpoint;
    create(c);
    tell(c, STATE_READY);
}

static void on_fetched(void *arg, const hws_event *event)
{
    struct copy *c = arg;

    hws_close(event->user); /* the message: its data has been fetched */
    if (event->status < 0) {
        c->failure = event->status;
    }
    c->received += event->length;
}

static void fetch(struct copy *c, hws_id buffer, void *to, uint64_t length)
{
    hws_op_opts opts = {
        .struct_size = sizeof opts, .callback = on_fetched, .callback_arg = c, .user = buffer};
    int32_t r = hws_am_recv(buffer, to, length, &opts, NULL);

    if (r < 0) {
        c->failure = r;
    }
}

/* A piece of the file. What a peer says is checked before it is believed. */
static void on_data(void *arg, const hws_event *event)
{
    struct copy *c = arg;
    const hws_am_detail *message = event->detail;
    uint64_t offset = UINT64_MAX, length;

    if (event->status < 0) { /* then the detail is a text */
        c->failure = event->status;
        return;
    }
    length = message->data_length;
    if (message->header_length == sizeof offset) {
        memcpy(&offset, message->header, sizeof offset);
    }
    if (offset > c->file.size || length > c->file.size - offset) {
        c->failure = HWS_E_PROTOCOL;
    } else if ((event->flags & HWS_EVENT_FLAG_RNDV) == 0) {
        memcpy(c->memory + offset, message->data, length); /* a small one came with its data */
        c->received += length;
    } else {
        fetch(c, message->buffer, c->memory + offset, length);
    }
}

static int receive(uint16_t port, const char *path)
{
    struct copy c = {.path = path};
    hws_listener_opts opts = {.struct_size = sizeof opts};
    hws_listener_info info = {.struct_size = sizeof info};
    hws_id listener;
    bool same;

    open_worker(&c);
    set_handler(&c, AM_FILE, on_file);
    set_handler(&c, AM_DATA, on_data);
    opts.endpoint_sink = (hws_sink){.callback = on_endpoint, .callback_arg = &c};
    check(hws_listen(c.worker, NULL, port, &opts, &listener), "listening");
    check(hws_listener_query(listener, &info), "asking for the port");
    printf("port %u\n", info.port);
    finish_output();

    while (c.endpoint == 0 || (c.received < c.file.size && c.failure == 0)) {
        check(hws_worker_wait(c.worker, HWS_FOREVER), "waiting");
    }
    check(c.received < c.file.size ? c.failure : 0, "receiving");
    tell(&c, STATE_RECEIVED);
    same = checksum(c.memory, c.file.size) == c.file.checksum;
    tell(&c, same ? STATE_VERIFIED : STATE_DIFFERENT);
    printf("%s: %llu bytes, checksum %s\n", path, (unsigned long long)c.file.size,
           same ? "verified" : "WRONG");
    check(hws_close_wait(c.worker, 10 * SECOND), "closing"); /* flushes what was told */
    finish_output();
    return same ? 0 : 1;
}

/* ---- sender ---------------------------------------------------------------------------------- */

static void on_state(void *arg, const hws_event *event)
{
    struct copy *c = arg;
    const hws_am_detail *message = event->detail;

    if (event->status == HWS_OK && message->header_length == sizeof c->state) {
        memcpy(&c->state, message->header, sizeof c->state);
    }
}

static void await_state(struct copy *c, uint64_t state)
{
    while (c->state < state) {
        check(c->failure, "waiting for the receiver");
        check(hws_worker_wait(c->worker, HWS_FOREVER), "waiting");
    }
}

static void map_source(struct copy *c)
{
    int fd =
        open(c->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO's would wait for a writer */
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0) {
        die(c->path);
    }
    if (!S_ISREG(st.st_mode)) { /* what has no size would be copied as an empty file */
        fprintf(stderr, "%s: not a regular file\n", c->path);
        exit(1);
    }
    c->file.size = (uint64_t)st.st_size;
    if (st.st_size != 0) {
        c->memory = mmap(NULL, c->file.size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (c->memory == MAP_FAILED) {
            die(c->path);
        }
    }
    close(fd);
    c->file.checksum = checksum(c->memory, c->file.size);
}

static void dial(struct copy *c, const char *host, uint16_t port, bool tcp)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts,
                              .flags = tcp ? HWS_ENDPOINT_TCP_ONLY : 0,
                              .sink = {.callback = on_endpoint, .callback_arg = c}};
    hws_endpoint_info info = {.struct_size = sizeof info};
    hws_id op;

    check(hws_connect(c->worker, host, port, &opts, NULL, &c->endpoint, &op), "connecting");
    check(hws_wait(op, HWS_FOREVER, NULL), "connecting");
    check(hws_endpoint_query(c->endpoint, &info), "asking for the transports");
    printf("over %s\n", info.lanes);
}

/* Every piece of the file, WINDOW of them under way. */
static void send_all(struct copy *c)
{
    hws_op_opts opts = {.struct_size = sizeof opts, .flags = HWS_OP_RNDV};
    hws_id ops[WINDOW] = {0};
    uint64_t offset = 0;

    for (uint64_t i = 0; offset < c->file.size; i++, offset += CHUNK) {
        uint64_t left = c->file.size - offset, length = left < CHUNK ? left : CHUNK;
        hws_id *op = &ops[i % WINDOW];

        if (*op != 0) {
            check(hws_wait(*op, HWS_FOREVER, NULL), "sending");
        }
        check(hws_am_send(c->endpoint, AM_DATA, &offset, sizeof offset, c->memory + offset, length,
                          &opts, op),
              "sending");
    }
    for (int i = 0; i < WINDOW; i++) {
        if (ops[i] != 0) {
            check(hws_wait(ops[i], HWS_FOREVER, NULL), "sending");
        }
    }
}

static int send_file(const char *host, uint16_t port, const char *path, bool tcp)
{
    struct copy c = {.path = path};
    double start;
    hws_id op;

    map_source(&c);
    open_worker(&c);
    set_handler(&c, AM_STATE, on_state);
    dial(&c, host, port, tcp);
    check(hws_am_send(c.endpoint, AM_FILE, &c.file, sizeof c.file, NULL, 0, NULL, &op), "sending");
    check(hws_wait(op, HWS_FOREVER, NULL), "sending");
    await_state(&c, STATE_READY);
    start = now();
    send_all(&c);
    await_state(&c, STATE_RECEIVED);
    printf("%llu bytes in %.3f s, %.2f GB/s\n", (unsigned long long)c.file.size, now() - start,
           (double)c.file.size / (now() - start) / 1e9);
    await_state(&c, STATE_VERIFIED);
    puts(c.state == STATE_VERIFIED ? "verified by the receiver" : "the receiver has other bytes");
    check(hws_close_wait(c.worker, 10 * SECOND), "closing");
    finish_output();
    return c.state == STATE_VERIFIED ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "receive") == 0) {
        return receive(port_of(argv[2]), argv[3]);
    }
    if ((argc == 5 || (argc == 6 && strcmp(argv[5], "tcp") == 0)) && strcmp(argv[1], "send") == 0) {
        return send_file(argv[2], port_of(argv[3]), argv[4], argc == 6);
    }
    fputs("Usage: filecopy receive PORT FILE\n       filecopy send HOST PORT FILE [tcp]\n", stderr);
    return 2;
}
