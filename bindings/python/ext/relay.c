/*
 * Many loops on one worker. The kernel lets a socket be watched along 50 paths only, each a chain of epoll sets as deep
 * as UCX's, the worker's and a loop's are together; UCX ends the process when it cannot watch its next socket. So a few
 * loops watch the worker's descriptor, and the others one of our own, which no such set lies below: a thread makes it
 * readable when the worker has something to do, whether or not a loop of the first kind runs.
 */
#include "ext.h"
#include <poll.h>

/* Loops that watch the worker's descriptor themselves. */
#define DIRECT_LOOPS 8u

/* Between two looks whether the loops have taken the work up: longer and longer if they stand still. */
#define PAUSE_MS 1
#define PAUSE_MAX_MS 32
/* How long a worker that was closed may keep its thread. */
#define LOOK_MS 200

static void wait_until_read(struct core *c)
{
    struct pollfd told = {.fd = c->wakefd, .events = POLLIN};
    int pause = PAUSE_MS;

    do {
        poll(NULL, 0, pause);
        pause = pause < PAUSE_MAX_MS ? 2 * pause : PAUSE_MAX_MS;
    } while (atomic_load(&c->relays) && poll(&told, 1, 0) > 0);
}

static void *relay(void *arg)
{
    struct core *c = arg;
    struct pollfd worker = {.fd = c->fd, .events = POLLIN};

    while (atomic_load(&c->relays)) {
        if (poll(&worker, 1, LOOK_MS) > 0) {
            core_signal_news(c);
            wait_until_read(c);
        }
    }
    core_unref(c);
    return NULL;
}

static int start(struct core *c)
{
    if (atomic_exchange(&c->relays, true)) {
        return 0;
    }
    core_ref(c);
    if (thread_start(relay, c)) {
        return 0;
    }
    atomic_store(&c->relays, false);
    core_unref(c);
    PyErr_SetString(PyExc_RuntimeError, "no thread can be started for another loop on this worker");
    return -1;
}

int relay_share(struct core *c, struct binding *b)
{
    uint32_t direct = 0;

    b->direct = c->fd;
    if (c->fd < 0) {
        return 0;
    }
    for (const struct binding *other = c->bindings; other != NULL; other = other->next) {
        direct += other->direct >= 0;
    }
    if (direct < DIRECT_LOOPS) {
        return 0;
    }
    b->direct = -1;
    return start(c);
}

void relay_stop(struct core *c)
{
    atomic_store(&c->relays, false);
}
