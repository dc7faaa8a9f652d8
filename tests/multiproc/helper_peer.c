/*
 * A peer for tests that are not written in C: serves or dials, takes commands on standard input and
 * answers in lines. Every line that tells of an event ends with the monotonic time in milliseconds.
 *
 *   helper_peer serve [options]     prints "port N"
 *   helper_peer dial HOST PORT [options]
 *
 * Options: --host ADDRESS, --port N, --cap N (isolated workers), --tcp, --raw, --thread,
 *   --hello MS, --connect MS, --close MS, --nofile N (descriptors this process may have),
 *   --later (dials at the command "go")
 *
 * Lines: "accepted INFO", "connected INFO", "connect STATUS: TEXT", "disconnected STATUS",
 *   "closed", "echoed N STATUS", "stats NAME=VALUE...", "listener NAME=VALUE...", "done",
 *   "address HEX", "passed STATUS MS", "took LENGTH STATUS MS"
 *   where INFO is isolated=.. reason=.. transports=.. lanes=..
 *
 * Commands: echo SIZE COUNT (round trips to a server, content checked), flood SIZE (sends for
 *   ever), recv MS and sync SIZE MS ABORT (one receive, one synchronous send, with a deadline:
 *   "ended STATUS MS"), go, info, stats, close, abort, quit. address FLAGS, by HEX FLAGS MS (connect by
 *   what another one's address said), pass SIZE MS and take SIZE MS (one tagged message to the
 *   endpoint, and one from anybody: its content is checked, "took" says WRONG if it is another).
 */
#include "support/check.h"
#include "support/spawn.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define AM_ECHO 1
#define AM_ANSWER 2
#define TAG 77
#define ADDRESS_MAX 7000 /* a line holds it twice */

static hws_id context, worker, listener, endpoint;
static int connected, answers, wrong, leaving;
static char *flood_buffer;
static uint64_t flood_length, flood_window, close_ms, dial_ms;
static uint32_t endpoint_flags;
static const char *dial_host;
static uint16_t dial_port;
static bool later;

static double now_ms(void)
{
    return (double)t_now() / 1e6;
}

static const char *describe(hws_id id, char *text, size_t size)
{
    hws_endpoint_info info = {.struct_size = sizeof(info)};

    if (hws_endpoint_query(id, &info) != HWS_OK) {
        snprintf(text, size, "gone");
    } else {
        snprintf(text, size, "isolated=%u reason=%u transports=%u peer=%s pid=%llu lanes=%s",
                 info.isolated, info.reason, info.transports, info.peer_address,
                 (unsigned long long)info.peer_pid, info.lanes[0] ? info.lanes : "-");
        for (char *c = strstr(text, "lanes="); *c != '\0'; c++) {
            *c = *c == ' ' ? '_' : *c;
        }
    }
    return text;
}

static void freed(void *arg, const hws_event *event)
{
    (void)event;
    free(arg);
}

static void on_message(void *arg, const hws_event *event)
{
    const hws_am_detail *detail = event->detail;
    uint64_t seed;

    (void)arg;
    if (event->status < 0) {
        return;
    }
    if (event->tag == AM_ECHO) {
        char *copy = t_alloc(detail->data_length);
        hws_op_opts opts = {.struct_size = sizeof(opts), .callback = freed, .callback_arg = copy};
        memcpy(copy, detail->data, detail->data_length);
        if (hws_am_send(detail->endpoint, AM_ANSWER, detail->header, detail->header_length, copy,
                        detail->data_length, &opts, NULL) < 0) {
            free(copy);
        }
    } else if (event->tag == AM_ANSWER) {
        memcpy(&seed, detail->header, sizeof(seed));
        wrong += !t_filled(detail->data, detail->data_length, seed);
        answers++;
    }
}

static void on_event(void *arg, const hws_event *event)
{
    char text[512];

    (void)arg;
    switch (event->kind) {
    case HWS_EVENT_ACCEPTED:
        endpoint = event->source;
        t_say(NULL, "accepted %s %.3f", describe(event->source, text, sizeof(text)), now_ms());
        break;
    case HWS_EVENT_CONNECT:
        if (event->status == HWS_OK) {
            connected = 1;
            t_say(NULL, "connected %s %.3f", describe(event->source, text, sizeof(text)), now_ms());
        } else {
            t_say(NULL, "connect %s: %s %.3f", hws_error_name(event->status),
                  (const char *)event->detail, now_ms());
        }
        break;
    case HWS_EVENT_DISCONNECTED:
        t_say(NULL, "disconnected %s %.3f", hws_error_name(event->status), now_ms());
        if (listener != 0) {
            (void)hws_close(event->source);
        }
        break;
    case HWS_EVENT_CLOSED:
        if (event->source == endpoint) {
            t_say(NULL, "closed %.3f", now_ms());
        }
        break;
    default:
        break;
    }
}

