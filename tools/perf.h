/*
 * `hawser perf`: the parts of it, and what they hand to each other.
 *
 *   perf_options.c   the command line             perf_self.c     both sides from one call
 *   perf_values.c    values of its options        perf_raw.c      runs ucx_perftest
 *   perf_server.c    one side of a run            perf_compare.c  both in alternation
 *   perf_client.c    the other                    perf_table.c    ratios of the two
 *   perf_side.c      what sides have in common    perf_print.c    ucx_perftest's columns
 *   perf_lane.c      one thread's connection      perf_json.c     the same for programs
 *   perf_loop.c      the loops that are measured  perf_spawn.c    child processes
 *   perf_am.c        arriving active messages     perf_args.c     their command lines
 *   perf_rma.c       remote memory access         perf_window.h   operations under way
 *   perf_multi.c     multi-buffer messages        perf_clock.c    time, percentiles, results
 */
#ifndef HAWSER_PERF_H
#define HAWSER_PERF_H

#include <hawser.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PERF_SIZES_MAX 64
#define PERF_THREADS_MAX 64
#define PERF_CPUS_MAX 64
#define PERF_PORT 13337
#define PERF_ROUNDS 5

enum perf_api {
    PERF_TAG,
    PERF_TAG_SYNC,
    PERF_STREAM,
    PERF_AM,
    PERF_MULTI,
    PERF_PUT, /* from here on: remote memory access, see perf_rma.c */
    PERF_GET,
    PERF_ADD,
    PERF_FADD,
    PERF_SWAP,
    PERF_CSWAP,
    PERF_PLAN
};

static inline bool perf_atomic(enum perf_api api)
{
    return api >= PERF_ADD && api <= PERF_CSWAP;
}

/** A test, as ucx_perftest names and describes it. */
typedef struct perf_test {
    const char *name;
    const char *title;
    uint32_t window; /* sends under way when -O says nothing */
    enum perf_api api;
    bool ping_pong;  /* else one direction: the client sends */
    const char *raw; /* what ucx_perftest runs in comparison, if it has not this one; or null */
} perf_test;

extern const perf_test perf_tests[];
extern const uint32_t perf_test_count;

#define PERF_IOV_SEND 1
#define PERF_IOV_RECEIVE 2

/** What the client decides and tells the server in its first message on every lane. */
typedef struct perf_params {
    uint64_t magic;
    uint64_t iterations;
    uint64_t warmup;
    uint32_t test; /* index into perf_tests */
    uint32_t threads;
    uint32_t lane; /* which thread's connection this message came on */
    uint32_t window;
    uint32_t am_header;
    uint32_t iov; /* PERF_IOV_* */
    uint32_t size_count;
    uint32_t reserved;
    uint64_t sizes[PERF_SIZES_MAX];
} perf_params;

#define PERF_MAGIC UINT64_C(0x3130667265707768) /* "hwperf01" */

/** The command line. */
typedef struct perf_options {
    perf_params params;
    const char *host; /* null: this is the server */
    double rank;      /* of the percentile column */
    uint32_t cpus[PERF_CPUS_MAX];
    uint32_t cpu_count;
    uint32_t mode;     /* HWS_PROGRESS_* */
    uint32_t pause_us; /* before each ping */
    uint32_t rounds;   /* of --compare; 0: none */
    int port_fd;       /* the server writes its port there; -1: nowhere */
    uint16_t port;
    bool port_given;
    bool final_only, csv, json, percentiles;
    bool sleep, tcp, raw, loopback, self;
} perf_options;

/** Figures of one thread, or of all: microseconds, bytes and messages a second. */
typedef struct perf_result {
    uint64_t iterations;
    double percentile, latency_average, latency_overall;
    double bandwidth_average, bandwidth_overall;
    double rate_average, rate_overall;
    double all[4];  /* p50, p99, p99.9 and the maximum of every iteration */
    double last[3]; /* p50, p99, p99.9 of the last 2048, which is all that ucx_perftest keeps */
} perf_result;

/** Time of every iteration, in ticks of the processor's counter. */
typedef struct perf_clock {
    uint64_t *ring;
    uint64_t mask;
    uint64_t count;     /* iterations since the start */
    uint64_t previous;  /* ticks at the end of the last iteration */
    uint64_t report_at; /* ticks of the next line of progress; UINT64_MAX: none */
    uint64_t start_ns, stop_ns;
    uint64_t report_ns, report_count; /* of the last line of progress */
} perf_clock;

/** Operations under way: a ring of their ids, 0 where one completed at once. */
typedef struct perf_window {
    hws_id *ops;
    uint32_t size, next;
} perf_window;

