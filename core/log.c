#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "ucx_loader.h"
#include "uworker.h"

enum { LINE_MAX_BYTES = 1024 };

static const char *const level_names[] = {"off", "error", "warn", "info", "debug", "trace"};
enum { LEVELS = sizeof(level_names) / sizeof(level_names[0]) };

atomic_int hws__log_level = -1;

/* LOCK: guards the pair below. It is not held while the function runs, so a line in flight may
 * still reach a function that was just replaced: hws_log_set says so. */
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static hws_log_fn sink_fn;
static void *sink_user;

/* Set when UCX's level may be changed: it is loaded and the user has not set UCX_LOG_LEVEL. */
static atomic_int ucx_level_ours;

static int level_from_environment(void)
{
    const char *text = getenv("HAWSER_LOG");

    for (int i = 0; text != NULL && i < LEVELS; i++)
        if (strcasecmp(text, level_names[i]) == 0)
            return i;
    return HWS_LOG_OFF;
}

int hws__log_level_now(void)
{
    int level = atomic_load_explicit(&hws__log_level, memory_order_relaxed);

    if (level < 0) {
        int unset = -1;

        level = level_from_environment();
        /* ORDER: relaxed. Whoever is first wins; a racing hws_log_set must not be overwritten. */
        if (!atomic_compare_exchange_strong_explicit(&hws__log_level, &unset, level,
                                                     memory_order_relaxed, memory_order_relaxed))
            level = unset;
    }
    return level;
}

/* One write per line, so that lines of several threads and processes do not mix. */
static void write_stderr(int level, const char *line)
{
    char out[LINE_MAX_BYTES + 96];
    struct timespec now;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    int len =
        snprintf(out, sizeof(out), "%02d:%02d:%02d.%06ld hawser[%d] %s: %s\n", tm.tm_hour,
                 tm.tm_min, tm.tm_sec, now.tv_nsec / 1000, (int)getpid(), level_names[level], line);
    if (len >= (int)sizeof(out))
        len = (int)sizeof(out) - 1;
    const ssize_t done = write(STDERR_FILENO, out, (size_t)len);
    (void)done; /* nowhere to report it */
}

static void deliver(int level, const char *line)
{
    pthread_mutex_lock(&sink_lock);
    const hws_log_fn fn = sink_fn;
    void *const user = sink_user;
    pthread_mutex_unlock(&sink_lock);

    if (fn != NULL)
        fn(user, level, line);
    else
        write_stderr(level, line);
}

static void write_line(int level, const char *prefix, const char *fmt, va_list args)
{
    char line[LINE_MAX_BYTES];
    const int saved = errno;
    const int used = snprintf(line, sizeof(line), "%s", prefix);

    vsnprintf(line + used, sizeof(line) - (size_t)used, fmt, args);
    line[strcspn(line, "\n")] = '\0';
    deliver(level, line);
    errno = saved;
}

void hws__log_write(int level, const char *fmt, ...)
{
    va_list args;

    if (level <= HWS_LOG_OFF || level > hws__log_level_now())
        return;
    va_start(args, fmt);
    write_line(level < LEVELS ? level : LEVELS - 1, "", fmt, args);
    va_end(args);
}

/* ---- UCX's lines ---- */

static int level_of_ucx(ucs_log_level_t level)
{
    switch (level) {
    case UCS_LOG_LEVEL_FATAL:
    case UCS_LOG_LEVEL_ERROR:
        return HWS_LOG_ERROR;
    case UCS_LOG_LEVEL_WARN:
        return HWS_LOG_WARN;
    case UCS_LOG_LEVEL_DIAG:
    case UCS_LOG_LEVEL_INFO:
    case UCS_LOG_LEVEL_PRINT:
        return HWS_LOG_INFO;
    case UCS_LOG_LEVEL_DEBUG:
        return HWS_LOG_DEBUG;
    default:
        return HWS_LOG_TRACE;
    }
}

/* Where this thread wants UCX's next error, see hws__log_catch(). */
static _Thread_local struct {
    char *text;
    size_t size;
} caught;

void hws__log_catch(char *text, size_t size)
{
    caught.text = text;
    caught.size = size;
}

static void catch_error(const char *fmt, va_list args)
{
    va_list copy;

    va_copy(copy, args);
    vsnprintf(caught.text, caught.size, fmt, copy);
    va_end(copy);
    caught.text = NULL;
}

/*
 * UCX takes a message of several fragments, for whose whole it has no memory, for received: its sender is told of no
 * failure, and a flush behind it ends well. These are UCX's only words about it, on all its versions.
 */
static void note_dropped(const char *fmt)
{
    static const char words[] = "failed to allocate buffer for assembling UCP AM";

    if (hws__progressing != NULL && strncmp(fmt, words, sizeof words - 1) == 0)
        hws__uworker_dropped(hws__progressing);
}

static ucs_log_func_rc_t ucx_line(const char *file, unsigned line, const char *function,
                                  ucs_log_level_t ucx_level,
                                  const ucs_log_component_config_t *component, const char *fmt,
                                  va_list args)
{
    const int level = level_of_ucx(ucx_level);
    const char *slash = strrchr(file, '/');
    char prefix[96];

    (void)function;
    (void)component;
    if (ucx_level == UCS_LOG_LEVEL_FATAL)
        return UCS_LOG_FUNC_RC_CONTINUE; /* UCX aborts next: never without its last words */
    if (level == HWS_LOG_ERROR && caught.text != NULL)
        catch_error(fmt, args);
    if (level == HWS_LOG_ERROR)
        note_dropped(fmt);
    if (level <= hws__log_level_now()) {
        snprintf(prefix, sizeof(prefix), "ucx %.60s:%u ", slash != NULL ? slash + 1 : file, line);
        write_line(level, prefix, fmt, args);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

/* UCX formats nothing below its own level, so that has to follow ours; never under `warn`, which
 * is UCX's default and cheap, and not at `info`, where newer versions print tables past the
 * handler. */
static void follow_level(int level)
{
    static const char *const names[] = {"warn", "warn", "warn", "warn", "debug", "trace"};

    if (atomic_load_explicit(&ucx_level_ours, memory_order_acquire))
        hws__ucx.ucs_global_opts_set_value("LOG_LEVEL", names[level]);
}

void hws__log_attach_ucx(int level_is_ours)
{
    hws__ucx.ucs_log_push_handler(ucx_line);
    /* ORDER: release, so that who sees it sees the table filled. */
    atomic_store_explicit(&ucx_level_ours, level_is_ours, memory_order_release);
    follow_level(hws__log_level_now());
}

int32_t hws_log_set(int32_t level, hws_log_fn fn, void *user)
{
    if (level < HWS_LOG_OFF || level >= LEVELS)
        return hws__fail(HWS_E_INVALID, 0, "log level %d is not one of 0 to %d", level, LEVELS - 1);
    pthread_mutex_lock(&sink_lock);
    sink_fn = fn;
    sink_user = user;
    atomic_store_explicit(&hws__log_level, level, memory_order_relaxed);
    pthread_mutex_unlock(&sink_lock);
    follow_level(level);
    return HWS_OK;
}