static void flooded(void *arg, const hws_event *event)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .callback = flooded};

    (void)arg;
    if (event->status == HWS_OK) {
        (void)hws_am_send(endpoint, 3, NULL, 0, flood_buffer, flood_length, &opts, NULL);
    }
}

static void step(void)
{
    (void)hws_worker_wait(worker, 2 * T_MS);
}

static void echo(uint64_t length, uint64_t count)
{
    char *buffer = t_alloc(length);
    int32_t status = HWS_OK;
    uint64_t i;

    for (i = 0; i < count && status == HWS_OK; i++) {
        int before = answers;
        hws_event event;
        hws_id op = 0;
        uint64_t start = t_now();
        t_fill(buffer, length, i);
        status = hws_am_send(endpoint, AM_ECHO, &i, sizeof(i), buffer, length, NULL, &op);
        while (status == HWS_OK && answers == before) {
            step();
            if (t_now() - start > t_patience()) {
                status = HWS_E_TIMED_OUT;
            } else if (hws_kind(endpoint) < 0) {
                status = HWS_E_STALE;
            } else {
                hws_endpoint_info info = {.struct_size = sizeof(info)};
                (void)hws_endpoint_query(endpoint, &info);
                status = info.status;
            }
        }
        if (op != 0 &&
            hws_wait(op, status == HWS_OK ? t_patience() : 10 * T_SECOND, &event) != HWS_OK) {
            status = HWS_E_TIMED_OUT;
        }
    }
    free(buffer);
    t_say(NULL, "echoed %llu %s", (unsigned long long)(i - (status != HWS_OK)),
          wrong ? "WRONG" : hws_error_name(status));
}

/* One operation with a deadline that nobody over there answers. */
static void bounded(int send, uint64_t ms, uint64_t length, int abort_when_late)
{
    hws_op_opts opts = {.struct_size = sizeof(opts),
                        .timeout_ns = ms * T_MS,
                        .flags = abort_when_late ? HWS_OP_DEADLINE_ABORT : 0};
    uint64_t start = t_now();
    char *buffer = t_alloc(length + 8);
    hws_event event = {0};
    hws_id op = 0;
    int32_t code = send ? hws_tag_send_sync(endpoint, buffer, length, 7, &opts, &op)
                        : hws_tag_recv(endpoint, buffer, 8, 7, UINT64_MAX, &opts, &op);

    if (code == HWS_OK) {
        code = hws_wait(op, t_patience(), &event);
        code = code == HWS_OK ? event.status : code;
    }
    t_say(NULL, "ended %s %.3f", hws_error_name(code), (double)(t_now() - start) / 1e6);
    /* The buffer of an operation that goes on stays: it is the library's. */
    if (event.op != 0) {
        free(buffer);
    }
}

static hws_sink sink(void)
{
    hws_sink s = {.callback = on_event};

    return s;
}

static void say_address(uint32_t flags)
{
    unsigned char bytes[ADDRESS_MAX];
    char hex[2 * ADDRESS_MAX + 1] = "";
    uint64_t length = 0;

    CHECK_OK(hws_worker_address(worker, flags, bytes, sizeof bytes, &length));
    for (uint64_t i = 0; i < length; i++) {
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    }
    t_say(NULL, "address %s", hex);
}

static void dial_address(const char *hex, uint32_t flags, uint64_t connect_ms)
{
    hws_endpoint_opts opts = {.struct_size = sizeof(opts), .flags = flags, .sink = sink()};
    hws_op_opts told = {
        .struct_size = sizeof(told), .callback = on_event, .timeout_ns = connect_ms * T_MS};
    unsigned char bytes[ADDRESS_MAX];
    size_t length = strlen(hex) / 2;
    int32_t code;

    CHECK(length <= sizeof bytes);
    for (size_t i = 0; i < length; i++) {
        CHECK(sscanf(hex + 2 * i, "%2hhx", &bytes[i]) == 1);
    }
    code = hws_connect_address(worker, bytes, length, &opts, &told, &endpoint, NULL);
    if (code < 0) {
        t_say(NULL, "connect %s: at once %.3f", hws_error_name(code), now_ms());
    }
}

