#include "perf_values.h"
#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const perf_test perf_tests[] = {
    {"tag_lat", "tag match latency", 1, PERF_TAG, true, NULL},
    {"tag_bw", "tag match bandwidth", 32, PERF_TAG, false, NULL},
    {"tag_sync_lat", "tag sync match latency", 1, PERF_TAG_SYNC, true, NULL},
    {"tag_sync_bw", "tag sync match bandwidth", 32, PERF_TAG_SYNC, false, NULL},
    {"stream_lat", "stream latency", 1, PERF_STREAM, true, NULL},
    {"stream_bw", "stream bandwidth", 1, PERF_STREAM, false, NULL},
    {"ucp_am_lat", "am latency", 1, PERF_AM, true, NULL},
    {"ucp_am_bw", "am bandwidth / message rate", 32, PERF_AM, false, NULL},
    {"ucp_put_lat", "put latency", 1, PERF_PUT, true, NULL},
    {"ucp_put_bw", "put bandwidth", 32, PERF_PUT, false, NULL},
    {"ucp_get", "get latency / bandwidth / message rate", 1, PERF_GET, false, NULL},
    {"ucp_add", "atomic add bandwidth / message rate", 1, PERF_ADD, false, NULL},
    {"ucp_fadd", "atomic fetch-and-add latency / rate", 1, PERF_FADD, false, NULL},
    {"ucp_swap", "atomic swap latency / rate", 1, PERF_SWAP, false, NULL},
    {"ucp_cswap", "atomic compare-and-swap latency / rate", 1, PERF_CSWAP, false, NULL},
    {"multi_lat", "multi-buffer latency", 1, PERF_MULTI, true, "ucp_am_lat"},
    {"multi_bw", "multi-buffer bandwidth", 32, PERF_MULTI, false, "ucp_am_bw"},
    {"plan_bw", "bandwidth of a plan of -O puts", 32, PERF_PLAN, false, "ucp_put_bw"},
};
const uint32_t perf_test_count = sizeof perf_tests / sizeof perf_tests[0];

static int wrong(const char *option, const char *value)
{
    tool_error("perf: %s: '%s' is no good value; see `hawser perf --help`", option, value);
    return TOOL_USAGE;
}

bool perf_value_number(const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && strchr(text, '-') == NULL && *out >= low &&
           *out <= high;
}

static int number32(const char *option, const char *text, uint32_t low, uint32_t high,
                    uint32_t *out)
{
    uint64_t n;

    if (!perf_value_number(text, low, high, &n)) {
        return wrong(option, text);
    }
    *out = (uint32_t)n;
    return 0;
}

/* SIZE or SIZE:REPEAT, separated by commas. */
static int parse_sizes(perf_params *p, const char *text)
{
    const char *at = text;

    p->size_count = 0;
    for (;;) {
        unsigned long long size, repeat = 1;
        char *end;

        errno = 0;
        size = strtoull(at, &end, 10);
        if (end == at || *at == '-' || errno != 0 || size > UINT64_C(1) << 40) {
            return wrong("-s", text);
        }
        if (*end == ':') {
            at = end + 1;
            repeat = strtoull(at, &end, 10);
        }
        if (repeat == 0 || repeat > PERF_SIZES_MAX - p->size_count) {
            return wrong("-s", text);
        }
        while (repeat-- != 0) {
            p->sizes[p->size_count++] = size;
        }
        if (*end == '\0') {
            return 0;
        }
        if (*end != ',') {
            return wrong("-s", text);
        }
        at = end + 1;
    }
}

static int parse_test(perf_params *p, const char *text)
{
    for (uint32_t i = 0; i < perf_test_count; i++) {
        const char *name = perf_tests[i].name;
        bool ucp = strncmp(name, "ucp_", strlen("ucp_")) == 0;

        if (strcmp(text, name) == 0 || (ucp && strcmp(text, name + strlen("ucp_")) == 0)) {
            p->test = i;
            return 0;
        }
    }
    return wrong("-t", text);
}

