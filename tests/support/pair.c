#include "support/pair.h"

#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void t_pair_listen(t_pair *pair, const t_pair_opts *opts)
{
    static const t_pair_opts none;
    hws_context_opts context = {.struct_size = sizeof(context)};
    hws_worker_opts worker = {.struct_size = sizeof(worker)};
    hws_listener_opts listener = {.struct_size = sizeof(listener)};
    hws_listener_info info = {.struct_size = sizeof(info)};

    opts = opts == NULL ? &none : opts;
    memset(pair, 0, sizeof(*pair));
    pair->mode = opts->mode;
    t_record_init(&pair->record[0]);
    t_record_init(&pair->record[1]);
    context.flags = opts->context_flags;
    context.features = opts->features;
    context.config = opts->config;
    CHECK_OK(hws_context_open(&context, &pair->context));
    if (opts->worker[1] != NULL) {
        worker = *opts->worker[1];
    }
    worker.mode = opts->mode;
    worker.sink = t_record_sink(&pair->record[1], 101);
    CHECK_OK(hws_worker_open(pair->context, &worker, &pair->worker[1]));
    worker = (hws_worker_opts){.struct_size = sizeof(worker)};
    if (opts->worker[0] != NULL) {
        worker = *opts->worker[0];
    }
    worker.mode = opts->mode;
    worker.sink = t_record_sink(&pair->record[0], 100);
    if (opts->one_worker) {
        pair->worker[0] = pair->worker[1];
    } else {
        CHECK_OK(hws_worker_open(pair->context, &worker, &pair->worker[0]));
    }
    listener.flags = opts->listener_flags;
    listener.sink = t_record_sink(&pair->record[1], 1);
    listener.endpoint_sink = t_record_sink(&pair->record[1], 2);
    listener.close_timeout_ns = opts->close_timeout_ns;
    CHECK_OK(hws_listen(pair->worker[1], opts->host == NULL ? "127.0.0.1" : opts->host, 0,
                        &listener, &pair->listener));
    CHECK_OK(hws_listener_query(pair->listener, &info));
    CHECK(info.port > 0 && info.port < 65536);
    pair->port = (uint16_t)info.port;
}

void t_pair_connect(t_pair *pair, const t_pair_opts *opts, hws_id *client, hws_id *server)
{
    static const t_pair_opts none;
    hws_endpoint_opts endpoint = {.struct_size = sizeof(endpoint)};
    uint32_t accepted = t_record_kinds(&pair->record[1], HWS_EVENT_ACCEPTED, 0);
    hws_op_opts connect = {.struct_size = sizeof(connect)};
    t_seen seen;

    opts = opts == NULL ? &none : opts;
    endpoint.flags = opts->endpoint_flags;
    endpoint.close_timeout_ns = opts->close_timeout_ns;
    endpoint.sink = t_record_sink(&pair->record[0], 3);
    connect.callback = t_record_event;
    connect.callback_arg = &pair->record[0];
    connect.user = 4;
    CHECK_OK(hws_connect(pair->worker[0], opts->host == NULL ? "127.0.0.1" : opts->host, pair->port,
                         &endpoint, &connect, client, NULL));
    UNTIL(pair, t_record_find(&pair->record[0], HWS_EVENT_CONNECT, *client, 0, &seen));
    if (seen.event.status != HWS_OK) {
        t_fail(__FILE__, __LINE__, "connect: %s, %s", hws_error_name(seen.event.status), seen.text);
    }
    UNTIL(pair, t_record_find(&pair->record[1], HWS_EVENT_ACCEPTED, 0, accepted, &seen));
    CHECK_EQ(seen.event.status, HWS_OK);
    *server = seen.event.source;
}

void t_pair_open(t_pair *pair, const t_pair_opts *opts)
{
    t_pair_listen(pair, opts);
    t_pair_connect(pair, opts, &pair->endpoint[0], &pair->endpoint[1]);
}

void t_pair_open_flags(t_pair *pair, uint32_t endpoint_flags)
{
    t_pair_opts opts = {.endpoint_flags = endpoint_flags};

    t_pair_open(pair, &opts);
}

