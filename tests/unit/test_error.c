/* Unit tests of error.c: the table of codes, the mappings, the last error of a thread. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "support/check.h"
#include "support/guide.h"

struct row {
    const char *name, *category, *text;
    int32_t code;
    ucs_status_t ucx;
};

static const struct row rows[] = {
#define HWS_ERROR(name, number, category, text, ucx) {#name, #category, text, number, ucx},
#include "../abi/errors.def"
#undef HWS_ERROR
};

#define ROWS (sizeof rows / sizeof *rows)

Test(error, every_code_has_name_text_and_category)
{
    static const char *const categories[] = {"usage",    "state",     "peer",
                                             "resource", "operation", "system"};

    for (size_t i = 0; i < ROWS; i++) {
        const struct row *r = &rows[i];
        int known = 0;

        cr_assert_lt(r->code, 0);
        cr_assert_str_eq(hws_error_name(r->code), r->name);
        cr_assert_str_eq(hws_error_text(r->code), r->text);
        cr_assert_str_eq(hws_error_category(r->code), r->category);
        for (size_t k = 0; k < sizeof categories / sizeof *categories; k++) {
            known |= strcmp(categories[k], r->category) == 0;
        }
        cr_assert(known, "%s", r->category);
        cr_assert_gt(strlen(r->text), 5, "%s", r->name);
        for (const char *c = r->name; *c != '\0'; c++) {
            cr_assert(isupper((unsigned char)*c) || *c == '_', "%s", r->name);
        }
    }
}

Test(error, no_name_number_or_status_of_ucx_stands_twice)
{
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t k = 0; k < i; k++) {
            cr_assert_neq(rows[i].code, rows[k].code, "%s", rows[i].name);
            cr_assert_str_neq(rows[i].name, rows[k].name);
            cr_assert(rows[i].ucx == UCS_OK || rows[i].ucx != rows[k].ucx, "%s and %s",
                      rows[i].name, rows[k].name);
        }
    }
}

/* A row of the guide's table: | `NAME` | number | text | remedy | */
Test(error, every_code_has_a_remedy_in_the_guide)
{
    char *guide = t_guide("errors.md"), row[256];

    if (guide == NULL) {
        cr_skip_test("run by ctest, which tells where the sources are");
    }
    for (size_t i = 0; i < ROWS; i++) {
        snprintf(row, sizeof row, "| `%s` | %d | %s | ", rows[i].name, rows[i].code, rows[i].text);
        cr_assert_gt(t_guide_says(guide, row), 15, "%s", row);
    }
    free(guide);
}

Test(error, numbers_that_are_no_code)
{
    const int32_t numbers[] = {-9999, INT32_MIN, 2, INT32_MAX, -13, -128};

    cr_assert_str_eq(hws_error_name(HWS_OK), "OK");
    cr_assert_str_eq(hws_error_name(HWS_DONE), "DONE");
    cr_assert_str_eq(hws_error_text(HWS_OK), "success");
    cr_assert_str_eq(hws_error_category(HWS_OK), "");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        cr_assert_str_eq(hws_error_name(numbers[i]), "UNKNOWN");
        cr_assert_neq(hws_error_text(numbers[i]), NULL);
        cr_assert_str_eq(hws_error_category(numbers[i]), "");
    }
}

Test(error, every_status_of_ucx_means_a_code)
{
    for (int s = -127; s < 0; s++) {
        int32_t code = hws__from_ucx((ucs_status_t)s);

        cr_assert_lt(code, 0, "status %d", s);
        cr_assert_str_neq(hws_error_name(code), "UNKNOWN");
    }
    cr_assert_eq(hws__from_ucx(UCS_OK), HWS_OK);
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].ucx != UCS_OK) {
            cr_assert_eq(hws__from_ucx(rows[i].ucx), rows[i].code, "%s", rows[i].name);
        }
    }
    /* A dead peer is one or the other by the version of UCX: both are of the peer. */
    cr_assert_str_eq(hws_error_category(hws__from_ucx(UCS_ERR_ENDPOINT_TIMEOUT)), "peer");
    cr_assert_str_eq(hws_error_category(hws__from_ucx(UCS_ERR_CONNECTION_RESET)), "peer");
}

static hws_error last(void)
{
    hws_error e = {.struct_size = sizeof e};

    cr_assert_eq(hws_last_error(&e), HWS_OK);
    return e;
}

Test(error, the_last_error_says_everything)
{
    hws_error e = last();

    cr_assert_eq(e.code, 0, "nothing has failed yet");
    cr_assert_eq(hws__fail(HWS_E_BUSY, 77, "it is %s", "busy"), HWS_E_BUSY);
    e = last();
    cr_assert(e.code == HWS_E_BUSY && e.id == 77 && e.ucx_status == 0 && e.sys_errno == 0);
    cr_assert_str_eq(e.text, "it is busy");

    cr_assert_eq(hws__fail_ucx(UCS_ERR_UNREACHABLE, 78, "u"), HWS_E_UNREACHABLE);
    e = last();
    cr_assert(e.code == HWS_E_UNREACHABLE && e.id == 78 && e.sys_errno == 0);
    cr_assert_eq(e.ucx_status, UCS_ERR_UNREACHABLE);

    cr_assert_eq(hws__fail_errno(EMFILE, 79, "e"), HWS_E_NO_RESOURCE);
    e = last();
    cr_assert(e.code == HWS_E_NO_RESOURCE && e.ucx_status == 0 && e.sys_errno == EMFILE);
}

