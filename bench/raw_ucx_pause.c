/*
 * A ping-pong on UCX itself whose server sleeps: the client waits before each ping, the server arms its
 * worker and polls the descriptor. For bench/python/pingpong.py --pause.
 *
 *     raw_ucx_pause ROUND_TRIPS PAUSE_US SERVER_CPU CLIENT_CPU
 *
 * Prints JSON: the median of half a round trip. Links UCX as raw_ucx_instructions does.
 */
#include <ucp/api/ucp.h>

#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TAG 9

struct side {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    int fd;
    bool sleeps;
};

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "raw_ucx_pause: %s failed\n", what);
        exit(1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void open_side(struct side *s, int cpu)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    check(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
    check(ucp_init(&params, NULL, &s->context) == UCS_OK, "ucp_init");
    check(ucp_worker_create(s->context, &worker, &s->worker) == UCS_OK, "ucp_worker_create");
    check(ucp_worker_get_efd(s->worker, &s->fd) == UCS_OK, "ucp_worker_get_efd");
}

/* By address, over a pipe each way. */
static void connect_side(struct side *s, int out, int in)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER};
    ucp_address_t *mine;
    char theirs[4096];
    size_t length;

    check(ucp_worker_get_address(s->worker, &mine, &length) == UCS_OK && length <= sizeof theirs,
          "ucp_worker_get_address");
    check(write(out, mine, length) == (ssize_t)length, "write");
    check(read(in, theirs, sizeof theirs) > 0, "read");
    ucp_worker_release_address(s->worker, mine);
    params.address = (const ucp_address_t *)(const void *)theirs;
    check(ucp_ep_create(s->worker, &params, &s->ep) == UCS_OK, "ucp_ep_create");
}

static void finish(struct side *s, ucs_status_ptr_t request)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};

    check(!UCS_PTR_IS_ERR(request), "an operation");
    while (request != NULL && ucp_request_check_status(request) == UCS_INPROGRESS) {
        if (ucp_worker_progress(s->worker) == 0 && s->sleeps &&
            ucp_worker_arm(s->worker) == UCS_OK) {
            poll(&p, 1, 1000);
        }
    }
    if (request != NULL) {
        ucp_request_free(request);
    }
}

static void receive(struct side *s)
{
    const ucp_request_param_t param = {0};
    uint64_t in;

    finish(s, ucp_tag_recv_nbx(s->worker, &in, sizeof in, TAG, UINT64_MAX, &param));
}

static void transmit(struct side *s)
{
    const ucp_request_param_t param = {0};
    static uint64_t out;

    finish(s, ucp_tag_send_nbx(s->ep, &out, sizeof out, TAG, &param));
}

static void serve(int count, int cpu, int out, int in)
{
    struct side s = {.sleeps = true};

    open_side(&s, cpu);
    connect_side(&s, out, in);
    for (int i = 0; i < count; i++) {
        receive(&s);
        transmit(&s);
    }
    receive(&s); /* so that the last answer is out */
    _exit(0);
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1000, there[2], back[2];
    long pause_us = argc > 2 ? atol(argv[2]) : 1000;
    uint64_t *took = calloc((size_t)count + 1, sizeof *took);
    struct side s = {.sleeps = false};
    pid_t server;

    check(took != NULL && count > 0 && pipe(there) == 0 && pipe(back) == 0, "set-up");
    if ((server = fork()) == 0) {
        serve(count, argc > 3 ? atoi(argv[3]) : 0, back[1], there[0]);
    }
    open_side(&s, argc > 4 ? atoi(argv[4]) : 0);
    connect_side(&s, there[1], back[0]);
    for (int i = 0; i < count; i++) {
        nanosleep(
            &(struct timespec){.tv_sec = pause_us / 1000000, .tv_nsec = pause_us % 1000000 * 1000},
            NULL);
        took[i] = now_ns();
        transmit(&s);
        receive(&s);
        took[i] = now_ns() - took[i];
    }
    transmit(&s);
    waitpid(server, NULL, 0);
    qsort(took, (size_t)count, sizeof *took, ascending);
    printf("{\"half_round_trip_ns\": %llu}\n", (unsigned long long)took[count / 2] / 2);
    free(took);
    return 0;
}
