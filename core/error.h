/*
 * Result codes and the last error of a thread.
 */
#ifndef HWS_CORE_ERROR_H
#define HWS_CORE_ERROR_H

#include <hawser.h>
#include <ucs/type/status.h>

/** Set the thread's last error and return `code`. */
int32_t hws__fail(int32_t code, hws_id id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** The same from a UCX status: returns the code that means it. */
int32_t hws__fail_ucx(ucs_status_t status, hws_id id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** The same from errno. */
int32_t hws__fail_errno(int err, hws_id id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/** The code that a UCX status means. */
int32_t hws__from_ucx(ucs_status_t status);
/**
 * A copy of a text that stays for ever, the same for the same text: for details of events, which may
 * lie in a queue for longer than their object lives. `otherwise` once there are too many.
 */
const char *hws__text_keep(const char *text, const char *otherwise);
/** "endpoint", "worker", ... */
const char *hws__kind_name(uint32_t kind);

#endif
