#include "host.h"
#include "fnv.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SHM_RESERVE = 4 << 20, FD_CAP_MAX = 1 << 20 };

/* ---- identity ---- */

static int read_line(const char *path, char *line, size_t cap)
{
    FILE *f = fopen(path, "re");
    const int ok = f != NULL && fgets(line, (int)cap, f) != NULL;

    if (f != NULL)
        fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* The boot id is read once: a machine must not look like another when no descriptor is left to read it again. */
static uint64_t machine_hash(void)
{
    static _Atomic uint64_t known;
    uint64_t hash = atomic_load(&known);
    char line[256];

    if (hash != 0)
        return hash;
    if (read_line("/proc/sys/kernel/random/boot_id", line, sizeof(line))) {
        hash = hws__fnv(HWS__FNV, line, strlen(line));
        atomic_store(&known, hash);
        return hash;
    }
    /* Without a boot id UCX goes by the host's name and a hardware address. */
    if (gethostname(line, sizeof(line)) != 0)
        line[0] = '\0';
    line[sizeof(line) - 1] = '\0';
    return hws__fnv(HWS__FNV, line, strlen(line));
}

uint64_t hws__host_hash(void)
{
    uint64_t hash = machine_hash();
    uint64_t ipc = 0;
    struct stat st;

    if (stat("/proc/self/ns/ipc", &st) == 0)
        ipc = (uint64_t)st.st_ino;
    hash = hws__fnv(hash, &ipc, sizeof(ipc));
    return hash != 0 ? hash : 1;
}

uint32_t hws__host_network(void)
{
    struct stat st;

    return stat("/proc/self/ns/net", &st) == 0 ? (uint32_t)st.st_ino : 0;
}

/* ---- what is left ---- */

uint64_t hws__dev_shm_free(void)
{
    struct statvfs fs;

    if (statvfs("/dev/shm", &fs) != 0)
        return UINT64_MAX;
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

bool hws__segments_possible(void)
{
    int ids[HWS__ISOLATED_SEGMENTS], n = 0;
    bool all = true;

    while (all && n < HWS__ISOLATED_SEGMENTS) {
        ids[n] = shmget(IPC_PRIVATE, HWS__ISOLATED_SHM, IPC_CREAT | S_IRUSR | S_IWUSR);
        all = ids[n] >= 0;
        n += all;
    }
    while (n > 0)
        all &= shmctl(ids[--n], IPC_RMID, NULL) == 0;
    return all;
}

/* A quarter of the ids stays for segments that grow and for other programs. */
static uint64_t cap_by_segments(void)
{
    struct shm_info used;
    struct shminfo limit;

    if (shmctl(0, IPC_INFO, (struct shmid_ds *)(void *)&limit) < 0 ||
        shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&used) < 0)
        return UINT64_MAX;
    const uint64_t ids = limit.shmmni - limit.shmmni / 4, ids_used = (uint64_t)used.used_ids;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t pages = limit.shmall > used.shm_tot ? limit.shmall - used.shm_tot : 0;
    const uint64_t by_ids = (ids > ids_used ? ids - ids_used : 0) / HWS__ISOLATED_SEGMENTS;
    const uint64_t by_pages = pages / (HWS__ISOLATED_SHM / page);

    return by_ids < by_pages ? by_ids : by_pages;
}

static int read_number(const char *path, uint64_t *value)
{
    char line[64], *end;

    if (!read_line(path, line, sizeof(line)))
        return 0;
    *value = strtoull(line, &end, 10);
    return end != line; /* "max" is no number */
}

/* "inactive_file 4096" in memory.stat: file pages that the kernel takes back before it refuses. */
static uint64_t cgroup_reclaimable(const char *dir)
{
    char path[PATH_MAX + 32], line[128];
    unsigned long long value = 0;

    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "inactive_file %llu", &value) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return value;
}

/* Room under one group's limit; UINT64_MAX if it has none. */
static uint64_t cgroup_room(const char *dir)
{
    char path[PATH_MAX + 32];
    uint64_t max, used;

    snprintf(path, sizeof(path), "%s/memory.max", dir);
    if (!read_number(path, &max))
        return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/memory.current", dir);
    if (!read_number(path, &used))
        return max;
    const uint64_t reclaimable = cgroup_reclaimable(dir);
    used = used > reclaimable ? used - reclaimable : 0;
    return max > used ? max - used : 0;
}

