/*
 * The owner of a worker address closes, or a peer that dials the address dies, at each moment of their connecting: UCX
 * 1.13 must not be left with the half of a connection, with which Debian's build ends the process. TIMEOUT: 60
 */
#include "support/check.h"
#include "support/spawn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 8
#define ROOM 4096u

static hws_id open_context(void)
{
    hws_id context;

    CHECK_OK(hws_context_open(NULL, &context));
    return context;
}

/* One that makes progress by hand. */
static hws_id open_worker(hws_id context)
{
    hws_worker_opts opts = {.struct_size = sizeof opts};
    hws_id worker;

    CHECK_OK(hws_worker_open(context, &opts, &worker));
    return worker;
}

/* ---- The owner closes ------------------------------------------------------------------------ */

static void close_after(int steps, uint32_t flags)
{
    hws_id owners = open_context(), diallers = open_context();
    hws_id owner = open_worker(owners), dialler = open_worker(diallers), endpoint, op;
    unsigned char address[ROOM];
    uint64_t length;

    CHECK_OK(hws_worker_address(owner, flags, address, sizeof address, &length));
    CHECK_OK(hws_connect_address(dialler, address, length, NULL, NULL, &endpoint, &op));
    for (int i = 0; i < steps; i++) {
        CHECK(hws_worker_progress(i % 2 == 0 ? dialler : owner) >= 0);
        t_sleep(T_MS);
    }
    CHECK_OK(hws_close_wait(owners, t_patience()));
    CHECK_OK(hws_abort(endpoint));
    CHECK_OK(hws_close_wait(diallers, t_patience()));
}

/* ---- A peer dies ----------------------------------------------------------------------------- */

/* It dies after so many steps; 0: not. */
static int dialler(int steps)
{
    hws_id context, worker, endpoint, op;
    unsigned char address[ROOM];
    char line[2 * ROOM + 8];
    hws_event event = {0};
    size_t length = 0;
    unsigned byte;

    t_child_begin();
    context = open_context();
    worker = open_worker(context);
    t_say(NULL, "ready");
    t_hear(NULL, line, sizeof line);
    while (sscanf(line + 2 * length, "%2x", &byte) == 1) {
        address[length++] = (unsigned char)byte;
    }
    CHECK_OK(hws_connect_address(worker, address, length, NULL, NULL, &endpoint, &op));
    for (int i = 0; i < steps; i++) {
        CHECK(hws_worker_progress(worker) >= 0);
        t_sleep(T_MS);
    }
    if (steps != 0) {
        raise(SIGKILL);
    }
    CHECK_OK(hws_wait(op, t_patience(), &event));
    CHECK_OK(event.status);
    t_say(NULL, "connected");
    CHECK_OK(hws_close_wait(context, t_patience()));
    return 0;
}

static void dial(t_child *child, const char *text, int steps)
{
    char number[16];

    snprintf(number, sizeof number, "%d", steps);
    t_spawn(child, (const char *[]){"dialler", number, NULL});
    HEAR(child, "ready");
    t_say(child, "%s", text);
}

/* Make progress until a child has said something or has ended. */
static int progress_with(hws_id worker, t_child *child, char *line, size_t size)
{
    uint64_t start = t_now();
    int heard;

    while ((heard = t_hear_for(child, line, size, 0)) == 0) {
        CHECK(hws_worker_progress(worker) >= 0);
        t_check_patience(__FILE__, __LINE__, start, "a child's word or end");
    }
    return heard;
}

static void survive(const char *text, hws_id owner)
{
    static t_child child;
    char line[64];

    for (int steps = 1; steps <= STEPS; steps++) {
        dial(&child, text, steps);
        CHECK_EQ(progress_with(owner, &child, line, sizeof line), -1);
        for (int i = 0; i < 100; i++) {
            CHECK(hws_worker_progress(owner) >= 0);
        }
        CHECK_EQ(t_join(&child), 256 + SIGKILL);
    }
    /* And it can still be dialled. */
    dial(&child, text, 0);
    CHECK_EQ(progress_with(owner, &child, line, sizeof line), 1);
    CHECK_STR(line, "connected");
    CHECK_EQ(progress_with(owner, &child, line, sizeof line), -1);
    CHECK_EQ(t_join(&child), 0);
}

static void peers_die(uint32_t flags)
{
    hws_id context = open_context(), owner = open_worker(context);
    unsigned char address[ROOM];
    char text[2 * ROOM + 1];
    uint64_t length;

    CHECK_OK(hws_worker_address(owner, flags, address, sizeof address, &length));
    for (uint64_t i = 0; i < length; i++) {
        snprintf(text + 2 * i, 3, "%02x", address[i]);
    }
    survive(text, owner);
    CHECK_OK(hws_close_wait(context, t_patience()));
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "dialler") == 0) {
        return dialler(atoi(argv[2]));
    }
    for (int steps = 0; steps < STEPS; steps++) {
        close_after(steps, 0);
        close_after(steps, HWS_ADDRESS_HELLO);
    }
    peers_die(0);
    peers_die(HWS_ADDRESS_HELLO);
    return 0;
}
