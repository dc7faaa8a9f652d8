/*
 * The log: silent by default, to a callback or to standard error on demand, UCX's lines included.
 */
#include "support/pair.h"
#include "support/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes UCX itself write a warning: it tells of variables that it does not know. */
#define UNKNOWN_VARIABLE "UCX_HAWSER_TEST_NO_SUCH_VARIABLE"

struct lines {
    int count[HWS_LOG_TRACE + 1];
    int ucx_warning;
};

static void on_line(void *user, int32_t level, const char *line)
{
    struct lines *lines = user;

    CHECK(level >= HWS_LOG_ERROR && level <= HWS_LOG_TRACE);
    CHECK(line != NULL && line[0] != '\0');
    CHECK(strchr(line, '\n') == NULL);
    __atomic_fetch_add(&lines->count[level], 1, __ATOMIC_RELAXED);
    if (strstr(line, UNKNOWN_VARIABLE) != NULL) {
        lines->ucx_warning++;
    }
}

static void run_a_little(void)
{
    t_pair pair;
    uint64_t in, out = 1;
    hws_id recv = 0, send = 0;

    t_pair_open(&pair, NULL);
    CHECK_OK(hws_tag_recv(pair.endpoint[1], &in, 8, 1, 1, NULL, &recv));
    CHECK_OK(hws_tag_send(pair.endpoint[0], &out, 8, 1, NULL, &send));
    WAIT_OK(&pair, send);
    WAIT_OK(&pair, recv);
    CHECK(hws_close(12345) < 0);
    t_pair_close(&pair);
}

/* ---- What the children do ---- */

static int child(const char *what)
{
    struct lines lines = {.ucx_warning = 0};

    t_child_begin();
    if (strcmp(what, "nothing") == 0) {
        run_a_little();
    } else if (strcmp(what, "callback") == 0) {
        CHECK_OK(hws_log_set(HWS_LOG_INFO, on_line, &lines));
        run_a_little();
        CHECK(lines.count[HWS_LOG_INFO] + lines.count[HWS_LOG_WARN] > 0);
        CHECK_EQ(lines.count[HWS_LOG_DEBUG] + lines.count[HWS_LOG_TRACE], 0);
        CHECK_EQ(lines.ucx_warning, 1);
        /* Switched off, and on again. */
        struct lines before = lines;
        CHECK_OK(hws_log_set(HWS_LOG_OFF, on_line, &lines));
        run_a_little();
        CHECK_EQ(memcmp(&before, &lines, sizeof(lines)), 0);
        CHECK_OK(hws_log_set(HWS_LOG_DEBUG, on_line, &lines));
        run_a_little();
        CHECK(lines.count[HWS_LOG_DEBUG] > 0);
    } else if (strcmp(what, "stderr") == 0) {
        CHECK_OK(hws_log_set(HWS_LOG_INFO, NULL, NULL));
        run_a_little();
    }
    return 0;
}

/* Starts this program with its standard error in a file and gives what it wrote. */
static char *written_by(const char *what, const char *level)
{
    const char *args[] = {what, NULL};
    char path[] = "/tmp/hawser-test-log-XXXXXX";
    int file = mkstemp(path), saved = dup(STDERR_FILENO);
    struct stat status;
    t_child started;
    char *text, line[4096];
    int printed = 0;

    CHECK(file >= 0 && saved >= 0);
    unlink(path);
    if (level != NULL) {
        setenv("HAWSER_LOG", level, 1);
    } else {
        unsetenv("HAWSER_LOG");
    }
    CHECK(dup2(file, STDERR_FILENO) >= 0);
    t_spawn(&started, args);
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    while (t_hear_for(&started, line, sizeof(line), t_patience()) > 0) {
        if (printed++ < 3) {
            fprintf(stderr, "on standard output: %s\n", line);
        }
    }
    int code = t_join(&started);
    CHECK_EQ(fstat(file, &status), 0);
    text = t_alloc((size_t)status.st_size + 1);
    CHECK_EQ(pread(file, text, (size_t)status.st_size, 0), status.st_size);
    text[status.st_size] = '\0';
    close(file);
    /* Standard output belongs to the program. */
    CHECK_EQ(printed, 0);
    if (code != 0) {
        t_fail(__FILE__, __LINE__, "child \"%s\" ended with %d:\n%.400s", what, code, text);
    }
    return text;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return child(argv[1]);
    }
    setenv(UNKNOWN_VARIABLE, "1", 1);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "y", 1); /* off by default, see ucx_loader */
    char *text = written_by("nothing", NULL);
    CHECK_STR(text, "");
    free(text);
    text = written_by("nothing", "off");
    CHECK_STR(text, "");
    free(text);
    text = written_by("callback", NULL);
    /* At debug level newer UCX versions print tables of their own past any handler. */
    CHECK(strstr(text, "hawser[") == NULL);
    free(text);
    text = written_by("nothing", "warn");
    CHECK(strstr(text, UNKNOWN_VARIABLE) != NULL);
    free(text);
    text = written_by("nothing", "debug");
    CHECK(strlen(text) > 100);
    free(text);
    text = written_by("stderr", NULL);
    CHECK(strstr(text, UNKNOWN_VARIABLE) != NULL);
    free(text);
    /* The call counts more than the variable. */
    text = written_by("callback", "trace");
    CHECK(strstr(text, "hawser[") == NULL);
    free(text);
    return 0;
}