/* Limits nest: the least room of the process's group and all above it (version 2 only). */
static uint64_t cgroup_available(void)
{
    char line[PATH_MAX], dir[PATH_MAX];
    uint64_t least = UINT64_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    int found = 0;

    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
        found = strncmp(line, "0::/", 4) == 0;
    if (f != NULL)
        fclose(f);
    if (!found)
        return least;
    line[strcspn(line, "\n")] = '\0';
    if (snprintf(dir, sizeof(dir), "/sys/fs/cgroup%s", line + 3) >= (int)sizeof(dir))
        return least;
    while (strlen(dir) >= strlen("/sys/fs/cgroup")) {
        const uint64_t room = cgroup_room(dir);

        least = room < least ? room : least;
        char *slash = strrchr(dir, '/');
        *slash = '\0';
    }
    return least;
}

uint64_t hws__mem_available(void)
{
    const uint64_t group = cgroup_available();
    unsigned long long kb = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");

    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1)
            break;
    if (f != NULL)
        fclose(f);
    const uint64_t machine = kb != 0 ? (uint64_t)kb << 10 : UINT64_MAX;
    return machine < group ? machine : group;
}

/* ---- descriptors ---- */

int hws__fd_limit_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1024;
    if (limit.rlim_cur < limit.rlim_max) {
        const rlim_t soft = limit.rlim_cur;

        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = soft;
    }
    return limit.rlim_cur > FD_CAP_MAX ? FD_CAP_MAX : (int)limit.rlim_cur;
}

int hws__fd_count(void)
{
    const struct dirent *entry;
    struct stat st;
    DIR *dir;
    int n = 0;

    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
        return (int)st.st_size; /* Linux 6.2 and newer */
    if ((dir = opendir("/proc/self/fd")) == NULL)
        return -1;
    while ((entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n - 1; /* the folder itself */
}

bool hws__fd_room(int count)
{
    const int open_now = hws__fd_count();
    struct rlimit limit;

    if (open_now < 0)
        return errno != EMFILE && errno != ENFILE;
    return getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
           limit.rlim_cur >= (rlim_t)open_now + (rlim_t)count;
}

/* ---- the cap ---- */

/* Half the limit of descriptors stays the program's; what is open already counts against ours only
 * where it passes the program's half. */
static uint64_t cap_by_fds(void)
{
    struct rlimit limit;
    const int open_now = hws__fd_count();

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        limit.rlim_cur = 1024;
    if (limit.rlim_cur > FD_CAP_MAX)
        limit.rlim_cur = FD_CAP_MAX;
    const uint64_t half = (uint64_t)limit.rlim_cur / 2;
    const uint64_t left = (uint64_t)limit.rlim_cur - (open_now > 0 ? (uint64_t)open_now : 0);
    if (open_now > 0 && (uint64_t)open_now >= (uint64_t)limit.rlim_cur)
        return 0;
    return (left < half ? left : half) / HWS__ISOLATED_FDS;
}

static uint64_t cap_by_dev_shm(void)
{
    const uint64_t room = hws__dev_shm_free();

    return room > SHM_RESERVE ? (room - SHM_RESERVE) / HWS__ISOLATED_SHM : 0;
}

int hws__isolated_cap(bool dev_shm, const char **why)
{
    const struct {
        const char *name;
        uint64_t cap;
    } bounds[] = {
        {"descriptors", cap_by_fds()},
        {"memory", hws__mem_available() / 4 / HWS__ISOLATED_MEMORY},
        {"shared-memory segments", cap_by_segments()},
        {"/dev/shm", dev_shm ? cap_by_dev_shm() : UINT64_MAX},
    };
    size_t least = 0;

    for (size_t i = 1; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (bounds[i].cap < bounds[least].cap)
            least = i;
    if (why != NULL)
        *why = bounds[least].name;
    return bounds[least].cap > INT_MAX ? INT_MAX : (int)bounds[least].cap;
}
