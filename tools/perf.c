#include "perf.h"
#include "tool.h"

#include <sched.h>

/* One process, one side: all its threads, the library's too, stay on the CPUs of -c. */
static int pin(const perf_options *o)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (uint32_t i = 0; i < o->cpu_count; i++) {
        CPU_SET(o->cpus[i], &set);
    }
    if (o->cpu_count != 0 && sched_setaffinity(0, sizeof set, &set) != 0) {
        tool_error("perf: -c: no such CPU");
        return TOOL_FAILED;
    }
    return TOOL_OK;
}

static int one_side(const perf_options *o)
{
    int code = pin(o);

    if (code != TOOL_OK) {
        return code;
    }
    if (o->loopback) {
        return perf_loopback(o);
    }
    return o->host != NULL ? perf_client(o) : perf_server(o);
}

int tool_perf(int argc, char **argv)
{
    perf_options o;
    int code = perf_options_parse(&o, argc, argv);

    if (code != 0) {
        return code < 0 ? TOOL_OK : code;
    }
    perf_clock_calibrate();
    if (o.rounds != 0) {
        return perf_compare(&o);
    }
    return o.self ? perf_self(&o, o.json, NULL) : one_side(&o);
}
