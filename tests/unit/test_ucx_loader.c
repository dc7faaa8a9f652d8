/* UCX: both */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hawser.h"
#include "support/guide.h"
#include "support/proc.h"
#include "ucx_loader.h"

static const char *error_text(void)
{
    static hws_error error;

    error.struct_size = sizeof(error);
    hws_last_error(&error);
    return error.text;
}

/* The copy under test, and another one if this machine has two. */
static struct hws__ucx_found ours;
static char other[PATH_MAX];

static void find_copies(void)
{
    char dir[PATH_MAX];
    const char *hint = getenv("HAWSER_TEST_UCX_OTHER");
    struct hws__ucx_found found;

    cr_assert_eq(hws__ucx_find(NULL, &ours), 0, "%s", error_text());
    if (hint != NULL && hws__ucx_find(hint, &found) == 0 && strcmp(found.dir, ours.dir) != 0)
        memcpy(other, found.dir, sizeof(other));
    else if (hws__ucx_system_dir(dir) && strcmp(dir, ours.dir) != 0)
        memcpy(other, dir, sizeof(other));
    else if (hws__ucx_wheel_dir(dir) && strcmp(dir, ours.dir) != 0)
        memcpy(other, dir, sizeof(other));
}

static void need_other(void)
{
    find_copies();
    if (other[0] == '\0')
        cr_skip_test("this machine has one copy of UCX only (set HAWSER_TEST_UCX_OTHER)");
}

static void open_from(const char *dir, const char *name, int must)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof(path), "%s/%s.so.0", dir, name);
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (must)
        cr_assert_not_null(handle, "%s", dlerror());
}

Test(ucx_loader, loads_and_tells, .init = find_copies)
{
    char text[PATH_MAX + 512];
    unsigned major, minor, release;

    cr_assert_eq(hws__ucx_load(NULL), 0, "%s", error_text());
    hws__ucx.ucp_get_version(&major, &minor, &release);
    cr_assert_eq(hws__ucx.version, major << 24 | minor << 16 | release);
    cr_assert_str_eq(hws__ucx.lib_dir, ours.dir);
    cr_assert(hws__ucx_at_least(1, 13));
    cr_assert(hws__ucx_at_least((int)major, (int)minor));
    cr_assert_not(hws__ucx_at_least((int)major, (int)minor + 1));
    cr_assert_not(hws__ucx_at_least(2, 0));
    hws__ucx_text(text, sizeof(text));
    cr_assert_not_null(strstr(text, ours.dir));
    cr_assert_not_null(strstr(text, "HAWSER_UCX"), "%s", text);
    cr_assert_eq(hws__ucx.ucp_memh_pack != NULL, hws__ucx_at_least(1, 14));
    cr_assert_eq(hws__ucx.ucp_rkey_compare != NULL, hws__ucx_at_least(1, 16));
}

Test(ucx_loader, again_is_the_same, .init = find_copies)
{
    cr_assert_eq(hws__ucx_load(NULL), 0);
    cr_assert_eq(hws__ucx_load(NULL), 0);
    cr_assert_eq(hws__ucx_load(ours.dir), 0);
}

Test(ucx_loader, again_with_another_choice_is_a_conflict, .init = need_other)
{
    cr_assert_eq(hws__ucx_load(NULL), 0);
    cr_assert_eq(hws__ucx_load(other), HWS_E_UCX_CONFLICT);
    cr_assert_not_null(strstr(error_text(), other), "%s", error_text());
    cr_assert_eq(hws__ucx_load(NULL), 0);
}

static void *load_thread(void *arg)
{
    *(int32_t *)arg = hws__ucx_load(NULL);
    return NULL;
}

Test(ucx_loader, threads_load_once, .init = find_copies)
{
    pthread_t threads[8];
    int32_t rc[8];

    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, load_thread, &rc[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(rc[i], 0);
    }
}

Test(ucx_loader, no_ucx_names_the_choice)
{
    setenv("HAWSER_UCX", "/nonexistent", 1);
    cr_assert_eq(hws__ucx_load(NULL), HWS_E_NO_UCX);
    cr_assert_not_null(strstr(error_text(), "/nonexistent"), "%s", error_text());
    cr_assert_eq(hws__ucx.version, 0);
    cr_assert_eq(hws__ucx_load("/nonexistent/too"), HWS_E_NO_UCX);
}

Test(ucx_loader, a_failed_try_can_be_repeated, .init = find_copies)
{
    cr_assert_eq(hws__ucx_load("/nonexistent"), HWS_E_NO_UCX);
    cr_assert_eq(hws__ucx_load(ours.dir), 0, "%s", error_text());
    cr_assert_eq(hws__ucx.origin, HWS__UCX_OPTION);
}

