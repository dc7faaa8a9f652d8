/* Unit tests of host.c. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

Test(host, hash_is_stable_and_not_zero)
{
    cr_assert_neq(hws__host_hash(), 0);
    cr_assert_eq(hws__host_hash(), hws__host_hash());
}

Test(host, hash_needs_no_descriptor_once_known)
{
    const uint64_t hash = hws__host_hash();
    const int next = dup(STDERR_FILENO);
    struct rlimit limit;

    close(next);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)next;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(hws__host_hash(), hash);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static uint64_t hash_in_child(int flags, int *unshared)
{
    int fds[2];
    struct {
        uint64_t hash;
        int ok;
    } answer = {0, 0};

    cr_assert_eq(pipe(fds), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        answer.ok = flags == 0 || unshare(flags) == 0;
        answer.hash = hws__host_hash();
        _exit(write(fds[1], &answer, sizeof(answer)) == (ssize_t)sizeof(answer) ? 0 : 1);
    }
    cr_assert_eq(read(fds[0], &answer, sizeof(answer)), (ssize_t)sizeof(answer));
    waitpid(pid, NULL, 0);
    close(fds[0]);
    close(fds[1]);
    *unshared = answer.ok;
    return answer.hash;
}

Test(host, another_ipc_namespace_is_another_host)
{
    int ok;

    cr_assert_eq(hash_in_child(0, &ok), hws__host_hash());
    const uint64_t hash = hash_in_child(CLONE_NEWIPC, &ok);
    if (!ok)
        cr_skip_test("no right to make an IPC namespace");
    cr_assert_neq(hash, hws__host_hash());
}

Test(host, another_network_namespace_is_the_same_host)
{
    int ok;
    const uint64_t hash = hash_in_child(CLONE_NEWNET, &ok);

    if (!ok)
        cr_skip_test("no right to make a network namespace");
    cr_assert_eq(hash, hws__host_hash());
}

Test(host, descriptors_are_counted)
{
    const int before = hws__fd_count();
    const int fd = open("/dev/null", O_RDONLY);

    cr_assert_gt(before, 0);
    cr_assert_eq(hws__fd_count(), before + 1);
    close(fd);
    cr_assert_eq(hws__fd_count(), before);
}

Test(host, room_for_descriptors_is_up_to_the_limit)
{
    const int open_now = hws__fd_count();
    struct rlimit limit;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)open_now + 10;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert(hws__fd_room(10));
    cr_assert_not(hws__fd_room(11));
}

Test(host, the_soft_limit_is_raised_to_the_hard_one)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 200;
    if (limit.rlim_max > 1000)
        limit.rlim_max = 1000;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(hws__fd_limit_raise(), (int)limit.rlim_max);
    getrlimit(RLIMIT_NOFILE, &limit);
    cr_assert_eq(limit.rlim_cur, limit.rlim_max);
}

Test(host, memory_and_shm_are_told)
{
    cr_assert_gt(hws__mem_available(), 1u << 20);
    cr_assert_gt(hws__dev_shm_free(), 0);
}

Test(host, segments_are_possible)
{
    cr_assert(hws__segments_possible());
}

/* In an IPC namespace of its own, whose limits nobody else sees. */
static void limit_segments(const char *file, const char *most)
{
    const int fd = unshare(CLONE_NEWIPC) == 0 ? open(file, O_WRONLY) : -1;

    if (fd < 0 || write(fd, most, strlen(most)) < 0)
        cr_skip_test("no right to make an IPC namespace and to set its limits");
    close(fd);
}

static int cap_with_segments(const char *most, const char **why)
{
    limit_segments("/proc/sys/kernel/shmmni", most);
    return hws__isolated_cap(false, why);
}

Test(host, too_few_segments_for_one_worker)
{
    limit_segments("/proc/sys/kernel/shmmni", "3");
    cr_assert_not(hws__segments_possible());
}

Test(host, segments_too_short_for_a_worker)
{
    limit_segments("/proc/sys/kernel/shmmax", "65536");
    cr_assert_not(hws__segments_possible());
}

Test(host, just_enough_segments)
{
    limit_segments("/proc/sys/kernel/shmmni", "4");
    for (int i = 0; i < 10; i++)
        cr_assert(hws__segments_possible());
}

Test(host, few_segments_bound_the_cap)
{
    const char *why;

    cr_assert_eq(cap_with_segments("16", &why), 12 / HWS__ISOLATED_SEGMENTS);
    cr_assert_str_eq(why, "shared-memory segments");
}

Test(host, no_segments_mean_none)
{
    const char *why;

    cr_assert_eq(cap_with_segments("0", &why), 0);
    cr_assert_not(hws__segments_possible());
}

Test(host, a_full_dev_shm_bounds_only_those_who_may_use_it)
{
    cr_assert_leq(hws__isolated_cap(true, NULL), hws__isolated_cap(false, NULL));
}

Test(host, few_descriptors_bound_the_cap)
{
    const char *why = NULL;
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 4 * HWS__ISOLATED_FDS;
    setrlimit(RLIMIT_NOFILE, &limit);
    const int cap = hws__isolated_cap(false, &why);
    cr_assert_leq(cap, 2);
    cr_assert_geq(cap, 0);
    cr_assert_not_null(why);
    if (cap > 0)
        cr_assert_str_eq(why, "descriptors");
}

Test(host, no_descriptor_left_means_none)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 4;
    setrlimit(RLIMIT_NOFILE, &limit);
    cr_assert_eq(hws__isolated_cap(false, NULL), 0);
}
