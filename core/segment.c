#include "segment.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/shm.h>

/* Of a line of /proc/self/maps: Linux gives a segment's id as its inode. Names count from 1. */
static uint64_t name(const char *line, uint64_t address)
{
    uint64_t start, end, inode;
    char path[16] = "";

    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*x %*x:%*x %" SCNu64 " %15s", &start, &end,
               &inode, path) != 4 ||
        address < start || address >= end || strncmp(path, "/SYSV", 5) != 0) {
        return 0;
    }
    return inode + 1;
}

uint64_t hws__segment_of(const void *address)
{
    FILE *file = fopen("/proc/self/maps", "re");
    uint64_t found = 0;
    char line[256];

    if (file == NULL) {
        return 0;
    }
    /* Of a longer line only the path is cut, and what is left of it names no segment. */
    while (found == 0 && fgets(line, sizeof line, file) != NULL) {
        found = name(line, (uint64_t)(uintptr_t)address);
    }
    fclose(file);
    return found;
}

const void *hws__segment_hold(uint64_t segment)
{
    const void *at;

    if (segment == 0 || segment > INT32_MAX) {
        return NULL;
    }
    at = shmat((int)(segment - 1), NULL, SHM_RDONLY);
    return (intptr_t)at == -1 ? NULL : at;
}

void hws__segment_release(const void *held)
{
    shmdt(held);
}
