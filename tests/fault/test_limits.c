/*
 * The limits of the process: with few descriptors, or little address space, left, every call says by
 * its code what it could not do, what is open goes on, and all works again once there is room.
 *
 * SHARED
 * TIMEOUT: 300
 */
#include "support/cases.h"
#include "support/pair.h"
#include "support/proc.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL UINT64_MAX

static void echo(t_pair *pair)
{
    uint64_t out = 5, in = 0;
    hws_id send = 0, receive = 0;

    CHECK_OK(hws_tag_recv(pair->endpoint[1], &in, 8, 1, ALL, NULL, &receive));
    CHECK_OK(hws_tag_send(pair->endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(pair, send);
    WAIT_OK(pair, receive);
    CHECK_EQ(in, 5);
}

/* What a want of resources may end in: on this side, or seen from the other. */
static int is_want(int32_t code)
{
    switch (code) {
    case HWS_OK:
    case HWS_E_NO_RESOURCE:
    case HWS_E_NO_MEMORY:
    case HWS_E_SYSTEM:
    case HWS_E_IO:
    case HWS_E_RESOLVE: /* the resolver needs descriptors, too */
    case HWS_E_UNREACHABLE:
    case HWS_E_REJECTED:
    case HWS_E_ISOLATED_CAP:
    case HWS_E_CONNECTION_RESET:
    case HWS_E_REFUSED:
    case HWS_E_PEER_VERSION: /* what a second rejection most often means; no reason comes with it */
    case HWS_E_TIMED_OUT:
        return 1;
    default:
        return 0;
    }
}

/* One more connection, if there is enough for it. */
static int32_t one_more(t_pair *pair, uint32_t flags, hws_id *endpoint)
{
    hws_endpoint_opts opts = {.struct_size = sizeof opts, .flags = flags};
    hws_op_opts deadline = {.struct_size = sizeof deadline, .timeout_ns = 2 * T_SECOND};
    hws_id op = 0;
    int32_t r =
        hws_connect(pair->worker[0], "127.0.0.1", pair->port, &opts, &deadline, endpoint, &op);

    if (r == HWS_OK) {
        r = WAIT(pair, op).status;
    }
    if (!is_want(r)) {
        t_fail(__FILE__, __LINE__, "connecting: %s", hws_error_name(r));
    }
    return r;
}

static void close_one(t_pair *pair, hws_id endpoint)
{
    if (endpoint != 0 && hws_kind(endpoint) > 0) {
        CHECK_OK(hws_close(endpoint));
        UNTIL(pair, hws_kind(endpoint) < 0);
    }
}

static void run_short(uint32_t flags)
{
    t_pair_opts opts = {.endpoint_flags = flags};
    int refused = 0;
    t_pair pair;

    t_pair_open(&pair, &opts);
    for (uint64_t left = 0; left < 72; left += 4) {
        hws_id endpoint = 0, context = 0;

        t_limit(RLIMIT_NOFILE, t_fd_count() + left);
        refused += one_more(&pair, flags, &endpoint) != HWS_OK;
        CHECK(is_want(hws_context_open(NULL, &context)));
        echo(&pair);
        t_limit(RLIMIT_NOFILE, UINT64_MAX);
        if (context != 0) {
            CHECK_OK(hws_close_wait(context, t_patience()));
        }
        close_one(&pair, endpoint);
    }
    CHECK(refused > 0);
    {
        hws_id endpoint = 0;

        CHECK_OK(one_more(&pair, flags, &endpoint));
        close_one(&pair, endpoint);
    }
    t_pair_close(&pair);
}

/* The first context of a process opens UCX's libraries and starts UCX's own thread. */
CASE(descriptors_of_the_first_context)
{
    for (uint64_t left = 0; left < 24; left++) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            hws_id context = 0;

            t_limit(RLIMIT_NOFILE, t_fd_lowest_free() + left);
            CHECK(is_want(hws_context_open(NULL, &context)));
            exit(0);
        }
        CHECK(child > 0);
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
}

/* The page of counters is a file of its own, in memory: where it may not be so long there is none. */
CASE(length_of_files)
{
    t_pair pair;

    t_limit(RLIMIT_FSIZE, 32768);
    t_pair_open(&pair, NULL);
    echo(&pair);
    t_pair_close(&pair);
}

/* A key that was packed while no descriptor was left is one of this machine all the same. */
CASE(key_without_descriptors)
{
    static char region[4096], packed[4096];
    hws_id memory = 0, rkey = 0;
    uint64_t length = 0;
    /* One that is just being made would end the process on 1.13.1. */
    hws_worker_opts no_spares = {.struct_size = sizeof no_spares, .spares = UINT32_MAX};
    t_pair_opts opts = {.features = HWS_FEATURE_TAG | HWS_FEATURE_RMA,
                        .worker = {&no_spares, &no_spares}};
    t_pair pair;

    t_pair_open(&pair, &opts);
    CHECK_OK(hws_mem_register(pair.context, region, sizeof region, NULL, &memory));
    t_limit(RLIMIT_NOFILE, t_fd_lowest_free());
    CHECK_OK(hws_rkey_pack(memory, 0, packed, sizeof packed, &length));
    t_limit(RLIMIT_NOFILE, UINT64_MAX);
    CHECK_OK(hws_rkey_unpack(pair.endpoint[0], packed, length, 0, &rkey));
    t_pair_close(&pair);
}

/* UCX starts a thread with its first worker. */
CASE(no_thread_for_the_first_context)
{
    hws_id context = 0;

    if (geteuid() != 0) {
        SKIP("only root can become a user with no thread to spare");
    }
    CHECK_OK(hws_library_open(NULL, NULL)); /* that user may not read it */
    CHECK_EQ(setuid(23456), 0);
    t_limit(RLIMIT_NPROC, 1);
    CHECK_CODE(hws_context_open(NULL, &context), HWS_E_NO_RESOURCE);
    t_limit(RLIMIT_NPROC, 100);
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_close_wait(context, t_patience()));
}