void t_pair_close(t_pair *pair)
{
    uint64_t start = t_now();

    if (hws_kind(pair->context) == HWS_KIND_CONTEXT) {
        CHECK_OK(hws_close(pair->context));
    }
    while (hws_kind(pair->context) == HWS_KIND_CONTEXT) {
        int32_t code;
        t_pair_step(pair);
        code = hws_close_wait(pair->context, T_MS);
        CHECK(code == HWS_OK || code == HWS_E_TIMED_OUT || code == HWS_E_STALE);
        t_check_patience(__FILE__, __LINE__, start, "close of the context");
    }
    t_record_free(&pair->record[0]);
    t_record_free(&pair->record[1]);
}

void t_pair_step(t_pair *pair)
{
    int side;

    if (pair->mode == HWS_PROGRESS_THREAD || pair->mode == HWS_PROGRESS_THREAD_POLLING) {
        t_sleep(T_MS / 20);
        return;
    }
    for (side = 0; side < 2; side++) {
        int32_t done = hws_worker_progress(pair->worker[side]);
        CHECK(done >= 0 || done == HWS_E_BUSY || done == HWS_E_STALE || done == HWS_E_CLOSING);
    }
}

void t_pair_idle(t_pair *pair, uint64_t nanoseconds)
{
    uint64_t start = t_now();

    while (t_now() - start < nanoseconds) {
        t_pair_step(pair);
    }
}

hws_event t_pair_wait(const char *file, int line, t_pair *pair, hws_id op)
{
    uint64_t start = t_now();
    hws_event event = {0};
    int32_t code;

    if (op == 0) {
        return event;
    }
    while ((code = hws_wait(op, 0, &event)) == HWS_E_TIMED_OUT) {
        t_pair_step(pair);
        t_check_patience(file, line, start, "the end of an operation");
    }
    t_check_code(file, line, "hws_wait", code, HWS_OK);
    t_check_eq(file, line, "event.op", (int64_t)event.op, "op", (int64_t)op);
    t_check_eq(file, line, "event.size", event.size, "sizeof(hws_event)", sizeof(hws_event));
    if (event.status < 0 && (event.detail == NULL || *(const char *)event.detail == '\0')) {
        t_fail(file, line, "a failed operation without a text: %s", hws_error_name(event.status));
    }
    return event;
}

hws_event t_pair_wait_ok(const char *file, int line, t_pair *pair, hws_id op)
{
    hws_event event = t_pair_wait(file, line, pair, op);

    if (event.status != HWS_OK) {
        t_fail(file, line, "operation of kind %u ended with %s: %s", event.kind,
               hws_error_name(event.status), (const char *)event.detail);
    }
    return event;
}

hws_endpoint_info t_endpoint_info(hws_id endpoint)
{
    hws_endpoint_info info = {.struct_size = sizeof(info)};

    CHECK_OK(hws_endpoint_query(endpoint, &info));
    return info;
}

hws_stats t_stats(hws_id id)
{
    hws_stats stats = {.struct_size = sizeof(stats)};

    CHECK_OK(hws_stats_get(id, &stats));
    return stats;
}

/* A bound socket, or -1. */
static int bind_to(const char *address, uint16_t *port)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    struct sockaddr_storage bound;
    socklen_t size = sizeof(bound);
    char service[16];
    int fd;

    if (getaddrinfo(address, "0", &hints, &found) != 0) {
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (bind(fd, found->ai_addr, found->ai_addrlen) != 0 ||
                    getsockname(fd, (struct sockaddr *)&bound, &size) != 0)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    if (fd >= 0 && port != NULL) {
        CHECK_EQ(getnameinfo((struct sockaddr *)&bound, size, NULL, 0, service, sizeof(service),
                             NI_NUMERICSERV),
                 0);
        CHECK(sscanf(service, "%hu", port) == 1);
    }
    return fd;
}

uint16_t t_closed_port(void)
{
    uint16_t port = 0;
    int fd = bind_to("127.0.0.1", &port);

    CHECK(fd >= 0);
    close(fd);
    return port;
}

int t_plain_listener(uint16_t *port)
{
    int fd = bind_to("127.0.0.1", port);

    CHECK(fd >= 0);
    CHECK_EQ(listen(fd, 8), 0);
    return fd;
}

int t_can_bind(const char *address)
{
    int fd = bind_to(address, NULL);

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

void t_pair_close_both(t_pair *pair)
{
    uint64_t start = t_now();

    CHECK_OK(hws_close(pair->endpoint[0]));
    CHECK_OK(hws_close(pair->endpoint[1]));
    UNTIL(pair, hws_kind(pair->endpoint[0]) < 0 && hws_kind(pair->endpoint[1]) < 0);
    CHECK(t_now() - start < t_patience());
}