Test(error, errno_means_a_code)
{
    cr_assert_eq(hws__fail_errno(ENOMEM, 0, "e"), HWS_E_NO_MEMORY);
    cr_assert_eq(hws__fail_errno(ENFILE, 0, "e"), HWS_E_NO_RESOURCE);
    cr_assert_eq(hws__fail_errno(EAGAIN, 0, "e"), HWS_E_NO_RESOURCE);
    cr_assert_eq(hws__fail_errno(EADDRINUSE, 0, "e"), HWS_E_ADDRESS_IN_USE);
    cr_assert_eq(hws__fail_errno(EPERM, 0, "e"), HWS_E_SYSTEM);
}

Test(error, a_long_text_is_cut_and_ended)
{
    char text[1000];
    hws_error e;

    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    hws__fail(HWS_E_INVALID, 0, "%s", text);
    e = last();
    cr_assert_eq(strlen(e.text), sizeof e.text - 1);
}

/* A binding that reads UTF-8 must be able to read it. */
Test(error, a_text_is_cut_between_characters)
{
    static const char *const characters[] = {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x9a\xa2"};

    for (size_t i = 0; i < sizeof characters / sizeof *characters; i++) {
        size_t bytes = strlen(characters[i]);

        for (size_t before = 0; before < bytes; before++) {
            char text[1000] = "";
            hws_error e;

            memset(text, 'x', before);
            for (size_t k = 0; k < 200; k++) {
                strcat(text, characters[i]);
            }
            hws__fail(HWS_E_INVALID, 0, "%s", text);
            e = last();
            cr_assert_eq((strlen(e.text) - before) % bytes, 0, "%zu after %zu", bytes, before);
            cr_assert_gt(strlen(e.text) + bytes, sizeof e.text - 1);
        }
    }
}

Test(error, a_caller_of_another_version)
{
    struct {
        hws_error error;
        uint64_t behind;
    } newer = {.error = {.struct_size = sizeof newer}, .behind = 5};
    struct {
        uint32_t struct_size;
        int32_t code;
        uint64_t behind;
    } older = {.struct_size = 8, .behind = 5};

    hws__fail(HWS_E_BUSY, 1, "busy");
    cr_assert_eq(hws_last_error(NULL), HWS_E_INVALID);
    cr_assert_eq(hws_last_error(&(hws_error){.struct_size = 0}), HWS_E_INVALID);
    cr_assert_eq(hws_last_error(&newer.error), HWS_OK);
    cr_assert_eq(newer.error.code, HWS_E_BUSY);
    cr_assert_eq(newer.behind, 0, "unknown to this library: zero");
    cr_assert_eq(hws_last_error((hws_error *)(void *)&older), HWS_OK);
    cr_assert_eq(older.code, HWS_E_BUSY);
    cr_assert_eq(older.behind, 5);
    /* To ask wrongly does not replace what is asked for. */
    cr_assert_eq(last().code, HWS_E_BUSY);
}

static void *fail_here(void *arg)
{
    int32_t code = (int32_t)(intptr_t)arg;

    cr_assert_eq(last().code, 0, "a new thread has no error");
    for (int i = 0; i < 10000; i++) {
        hws_error e;

        hws__fail(code, (hws_id)-code, "error %d", code);
        e = last();
        cr_assert(e.code == code && e.id == (hws_id)-code);
        cr_assert_eq(atoi(e.text + strlen("error ")), code);
    }
    return NULL;
}

Test(error, each_thread_has_its_own)
{
    pthread_t threads[4];

    hws__fail(HWS_E_NEWER, 1, "of the main thread");
    for (intptr_t i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, fail_here, (void *)(intptr_t)(HWS_E_TIMED_OUT - i));
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_assert_eq(last().code, HWS_E_NEWER);
}

Test(error, success_leaves_it_alone)
{
    hws_id id = 0;

    cr_assert_eq(hws_kind(12345), HWS_E_BAD_ID);
    CHECK_OK(hws_queue_open(NULL, &id));
    CHECK_OK(hws_close(id));
    cr_assert_eq(last().code, HWS_E_BAD_ID);
    cr_assert_eq(last().id, 12345);
}

Test(error, kinds_have_names)
{
    for (uint32_t k = 1; k <= HWS_KIND_BUFFER; k++) {
        cr_assert_str_neq(hws__kind_name(k), "thing");
        cr_assert_str_neq(hws__kind_name(k), "nothing");
    }
    cr_assert_neq(hws__kind_name(12345), NULL);
}