CASE(no_thread)
{
    hws_id context = 0, worker = 0;

    if (geteuid() != 0) {
        SKIP("only root can become a user with no thread to spare");
    }
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_EQ(setuid(23456), 0);
    t_limit(RLIMIT_NPROC, 1);
    CHECK_CODE(hws_worker_open(context, NULL, &worker), HWS_E_NO_RESOURCE);
    CHECK_OK(hws_close_wait(context, t_patience()));
    t_limit(RLIMIT_NPROC, 100); /* for the leak sanitizer */
}

CASE_BOTH(descriptors)
{
    run_short(flags);
}

/* What the program inherited lies above the limit: so many more are left below it. The dial that takes
 * the last one is another. */
CASE_BOTH(descriptors_above)
{
    for (int i = 0; i < 14; i++) {
        CHECK_EQ(dup2(STDERR_FILENO, 200 + i), 200 + i);
    }
    run_short(flags);
}

/* The sockets of this process that listen, by their numbers. */
static int listening(uint16_t ports[256])
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++) {
        struct sockaddr_in a;
        socklen_t length = sizeof a, size = sizeof(int);
        int on = 0;

        ports[fd] = 0;
        if (getsockname(fd, (struct sockaddr *)&a, &length) == 0 && a.sin_family == AF_INET &&
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) == 0 && on) {
            ports[fd] = a.sin_port;
            n++;
        }
    }
    return n;
}

