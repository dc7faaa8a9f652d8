#include "error.h"
#include "options.h"
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Texts of failures that are kept: there are few formats, and few values in them. */
#define KEPT 128u
#define KEPT_LENGTH 96u

static _Thread_local struct {
    int32_t code, ucx_status, sys_errno;
    hws_id id;
    char text[160];
} last;

struct row {
    int32_t code;
    const char *name, *category, *text;
    ucs_status_t ucx;
};

static const struct row rows[] = {
#define HWS_ERROR(name, number, category, text, ucx) {number, #name, #category, text, ucx},
#include "../abi/errors.def"
#undef HWS_ERROR
};

/* The constants of the header and the table must not drift apart. */
#define HWS_ERROR(name, number, category, text, ucx) \
    _Static_assert(HWS_E_##name == (number), "header and errors.def differ");
#include "../abi/errors.def"
#undef HWS_ERROR

static const struct row *row_of(int32_t code)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].code == code) {
            return &rows[i];
        }
    }
    return NULL;
}

/* A text that did not fit ends with a whole character of UTF-8. */
static void end_whole(char *text, size_t length)
{
    size_t at = length;

    while (at > 0 && ((unsigned char)text[at - 1] & 0xc0) == 0x80) {
        at--;
    }
    /* Its first byte says how many it has: 2 (110...) to 4 (11110...). */
    if (at > 0 && (unsigned char)text[at - 1] >= 0xc0) {
        unsigned char first = (unsigned char)text[at - 1];
        size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;

        if (at - 1 + bytes > length) {
            text[at - 1] = '\0';
        }
    }
}

static int32_t fail_v(int32_t code, int32_t ucx, int32_t err, hws_id id, const char *fmt,
                      va_list ap)
{
    last.code = code;
    last.ucx_status = ucx;
    last.sys_errno = err;
    last.id = id;
    if (vsnprintf(last.text, sizeof last.text, fmt, ap) >= (int)sizeof last.text) {
        end_whole(last.text, sizeof last.text - 1);
    }
    return code;
}

int32_t hws__fail(int32_t code, hws_id id, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fail_v(code, 0, 0, id, fmt, ap);
    va_end(ap);
    return code;
}

int32_t hws__fail_ucx(ucs_status_t status, hws_id id, const char *fmt, ...)
{
    int32_t code = hws__from_ucx(status);
    va_list ap;

    va_start(ap, fmt);
    fail_v(code, status, 0, id, fmt, ap);
    va_end(ap);
    return code;
}

int32_t hws__fail_errno(int err, hws_id id, const char *fmt, ...)
{
    int32_t code = err == ENOMEM                                     ? HWS_E_NO_MEMORY
                   : err == EMFILE || err == ENFILE || err == EAGAIN ? HWS_E_NO_RESOURCE
                   : err == EADDRINUSE                               ? HWS_E_ADDRESS_IN_USE
                                                                     : HWS_E_SYSTEM;
    va_list ap;

    va_start(ap, fmt);
    fail_v(code, 0, err, id, fmt, ap);
    va_end(ap);
    return code;
}

int32_t hws__from_ucx(ucs_status_t status)
{
    if (status == UCS_OK) {
        return HWS_OK;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].ucx == status) {
            return rows[i].code;
        }
    }
    switch ((int)status) {
    case UCS_ERR_NO_ELEM:
        return HWS_E_NOT_FOUND;
    case UCS_ERR_INVALID_ADDR:
        return HWS_E_INVALID;
    case UCS_ERR_BUFFER_TOO_SMALL:
        return HWS_E_TRUNCATED;
    case UCS_ERR_NOT_IMPLEMENTED:
        return HWS_E_UNSUPPORTED;
    case UCS_ERR_SHMEM_SEGMENT:
    case UCS_ERR_SOME_CONNECTS_FAILED:
        return HWS_E_UNREACHABLE;
    default:
        return HWS_E_IO;
    }
}

const char *hws__kind_name(uint32_t kind)
{
    static const char *const names[] = {"nothing",    "context", "worker",    "listener",
                                        "endpoint",   "queue",   "operation", "memory",
                                        "remote key", "message", "buffer",    "plan"};

    return kind < sizeof names / sizeof *names ? names[kind] : "thing";
}

int32_t hws_last_error(hws_error *out)
{
    hws_error e = {.code = last.code,
                   .ucx_status = last.ucx_status,
                   .sys_errno = last.sys_errno,
                   .id = last.id};

    memcpy(e.text, last.text, sizeof e.text);
    /* A mistake here is not noted: it would replace what is asked for. */
    return hws__copy_out(out, &e, sizeof e) ? HWS_OK : HWS_E_INVALID;
}

const char *hws__text_keep(const char *text, const char *otherwise)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* LOCK: leaf */
    static char kept[KEPT][KEPT_LENGTH];
    static unsigned count;
    const char *found = otherwise;
    unsigned i = 0;

    pthread_mutex_lock(&lock);
    while (i < count && strncmp(kept[i], text, KEPT_LENGTH - 1) != 0) {
        i++;
    }
    if (i == count && i < KEPT) {
        if (snprintf(kept[count], KEPT_LENGTH, "%s", text) >= (int)KEPT_LENGTH) {
            end_whole(kept[count], KEPT_LENGTH - 1);
        }
        count++;
    }
    if (i < KEPT) {
        found = kept[i];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

const char *hws_error_text(int32_t code)
{
    const struct row *r = row_of(code);

    return r != NULL ? r->text : code >= 0 ? "success" : "not a code of this library";
}

const char *hws_error_name(int32_t code)
{
    const struct row *r = row_of(code);

    return r != NULL ? r->name : code == HWS_OK ? "OK" : code == HWS_DONE ? "DONE" : "UNKNOWN";
}

const char *hws_error_category(int32_t code)
{
    const struct row *r = row_of(code);

    return r != NULL ? r->category : "";
}
