#include "gate.h"
#include "cm_socket.h"
#include "exit.h"
#include "host.h"
#include "job.h"
#include "listener.h"
#include "sockets.h"
#include "time.h"
#include "ucx_loader.h"
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <ucs/sys/event_set.h>

/* With so many left nothing is short; a burst may be as large as this between two looks. */
#define PLENTY 256
#define ENOUGH (PLENTY + 64) /* to open again */
#define UNLOOKED 64          /* connections between two looks, if that is far off */
/* To connect: what UCX opens for a moment and who comes in one; and what each connection under way takes. */
#define CONNECT_FDS 20
#define UNDER_WAY_FDS 3
#define UNDER_WAY_NS UINT64_C(100000000)
#define TURN_AWAY_FDS 16
#define VAIN_NS UINT64_C(1000000000)

/* UCX's thread accepts some five connections in such a moment. */
#define MOMENT_NS 200000
/* And no more than these, and one, if who shuts the gate again is held up: fewer than CONNECT_FDS. At first more may
 * wait. */
#define WAITING 15
#define BUSY_NS UINT64_C(5000000)
#define IDLE_NS UINT64_C(50000000)

struct hws__gate_job {
    struct hws__job job;
    struct hws__worker *worker;
    struct hws__gate *gate; /* null: the listener is gone */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* LOCK: before hws__background.lock */
static struct hws__list gates = {&gates, &gates};        /* of the whole process */
static unsigned holds;
static int admitted[2];      /* in this span of time, and in the one before */
static uint64_t admitted_at; /* this span's beginning */
static unsigned unlooked;    /* connections until descriptors are counted again; 0: at once */

static bool is_there(const struct hws__gate *g, uint32_t i)
{
    return g->port[i] == 0 || hws__sockets_listens(g->fd[i], g->port[i]);
}

static void set(const struct hws__gate *g, int events)
{
    for (uint32_t i = 0; i < g->count; i++) {
        if (is_there(g, i)) {
            hws__ucx.ucs_async_modify_handler(g->fd[i], events);
        }
    }
}

/* So many connections wait in the kernel; who comes then tries again after a second. */
static void wait_in_line(const struct hws__gate *g, int backlog)
{
    for (uint32_t i = 0; i < g->count; i++) {
        if (is_there(g, i)) {
            listen(g->fd[i], backlog);
        }
    }
}

/* As it is to be. With the lock. */
static void set_again(const struct hws__gate *g)
{
    set(g, holds != 0 || g->job != NULL ? 0 : UCS_EVENT_SET_EVREAD);
}

static void set_all_again(void)
{
    for (struct hws__list *n = gates.next; n != &gates; n = n->next) {
        set_again(hws__container(n, struct hws__gate, link));
    }
}

static void open_again(struct hws__gate *g)
{
    g->job = NULL;
    wait_in_line(g, INT_MAX); /* the system's own limit, as with UCX */
    set_again(g);
}

/* Connections that may be under way still. With the lock. */
static int under_way(void)
{
    uint64_t now = hws__now(), past = now - admitted_at;

    if (past > UNDER_WAY_NS) {
        admitted[1] = past > 2 * UNDER_WAY_NS ? 0 : admitted[0];
        admitted[0] = 0;
        admitted_at = now;
    }
    return admitted[0] + admitted[1];
}

/* With the lock. */
static bool has_room(void)
{
    return hws__fd_room(CONNECT_FDS + UNDER_WAY_FDS * under_way());
}

/* The first socket of a gate that somebody waits at, or -1. */
static int waited_at(const struct hws__gate *g)
{
    struct pollfd p[HWS__GATE_SOCKETS];

    for (uint32_t i = 0; i < g->count; i++) {
        p[i] = (struct pollfd){.fd = is_there(g, i) ? g->fd[i] : -1, .events = POLLIN};
    }
    if (poll(p, g->count, 0) > 0) {
        for (uint32_t i = 0; i < g->count; i++) {
            if (p[i].revents != 0) {
                return p[i].fd;
            }
        }
    }
    return -1;
}

/* With the lock: nobody makes a UCX worker, or rejects, meanwhile. */
static void open_for_a_moment(int fd)
{
    const struct timespec moment = {0, MOMENT_NS};

    hws__ucx.ucs_async_modify_handler(fd, UCS_EVENT_SET_EVREAD);
    nanosleep(&moment, NULL);
    hws__ucx.ucs_async_modify_handler(fd, 0);
}

static void done(struct hws__worker *w, void *arg)
{
    atomic_fetch_sub(&w->jobs, 1);
    free(arg);
}

/* For somebody who waits. When there has been no room for a while they come in to be turned away. With the lock. */
static bool may_open(struct hws__gate *g)
{
    uint64_t now = hws__now();

    if (has_room()) {
        g->in_vain_since = 0;
        return true;
    }
    if (g->in_vain_since == 0) {
        g->in_vain_since = now;
    }
    return now - g->in_vain_since > VAIN_NS && hws__fd_room(TURN_AWAY_FDS);
}

/* The next look at a gate that is shut; 0: it is open, or gone. With the lock. */
static uint64_t look(struct hws__gate *g)
{
    int fd;

    if (g == NULL) {
        return 0;
    }
    if (holds != 0) {
        return BUSY_NS;
    }
    if (hws__fd_room(ENOUGH)) {
        open_again(g);
        return 0;
    }
    if ((fd = waited_at(g)) < 0) {
        g->in_vain_since = 0;
        return IDLE_NS;
    }
    if (may_open(g)) {
        open_for_a_moment(fd);
    }
    return BUSY_NS;
}

static void run_look(struct hws__job *job)
{
    struct hws__gate_job *j = hws__container(job, struct hws__gate_job, job);
    uint64_t next;

    hws__ucx_begin();
    pthread_mutex_lock(&lock);
    next = look(j->gate);
    if (next != 0 && !hws__background_later(&j->worker->context->background, &j->job, next)) {
        open_again(j->gate);
        next = 0;
    }
    pthread_mutex_unlock(&lock);
    hws__ucx_end();
    if (next == 0) {
        hws__job_return(j->worker, done, j);
    }
}

/* With the lock. Where it cannot be opened again it stays open. */
static void shut(struct hws__gate *g)
{
    struct hws__worker *w = g->worker;
    struct hws__gate_job *j = g->job == NULL ? malloc(sizeof *j) : NULL;

    if (j == NULL) {
        return;
    }
    *j = (struct hws__gate_job){.job.run = run_look, .worker = w, .gate = g};
    if (!hws__job_order(w, &w->context->background, &j->job, BUSY_NS)) {
        free(j);
        return;
    }
    g->job = j;
    set(g, 0);
    wait_in_line(g, WAITING);
}

/* Counting descriptors takes its time before Linux 6.2. With the lock. */
static bool is_plenty(void)
{
    static struct rlimit last;
    struct rlimit now = {0};

    getrlimit(RLIMIT_NOFILE, &now);
    if (unlooked == 0 || now.rlim_cur != last.rlim_cur) {
        last = now;
        unlooked = hws__fd_room(PLENTY + UNLOOKED * HWS__ISOLATED_FDS) ? UNLOOKED : 1;
    }
    return --unlooked != 0 || hws__fd_room(PLENTY);
}

/* True: descriptors are short. With the lock. */
static bool check(void)
{
    if (is_plenty()) {
        return false;
    }
    for (struct hws__list *n = gates.next; n != &gates; n = n->next) {
        shut(hws__container(n, struct hws__gate, link));
    }
    return true;
}

static void add_socket(struct hws__gate *g, ucp_listener_h listener)
{
    int fd = hws__cm_listening(listener);

    if (fd >= 0) {
        g->fd[g->count++] = fd;
    }
}

static void join(struct hws__gate *g, struct hws__worker *w)
{
    g->worker = w;
    pthread_mutex_lock(&lock);
    hws__list_append(&gates, &g->link);
    set_again(g);
    check();
    pthread_mutex_unlock(&lock);
}

static void leave(struct hws__gate *g)
{
    pthread_mutex_lock(&lock);
    hws__list_remove(&g->link);
    set(g, 0);
    if (g->job != NULL) {
        g->job->gate = NULL;
    }
    pthread_mutex_unlock(&lock);
    g->worker = NULL;
}

void hws__gate_join(struct hws__listener *l)
{
    struct hws__gate *g = &l->gate;

    *g = (struct hws__gate){.count = 0};
    add_socket(g, l->ucx);
    for (uint32_t i = 0; i < l->ucx6_count; i++) {
        add_socket(g, l->ucx6[i]);
    }
    join(g, l->worker);
}

void hws__gate_leave(struct hws__listener *l)
{
    leave(&l->gate);
    hws__uworker_progress(l->worker->main);
}

void hws__gate_join_acceptors(struct hws__uworker *u)
{
    struct hws__gate *g = &u->gate;

    for (uint32_t i = 0; i < u->acceptors.count; i++) {
        g->fd[i] = u->acceptors.at[i].fd;
        g->port[i] = u->acceptors.at[i].port;
    }
    g->count = u->acceptors.count;
    join(g, u->worker);
    u->worker->gated++;
}

void hws__gate_leave_acceptors(struct hws__uworker *u)
{
    if (u->gate.worker != NULL) {
        u->worker->gated--;
        leave(&u->gate);
    }
}

void hws__gate_watch(void)
{
    pthread_mutex_lock(&lock);
    check();
    pthread_mutex_unlock(&lock);
}

/* With the lock. */
static void hold(void)
{
    if (holds++ == 0) {
        set_all_again();
    }
}

void hws__gate_hold(void)
{
    pthread_mutex_lock(&lock);
    hold();
    pthread_mutex_unlock(&lock);
}

bool hws__gate_hold_if_short(void)
{
    bool is_short;

    pthread_mutex_lock(&lock);
    if ((is_short = check())) {
        hold();
    }
    pthread_mutex_unlock(&lock);
    return is_short;
}

bool hws__gate_is_short(void)
{
    bool is_short;

    pthread_mutex_lock(&lock);
    unlooked = 0;
    is_short = check();
    pthread_mutex_unlock(&lock);
    return is_short;
}

void hws__gate_let_go(void)
{
    pthread_mutex_lock(&lock);
    if (--holds == 0) {
        set_all_again();
    }
    pthread_mutex_unlock(&lock);
}

bool hws__gate_admits(void)
{
    bool ok = true;

    pthread_mutex_lock(&lock);
    if (check() && (ok = has_room())) {
        admitted[0]++;
    }
    pthread_mutex_unlock(&lock);
    return ok;
}
