/* UCX: both */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "ucx_loader.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int count;
static int32_t last_level;
static char last_line[2048];

static void keep(void *user, int32_t level, const char *line)
{
    pthread_mutex_lock(&lock);
    count++;
    last_level = level;
    snprintf(last_line, sizeof(last_line), "%s", line);
    if (user != NULL)
        ++*(int *)user;
    pthread_mutex_unlock(&lock);
}

static void without_variable(void)
{
    unsetenv("HAWSER_LOG");
    unsetenv("UCX_LOG_LEVEL");
}

/* Runs `action` with standard error in a file and gives what was written. */
static void captured(void (*action)(void), char *text, size_t cap)
{
    FILE *f = tmpfile();
    const int saved = dup(STDERR_FILENO);

    dup2(fileno(f), STDERR_FILENO);
    action();
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(f);
    text[fread(text, 1, cap - 1, f)] = '\0';
    fclose(f);
}

static void write_two(void)
{
    hws__log(HWS_LOG_WARN, "warning %d", 1);
    hws__log(HWS_LOG_INFO, "information %d", 2);
}

Test(log, silent_by_default, .init = without_variable)
{
    char text[512];

    captured(write_two, text, sizeof(text));
    cr_assert_str_eq(text, "");
}

Test(log, the_variable_sets_the_level, .init = without_variable)
{
    char text[512];

    setenv("HAWSER_LOG", "warn", 1);
    captured(write_two, text, sizeof(text));
    cr_assert_not_null(strstr(text, "warn: warning 1\n"));
    cr_assert_null(strstr(text, "information"));
}

Test(log, an_unknown_level_is_silence, .init = without_variable)
{
    char text[512];

    setenv("HAWSER_LOG", "loud", 1);
    captured(write_two, text, sizeof(text));
    cr_assert_str_eq(text, "");
}

Test(log, a_function_gets_lines_and_its_pointer, .init = without_variable)
{
    int mine = 0;

    cr_assert_eq(hws_log_set(HWS_LOG_INFO, keep, &mine), 0);
    write_two();
    hws__log(HWS_LOG_DEBUG, "not this");
    cr_assert_eq(count, 2);
    cr_assert_eq(mine, 2);
    cr_assert_eq(last_level, HWS_LOG_INFO);
    cr_assert_str_eq(last_line, "information 2");
}

Test(log, a_long_line_is_cut_and_a_newline_ends_it, .init = without_variable)
{
    char text[4000];

    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    hws_log_set(HWS_LOG_INFO, keep, NULL);
    hws__log(HWS_LOG_INFO, "%s", text);
    cr_assert_lt(strlen(last_line), 1100);
    hws__log(HWS_LOG_INFO, "one\ntwo");
    cr_assert_str_eq(last_line, "one");
}

Test(log, a_level_out_of_range_is_refused)
{
    cr_assert_eq(hws_log_set(-1, NULL, NULL), HWS_E_INVALID);
    cr_assert_eq(hws_log_set(6, NULL, NULL), HWS_E_INVALID);
}

static int evaluated(void)
{
    count++;
    return 1;
}

Test(log, an_argument_of_a_silent_line_is_not_evaluated, .init = without_variable)
{
    hws_log_set(HWS_LOG_WARN, keep, NULL);
    hws__log(HWS_LOG_INFO, "%d", evaluated());
    cr_assert_eq(count, 0);
}

static void *many(void *arg)
{
    for (int i = 0; i < 1000; i++)
        hws__log(HWS_LOG_INFO, "line %d", i);
    return arg;
}

Test(log, threads_lose_no_line, .init = without_variable)
{
    pthread_t threads[4];

    hws_log_set(HWS_LOG_INFO, keep, NULL);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, many, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(count, 4000);
}

/* A bad value is an error line of UCX itself. */
static void make_ucx_complain(void)
{
    ucp_config_t *config;

    cr_assert_eq(hws__ucx_load(NULL), 0);
    cr_assert_eq(hws__ucx.ucp_config_read(NULL, NULL, &config), UCS_OK);
    cr_assert_neq(hws__ucx.ucp_config_modify(config, "RNDV_THRESH", "nonsense"), UCS_OK);
    hws__ucx.ucp_config_release(config);
}

Test(log, lines_of_ucx_come_here, .init = without_variable)
{
    hws_log_set(HWS_LOG_WARN, keep, NULL);
    make_ucx_complain();
    cr_assert_geq(count, 1);
    cr_assert_eq(last_level, HWS_LOG_ERROR);
    cr_assert_eq(strncmp(last_line, "ucx ", 4), 0, "%s", last_line);
    cr_assert_not_null(strstr(last_line, "RNDV_THRESH"), "%s", last_line);
}

Test(log, ucx_is_silent_by_default, .init = without_variable)
{
    char text[1024];

    captured(make_ucx_complain, text, sizeof(text));
    cr_assert_str_eq(text, "");
}

Test(log, the_level_of_ucx_follows, .init = without_variable)
{
    char value[64] = "";

    cr_assert_eq(hws__ucx_load(NULL), 0);
    hws_log_set(HWS_LOG_INFO, keep, NULL);
    hws__ucx.ucs_global_opts_get_value("LOG_LEVEL", value, sizeof(value));
    cr_assert_str_eq(value, "WARN");
    hws_log_set(HWS_LOG_OFF, NULL, NULL);
    hws__ucx.ucs_global_opts_get_value("LOG_LEVEL", value, sizeof(value));
    cr_assert_str_eq(value, "WARN");
}

Test(log, a_level_the_user_set_for_ucx_stays, .init = without_variable)
{
    char value[64] = "";

    setenv("UCX_LOG_LEVEL", "error", 1);
    cr_assert_eq(hws__ucx_load(NULL), 0);
    hws_log_set(HWS_LOG_INFO, keep, NULL);
    hws__ucx.ucs_global_opts_get_value("LOG_LEVEL", value, sizeof(value));
    cr_assert_str_eq(value, "ERROR");
}
