/*
 * The log: silent unless HAWSER_LOG or hws_log_set asks for a level.
 *
 * One line per call, without its newline. UCX's own lines come through here too, so a program has
 * one place to look. A handler may be called from any thread, also from UCX's.
 */
#ifndef HWS_CORE_LOG_H
#define HWS_CORE_LOG_H

#include <stdatomic.h>
#include <stddef.h>

#include "hawser.h"

extern atomic_int hws__log_level; /**< -1 until the environment was read */

/** The level in force; reads HAWSER_LOG the first time. */
int hws__log_level_now(void);

/** Formats and delivers one line; the caller has checked the level. Use hws__log. */
void hws__log_write(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/**
 * Takes over UCX's lines. Called once, by the loader.
 * @param[in] level_is_ours the user has not set UCX_LOG_LEVEL, so it may follow our level
 */
void hws__log_attach_ucx(int level_is_ours);

/** Have the next error that UCX logs on this thread written to `text`, whatever the level; null: no more. */
void hws__log_catch(char *text, size_t size);

/** What UCX says is wrong in one call of it: empty if it says nothing. */
struct hws__words {
    char text[160];
};

static inline void hws__words_begin(struct hws__words *w)
{
    w->text[0] = '\0';
    hws__log_catch(w->text, sizeof w->text);
}

static inline void hws__words_end(void)
{
    hws__log_catch(NULL, 0);
}
/* For a format of "...%s%s": what was said, behind a colon. */
#define HWS__WORDS(w) (w).text[0] != '\0' ? ": " : "", (w).text

/* A level that is off costs one relaxed load and evaluates no argument. */
#define hws__log(level, ...)                                                                   \
    do {                                                                                       \
        const int hws__log_now_ = atomic_load_explicit(&hws__log_level, memory_order_relaxed); \
        if (__builtin_expect(hws__log_now_ < 0 || (level) <= hws__log_now_, 0))                \
            hws__log_write((level), __VA_ARGS__);                                              \
    } while (0)

#endif