/* Another process knocks at each port that is in `ports` and not in `spared`. */
static void knock(const uint16_t ports[256], const uint16_t spared[256])
{
    int status = -1;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        t_limit(RLIMIT_NOFILE, UINT64_MAX);
        for (int i = 0; i < 256; i++) {
            struct sockaddr_in to = {.sin_family = AF_INET,
                                     .sin_port = ports[i],
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            int fd = socket(AF_INET, SOCK_STREAM, 0);

            if (ports[i] != 0 && ports[i] != spared[i]) {
                connect(fd, (struct sockaddr *)&to, sizeof to);
            }
        }
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

/*
 * Knock while there is no descriptor to accept with: some of the sockets that are not `others` are closed. How many are
 * left.
 */
static int lose_sockets(t_pair *pair, const uint16_t others[256])
{
    uint16_t ports[256];
    int n = listening(ports), left;
    uint64_t start;

    t_limit(RLIMIT_NOFILE, t_fd_lowest_free() + 1); /* with none, 1.13 with assertions aborts */
    knock(ports, others);
    start = t_now();
    do { /* UCX's thread accepts, once it has its turn */
        t_pair_idle(pair, T_SECOND / 20);
        left = listening(ports);
    } while (left == n && t_now() - start < 5 * T_SECOND);
    t_limit(RLIMIT_NOFILE, UINT64_MAX);
    printf("%d of %d sockets still listen\n", left, n);
    CHECK(left < n);
    return left;
}

/* UCX closes the socket of a TCP worker for ever when it cannot accept: the next connection gets a
 * new worker, and the old one leaves with its last connection. Whichever socket of whichever side is lost. */
static void run_lost(bool every_socket)
{
    hws_worker_opts no_spares = {.struct_size = sizeof no_spares, .spares = UINT32_MAX};
    t_pair_opts opts = {.endpoint_flags = HWS_ENDPOINT_TCP_ONLY,
                        .worker = {&no_spares, &no_spares}};
    uint16_t others[256], ports[256];
    hws_id first = 0, second = 0, third = 0;
    uint64_t before;
    t_pair pair;
    int left;

    t_pair_listen(&pair, &opts);
    listening(others);
    for (int fd = 0; fd < 256; fd++) {
        others[fd] = every_socket && others[fd] != htons(pair.port) ? 0 : others[fd];
    }
    CHECK_OK(one_more(&pair, opts.endpoint_flags, &first));
    left = lose_sockets(&pair, others);
    CHECK_OK(one_more(&pair, opts.endpoint_flags, &second));
    CHECK(listening(ports) > left);
    before = t_fd_count();
    CHECK_OK(one_more(&pair, opts.endpoint_flags, &third));
    close_one(&pair, first);
    if (!every_socket) { /* the main UCX worker stays */
        UNTIL(&pair, t_fd_count() < before);
    }
    close_one(&pair, second);
    close_one(&pair, third);
    t_pair_close(&pair);
}

/* Which of the sockets are lost differs. Not more often: about one time in a thousand UCX 1.13.1 itself meets an event of
 * the socket that it has just closed (tcp_iface.c:369). */
#define TIMES 3

/* Those that came with the first connection. */
CASE(listening_socket_lost)
{
    for (int i = 0; i < TIMES; i++) {
        run_lost(false);
    }
}

/* All but the listener's own, those of the main UCX worker too. */
CASE(every_listening_socket_lost)
{
    for (int i = 0; i < TIMES; i++) {
        run_lost(true);
    }
}

/* The same of the worker that an address names: who asks for the address again gets one that can be reached. */
CASE(listening_socket_of_an_address_lost)
{
    hws_worker_opts no_spares = {.struct_size = sizeof no_spares, .spares = UINT32_MAX};
    t_pair_opts opts = {.worker = {&no_spares, &no_spares}};
    static unsigned char old[16384], fresh[16384];
    uint64_t old_length = sizeof old, fresh_length = sizeof fresh;
    uint16_t others[256];
    hws_id endpoint = 0, op = 0;
    hws_event event;
    t_pair pair;

    t_pair_listen(&pair, &opts);
    listening(others);
    CHECK_OK(hws_worker_address(pair.worker[1], HWS_ADDRESS_HELLO, old, sizeof old, &old_length));
    lose_sockets(&pair, others);
    CHECK_OK(hws_connect_address(pair.worker[0], old, old_length, NULL, NULL, &endpoint, &op));
    event = WAIT(&pair, op);
    printf("by the old address: %s\n", hws_error_name(event.status));
    CHECK(event.status < 0);
    CHECK_OK(
        hws_worker_address(pair.worker[1], HWS_ADDRESS_HELLO, fresh, sizeof fresh, &fresh_length));
    CHECK(fresh_length != old_length || memcmp(old, fresh, old_length) != 0);
    CHECK_OK(hws_connect_address(pair.worker[0], fresh, fresh_length, NULL, NULL, &endpoint, &op));
    WAIT_OK(&pair, op);
    t_pair_close(&pair);
}

#define CROWD 5
#define DIALS 20

/* One dial, which may fail for want of descriptors. */
static bool dial(hws_id worker, uint16_t port)
{
    hws_op_opts deadline = {.struct_size = sizeof deadline, .timeout_ns = 5 * T_SECOND};
    hws_id endpoint, op[DIALS] = {0};
    int connected = 0;

    for (int i = 0; i < DIALS; i++) {
        CHECK_OK(hws_connect(worker, "127.0.0.1", port, NULL, &deadline, &endpoint, &op[i]));
    }
    for (int i = 0; i < DIALS; i++) {
        hws_event event = {0};

        CHECK_OK(hws_wait(op[i], t_patience(), &event));
        CHECK(is_want(event.status));
        connected += event.status == HWS_OK;
    }
    printf("%d of %d connected\n", connected, DIALS);
    return connected > 0;
}

/*
 * A process that dials many times at once, when it is told the port, and goes. With `room` descriptors, or all there
 * are.
 */
static void crowd(const int tell[2], uint64_t room)
{
    hws_worker_opts opts = {.struct_size = sizeof opts, .mode = HWS_PROGRESS_THREAD};
    hws_id context = 0, worker = 0;
    uint16_t port = 0;

    close(tell[1]);
    CHECK_EQ(read(tell[0], &port, sizeof port), (ssize_t)sizeof port);
    CHECK_OK(hws_context_open(NULL, &context));
    CHECK_OK(hws_worker_open(context, &opts, &worker));
    if (room != 0) {
        t_limit(RLIMIT_NOFILE, t_fd_lowest_free() + room);
    }
    dial(worker, port);
    if (room != 0) {
        t_limit(RLIMIT_NOFILE, UINT64_MAX);
        CHECK(dial(worker, port));
    }
    fflush(stdout);
    _exit(0);
}

static void start_crowd(pid_t pid[CROWD], const int tell[2], uint64_t room)
{
    for (int i = 0; i < CROWD; i++) {
        CHECK((pid[i] = fork()) >= 0);
        if (pid[i] == 0) {
            crowd(tell, room * (uint64_t)(i + 1));
        }
    }
}

/* Until all of it have gone. */
static void serve_crowd(t_pair *pair, pid_t pid[CROWD], int tell)
{
    int status, left = CROWD;

    for (int i = 0; i < CROWD; i++) {
        CHECK_EQ(write(tell, &pair->port, sizeof pair->port), (ssize_t)sizeof pair->port);
    }
    while (left > 0) {
        t_pair_idle(pair, T_SECOND / 20);
        for (int i = 0; i < CROWD; i++) {
            if (pid[i] != 0 && waitpid(pid[i], &status, WNOHANG) == pid[i]) {
                CHECK_EQ(status, 0);
                pid[i] = 0;
                left--;
            }
        }
    }
}

/* More come at once than there are descriptors for: the listener's process goes on, and serves who comes later. */
CASE(more_come_than_descriptors_are_left)
{
    pid_t pid[CROWD];
    hws_id endpoint = 0;
    t_pair pair;
    int tell[2];

    CHECK_EQ(pipe(tell), 0);
    start_crowd(pid, tell, 0);
    t_pair_open(&pair, NULL);
    t_limit(RLIMIT_NOFILE, t_fd_lowest_free() + 100);
    CHECK_OK(one_more(&pair, 0, &endpoint));
    serve_crowd(&pair, pid, tell[1]);
    echo(&pair);
    t_limit(RLIMIT_NOFILE, UINT64_MAX);
    close_one(&pair, endpoint);
    CHECK_OK(one_more(&pair, 0, &endpoint));
    close_one(&pair, endpoint);
    t_pair_close(&pair);
}

/*
 * More is dialled at once than there are descriptors for: the dials end, the process goes on, and dials again when it
 * can.
 */
CASE(more_is_dialled_than_descriptors_are_left)
{
    pid_t pid[CROWD];
    t_pair pair;
    int tell[2];

    CHECK_EQ(pipe(tell), 0);
    start_crowd(pid, tell, 14);
    t_pair_open(&pair, NULL);
    serve_crowd(&pair, pid, tell[1]);
    echo(&pair);
    t_pair_close(&pair);
}

CASES_MAIN
