/*
 * Echo: the server sends every message back to whoever sent it.
 *
 *     ./echo serve PORT        (PORT 0: any free one, it is printed)
 *     ./echo HOST PORT         lines from standard input go out, what comes back is printed
 *
 * The client shows the simplest style: post an operation, wait for it. The server serves any number
 * of clients on one thread: all that happens comes out of one completion queue.
 */
#include "example.h"

#include <string.h>

#define SIZE_MAX_MESSAGE 65536
#define TAG 1

/* A context is one UCX instance; a worker is where its connections make progress. */
static hws_id open_worker(void)
{
    /* Blocking mode: nothing runs in the background; whoever waits with nothing to do sleeps. */
    hws_worker_opts opts = {.struct_size = sizeof opts, .mode = HWS_PROGRESS_BLOCKING};
    hws_id context, worker;

    check(hws_context_open(NULL, &context), "opening a context");
    check(hws_worker_open(context, &opts, &worker), "opening a worker");
    return worker;
}

/* ---- server ---------------------------------------------------------------------------------- */

/** A client of the server. Its address travels with every operation as the `user` value. */
struct peer {
    hws_id endpoint;
    char message[SIZE_MAX_MESSAGE];
};

static hws_op_opts into_queue(hws_id queue, struct peer *peer)
{
    return (hws_op_opts){
        .struct_size = sizeof(hws_op_opts), .queue = queue, .user = (uint64_t)(uintptr_t)peer};
}

/* From here to the final event the message buffer belongs to the library. */
static void receive(hws_id queue, struct peer *peer)
{
    hws_op_opts opts = into_queue(queue, peer);
    hws_id op;
    int32_t r = hws_tag_recv(peer->endpoint, peer->message, sizeof peer->message, TAG, UINT64_MAX,
                             &opts, &op);

    if (r < 0) { /* the client has left: there will be no event of this peer any more */
        hws_close(peer->endpoint);
        free(peer);
    }
}

static void send_back(hws_id queue, struct peer *peer, uint64_t length)
{
    hws_op_opts opts = into_queue(queue, peer);
    hws_id op;

    if (hws_tag_send(peer->endpoint, peer->message, length, TAG, &opts, &op) < 0) {
        hws_close(peer->endpoint);
        free(peer);
    }
}

static void welcome(hws_id queue, hws_id endpoint)
{
    struct peer *peer = calloc(1, sizeof *peer);

    if (peer == NULL) {
        hws_close(endpoint);
        return;
    }
    peer->endpoint = endpoint;
    receive(queue, peer);
}

static void handle(hws_id queue, const hws_event *event)
{
    struct peer *peer = (struct peer *)(uintptr_t)event->user;

    if (event->kind == HWS_EVENT_ACCEPTED) {
        welcome(queue, event->source);
    } else if (event->kind == HWS_EVENT_TAG_RECV || event->kind == HWS_EVENT_TAG_SEND) {
        if (event->status < 0) { /* HWS_E_PEER_CLOSED is the usual end */
            hws_close(peer->endpoint);
            free(peer);
        } else if (event->kind == HWS_EVENT_TAG_RECV) {
            send_back(queue, peer, event->length);
        } else {
            receive(queue, peer);
        }
    }
}

static void serve(uint16_t port)
{
    hws_listener_opts opts = {.struct_size = sizeof opts};
    hws_listener_info info = {.struct_size = sizeof info};
    hws_id worker = open_worker(), queue, listener;

    check(hws_queue_open(NULL, &queue), "opening a queue");
    opts.sink.queue = queue;
    check(hws_listen(worker, NULL, port, &opts, &listener), "listening");
    check(hws_listener_query(listener, &info), "asking for the port");
    printf("port %u\n", info.port);
    finish_output();
    for (;;) {
        hws_event events[16];
        int32_t n = check(hws_queue_pop(queue, events, 16, HWS_FOREVER), "waiting");

        for (int32_t i = 0; i < n; i++) {
            handle(queue, &events[i]);
        }
    }
}

/* ---- client ---------------------------------------------------------------------------------- */

static void talk(const char *host, uint16_t port)
{
    hws_id worker = open_worker(), endpoint, op;
    char line[4096], back[4096];

    check(hws_connect(worker, host, port, NULL, NULL, &endpoint, &op), "connecting");
    check(hws_wait(op, HWS_FOREVER, NULL), "connecting");
    while (fgets(line, sizeof line, stdin) != NULL) {
        hws_event event;

        check(hws_tag_send(endpoint, line, strlen(line), TAG, NULL, &op), "sending");
        check(hws_wait(op, HWS_FOREVER, NULL), "sending");
        check(hws_tag_recv(endpoint, back, sizeof back, TAG, UINT64_MAX, NULL, &op), "receiving");
        check(hws_wait(op, HWS_FOREVER, &event), "receiving");
        check(event.status, "receiving");
        fwrite(back, 1, event.length, stdout);
    }
    /* Closing says goodbye: the server sees an end, not a failure. */
    check(hws_close_wait(endpoint, UINT64_C(5000000000)), "closing");
    finish_output();
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("Usage: echo serve PORT\n       echo HOST PORT\n", stderr);
        return 2;
    }
    if (strcmp(argv[1], "serve") == 0) {
        serve(port_of(argv[2]));
    } else {
        talk(argv[1], port_of(argv[2]));
    }
    return 0;
}