static int parse_layout(perf_params *p, const char *text)
{
    static const char *const names[] = {"contig", "iov"};

    for (uint32_t send = 0; send < 2; send++) {
        size_t n = strlen(names[send]);

        if (strncmp(text, names[send], n) != 0) {
            continue;
        }
        if (text[n] == '\0') {
            p->iov = send ? PERF_IOV_SEND : 0;
            return 0;
        }
        for (uint32_t receive = 0; receive < 2; receive++) {
            if (text[n] == ',' && strcmp(text + n + 1, names[receive]) == 0) {
                p->iov = (send ? PERF_IOV_SEND : 0) | (receive ? PERF_IOV_RECEIVE : 0);
                return 0;
            }
        }
    }
    return wrong("-D", text);
}

static int parse_cpus(perf_options *o, const char *text)
{
    const char *at = text;
    char *end;

    for (o->cpu_count = 0; o->cpu_count < PERF_CPUS_MAX; at = end + 1) {
        unsigned long cpu = strtoul(at, &end, 10);

        if (end == at || *at == '-' || cpu > 4095 || (*end != ',' && *end != '\0')) {
            return wrong("-c", text);
        }
        o->cpus[o->cpu_count++] = (uint32_t)cpu;
        if (*end == '\0') {
            return 0;
        }
    }
    return wrong("-c", text);
}

static int parse_word(const char *option, const char *text, const char *const *words,
                      uint32_t count, uint32_t *out)
{
    for (*out = 0; *out < count; ++*out) {
        if (strcmp(text, words[*out]) == 0) {
            return 0;
        }
    }
    return wrong(option, text);
}

static int parse_wait(perf_options *o, const char *text)
{
    static const char *const words[] = {"poll", "sleep"};
    uint32_t word;

    if (parse_word("-E", text, words, 2, &word) != 0) {
        return TOOL_USAGE;
    }
    o->sleep = word == 1;
    return 0;
}

static int parse_threading(const char *text)
{
    static const char *const words[] = {"single", "serialized", "multi"};
    uint32_t word;

    return parse_word("-M", text, words, 3, &word);
}

static int parse_mode(perf_options *o, const char *text)
{
    static const char *const words[] = {"manual", "blocking", "thread", "thread-polling"};

    return parse_word("--mode", text, words, 4, &o->mode);
}

static int parse_rank(perf_options *o, const char *text)
{
    char *end;

    o->rank = strtod(text, &end);
    /* Not the other way round: nan is neither. */
    return end != text && *end == '\0' && o->rank >= 0 && o->rank <= 100 ? 0 : wrong("-R", text);
}

static int parse_port(perf_options *o, const char *text)
{
    uint32_t port;

    if (number32("-p", text, 0, 65535, &port) != 0) {
        return TOOL_USAGE;
    }
    o->port = (uint16_t)port;
    o->port_given = true;
    return 0;
}

static int parse_count(const char *option, const char *text, uint64_t low, uint64_t *out)
{
    return perf_value_number(text, low, INT64_MAX, out) ? 0 : wrong(option, text);
}

/* --port-fd: given by --self to its server. */
static int parse_descriptor(perf_options *o, const char *text)
{
    uint32_t fd;

    if (number32("--port-fd", text, 0, 65535, &fd) != 0) {
        return TOOL_USAGE;
    }
    o->port_fd = (int)fd;
    return 0;
}

/* The value of an option that has one. */
int perf_value(perf_options *o, int letter, const char *value)
{
    perf_params *p = &o->params;

    switch (letter) {
    case 't':
        return parse_test(p, value);
    case 's':
        return parse_sizes(p, value);
    case 'n':
        return parse_count("-n", value, 1, &p->iterations);
    case 'w':
        return parse_count("-w", value, 0, &p->warmup);
    case 'O':
        return number32("-O", value, 1, 1u << 16, &p->window);
    case 'D':
        return parse_layout(p, value);
    case 'H':
        return number32("-H", value, 0, 1u << 20, &p->am_header);
    case 'T':
        return number32("-T", value, 1, PERF_THREADS_MAX, &p->threads);
    case 'E':
        return parse_wait(o, value);
    case 'M':
        return parse_threading(value);
    case 'p':
        return parse_port(o, value);
    case 'c':
        return parse_cpus(o, value);
    case 'R':
        return parse_rank(o, value);
    case OPT_MODE:
        return parse_mode(o, value);
    case OPT_PAUSE:
        return number32("--pause", value, 0, 10000000, &o->pause_us);
    default:
        return parse_descriptor(o, value);
    }
}
