#include "perf_side.h"
#include "tool.h"

static int32_t client_connect(struct perf_side *s, const char *host, uint16_t port,
                              hws_id *endpoint)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts};
    hws_op_opts op_opts = {.struct_size = sizeof op_opts, .timeout_ns = 30 * PERF_SECOND};
    hws_id op;
    int32_t r;

    opts.flags |= s->options->raw ? HWS_ENDPOINT_RAW : 0;
    opts.flags |= s->options->tcp ? HWS_ENDPOINT_TCP_ONLY : 0;
    r = hws_connect(s->worker, host, port, &opts, &op_opts, endpoint, &op);
    return r < 0 ? r : hws_wait(op, HWS_FOREVER, NULL);
}

static int client_lanes(struct perf_side *s)
{
    for (uint32_t i = 0; i < s->params.threads; i++) {
        hws_id endpoint;
        int32_t r = client_connect(s, s->options->host, s->options->port, &endpoint);

        if (r < 0) {
            return tool_failed(r, "connecting");
        }
        s->lanes[i].to = s->lanes[i].from = endpoint;
        s->params.lane = i;
        if ((r = perf_side_send(endpoint, PERF_TAG_PARAMS, &s->params, sizeof s->params)) < 0) {
            return tool_failed(r, "telling the server what to run");
        }
    }
    return TOOL_OK;
}

static int client_await(struct perf_side *s)
{
    for (uint32_t i = 0; i < s->params.threads; i++) {
        uint64_t magic = 0;
        int32_t r = perf_side_receive(s->lanes[i].from, PERF_TAG_READY, &magic, sizeof magic,
                                      30 * PERF_SECOND);

        if (r < 0) {
            return tool_failed(r, "waiting for the server");
        }
    }
    return TOOL_OK;
}

/* A run over a transport that was not asked for would only mislead. */
static int client_looks(struct perf_side *s)
{
    hws_endpoint_info *info = &s->setting.endpoint;

    info->struct_size = sizeof *info;
    hws_endpoint_query(s->lanes[0].to, info);
    if (s->options->tcp && (info->transports & HWS_TRANSPORT_SHM) != 0) {
        tool_error("perf: --tcp, but the connection uses %s", info->lanes);
        return TOOL_FAILED;
    }
    return TOOL_OK;
}

static int report(struct perf_side *s)
{
    perf_result result;

    perf_result_merge(&result, s->lanes, s->params.threads);
    if (s->options->json) {
        return perf_json_print(s->options, &result, &s->setting);
    }
    perf_print_final(s->options, &result);
    return TOOL_OK;
}

static int measure(struct perf_side *s)
{
    int code;

    if ((code = client_looks(s)) != TOOL_OK) {
        return code;
    }
    if (!s->options->json) {
        perf_print_header(s->options);
    }
    code = perf_side_run(s);
    return code == TOOL_OK ? report(s) : code;
}

int perf_client(const perf_options *o)
{
    struct perf_side s = {0};
    int code;

    if ((code = perf_side_open(&s, o)) == TOOL_OK && (code = perf_side_lanes(&s)) == TOOL_OK &&
        (code = client_lanes(&s)) == TOOL_OK && (code = client_await(&s)) == TOOL_OK &&
        (code = perf_side_exchange(&s)) == TOOL_OK) {
        code = measure(&s);
    }
    perf_side_close(&s);
    return code;
}

/* ---- one process with itself ---- */

static int loop_connect(struct perf_side *s)
{
    hws_listener_info info = {.struct_size = sizeof info};
    int32_t r;
    int code = perf_server_listen(s, "127.0.0.1", 0);

    if (code != TOOL_OK) {
        return code;
    }
    if ((r = hws_listener_query(s->listener, &info)) < 0 ||
        (r = client_connect(s, "127.0.0.1", (uint16_t)info.port, &s->lanes[0].to)) < 0 ||
        (r = perf_server_peer(s, &s->lanes[0].from)) < 0) {
        return tool_failed(r, "connecting to itself");
    }
    return TOOL_OK;
}

int perf_loopback(const perf_options *o)
{
    struct perf_side s = {0};
    int code;

    if ((code = perf_side_open(&s, o)) == TOOL_OK && (code = perf_side_lanes(&s)) == TOOL_OK &&
        (code = loop_connect(&s)) == TOOL_OK && (code = perf_side_exchange(&s)) == TOOL_OK) {
        if (!o->json) {
            perf_print_box(o, &s.params);
        }
        code = measure(&s);
    }
    perf_side_close(&s);
    return code;
}