Test(ucx_loader, a_folder_without_the_rest_is_refused, .init = find_copies)
{
    char dir[] = "/tmp/hawser-ucx-XXXXXX", from[PATH_MAX + 16], to[2 * PATH_MAX];

    cr_assert_not_null(mkdtemp(dir));
    snprintf(from, sizeof(from), "%s/libucp.so.0", ours.dir);
    snprintf(to, sizeof(to), "cp '%s' '%s/libucp.so.0'", from, dir);
    cr_assert_eq(system(to), 0);
    const int32_t rc = hws__ucx_load(dir);
    snprintf(to, sizeof(to), "rm -r '%s'", dir);
    cr_assert_eq(system(to), 0);
    cr_assert_eq(rc, HWS_E_NO_UCX, "%s", error_text());
}

Test(ucx_loader, a_library_that_is_none_is_refused)
{
    char dir[] = "/tmp/hawser-ucx-XXXXXX", command[256];

    cr_assert_not_null(mkdtemp(dir));
    snprintf(command, sizeof(command),
             "for l in m s t p; do echo no library > %s/libuc$l.so.0; done", dir);
    cr_assert_eq(system(command), 0);
    const int32_t rc = hws__ucx_load(dir);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(rc, HWS_E_NO_UCX, "%s", error_text());
}

Test(ucx_loader, another_copy_in_the_process_is_a_conflict, .init = need_other)
{
    open_from(other, "libucs", 1);
    open_from(other, "libuct", 1);
    open_from(other, "libucp", 1);
    cr_assert_eq(hws__ucx_load(ours.dir), HWS_E_UCX_CONFLICT);
    cr_assert_not_null(strstr(error_text(), other), "%s", error_text());
    cr_assert_not_null(strstr(error_text(), ours.dir), "%s", error_text());
}

Test(ucx_loader, one_library_of_another_copy_is_a_conflict, .init = need_other)
{
    open_from(other, "libucs", 1);
    cr_assert_eq(hws__ucx_load(NULL), HWS_E_UCX_CONFLICT, "%s", error_text());
}

Test(ucx_loader, a_mixed_copy_is_a_conflict, .init = need_other)
{
    /* libuct of ours finds libucs of the other by its name. It may fail to open for a missing
     * symbol; with lazy binding it mostly does not. */
    open_from(other, "libucs", 1);
    open_from(ours.dir, "libuct", 0);
    setenv("HAWSER_UCX", "", 1);
    struct hws__ucx_mapped mapped;
    hws__ucx_scan(&mapped);
    if (mapped.count[HWS__UCT] == 0)
        cr_skip_test("these two versions refuse to be mixed");
    cr_assert_eq(hws__ucx_load(NULL), HWS_E_UCX_CONFLICT);
    cr_assert_not_null(strstr(error_text(), "mixed"), "%s", error_text());
}

Test(ucx_loader, two_copies_are_a_conflict_whatever_is_chosen, .init = need_other)
{
    open_from(other, "libucs", 1);
    open_from(ours.dir, "libucs", 1);
    setenv("HAWSER_UCX", "", 1);
    cr_assert_eq(hws__ucx_load(NULL), HWS_E_UCX_CONFLICT);
    cr_assert_not_null(strstr(error_text(), "copies"), "%s", error_text());
}

Test(ucx_loader, a_whole_copy_in_the_process_is_used, .init = need_other)
{
    open_from(other, "libucs", 1);
    open_from(other, "libucp", 1);
    setenv("HAWSER_UCX", "", 1);
    cr_assert_eq(hws__ucx_load(NULL), 0, "%s", error_text());
    cr_assert_eq(hws__ucx.origin, HWS__UCX_MAPPED);
    cr_assert_str_eq(hws__ucx.lib_dir, other);
}

Test(ucx_loader, library_path_of_another_copy_does_not_mix, .init = need_other)
{
    /* The dynamic linker read LD_LIBRARY_PATH at start, so this needs a program of its own; without
     * BXFI_MAP, by which Criterion knows the process of a test. */
    char command[4 * PATH_MAX], exe[PATH_MAX];
    const ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

    cr_assert_gt(len, 0);
    exe[len] = '\0';
    snprintf(command, sizeof(command),
             "env -u BXFI_MAP LD_LIBRARY_PATH='%s' HAWSER_UCX='%s' '%s' "
             "--filter ucx_loader/loads_and_tells >/dev/null 2>&1",
             other, ours.dir, exe);
    cr_assert_eq(system(command), 0);
}

Test(ucx_loader, variables_of_the_user_stay, .init = find_copies)
{
    unsetenv("UCX_HANDLE_ERRORS");
    unsetenv("UCX_VFS_ENABLE");
    setenv("UCX_DEBUG_SIGNO", "SIGUSR2", 1);
    cr_assert_eq(hws__ucx_load(NULL), 0, "%s", error_text());
    cr_assert_str_eq(getenv("UCX_DEBUG_SIGNO"), "SIGUSR2");
    cr_assert_str_eq(getenv("UCX_HANDLE_ERRORS"), "none");
    cr_assert_str_eq(getenv("UCX_VFS_ENABLE"), "n");
}

/* UCX's room for events with so many files; null: UCX's own. */
static const char *events_with(rlim_t files)
{
    unsetenv("UCX_ASYNC_MAX_EVENTS");
    if (t_limit(RLIMIT_NOFILE, files) != files)
        cr_skip_test("the limit of open files is lower");
    cr_assert_eq(hws__ucx_load(NULL), 0, "%s", error_text());
    return getenv("UCX_ASYNC_MAX_EVENTS");
}

