#include "perf_side.h"
#include "tool.h"

#include <unistd.h>

static uint16_t port_of(const struct perf_side *s)
{
    hws_listener_info info = {.struct_size = sizeof info};

    hws_listener_query(s->listener, &info);
    return (uint16_t)info.port;
}

/* The port goes to whoever started this server, if anybody wants it. */
static int tell_port(const struct perf_side *s)
{
    char text[16];
    int n;

    if (s->options->port_fd < 0) {
        return TOOL_OK;
    }
    n = snprintf(text, sizeof text, "%u\n", port_of(s));
    if (write(s->options->port_fd, text, (size_t)n) != n) {
        tool_error("perf: the port could not be told");
        return TOOL_FAILED;
    }
    close(s->options->port_fd);
    return TOOL_OK;
}

int perf_server_listen(struct perf_side *s, const char *host, uint16_t port)
{
    hws_listener_opts opts = {.struct_size = sizeof opts, .flags = HWS_LISTENER_RAW};
    int32_t r;

    if ((r = hws_queue_open(NULL, &s->queue)) < 0) {
        return tool_failed(r, "opening a queue");
    }
    opts.sink.queue = s->queue;
    if ((r = hws_listen(s->worker, host, port, &opts, &s->listener)) < 0) {
        return tool_failed(r, "listening");
    }
    return tell_port(s);
}

/* The next peer that is let in. */
int32_t perf_server_peer(struct perf_side *s, hws_id *endpoint)
{
    hws_event event;
    int32_t r;

    do {
        r = hws_queue_pop(s->queue, &event, 1, HWS_FOREVER);
    } while (r >= 0 && (r == 0 || event.kind != HWS_EVENT_ACCEPTED));
    *endpoint = r < 0 ? 0 : event.source;
    return r < 0 ? r : HWS_OK;
}

static bool params_good(const perf_params *p)
{
    bool good = p->magic == PERF_MAGIC && p->test < perf_test_count && p->threads >= 1 &&
                p->threads <= PERF_THREADS_MAX && p->lane < p->threads && p->window >= 1 &&
                p->window <= 1u << 16 && p->am_header <= 1u << 20 && p->size_count >= 1 &&
                p->size_count <= PERF_SIZES_MAX;

    for (uint32_t i = 0; good && i < p->size_count; i++) {
        good = p->sizes[i] <= UINT64_C(1) << 40;
    }
    return good;
}

/* Take peers until one client has all its lanes; whoever says nothing sensible is sent away. */
static int server_gather(struct perf_side *s, hws_id endpoints[PERF_THREADS_MAX])
{
    uint32_t have = 0;

    do {
        perf_params p;
        hws_id endpoint;
        int32_t r = perf_server_peer(s, &endpoint);

        if (r < 0) {
            return tool_failed(r, "waiting for a client");
        }
        r = perf_side_receive(endpoint, PERF_TAG_PARAMS, &p, sizeof p, 10 * PERF_SECOND);
        if (r < 0 || !params_good(&p) || (have != 0 && p.threads != s->params.threads) ||
            endpoints[p.lane] != 0) {
            tool_error("perf: a peer that is no `hawser perf` was sent away");
            hws_close(endpoint);
            continue;
        }
        endpoints[p.lane] = endpoint;
        s->params = p;
        have++;
    } while (have < s->params.threads || have == 0);
    return TOOL_OK;
}

static int server_ready(struct perf_side *s, const hws_id endpoints[PERF_THREADS_MAX])
{
    for (uint32_t i = 0; i < s->params.threads; i++) {
        s->lanes[i].to = s->lanes[i].from = endpoints[i];
    }
    for (uint32_t i = 0; i < s->params.threads; i++) {
        int32_t r =
            perf_side_send(endpoints[i], PERF_TAG_READY, &s->params.magic, sizeof s->params.magic);

        if (r < 0) {
            return tool_failed(r, "answering the client");
        }
    }
    return TOOL_OK;
}

static void server_says(const struct perf_side *s, hws_id endpoint)
{
    hws_endpoint_info info = {.struct_size = sizeof info};

    if (s->options->json) {
        return;
    }
    hws_endpoint_query(endpoint, &info);
    printf("Accepted connection from %s\n", info.peer_address);
    perf_print_box(s->options, &s->params);
}

static int serve(struct perf_side *s)
{
    hws_id endpoints[PERF_THREADS_MAX] = {0};
    int code;

    if ((code = perf_server_listen(s, NULL, s->options->port)) != TOOL_OK) {
        return code;
    }
    if (!s->options->json && s->options->port == 0) {
        printf("Waiting for connection on port %u...\n", port_of(s));
    } else if (!s->options->json) {
        puts("Waiting for connection...");
    }
    fflush(stdout);
    if ((code = server_gather(s, endpoints)) != TOOL_OK) {
        return code;
    }
    hws_close(s->listener); /* one client, as ucx_perftest */
    server_says(s, endpoints[0]);
    if ((code = perf_side_lanes(s)) != TOOL_OK || (code = server_ready(s, endpoints)) != TOOL_OK ||
        (code = perf_side_exchange(s)) != TOOL_OK) {
        return code;
    }
    return perf_side_run(s);
}

int perf_server(const perf_options *o)
{
    struct perf_side s = {0};
    int code = perf_side_open(&s, o);

    if (code == TOOL_OK) {
        code = serve(&s);
    }
    perf_side_close(&s);
    return code;
}
