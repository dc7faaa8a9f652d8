/*
 * A small key-value server, and a client for it, over active messages.
 *
 *     ./kv serve PORT                (PORT 0: any free one, it is printed)
 *     ./kv HOST PORT set KEY VALUE
 *     ./kv HOST PORT get KEY
 *     ./kv HOST PORT delete KEY
 *
 * A request is an active message: its header says what is wanted, its data is the key and, to set,
 * the value. The server answers from inside the handler, to the endpoint that it came from.
 */
#include "example.h"

#include <stdbool.h>
#include <string.h>

#define AM_REQUEST 0
#define AM_REPLY 1

enum verb { GET = 1, SET, DELETE };
enum answer { FOUND = 1, NOT_FOUND, STORED, REMOVED, BAD_REQUEST };

struct request {
    uint64_t number; /* the reply bears the same */
    uint32_t verb;
    uint32_t key_length; /* the data is the key, then the value */
};

struct reply {
    uint64_t number;
    uint32_t answer;
    uint32_t reserved;
};

static hws_id open_worker(uint32_t am_id, hws_event_fn handler, void *arg)
{
    hws_worker_opts opts = {.struct_size = sizeof opts, .mode = HWS_PROGRESS_BLOCKING};
    hws_am_opts am = {.struct_size = sizeof am, .sink = {.callback = handler, .callback_arg = arg}};
    hws_id context, worker;

    check(hws_context_open(NULL, &context), "opening a context");
    check(hws_worker_open(context, &opts, &worker), "opening a worker");
    check(hws_am_handler(worker, am_id, &am), "setting a handler");
    return worker;
}

/* ---- the table: chained hashing, one block of memory an entry -------------------------------- */

#define BUCKETS 4096

struct entry {
    struct entry *next;
    uint64_t key_length, value_length;
    char bytes[]; /* the key, then the value */
};

static struct entry *table[BUCKETS];

/* The link that points to the entry of a key, or to null where it would be put. */
static struct entry **find(const char *key, uint64_t length)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    struct entry **link;

    for (uint64_t i = 0; i < length; i++) {
        h = (h ^ (unsigned char)key[i]) * UINT64_C(0x100000001b3);
    }
    link = &table[h % BUCKETS];
    while (*link != NULL &&
           ((*link)->key_length != length || memcmp((*link)->bytes, key, length) != 0)) {
        link = &(*link)->next;
    }
    return link;
}

static bool remove_key(const char *key, uint64_t length)
{
    struct entry **link = find(key, length), *e = *link;

    if (e != NULL) {
        *link = e->next;
        free(e);
    }
    return e != NULL;
}

static bool set(const char *key, uint64_t key_length, uint64_t value_length)
{
    struct entry **link, *e = malloc(sizeof *e + key_length + value_length);

    if (e == NULL) {
        return false;
    }
    remove_key(key, key_length);
    e->key_length = key_length;
    e->value_length = value_length;
    memcpy(e->bytes, key, key_length + value_length); /* they came one behind the other */
    link = find(key, key_length);
    e->next = *link;
    *link = e;
    return true;
}

/* ---- server ---------------------------------------------------------------------------------- */

static void on_replied(void *arg, const hws_event *event)
{
    (void)event; /* a client that left needs no answer */
    free(arg);
}

/* The value is copied: the entry may be changed before the network has taken it. A header needs no
 * such care, the library copies it. */
static void reply(hws_id endpoint, uint64_t number, uint32_t answer, const char *value,
                  uint64_t length)
{
    struct reply header = {.number = number, .answer = answer};
    char *copy = calloc(1, length + 1);
    hws_op_opts opts = {.struct_size = sizeof opts,
                        .flags = HWS_OP_INLINE,
                        .callback = on_replied,
                        .callback_arg = copy};
    int32_t r;

    if (copy == NULL) {
        return;
    }
    if (length != 0) {
        memcpy(copy, value, length);
    }
    r = hws_am_send(endpoint, AM_REPLY, &header, sizeof header, copy, length, &opts, NULL);
    if (r != HWS_OK) { /* done at once, or failed: then there is no event */
        free(copy);
    }
}