/* One tagged message with a deadline: to the endpoint, or from whoever sends one to the worker. */
static void tagged(int send, uint64_t length, uint64_t ms)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .timeout_ns = ms * T_MS};
    uint64_t start = t_now();
    char *buffer = t_alloc(length);
    hws_event event = {0};
    hws_id op = 0;
    int32_t code;

    t_fill(buffer, length, length);
    if (!send) {
        memset(buffer, 0, length);
    }
    code = send ? hws_tag_send(endpoint, buffer, length, TAG, &opts, &op)
                : hws_tag_recv(worker, buffer, length, TAG, UINT64_MAX, &opts, &op);
    if (code == HWS_OK) {
        code = hws_wait(op, ms * T_MS + t_patience(), &event);
        code = code == HWS_OK ? event.status : code;
    }
    if (send) {
        t_say(NULL, "passed %s %.3f", hws_error_name(code), (double)(t_now() - start) / 1e6);
    } else {
        int good = code != HWS_OK || (event.length == length && t_filled(buffer, length, length));

        t_say(NULL, "took %llu %s %.3f", (unsigned long long)event.length,
              good ? hws_error_name(code) : "WRONG", (double)(t_now() - start) / 1e6);
    }
    if (event.op != 0) { /* else it is still the library's */
        free(buffer);
    }
}

static void say_stats(void)
{
    hws_stats stats = {.struct_size = sizeof(stats)};
    hws_listener_info info = {.struct_size = sizeof(info)};

    CHECK_OK(hws_stats_get(context, &stats));
    t_say(NULL,
          "stats endpoints=%llu isolated=%llu isolated_cap=%llu fallbacks=%llu redials=%llu "
          "lane_violations=%llu ops_pending=%llu failures=%llu safety_wakeups=%llu",
          (unsigned long long)stats.endpoints, (unsigned long long)stats.isolated,
          (unsigned long long)stats.isolated_cap, (unsigned long long)stats.fallbacks,
          (unsigned long long)stats.redials, (unsigned long long)stats.lane_violations,
          (unsigned long long)stats.ops_pending, (unsigned long long)stats.failures,
          (unsigned long long)stats.safety_wakeups);
    if (listener != 0) {
        CHECK_OK(hws_listener_query(listener, &info));
        t_say(NULL,
              "listener requests=%llu accepted=%llu rejected=%llu redirected=%llu strangers=%llu "
              "bad_auth=%llu",
              (unsigned long long)info.requests, (unsigned long long)info.accepted,
              (unsigned long long)info.rejected, (unsigned long long)info.redirected,
              (unsigned long long)info.strangers, (unsigned long long)info.bad_auth);
    }
}

static void dial(void)
{
    hws_endpoint_opts opts = {.struct_size = sizeof(opts),
                              .flags = endpoint_flags,
                              .sink = sink(),
                              .close_timeout_ns = close_ms * T_MS};
    hws_op_opts told = {
        .struct_size = sizeof(told), .callback = on_event, .timeout_ns = dial_ms * T_MS};

    CHECK_OK(hws_connect(worker, dial_host, dial_port, &opts, &told, &endpoint, NULL));
}

static void command(char *line)
{
    char *word = strtok(line, " "), *first = strtok(NULL, " "), *second = strtok(NULL, " ");
    const char *third = strtok(NULL, " ");
    char text[512];

    if (word == NULL) {
        return;
    }
    if (strcmp(word, "echo") == 0) {
        echo(strtoull(first, NULL, 10), strtoull(second, NULL, 10));
    } else if (strcmp(word, "flood") == 0) {
        flood_length = strtoull(first, NULL, 10);
        flood_buffer = t_alloc(flood_length);
        memset(flood_buffer, 1, flood_length);
        for (flood_window = 0; flood_window < 16; flood_window++) {
            hws_event start = {.status = HWS_OK};
            flooded(NULL, &start);
        }
        t_say(NULL, "done");
    } else if (strcmp(word, "recv") == 0) {
        bounded(0, strtoull(first, NULL, 10), 0, 0);
    } else if (strcmp(word, "sync") == 0) {
        bounded(1, strtoull(second, NULL, 10), strtoull(first, NULL, 10), atoi(third));
    } else if (strcmp(word, "address") == 0) {
        say_address((uint32_t)atoi(first));
    } else if (strcmp(word, "by") == 0) {
        dial_address(first, (uint32_t)atoi(second), strtoull(third, NULL, 10));
    } else if (strcmp(word, "pass") == 0 || strcmp(word, "take") == 0) {
        tagged(word[0] == 'p', strtoull(first, NULL, 10), strtoull(second, NULL, 10));
    } else if (strcmp(word, "info") == 0) {
        t_say(NULL, "info %s", describe(endpoint, text, sizeof(text)));
    } else if (strcmp(word, "stats") == 0) {
        say_stats();
    } else if (strcmp(word, "close") == 0) {
        CHECK_OK(hws_close(endpoint));
    } else if (strcmp(word, "abort") == 0) {
        CHECK_OK(hws_abort(endpoint));
    } else if (strcmp(word, "go") == 0) {
        dial();
    } else if (strcmp(word, "quit") == 0) {
        leaving = 1;
    } else {
        t_fail(__FILE__, __LINE__, "unknown command %s", word);
    }
}

