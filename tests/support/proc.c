#include "support/proc.h"
#include "support/check.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static uint64_t entries(const char *path)
{
    DIR *folder = opendir(path);
    uint64_t count = 0;
    struct dirent *entry;

    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

/* The number behind `key` in a file of "key: number" lines. */
static uint64_t field(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    unsigned long long value = 0;
    char line[256];
    int found = 0;

    CHECK(file != NULL);
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        found = strncmp(line, key, strlen(key)) == 0 &&
                sscanf(line + strlen(key), "%*[: \t]%llu", &value) == 1;
    }
    fclose(file);
    CHECK(found);
    return value;
}

uint64_t t_fd_count(void)
{
    return entries("/proc/self/fd") - 1; /* the folder itself */
}

uint64_t t_fd_lowest_free(void)
{
    int fd = dup(STDERR_FILENO);

    CHECK(fd >= 0);
    close(fd);
    return (uint64_t)fd;
}

uint64_t t_limit(int what, uint64_t value)
{
    struct rlimit l;

    CHECK_EQ(getrlimit(what, &l), 0);
    l.rlim_cur = value < l.rlim_max ? value : l.rlim_max;
    CHECK_EQ(setrlimit(what, &l), 0);
    return l.rlim_cur;
}

uint64_t t_map_count(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    uint64_t count = 0;
    int c;

    CHECK(file != NULL);
    while ((c = getc(file)) != EOF) {
        count += c == '\n';
    }
    fclose(file);
    return count;
}

uint64_t t_rss_kib(void)
{
    return field("/proc/self/status", "VmRSS");
}

uint64_t t_thread_count(void)
{
    return entries("/proc/self/task");
}

uint64_t t_cpu_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * T_SECOND + (uint64_t)used.tv_nsec;
}

uint64_t t_memory_available(void)
{
    return field("/proc/meminfo", "MemAvailable") * 1024;
}

static uint64_t posix_segments(void)
{
    DIR *folder = opendir("/dev/shm");
    uint64_t count = 0;
    struct dirent *entry;

    if (folder == NULL) {
        return 0;
    }
    while ((entry = readdir(folder)) != NULL) {
        count += strncmp(entry->d_name, "ucx_shm", 7) == 0;
    }
    closedir(folder);
    return count;
}

/* Lines of the table below its title: key, id, permissions, bytes, maker, last user, attached. */
static uint64_t sysv_segments(const pid_t *makers, int makers_count)
{
    FILE *file = fopen("/proc/sysvipc/shm", "re");
    uint64_t count = 0;
    char line[512];

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned long attached = 1;
        long maker = 0;

        if (sscanf(line, "%*d %*d %*o %*u %ld %*d %lu", &maker, &attached) != 2 || attached != 0) {
            continue;
        }
        for (int i = 0; i < makers_count; i++) {
            count += makers[i] == maker;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

uint64_t t_segments_left(const pid_t *makers, int count)
{
    return posix_segments() + sysv_segments(makers, count);
}
