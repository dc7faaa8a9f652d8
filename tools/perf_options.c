/*
 * The command line of `hawser perf`: ucx_perftest's letters with ucx_perftest's meaning, and a few
 * words of our own. An option of ucx_perftest that means nothing here is refused by name: a run
 * that silently measured something else would be worse.
 */
#include "perf_values.h"
#include "tool.h"

#include <getopt.h>

static const char help[] =
    "Usage: hawser perf [OPTIONS]          the server\n"
    "       hawser perf [OPTIONS] HOST     the client, which prints the figures\n"
    "       hawser perf --self [OPTIONS]   both, one process each\n"
    "\n"
    "As in ucx_perftest:\n"
    "  -t TEST     tag_lat tag_bw tag_sync_lat tag_sync_bw stream_lat stream_bw\n"
    "              ucp_am_lat ucp_am_bw ucp_put_lat ucp_put_bw ucp_get\n"
    "              ucp_add ucp_fadd ucp_swap ucp_cswap (also without ucp_)\n"
    "  -s SIZES    bytes of a message; a list (8,100 or 4096:16) is added up, or is the\n"
    "              pieces with -D iov (8)\n"
    "  -n COUNT    iterations (1000000)          -w COUNT   warm-up iterations (10000)\n"
    "  -O COUNT    sends under way (1 for _lat and stream, else 32)\n"
    "  -D LAYOUT[,LAYOUT]  contig or iov, of the sender and of the receiver\n"
    "  -H BYTES    header of an active message (0)\n"
    "  -T THREADS  threads in each process, on one worker, a connection each (1)\n"
    "  -E MODE     poll or sleep: what a wait does while nothing comes; on each side its own\n"
    "  -M MODE     single, serialized or multi: all the same here, where every thread may call\n"
    "  -e          error handling: always on here\n"
    "  -l          one process with itself\n"
    "  -p PORT     (13337)                       -c CPUS    pin to these, as in 0,1\n"
    "  -R RANK     of the percentile column (50.0)\n"
    "  -f          only the final line           -v         as CSV\n"
    "\n"
    "Hawser's own:\n"
    "  -t multi_lat multi_bw  the sizes of -s are segments (compared with ucp_am of their sum)\n"
    "  -t plan_bw      a plan of -O puts in one iteration (compared with ucp_put_bw)\n"
    "  --self          start both sides on this machine, on one CPU each (-c SERVER,CLIENT)\n"
    "  --compare [N]   N rounds (5) of this and of ucx_perftest -e of the same UCX, in turns\n"
    "  --mode MODE     manual, blocking, thread or thread-polling; on each side its own\n"
    "  --tcp           not over shared memory    --raw      no hello: a plain UCX connection\n"
    "  --pause US      wait before each ping of a _lat test: what a peer costs that fell asleep\n"
    "  --percentiles   p50, p99, p99.9 and the maximum of all iterations\n"
    "  --json          the result as one JSON object\n"
    "\n"
    "The client decides what is run; the server needs -p, and -E, -c and --mode for its own side.\n"
    "HAWSER_UCX chooses the UCX: system, wheel or a folder; both sides need the same one.\n"
    "Latency is half a round trip, as in ucx_perftest.\n";

static const struct option longs[] = {
    {"self", no_argument, NULL, OPT_SELF},
    {"compare", optional_argument, NULL, OPT_COMPARE},
    {"mode", required_argument, NULL, OPT_MODE},
    {"pause", required_argument, NULL, OPT_PAUSE},
    {"tcp", no_argument, NULL, OPT_TCP},
    {"raw", no_argument, NULL, OPT_RAW},
    {"percentiles", no_argument, NULL, OPT_PERCENTILES},
    {"json", no_argument, NULL, OPT_JSON},
    {"port-fd", required_argument, NULL, OPT_PORT_FD}, /* between --self and its server */
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* What ucx_perftest has and this has not. */
static const struct refused {
    char letter;
    const char *what;
} refused[] = {
    {'m', "memory type"},
    {'i', "distance between the pieces of an iov"},
    {'o', "one-sided progress"},
    {'B', "non-blocking registration"},
    {'b', "batch file"},
    {'6', "IPv6: give an IPv6 address as the host"},
    {'d', "device of UCT tests"},
    {'x', "transport of UCT tests"},
    {'W', "window of UCT tests"},
    {'A', "asynchronous progress of UCT tests"},
    {'N', "thousands separators"},
    {'C', "wild-card tags"},
    {'U', "unexpected messages"},
    {'r', "receive mode of streams"},
    {'I', "extra information"},
    {'X', "extra information"},
    {'z', "registered memory"},
    {'q', "no error messages"},
    {'y', "copy of messages"},
    {'P', "MPI"},
    {'S', "window"},
    {'K', "MAD set-up"},
    {'a', "accelerator"},
    {'L', "level of the device"},
    {'F', "flow control"},
    {'Y', "channels"},
    {'g', "local daemon"},
    {'G', "remote daemon"},
};

/* The number of rounds may follow --compare as a word of its own. */
static int parse_rounds(perf_options *o, int argc, char **argv)
{
    const char *text = optarg;
    uint64_t n;

    if (text == NULL && optind < argc && perf_value_number(argv[optind], 1, 1000, &n)) {
        text = argv[optind++];
    }
    if (text != NULL && !perf_value_number(text, 1, 1000, &n)) {
        tool_error("perf: --compare: 1 to 1000 rounds, not '%s'", text);
        return TOOL_USAGE;
    }
    o->rounds = text != NULL ? (uint32_t)n : PERF_ROUNDS;
    return 0;
}

static int refuse(int letter, const char *word)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (refused[i].letter == letter) {
            tool_error("perf: -%c of ucx_perftest (%s) is not supported", letter, refused[i].what);
            return TOOL_USAGE;
        }
    }
    if (letter != 0) {
        tool_error("perf: unknown option -%c; see `hawser perf --help`", letter);
    } else {
        tool_error("perf: unknown option %s; see `hawser perf --help`", word);
    }
    return TOOL_USAGE;
}