static void on_request(void *arg, const hws_event *event)
{
    const hws_am_detail *message = event->detail;
    const char *key = message->data;
    const struct entry *e;
    struct request q;

    (void)arg;
    if (event->kind != HWS_EVENT_AM || event->status < 0 || message->header_length != sizeof q) {
        return;
    }
    memcpy(&q, message->header, sizeof q);
    if (q.key_length > message->data_length) {
        reply(message->endpoint, q.number, BAD_REQUEST, NULL, 0);
    } else if (q.verb == GET && (e = *find(key, q.key_length)) != NULL) {
        reply(message->endpoint, q.number, FOUND, e->bytes + e->key_length, e->value_length);
    } else if (q.verb == SET && set(key, q.key_length, message->data_length - q.key_length)) {
        reply(message->endpoint, q.number, STORED, NULL, 0);
    } else if (q.verb == DELETE && remove_key(key, q.key_length)) {
        reply(message->endpoint, q.number, REMOVED, NULL, 0);
    } else {
        reply(message->endpoint, q.number, NOT_FOUND, NULL, 0);
    }
}

/* Peers need no bookkeeping: a request brings its endpoint along. */
static void on_peer(void *arg, const hws_event *event)
{
    (void)arg;
    if (event->kind == HWS_EVENT_DISCONNECTED) {
        hws_close(event->source);
    }
}

static void serve(uint16_t port)
{
    hws_listener_opts opts = {.struct_size = sizeof opts, .endpoint_sink = {.callback = on_peer}};
    hws_listener_info info = {.struct_size = sizeof info};
    hws_id worker = open_worker(AM_REQUEST, on_request, NULL), listener;

    check(hws_listen(worker, NULL, port, &opts, &listener), "listening");
    check(hws_listener_query(listener, &info), "asking for the port");
    printf("port %u\n", info.port);
    finish_output();
    for (;;) {
        check(hws_worker_wait(worker, HWS_FOREVER), "waiting");
    }
}

/* ---- client ---------------------------------------------------------------------------------- */

/** What the client waits for. */
struct pending {
    uint64_t number;
    uint32_t answer; /* 0: none yet */
};

static void on_reply(void *arg, const hws_event *event)
{
    struct pending *p = arg;
    const hws_am_detail *message = event->detail;
    struct reply r;

    if (event->kind != HWS_EVENT_AM || event->status < 0 || message->header_length != sizeof r) {
        return;
    }
    memcpy(&r, message->header, sizeof r);
    if (r.number == p->number) {
        fwrite(message->data, 1, message->data_length, stdout);
        p->answer = r.answer;
    }
}

static int ask(const char *host, uint16_t port, uint32_t verb, const char *key, const char *value)
{
    struct pending p = {.number = 1};
    struct request q = {.number = p.number, .verb = verb, .key_length = (uint32_t)strlen(key)};
    hws_iov data[2] = {{(void *)(uintptr_t)key, strlen(key)},
                       {(void *)(uintptr_t)value, strlen(value)}};
    hws_op_opts pieces = {.struct_size = sizeof pieces, .flags = HWS_OP_IOV};
    hws_id worker = open_worker(AM_REPLY, on_reply, &p), endpoint, op;

    check(hws_connect(worker, host, port, NULL, NULL, &endpoint, &op), "connecting");
    check(hws_wait(op, HWS_FOREVER, NULL), "connecting");
    check(hws_am_send(endpoint, AM_REQUEST, &q, sizeof q, data, 2, &pieces, &op), "asking");
    check(hws_wait(op, HWS_FOREVER, NULL), "asking");
    while (p.answer == 0) {
        check(hws_worker_wait(worker, UINT64_C(10000000000)) == 0 ? HWS_E_TIMED_OUT : 0, "waiting");
    }
    check(hws_close_wait(endpoint, UINT64_C(5000000000)), "closing");
    puts(p.answer == NOT_FOUND ? "not found"
         : p.answer == STORED  ? "stored"
         : p.answer == REMOVED ? "deleted"
         : p.answer == FOUND   ? "" /* ends the value's line */
                               : "bad request");
    finish_output();
    return p.answer == NOT_FOUND || p.answer == BAD_REQUEST ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        serve(port_of(argv[2]));
    } else if (argc == 5 && strcmp(argv[3], "get") == 0) {
        return ask(argv[1], port_of(argv[2]), GET, argv[4], "");
    } else if (argc == 5 && strcmp(argv[3], "delete") == 0) {
        return ask(argv[1], port_of(argv[2]), DELETE, argv[4], "");
    } else if (argc == 6 && strcmp(argv[3], "set") == 0) {
        return ask(argv[1], port_of(argv[2]), SET, argv[4], argv[5]);
    }
    fputs("Usage: kv serve PORT\n"
          "       kv HOST PORT set KEY VALUE\n"
          "       kv HOST PORT get KEY\n"
          "       kv HOST PORT delete KEY\n",
          stderr);
    return 2;
}
