#include "perf_args.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Add one word. */
void perf_args_add(perf_args *a, const char *format, ...)
{
    va_list args;
    char *word = NULL;

    va_start(args, format);
    if (a->count == PERF_ARGS_MAX || vasprintf(&word, format, args) < 0) {
        a->failed = true;
    } else {
        a->words[a->count++] = word;
    }
    va_end(args);
}

static void option(perf_args *a, const char *name, uint64_t value)
{
    perf_args_add(a, "%s", name);
    perf_args_add(a, "%llu", (unsigned long long)value);
}

static void sizes(perf_args *a, const perf_params *p)
{
    char text[PERF_SIZES_MAX * 16] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < p->size_count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%llu", i == 0 ? "" : ",",
                                 (unsigned long long)p->sizes[i]);
    }
    perf_args_add(a, "-s");
    perf_args_add(a, "%s", text);
}

static void layout(perf_args *a, const perf_params *p)
{
    perf_args_add(a, "-D");
    perf_args_add(a, "%s,%s", p->iov & PERF_IOV_SEND ? "iov" : "contig",
                  p->iov & PERF_IOV_RECEIVE ? "iov" : "contig");
}

/* What is to be run, in the letters that `hawser perf` and ucx_perftest share. */
void perf_args_test(perf_args *a, const perf_options *o, bool raw)
{
    const perf_params *p = &o->params;
    const perf_test *test = &perf_tests[p->test];
    /* ucx_perftest counts the puts that a plan has. */
    uint64_t times = raw && test->api == PERF_PLAN ? p->window : 1;

    perf_args_add(a, "-t");
    perf_args_add(a, "%s", raw && test->raw != NULL ? test->raw : test->name);
    if (raw && test->api == PERF_MULTI) {
        option(a, "-s", perf_message_bytes(p)); /* one message of as many bytes */
    } else {
        sizes(a, p);
    }
    option(a, "-n", p->iterations * times);
    option(a, "-w", p->warmup * times);
    option(a, "-O", p->window);
    if (p->threads > 1) {
        option(a, "-T", p->threads);
    }
    if (test->api == PERF_AM && p->am_header != 0) {
        option(a, "-H", p->am_header);
    }
    if (p->iov != 0) {
        layout(a, p);
    }
    if (o->sleep) {
        perf_args_add(a, "-E");
        perf_args_add(a, "sleep");
    }
}

void perf_args_free(perf_args *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        free(a->words[i]);
    }
    memset(a, 0, sizeof *a);
}