/* Options without a value. */
static bool parse_flag(perf_options *o, int letter)
{
    switch (letter) {
    case 'e': /* always on */
        return true;
    case 'l':
        return o->loopback = true;
    case 'f':
        return o->final_only = true;
    case 'v':
        return o->csv = true;
    case OPT_SELF:
        return o->self = true;
    case OPT_TCP:
        return o->tcp = true;
    case OPT_RAW:
        return o->raw = true;
    case OPT_PERCENTILES:
        return o->percentiles = true;
    case OPT_JSON:
        return o->json = true;
    default:
        return false;
    }
}

static int parse_one(perf_options *o, int letter, int argc, char **argv)
{
    switch (letter) {
    case '?':
        return refuse(optopt < 256 ? optopt : 0, argv[optind - 1]);
    case ':':
        tool_error("perf: %s needs a value; see `hawser perf --help`", argv[optind - 1]);
        return TOOL_USAGE;
    case 'h':
        fputs(help, stdout);
        return -1;
    case OPT_COMPARE:
        return parse_rounds(o, argc, argv);
    default:
        return parse_flag(o, letter) ? 0 : perf_value(o, letter, optarg);
    }
}

/* What a test cannot do. */
static int check_test(const perf_options *o)
{
    const perf_params *p = &o->params;
    enum perf_api api = perf_tests[p->test].api;
    uint64_t bytes = perf_message_bytes(p);

    if (perf_atomic(api) && ((bytes != 4 && bytes != 8) || p->iov != 0)) {
        tool_error("perf: an atomic has 4 or 8 bytes, contiguous");
        return TOOL_USAGE;
    }
    if (api >= PERF_PUT && (bytes == 0 || o->raw || o->sleep)) {
        tool_error("perf: remote memory access is not for 0 bytes, --raw or -E sleep");
        return TOOL_USAGE;
    }
    if (api == PERF_STREAM && bytes == 0) {
        tool_error("perf: a stream has no messages: nothing would be sent of 0 bytes");
        return TOOL_USAGE;
    }
    if (api == PERF_MULTI && (o->raw || p->iov != 0)) {
        tool_error("perf: multi-buffer messages are not for --raw or -D");
        return TOOL_USAGE;
    }
    return 0;
}

/* What follows from the options together. */
static int conclude(perf_options *o, int argc, char **argv)
{
    perf_params *p = &o->params;
    uint64_t tenth = p->iterations / 10 + (p->iterations % 10 != 0);

    if (optind + 1 < argc) {
        tool_error("perf: one host, not '%s' and '%s'", argv[optind], argv[optind + 1]);
        return TOOL_USAGE;
    }
    o->host = optind < argc ? argv[optind] : NULL;
    if ((o->host != NULL) + o->loopback + (o->self || o->rounds != 0) > 1) {
        tool_error("perf: a host, -l and --self (or --compare) exclude each other");
        return TOOL_USAGE;
    }
    if (o->loopback && p->threads > 1) {
        tool_error("perf: -l goes with one thread");
        return TOOL_USAGE;
    }
    if (o->pause_us != 0 && (!perf_tests[p->test].ping_pong || o->loopback || o->rounds != 0)) {
        tool_error("perf: --pause is for the tests of latency, without -l or --compare");
        return TOOL_USAGE;
    }
    if (p->window == 0) {
        p->window = perf_tests[p->test].window;
    }
    if (p->warmup > tenth) {
        p->warmup = tenth; /* as ucx_perftest does */
    }
    if (o->sleep && o->mode == HWS_PROGRESS_MANUAL) {
        o->mode = HWS_PROGRESS_BLOCKING; /* the manual mode has nothing to sleep on */
    }
    return check_test(o);
}

int perf_options_parse(perf_options *o, int argc, char **argv)
{
    static const char letters[] = ":t:s:n:w:O:D:H:T:E:M:p:c:R:elfvh";
    bool test_given = false;
    int letter, code;

    *o = (perf_options){.port = PERF_PORT, .rank = 50.0, .port_fd = -1};
    o->params = (perf_params){.magic = PERF_MAGIC,
                              .iterations = 1000000,
                              .warmup = 10000,
                              .threads = 1,
                              .size_count = 1,
                              .sizes = {8}};
    opterr = 0;
    optind = 1;
    while ((letter = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        if ((code = parse_one(o, letter, argc, argv)) != 0) {
            return code;
        }
        test_given = test_given || letter == 't';
    }
    if (!test_given && (optind < argc || o->self || o->rounds != 0 || o->loopback)) {
        tool_error("perf: which test? Say -t tag_lat, for one; see `hawser perf --help`");
        return TOOL_USAGE;
    }
    return conclude(o, argc, argv);
}
