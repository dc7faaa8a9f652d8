#include "support/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#define T_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define T_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define T_ASAN 1
#elif __has_feature(thread_sanitizer)
#define T_SANITIZED 1
#endif
#endif
#if defined(T_ASAN)
#include <sanitizer/asan_interface.h>
#define T_SANITIZED 1
#endif
#ifndef T_SANITIZED
#define T_SANITIZED 0
#endif

int t_sweeping;

int t_sanitized(void)
{
    return T_SANITIZED;
}

void t_poison(void *memory, size_t length)
{
#if defined(T_ASAN)
    __asan_poison_memory_region(memory, length);
#else
    (void)memory;
    (void)length;
#endif
}

void t_unpoison(void *memory, size_t length)
{
#if defined(T_ASAN)
    __asan_unpoison_memory_region(memory, length);
#else
    (void)memory;
    (void)length;
#endif
}

void t_fail(const char *file, int line, const char *format, ...)
{
    char text[512];
    hws_error error = {.struct_size = sizeof(error)};
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fflush(stdout);
    if (hws_last_error(&error) == HWS_OK && error.code != 0) {
        fprintf(stderr, "%s:%d: %s (last error: %s, %s)\n", file, line, text,
                hws_error_name(error.code), error.text);
    } else {
        fprintf(stderr, "%s:%d: %s\n", file, line, text);
    }
    fflush(stderr);
    if (t_sweeping) {
        exit(T_GAVE_UP);
    }
    abort();
}

/* What a call may say when memory was refused to it, or before. */
static int comes_of_no_memory(const char *call, int32_t code)
{
    switch (code) {
    case HWS_E_NO_MEMORY:
    case HWS_E_NO_RESOURCE:
    case HWS_E_TOO_MANY:
    case HWS_E_STALE: /* what was not made, or ended meanwhile */
    case HWS_E_BAD_ID:
    case HWS_E_CLOSING:
    case HWS_E_NOT_CONNECTED:
    case HWS_E_CONNECTION_RESET:
    case HWS_E_KEEPALIVE:
    case HWS_E_PEER_CLOSED:
    case HWS_E_CANCELED:
        return 1;
    case HWS_E_PEER_VERSION: /* a listener without memory rejects, and nothing but that comes back */
    case HWS_E_REFUSED:      /* or its UCX drops the connection */
        return 1;
    case HWS_E_TIMED_OUT: /* it waited for what the other side could not do */
        return strstr(call, "hws_close_wait") == NULL;
    default:
        return code >= 0;
    }
}

void t_check_eq(const char *file, int line, const char *actual_text, int64_t actual,
                const char *expected_text, int64_t expected)
{
    if (actual != expected) {
        t_fail(file, line, "%s is %lld, not %s (%lld)", actual_text, (long long)actual,
               expected_text, (long long)expected);
    }
}

void t_check_str(const char *file, int line, const char *text, const char *actual,
                 const char *expected)
{
    if (actual == NULL || strcmp(actual, expected) != 0) {
        t_fail(file, line, "%s is \"%s\", not \"%s\"", text, actual == NULL ? "(null)" : actual,
               expected);
    }
}

void t_check_code(const char *file, int line, const char *text, int32_t actual, int32_t expected)
{
    if (t_sweeping && actual != expected && !comes_of_no_memory(text, actual)) {
        fprintf(stderr, "%s:%d: %s gave %s for want of memory\n", file, line, text,
                hws_error_name(actual));
        exit(T_WRONG_CODE);
    }
    if (actual != expected) {
        t_fail(file, line, "%s gave %d %s, not %d %s", text, actual, hws_error_name(actual),
               expected, hws_error_name(expected));
    }
}

void t_skip(const char *format, ...)
{
    va_list args;

    printf("SKIP: ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
    exit(77);
}

uint64_t t_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * T_SECOND + (uint64_t)now.tv_nsec;
}

int t_address_sanitizer(void)
{
#if defined(T_ASAN)
    return 1;
#else
    return 0;
#endif
}

uint64_t t_patience(void)
{
    return (t_sweeping ? 7 : T_SANITIZED ? 60 : 20) * T_SECOND;
}

void t_check_patience(const char *file, int line, uint64_t since, const char *what)
{
    if (t_now() - since > t_patience()) {
        t_fail(file, line, "did not happen in time: %s", what);
    }
}

void t_sleep(uint64_t nanoseconds)
{
    struct timespec left = {.tv_sec = (time_t)(nanoseconds / T_SECOND),
                            .tv_nsec = (long)(nanoseconds % T_SECOND)};

    while (nanosleep(&left, &left) != 0) {}
}

uint64_t t_env(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text == NULL || *text == '\0' ? fallback : strtoull(text, NULL, 10);
}

uint64_t t_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The 8 bytes at 8 * index. */
static uint64_t pattern(uint64_t seed, uint64_t index)
{
    return (seed + index + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

void t_fill(void *buffer, size_t length, uint64_t seed)
{
    char *bytes = buffer;
    size_t i;

    for (i = 0; i < length; i += 8) {
        uint64_t word = pattern(seed, i / 8);
        memcpy(bytes + i, &word, length - i < 8 ? length - i : 8);
    }
}

int t_filled(const void *buffer, size_t length, uint64_t seed)
{
    const char *bytes = buffer;
    size_t i;

    for (i = 0; i < length; i += 8) {
        uint64_t word = pattern(seed, i / 8);
        if (memcmp(bytes + i, &word, length - i < 8 ? length - i : 8) != 0) {
            return 0;
        }
    }
    return 1;
}

void t_check_filled(const char *file, int line, const void *buffer, size_t length, uint64_t seed)
{
    const char *bytes = buffer;
    size_t i;

    for (i = 0; i < length; i++) {
        uint64_t word = pattern(seed, i / 8);
        char expected[8];
        memcpy(expected, &word, 8);
        if (bytes[i] != expected[i % 8]) {
            t_fail(file, line, "byte %zu of %zu is %02x, not %02x", i, length,
                   (unsigned char)bytes[i], (unsigned char)expected[i % 8]);
        }
    }
}

uint64_t t_checksum(const void *buffer, size_t length)
{
    const unsigned char *bytes = buffer;
    uint64_t sum = UINT64_C(14695981039346656037);
    size_t i;

    for (i = 0; i < length; i++) {
        sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return sum;
}

void *t_alloc(size_t length)
{
    void *memory = malloc(length == 0 ? 1 : length);

    if (memory == NULL && t_sweeping) {
        memory = malloc(length == 0 ? 1 : length);
    }
    if (memory == NULL) {
        t_fail(__FILE__, __LINE__, "no memory for %zu bytes", length);
    }
    return memory;
}