Test(ucx_loader, few_files_need_no_more_events, .init = find_copies)
{
    cr_assert_null(events_with(1024));
}

Test(ucx_loader, events_follow_the_limit_of_files, .init = find_copies)
{
    cr_assert_str_eq(events_with(5000), "8192");
}

Test(ucx_loader, events_have_an_end, .init = find_copies)
{
    cr_assert_str_eq(events_with(20000), "16384");
}

static void forget_variables_of_ucx(void)
{
    char name[128];

    for (size_t i = 0; environ[i] != NULL;)
        if (strncmp(environ[i], "UCX_", 4) == 0) {
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(environ[i], "="), environ[i]);
            unsetenv(name);
        } else {
            i++;
        }
}

Test(ucx_loader, every_variable_that_is_set_is_in_the_guide, .init = find_copies)
{
    char *guide = t_guide("ucx-settings.md"), row[256];
    int count = 0;

    if (guide == NULL)
        cr_skip_test("run by ctest, which tells where the sources are");
    forget_variables_of_ucx();
    if (t_limit(RLIMIT_NOFILE, 16384) < 16384)
        t_limit(RLIMIT_NOFILE, 1024);
    cr_assert_eq(hws__ucx_load(NULL), 0, "%s", error_text());
    for (size_t i = 0; environ[i] != NULL; i++) {
        const int name = (int)strcspn(environ[i], "=");

        if (strncmp(environ[i], "UCX_", 4) != 0)
            continue;
        snprintf(row, sizeof(row), "| `%.*s` | `%s` | ", name, environ[i], environ[i] + name + 1);
        cr_expect_gt(t_guide_says(guide, row), 5, "%s", row);
        count++;
    }
    cr_expect_gt(count, 8);
    free(guide);
}

Test(ucx_loader, no_signal_is_taken, .init = find_copies)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGHUP};
    struct sigaction before[5], after;

    for (int i = 0; i < 5; i++)
        sigaction(signals[i], NULL, &before[i]);
    cr_assert_eq(hws__ucx_load(NULL), 0, "%s", error_text());
    for (int i = 0; i < 5; i++) {
        sigaction(signals[i], NULL, &after);
        cr_expect_eq(after.sa_handler, before[i].sa_handler, "signal %d", signals[i]);
    }
}

Test(ucx_loader, a_path_may_be_a_file_or_the_prefix, .init = find_copies)
{
    char path[PATH_MAX + 16];
    struct hws__ucx_found found;

    snprintf(path, sizeof(path), "%s/libucp.so.0", ours.dir);
    cr_assert_eq(hws__ucx_find(path, &found), 0);
    cr_assert_str_eq(found.dir, ours.dir);
    char *lib = strrchr(strcpy(path, ours.dir), '/');
    if (strcmp(lib, "/lib") == 0) {
        *lib = '\0';
        cr_assert_eq(hws__ucx_find(path, &found), 0);
        cr_assert_str_eq(found.dir, ours.dir);
    }
}

Test(ucx_loader, the_configuration_file_of_the_user_chooses, .init = find_copies)
{
    char home[] = "/tmp/hawser-home-XXXXXX", path[PATH_MAX + 64], command[256];
    struct hws__ucx_found found;

    cr_assert_not_null(mkdtemp(home));
    snprintf(path, sizeof(path), "%s/.config", home);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/.config/hawser.conf", home);
    FILE *f = fopen(path, "w");
    fprintf(f, "# a comment\n\nother = 1\n  ucx =  %s   # trailing\n", ours.dir);
    fclose(f);
    setenv("HOME", home, 1);
    setenv("HAWSER_UCX", "", 1);
    const int32_t rc = hws__ucx_find(NULL, &found);
    snprintf(command, sizeof(command), "rm -r %s", home);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(rc, 0, "%s", error_text());
    cr_assert_eq(found.origin, HWS__UCX_FILE);
    cr_assert_str_eq(found.dir, ours.dir);
}

Test(ucx_loader, the_wheel_of_a_virtual_environment_is_found)
{
    char home[] = "/tmp/hawser-venv-XXXXXX", command[512], dir[PATH_MAX], expected[PATH_MAX];

    cr_assert_not_null(mkdtemp(home));
    snprintf(command, sizeof(command),
             "d=%s/lib/python3.11/site-packages/libucx/lib; mkdir -p $d; touch $d/libucp.so.0",
             home);
    cr_assert_eq(system(command), 0);
    setenv("VIRTUAL_ENV", home, 1);
    const int found = hws__ucx_wheel_dir(dir);
    snprintf(expected, sizeof(expected), "%s/lib/python3.11/site-packages/libucx/lib", home);
    snprintf(command, sizeof(command), "rm -r %s", home);
    cr_assert_eq(system(command), 0);
    cr_assert(found);
    cr_assert_str_eq(dir, expected);
}
