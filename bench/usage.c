#include "usage.h"
#include "bench.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static uint64_t descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint64_t n = 0;

    if (dir == NULL) {
        return 0;
    }
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n - 3; /* ".", ".." and the one that reads */
}

static void memory(bench_usage *u)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned long long kib;

        if (sscanf(line, "Rss: %llu", &kib) == 1) {
            u->rss = kib * 1024;
        } else if (sscanf(line, "Pss: %llu", &kib) == 1) {
            u->pss = kib * 1024;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

void bench_usage_get(bench_usage *u)
{
    struct timespec t;

    memset(u, 0, sizeof *u);
    memory(u);
    u->fds = descriptors();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    u->cpu_ns = (uint64_t)t.tv_sec * BENCH_SECOND + (uint64_t)t.tv_nsec;
    u->now_ns = bench_now_ns();
}
