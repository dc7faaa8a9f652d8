/*
 * Assertions for tests: they print the place, both values and Hawser's last error, then abort. They
 * work on every thread, in Criterion's test processes and in plain programs.
 */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include <hawser.h>
#include <stddef.h>
#include <stdint.h>

#define T_MS UINT64_C(1000000)
#define T_SECOND UINT64_C(1000000000)

#define CHECK(condition) \
    ((condition) ? (void)0 : t_fail(__FILE__, __LINE__, "not true: %s", #condition))

/* Both sides as signed numbers. */
#define CHECK_EQ(actual, expected) \
    t_check_eq(__FILE__, __LINE__, #actual, (int64_t)(actual), #expected, (int64_t)(expected))

#define CHECK_STR(actual, expected) t_check_str(__FILE__, __LINE__, #actual, (actual), (expected))

/* The result of a call: exactly HWS_OK, or exactly a code. */
#define CHECK_OK(call) t_check_code(__FILE__, __LINE__, #call, (call), HWS_OK)
#define CHECK_CODE(call, code) t_check_code(__FILE__, __LINE__, #call, (call), (code))

/* The program cannot run here: say why and exit with the code that means "skipped". */
#define SKIP(...) t_skip(__VA_ARGS__)

void t_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void t_check_eq(const char *file, int line, const char *actual_text, int64_t actual,
                const char *expected_text, int64_t expected);
void t_check_str(const char *file, int line, const char *text, const char *actual,
                 const char *expected);
void t_check_code(const char *file, int line, const char *text, int32_t actual, int32_t expected);
void t_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Monotonic time in nanoseconds. */
uint64_t t_now(void);

/*
 * How long a test waits for what must come, in nanoseconds: generous, since it only decides how
 * long a failure takes. Longer under a sanitizer.
 */
uint64_t t_patience(void);

/* Fails if `since` + t_patience() has passed; `what` says what did not happen. */
void t_check_patience(const char *file, int line, uint64_t since, const char *what);

void t_sleep(uint64_t nanoseconds);

/* Waits for a condition that the library's threads bring about. */
#define EVENTUALLY(condition)                                        \
    for (uint64_t since_ = t_now(); !(condition);                    \
         t_check_patience(__FILE__, __LINE__, since_, #condition)) { \
        t_sleep(T_MS / 20);                                          \
    }

/* A number from the environment, or `fallback`. */
uint64_t t_env(const char *name, uint64_t fallback);

/* 1 when this program is instrumented. */
int t_sanitized(void);
/* Whether it is the address sanitizer. */
int t_address_sanitizer(void);

/* Set in a program whose allocations fail now and then: a check that fails then ends the case with T_GAVE_UP
 * instead of a crash, if what went wrong can come of that, and with T_WRONG_CODE if not. */
extern int t_sweeping;
enum { T_WRONG_CODE = 75, T_GAVE_UP = 76 };

/* From now on touching this memory ends an ASan build, also in a copy that UCX makes; whole multiples of 8
 * bytes. Nothing elsewhere. */
void t_poison(void *memory, size_t length);
void t_unpoison(void *memory, size_t length);

/* A small random generator, one state a thread. */
uint64_t t_random(uint64_t *state);

/* Bytes that depend on seed and place, and their check. */
void t_fill(void *buffer, size_t length, uint64_t seed);
int t_filled(const void *buffer, size_t length, uint64_t seed);
#define CHECK_FILLED(buffer, length, seed) \
    t_check_filled(__FILE__, __LINE__, (buffer), (length), (seed))
void t_check_filled(const char *file, int line, const void *buffer, size_t length, uint64_t seed);

/* FNV-1a, for checksums that travel. */
uint64_t t_checksum(const void *buffer, size_t length);

/* malloc() that cannot fail. */
void *t_alloc(size_t length);

#endif
