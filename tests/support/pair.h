/*
 * Two connected sides in one process: side 0 is the client, side 1 the server. Every event of the
 * listener and of the endpoints is kept in `record`, that of the connect operation included.
 */
#ifndef TESTS_SUPPORT_PAIR_H
#define TESTS_SUPPORT_PAIR_H

#include "support/check.h"
#include "support/record.h"

typedef struct t_pair_opts {
    uint32_t mode;           /* HWS_PROGRESS_* of both workers */
    uint32_t endpoint_flags; /* HWS_ENDPOINT_* of the client */
    uint32_t listener_flags; /* HWS_LISTENER_* */
    uint32_t context_flags;  /* HWS_CONTEXT_* */
    uint32_t one_worker;     /* 1: both sides on one worker */
    uint64_t close_timeout_ns;
    const char *host;                 /* null: 127.0.0.1 */
    const hws_worker_opts *worker[2]; /* further options of a worker; null: none */
    uint64_t features;                /* HWS_FEATURE_* of the context; 0: its default */
    const char *const *config;        /* of the context; null: none */
} t_pair_opts;

typedef struct t_pair {
    hws_id context;
    hws_id worker[2]; /* the same twice with one_worker */
    hws_id listener;
    hws_id endpoint[2];
    uint16_t port;
    uint32_t mode;
    t_record record[2];
} t_pair;

/* Opens and connects; opts may be null. */
void t_pair_open(t_pair *pair, const t_pair_opts *opts);
/* With these HWS_ENDPOINT_* of the client, and else as it comes. */
void t_pair_open_flags(t_pair *pair, uint32_t endpoint_flags);
/* The same without endpoints: the test connects on its own. */
void t_pair_listen(t_pair *pair, const t_pair_opts *opts);
/* One more connection over the pair's listener. */
void t_pair_connect(t_pair *pair, const t_pair_opts *opts, hws_id *client, hws_id *server);
/* Closes everything and checks that nothing is left pending. */
void t_pair_close(t_pair *pair);

/* Closes both endpoints at the same time, which takes no longer than either alone. */
void t_pair_close_both(t_pair *pair);

/* Makes progress on both sides once, or gives way to the library's threads. */
void t_pair_step(t_pair *pair);

/* Progress until the condition holds. */
#define UNTIL(pair, condition)                                    \
    for (uint64_t until_ = t_now();;) {                           \
        if (condition) {                                          \
            break;                                                \
        }                                                         \
        t_pair_step(pair);                                        \
        t_check_patience(__FILE__, __LINE__, until_, #condition); \
    }

/* Progress for a time in which nothing is expected to happen. */
void t_pair_idle(t_pair *pair, uint64_t nanoseconds);

/* The result of an operation that has neither callback nor queue; of op 0 (inline): all zero. */
#define WAIT(pair, op) t_pair_wait(__FILE__, __LINE__, (pair), (op))
hws_event t_pair_wait(const char *file, int line, t_pair *pair, hws_id op);

/* The same, and the status must be HWS_OK. */
#define WAIT_OK(pair, op) t_pair_wait_ok(__FILE__, __LINE__, (pair), (op))
hws_event t_pair_wait_ok(const char *file, int line, t_pair *pair, hws_id op);

/* The operation has not ended. */
#define CHECK_PENDING(op) CHECK_CODE(hws_wait((op), 0, NULL), HWS_E_TIMED_OUT)

hws_endpoint_info t_endpoint_info(hws_id endpoint);
hws_stats t_stats(hws_id id);

/* A TCP port of 127.0.0.1 on which nobody listens. */
uint16_t t_closed_port(void);
/* A TCP socket of 127.0.0.1 that takes connections in the kernel but never says anything. */
int t_plain_listener(uint16_t *port);
/* 1 when the address can be bound. */
int t_can_bind(const char *address);

#endif
