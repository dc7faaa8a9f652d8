#include "shm_orphans.h"
#include "log.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "ucx_shm_posix_"

/* The kernel grants a write lease only if nobody else has the file open, which a mapping counts as.
 * Looking through /proc would miss other PID namespaces, and who comes in between. */
static int is_nobodys(int fd)
{
    /* Whoever opens it meanwhile waits until it is closed here, and a signal tells of it: one that
     * is ignored by default, unlike SIGIO. */
    return fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

static int remove_orphan(int folder, const char *name)
{
    const int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    int removed = 0;

    if (fd < 0) {
        return 0;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && is_nobodys(fd)) {
        removed = unlinkat(folder, name, 0) == 0;
        /* Closing would not do: a child that was forked meanwhile has it too. */
        fcntl(fd, F_SETLEASE, F_UNLCK);
    }
    close(fd);
    return removed;
}

int hws__shm_orphans_remove(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    int removed = 0;

    if (dir == NULL) {
        return 0;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) == 0) {
            removed += remove_orphan(dirfd(dir), entry->d_name);
        }
    }
    closedir(dir);
    if (removed > 0) {
        hws__log(HWS_LOG_INFO, "removed %d segments of killed processes from %s", removed, folder);
    }
    return removed;
}
