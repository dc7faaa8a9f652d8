/* Unit tests of shm_orphans.c. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_orphans.h"

static char folder[64];

static const char *path(const char *name)
{
    static char text[128];

    snprintf(text, sizeof text, "%s/%s", folder, name);
    return text;
}

static int make(const char *name)
{
    const int fd = open(path(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, 4096), 0);
    return fd;
}

static void make_folder(void)
{
    strcpy(folder, "/dev/shm/hws-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    static const char *const names[] = {"ucx_shm_posix_1", "ucx_shm_posix_2", "other"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path(names[i]));
    cr_expect_eq(rmdir(folder), 0);
}

TestSuite(shm_orphans, .init = make_folder, .fini = remove_folder);

Test(shm_orphans, what_nobody_has_goes)
{
    close(make("ucx_shm_posix_1"));
    close(make("other"));
    cr_assert_eq(symlink("other", path("ucx_shm_posix_2")), 0);
    cr_assert_eq(hws__shm_orphans_remove(folder), 1);
    cr_assert_neq(access(path("ucx_shm_posix_1"), F_OK), 0);
    cr_assert_eq(access(path("other"), F_OK), 0);
    cr_assert_eq(access(path("ucx_shm_posix_2"), F_OK), 0);
}

/* A process that has the segment open or, without a descriptor, mapped; ended by a kill. */
static void check_kept_until_killed(int mapped)
{
    int ready[2];
    char byte;

    cr_assert_eq(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        const int fd = make("ucx_shm_posix_1");
        if (mapped) {
            if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED)
                _exit(1);
            close(fd);
        }
        if (write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    cr_expect_eq(hws__shm_orphans_remove(folder), 0);
    cr_expect_eq(access(path("ucx_shm_posix_1"), F_OK), 0);
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    cr_expect_eq(hws__shm_orphans_remove(folder), 1);
    close(ready[0]);
    close(ready[1]);
}

Test(shm_orphans, what_is_open_stays)
{
    check_kept_until_killed(0);
}

Test(shm_orphans, what_is_mapped_stays)
{
    check_kept_until_killed(1);
}

Test(shm_orphans, no_folder_no_harm)
{
    cr_assert_eq(hws__shm_orphans_remove("/no/such/folder"), 0);
}
