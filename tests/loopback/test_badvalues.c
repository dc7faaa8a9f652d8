/*
 * Values out of range, buffers that no memory can be, and configuration that UCX would not understand.
 */
#include "support/cases.h"
#include "support/remote.h"

#include <string.h>

static void no_event(void *arg, const hws_event *event)
{
    t_fail(__FILE__, __LINE__, "an event of kind %u for %p", event->kind, arg);
}

static char buffer[64];

CASE(values_out_of_range)
{
    t_pair pair;
    hws_id op = 0, out = 0;
    uint64_t key[200] = {0};

    t_pair_open(&pair, NULL);
    hws_op_opts flags = {.struct_size = sizeof(flags), .flags = 1u << 30};
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], buffer, 8, 1, 1, &flags, &op), HWS_E_INVALID);
    hws_am_opts am = {.struct_size = sizeof(am), .flags = 1u << 30, .sink = {.callback = no_event}};
    CHECK_CODE(hws_am_handler(pair.worker[1], 1, &am), HWS_E_INVALID);
    hws_context_opts context = {.struct_size = sizeof(context), .flags = 1u << 30};
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.flags = 0;
    context.features = UINT64_C(1) << 40;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.features = 0;
    context.psk = key;
    context.psk_length = 15;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.psk_length = 1025;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.psk = NULL;
    context.psk_length = 32;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_INVALID);
    context.psk_length = 0;
    context.reserved = 1;
    CHECK_CODE(hws_context_open(&context, &out), HWS_E_NEWER);
    am.flags = 0;
    am.reserved = 1;
    CHECK_CODE(hws_am_handler(pair.worker[1], 1, &am), HWS_E_NEWER);
    hws_worker_opts worker = {.struct_size = sizeof(worker), .cpu_words = 1};
    CHECK_CODE(hws_worker_open(pair.context, &worker, &out), HWS_E_INVALID);
    hws_endpoint_opts endpoint = {.struct_size = sizeof(endpoint), .flags = 1u << 30};
    CHECK_CODE(hws_connect(pair.worker[0], "127.0.0.1", 1, &endpoint, NULL, &out, &op),
               HWS_E_INVALID);
    CHECK_CODE(hws_connect(pair.worker[0], "127.0.0.1", 0, NULL, NULL, &out, &op), HWS_E_INVALID);
    CHECK_CODE(hws_connect(pair.worker[0], "", 1, NULL, NULL, &out, &op), HWS_E_INVALID);
    hws_listener_opts listener = {.struct_size = sizeof(listener), .flags = 1u << 30};
    CHECK_CODE(hws_listen(pair.worker[1], "127.0.0.1", 0, &listener, &out), HWS_E_INVALID);
    CHECK_CODE(hws_log_set(-1, NULL, NULL), HWS_E_INVALID);
    CHECK_CODE(hws_log_set(HWS_LOG_TRACE + 1, NULL, NULL), HWS_E_INVALID);
    t_pair_close(&pair);
}

/* Every call that takes a buffer says no to one that no memory can be, before UCX sees it. */
static int32_t with_buffer(int call, const t_pair *pair, hws_id rkey, void *at, uint64_t length,
                           const hws_op_opts *opts)
{
    hws_id op = 0, a = pair->endpoint[0], b = pair->endpoint[1];

    switch (call) {
    case 0:
        return hws_tag_send(a, at, length, 1, opts, &op);
    case 1:
        return hws_tag_send_sync(a, at, length, 1, opts, &op);
    case 2:
        return hws_am_send(a, 1, "header", 6, at, length, opts, &op);
    case 3:
        return hws_stream_send(a, at, length, opts, &op);
    case 4:
        return hws_tag_recv(b, at, length, 1, 1, opts, &op);
    case 5:
        return hws_tag_recv(pair->worker[1], at, length, 1, 1, opts, &op);
    case 6:
        return hws_stream_recv(b, at, length, opts, &op);
    case 7:
        return hws_put(rkey, 0, at, length, opts, &op);
    case 8:
        return hws_put_notify(rkey, 0, at, length, 1, opts, &op);
    default:
        return hws_get(rkey, 0, at, length, opts, &op);
    }
}

CASE_BOTH(buffers_that_cannot_be)
{
    t_pair pair;
    t_remote remote;
    hws_op_opts plain = {.struct_size = sizeof plain, .flags = HWS_OP_INLINE};
    hws_op_opts iov = {.struct_size = sizeof iov, .flags = HWS_OP_IOV};
    hws_iov null_piece[] = {{buffer, 4}, {NULL, 0}, {NULL, 1}, {buffer, 4}};
    hws_iov wraps[] = {{buffer, UINT64_C(1) << 63}, {buffer, UINT64_C(1) << 63}, {buffer, 8}};
    hws_iov sums[] = {{buffer, INT64_MAX}, {buffer, 1}};

    t_remote_pair(&pair, flags);
    t_remote_open(&remote, &pair, 1, 1, 64);
    for (int call = 0; call < 10; call++) {
        for (const hws_op_opts *o = &plain;; o = NULL) {
            CHECK_CODE(with_buffer(call, &pair, remote.rkey, NULL, 1, o), HWS_E_INVALID);
            CHECK_CODE(with_buffer(call, &pair, remote.rkey, buffer, UINT64_MAX, o), HWS_E_INVALID);
            CHECK_CODE(with_buffer(call, &pair, remote.rkey, buffer, UINT64_C(1) << 63, o),
                       HWS_E_INVALID);
            if (o == NULL) {
                break;
            }
        }
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, NULL, 1, &iov), HWS_E_INVALID);
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, null_piece, 4, &iov), HWS_E_INVALID);
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, wraps, 3, &iov), HWS_E_INVALID);
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, sums, 2, &iov), HWS_E_INVALID);
        CHECK_CODE(with_buffer(call, &pair, remote.rkey, sums, UINT64_MAX, &iov), HWS_E_INVALID);
    }
    t_remote_close(&remote);
    t_pair_close(&pair);
}

CASE(configuration)
{
    const char *unknown[] = {"NO_SUCH_KEY_AT_ALL", "y", NULL};
    const char *bad[] = {"RNDV_THRESH", "not a number", NULL};
    const char *odd[] = {"RNDV_THRESH", NULL};
    const char *good[] = {"RNDV_THRESH", "16384", NULL};
    hws_context_opts opts = {.struct_size = sizeof(opts)};
    hws_error error = {.struct_size = sizeof(error)};
    hws_id out = 0;

    opts.config = unknown;
    CHECK_CODE(hws_context_open(&opts, &out), HWS_E_CONFIG);
    CHECK_OK(hws_last_error(&error));
    CHECK(strstr(error.text, "NO_SUCH_KEY_AT_ALL") != NULL);
    opts.config = bad;
    CHECK_CODE(hws_context_open(&opts, &out), HWS_E_CONFIG);
    CHECK_OK(hws_last_error(&error));
    CHECK(strstr(error.text, "RNDV_THRESH") != NULL);
    opts.config = odd;
    CHECK(hws_context_open(&opts, &out) < 0);
    CHECK_EQ(out, 0);
    opts.config = good;
    CHECK_OK(hws_context_open(&opts, &out));
    CHECK_OK(hws_close_wait(out, t_patience()));
}

CASES_MAIN
