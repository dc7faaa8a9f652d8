/*
 * `hawser stats PID`: what the workers of a running process have counted.
 */
#include "stats_print.h"
#include "tool.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "Usage: hawser stats [OPTIONS] PID\n"
    "\n"
    "Counters of each worker of a running process of this user: what passed by kind and transport,\n"
    "operations, wake-ups, isolated workers, failures by code; latencies where the worker keeps them\n"
    "(HWS_WORKER_LATENCY). Zeros are left out. The process is not disturbed.\n"
    "\n"
    "  --all         zeros too\n"
    "  --json        one JSON object\n"
    "  --watch SEC   again each SEC seconds, until interrupted or the process ends\n";

static const struct option longs[] = {
    {"all", no_argument, NULL, 'a'},
    {"json", no_argument, NULL, 'j'},
    {"watch", required_argument, NULL, 'w'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* A whole number of the command line above 0, or 0. */
static uint32_t number(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && n <= INT32_MAX ? (uint32_t)n : 0;
}

/* 0, the exit code to leave with, or -1: leave with 0. */
static int parse(stats_options *o, int argc, char **argv)
{
    int letter;

    opterr = 0;
    optind = 1;
    while ((letter = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
        switch (letter) {
        case 'a':
            o->all = true;
            break;
        case 'j':
            o->json = true;
            break;
        case 'w':
            if ((o->watch = number(optarg)) == 0) {
                tool_error("stats: --watch: seconds, not '%s'", optarg);
                return TOOL_USAGE;
            }
            break;
        case 'h':
            fputs(help, stdout);
            return -1;
        default:
            tool_error("stats: %s is no option, or needs a value; see `hawser stats --help`",
                       argv[optind - 1]);
            return TOOL_USAGE;
        }
    }
    if (optind + 1 != argc || (o->pid = number(argv[optind])) == 0) {
        tool_error("stats: one process id; see `hawser stats --help`");
        return TOOL_USAGE;
    }
    return 0;
}

static int once(const stats_options *o)
{
    stats_worker *all = NULL, *more;
    uint32_t count = 0;
    int32_t r;
    int code;

    do {
        if ((more = realloc(all, (count + 1) * sizeof *all)) == NULL) {
            free(all);
            return tool_failed(HWS_E_NO_MEMORY, "stats");
        }
        all = more;
        all[count].stats = (hws_stats){.struct_size = sizeof(hws_stats)};
        all[count].info = (hws_peek_info){.struct_size = sizeof(hws_peek_info)};
        r = hws_stats_peek(o->pid, count, &all[count].stats, &all[count].info);
        count += r == HWS_OK;
    } while (r == HWS_OK);
    if (r != HWS_E_NOT_FOUND || count == 0) {
        code = tool_failed(r, "stats");
    } else {
        code = o->json ? stats_print_json(o, all, count) : stats_print(o, all, count);
    }
    free(all);
    return code;
}

int tool_stats(int argc, char **argv)
{
    stats_options o = {0};
    int code = parse(&o, argc, argv);

    if (code != 0) {
        return code < 0 ? TOOL_OK : code;
    }
    while ((code = once(&o)) == TOOL_OK && o.watch != 0) {
        struct timespec t = {.tv_sec = o.watch};

        if (fflush(stdout) != 0) { /* which main() says */
            break;
        }
        nanosleep(&t, NULL);
    }
    return code;
}