/* What the command line says. */
struct said {
    bool serving;
    const char *host;
    uint16_t port;
    uint32_t listener_flags;
    uint64_t hello_ms;
    hws_context_opts context;
    hws_worker_opts worker;
};

static void limit_files(rlim_t number)
{
    struct rlimit limit = {number, number};

    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* An option with a value. */
static void set(struct said *s, const char *name, const char *value)
{
    if (strcmp(name, "--host") == 0) {
        s->host = value;
    } else if (strcmp(name, "--port") == 0) {
        s->port = (uint16_t)atoi(value);
    } else if (strcmp(name, "--cap") == 0) {
        s->context.isolated_max = (uint32_t)atoi(value);
    } else if (strcmp(name, "--hello") == 0) {
        s->hello_ms = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--connect") == 0) {
        dial_ms = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--close") == 0) {
        close_ms = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--nofile") == 0) {
        limit_files(strtoull(value, NULL, 10));
    } else {
        t_fail(__FILE__, __LINE__, "unknown option %s", name);
    }
}

static struct said parse(int argc, char **argv)
{
    struct said s = {.serving = argc > 1 && strcmp(argv[1], "serve") == 0,
                     .context = {.struct_size = sizeof(s.context)},
                     .worker = {.struct_size = sizeof(s.worker), .sink = sink()}};

    CHECK(s.serving || (argc > 3 && strcmp(argv[1], "dial") == 0));
    if (!s.serving) {
        dial_host = argv[2];
        dial_port = (uint16_t)atoi(argv[3]);
    }
    for (int i = s.serving ? 2 : 4; i < argc; i++) {
        if (strcmp(argv[i], "--tcp") == 0) {
            endpoint_flags |= HWS_ENDPOINT_TCP_ONLY;
        } else if (strcmp(argv[i], "--raw") == 0) {
            endpoint_flags |= HWS_ENDPOINT_RAW;
            s.listener_flags |= HWS_LISTENER_RAW;
        } else if (strcmp(argv[i], "--later") == 0) {
            later = true;
        } else if (strcmp(argv[i], "--thread") == 0) {
            s.worker.mode = HWS_PROGRESS_THREAD;
        } else {
            set(&s, argv[i], i + 1 < argc ? argv[i + 1] : "0");
            i++;
        }
    }
    return s;
}

static void serve(const struct said *s)
{
    hws_listener_opts opts = {.struct_size = sizeof(opts),
                              .flags = s->listener_flags,
                              .sink = sink(),
                              .endpoint_sink = sink(),
                              .hello_timeout_ns = s->hello_ms * T_MS,
                              .close_timeout_ns = close_ms * T_MS};
    hws_listener_info info = {.struct_size = sizeof(info)};

    CHECK_OK(hws_listen(worker, s->host, s->port, &opts, &listener));
    CHECK_OK(hws_listener_query(listener, &info));
    t_say(NULL, "port %u", info.port);
}

/* Commands and progress in turns, until told to leave. */
static void obey(void)
{
    static char line[16384];

    while (!leaving) {
        int heard = t_hear_for(NULL, line, sizeof(line), 0);

        if (heard < 0) {
            break;
        }
        if (heard > 0) {
            command(line);
        }
        step();
    }
}

int main(int argc, char **argv)
{
    hws_am_opts handler = {.struct_size = sizeof(handler), .sink = {.callback = on_message}};
    struct said said;
    int32_t code;

    t_child_begin();
    said = parse(argc, argv);
    CHECK_OK(hws_context_open(&said.context, &context));
    CHECK_OK(hws_worker_open(context, &said.worker, &worker));
    CHECK_OK(hws_am_handler(worker, AM_ECHO, &handler));
    CHECK_OK(hws_am_handler(worker, AM_ANSWER, &handler));
    if (said.serving) {
        serve(&said);
    } else if (!later) {
        dial();
    }
    obey();
    code = hws_close_wait(context, 20 * T_SECOND);
    t_say(NULL, "end %s", hws_error_name(code));
    return code == HWS_OK ? 0 : 1;
}
