/*
 * A program from the time of release 0.1: it connects to itself, sends a tagged message, and asks what it can. Its
 * header is made from abi/releases/0.1.json, or from an older or newer variant of it; see test_consumer.py.
 */
#include <hawser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) check((call), #call, __LINE__)

static int32_t check(int32_t code, const char *call, int line)
{
    if (code < 0) {
        hws_error error = {.struct_size = sizeof(error)};
        hws_last_error(&error);
        printf("%d: %s: %s %s\n", line, call, hws_error_name(code), error.text);
        exit(code == HWS_E_NEWER ? 3 : 1);
    }
    return code;
}

static hws_event take(hws_id queue, uint32_t kind)
{
    hws_event event = {0};

    for (int i = 0; event.kind != kind; i++) {
        int32_t came = CHECK(hws_queue_pop(queue, &event, 1, 100000000));

        if (i == 600 || (came != 0 && event.size != sizeof(event))) {
            printf("event %u did not come, or its size %u is not %zu\n", kind, event.size,
                   sizeof(event));
            exit(1);
        }
    }
    return event;
}

int main(void)
{
    hws_context_opts context_opts = {.struct_size = sizeof(context_opts), .name = "consumer"};
    hws_worker_opts worker_opts = {.struct_size = sizeof(worker_opts)};
    hws_listener_opts listener_opts = {.struct_size = sizeof(listener_opts)};
    hws_listener_info info;
    hws_op_opts opts = {.struct_size = sizeof(opts)};
    hws_id context, queue, worker, listener, client, server, op;
    char buffer[16] = "";
    hws_event event;

#ifdef NEWER
    worker_opts.newest = 1;
#endif
    CHECK(hws_context_open(&context_opts, &context));
    CHECK(hws_queue_open(NULL, &queue));
    worker_opts.sink.queue = queue;
    CHECK(hws_worker_open(context, &worker_opts, &worker));
    listener_opts.sink.queue = listener_opts.endpoint_sink.queue = queue;
    CHECK(hws_listen(worker, "127.0.0.1", 0, &listener_opts, &listener));
    memset(&info, 0xff, sizeof(info));
    info.struct_size = sizeof(info);
    CHECK(hws_listener_query(listener, &info));
    opts.queue = queue;
    CHECK(hws_connect(worker, "127.0.0.1", (uint16_t)info.port, NULL, NULL, &client, &op));
    server = take(queue, HWS_EVENT_ACCEPTED).source;
    CHECK(hws_wait(op, 10000000000, &event));
    CHECK(hws_tag_recv(server, buffer, sizeof(buffer), 1, UINT64_MAX, &opts, &op));
    CHECK(hws_tag_send(client, "hello", 6, 1, &opts, NULL));
    event = take(queue, HWS_EVENT_TAG_RECV);
    CHECK(hws_close_wait(context, 10000000000));
    CHECK(hws_close(queue));
    if (event.status != 0 || event.length != 6 || strcmp(buffer, "hello") != 0) {
        printf("status %d, length %d, \"%s\"\n", event.status, (int)event.length, buffer);
        return 1;
    }
    printf("ok: built for ABI %d, %zu bytes of worker options, runs on ABI %u\n", HWS_ABI_VERSION,
           sizeof(worker_opts), hws_abi_version());
    return 0;
}