/** One thread and its connection. */
typedef struct perf_lane {
    hws_id worker;
    hws_id to;   /* the endpoint that is sent on */
    hws_id from; /* the endpoint that is received on: another one with -l only */
    const perf_options *options;
    const perf_params *params;
    const perf_test *test;
    void *send, *receive;
    uint64_t send_length, receive_length; /* bytes, or entries of an hws_iov array */
    uint64_t bytes;                       /* of one message */
    void *header;
    uint64_t tag;
    hws_op_opts send_opts, receive_opts;
    perf_window sends, receives;
    perf_clock clock;
    perf_result result;
    uint32_t index;
    int32_t status;
    /* Why the peer went, while something is waited for that no operation stands for: a receive of `watch` that nothing
     * is ever sent to ends with the peer. */
    _Atomic int32_t gone;
    char watch;
    bool client;

    /* Active messages arrive on their own: counted by a callback, or through a queue where another
     * thread may make progress (a wait on a queue cannot miss what that thread delivered). Receives of
     * a window are counted too, where this thread makes the progress: `taken` is how many were posted. */
    hws_id queue;
    _Atomic uint64_t arrived;
    uint64_t taken;
    bool counts_receives;
    hws_op_opts fetch_opts;

    hws_segment *send_segments, *receive_segments;

    /* Remote memory access. */
    hws_id context, memory, rkey, plan;
    char *mine;       /* the memory that the peer works on */
    uint64_t theirs;  /* the address of the peer's */
    uint64_t fetched; /* by an atomic */
    uint8_t turn;

    void *buffers[4]; /* what perf_lane_free() frees */
} perf_lane;

/* perf_options.c: 0, or the exit code to leave with (-1: leave with 0, the help was printed). */
int perf_options_parse(perf_options *o, int argc, char **argv);
uint64_t perf_message_bytes(const perf_params *p);
uint64_t perf_iteration_bytes(const perf_params *p);

/* perf_clock.c */
void perf_clock_calibrate(void);
uint64_t perf_now_ns(void);
int perf_clock_open(perf_clock *c, uint64_t samples);
void perf_clock_start(perf_clock *c, bool reports);
void perf_clock_stop(perf_clock *c);
void perf_clock_pause(perf_lane *lane);
void perf_clock_report(perf_lane *lane);
void perf_clock_result(perf_lane *lane);
double perf_tick_cost_ns(void);
void perf_result_merge(perf_result *all, const perf_lane *lanes, uint32_t count);

/* perf_lane.c */
int perf_lane_open(perf_lane *lane, const perf_options *o, const perf_params *p, uint32_t index);
void perf_lane_free(perf_lane *lane);
/** Have `gone` tell of the peer's end, where the loops wait for something that does not end with the peer. */
int32_t perf_lane_watch(perf_lane *lane);
int32_t perf_lane_run(perf_lane *lane);

/* perf_loop.c: negative codes of the library stop a loop. */
void perf_count_receive(void *lane, const hws_event *event);
int32_t perf_loop_run(perf_lane *lane, uint64_t count);

/* perf_am.c */
int32_t perf_am_open(perf_lane *lane);
int32_t perf_am_queue_wait(perf_lane *lane);

/* perf_multi.c */
int32_t perf_multi_open(perf_lane *lane);
int32_t perf_multi_receive(perf_lane *lane);

/* perf_rma.c: opening needs both connections. */
int32_t perf_rma_open(perf_lane *lane);
int32_t perf_rma_run(perf_lane *lane, uint64_t count);

/* perf_server.c, perf_client.c: exit codes. */
int perf_server(const perf_options *o);
int perf_client(const perf_options *o);
int perf_loopback(const perf_options *o);

/** What a session ran on, for the output. */
typedef struct perf_setting {
    hws_library_info library;
    hws_endpoint_info endpoint;
} perf_setting;

/* perf_print.c */
void perf_print_box(const perf_options *o, const perf_params *p);
void perf_print_header(const perf_options *o);
void perf_print_progress(const perf_options *o, uint32_t thread, const perf_result *r);
void perf_print_final(const perf_options *o, const perf_result *r);

/* perf_json.c */
const char *perf_mode_name(uint32_t mode);
int perf_json_print(const perf_options *o, const perf_result *r, const perf_setting *s);

/* perf_spawn.c */
typedef struct perf_child {
    int pid;
    int output; /* what it prints, to be read; -1: none */
} perf_child;

/** How a child process is to run. */
typedef struct perf_spawn {
    char *const *argv;
    char *const *environment; /* NAME=value, added; nullable */
    const uint32_t *cpus;
    uint32_t cpu_count; /* 0: as the parent */
    int pass_fd;        /* stays open in the child; -1: none */
    bool capture;       /* its output comes through perf_child.output */
    bool quiet;         /* its output is thrown away */
} perf_spawn;

int perf_spawn_start(const perf_spawn *s, perf_child *child);
int perf_spawn_wait(perf_child *child);
void perf_spawn_stop(perf_child *child);
char *perf_spawn_read(perf_child *child);
uint32_t perf_cpus_pair(const perf_options *o, uint32_t pair[2]);

/* perf_self.c: starts the server and runs the client; `text` gets its output if not null. */
int perf_self(const perf_options *o, bool json, char **text);

/* perf_raw.c */
typedef struct perf_raw {
    char program[600];
    char folder[512]; /* of the libraries, for LD_LIBRARY_PATH */
    char loaded[512]; /* the libucp that the last run had mapped */
} perf_raw;

int perf_raw_find(perf_raw *raw, const char *ucx_folder);
int perf_raw_run(perf_raw *raw, const perf_options *o, double rank, perf_result *out);

/* perf_compare.c */
int perf_compare(const perf_options *o);

#endif
