/*
 * Every function of the description, called through libffi with wrong ids, null pointers and wrong sizes: each gives
 * its documented code, sets the last error, and nothing is leaked.
 * UCX: both
 * SANITIZED
 * TIMEOUT: 120
 * PKG: libffi jansson
 * WITH: conformance_call.c conformance_world.c
 */
#include "conformance.h"
#include "support/check.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <string.h>

/* Of LeakSanitizer; null in a build without it. Its own check at the end of a process never comes: Criterion's processes
 * end without. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static int open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

/* The same once it stands still: the library makes its next spare worker in the background. */
static int settled_files(void)
{
    int count = open_files();

    for (int still = 0, tries = 0; still < 20 && tries < 1000; tries++) {
        int now;
        t_sleep(5 * T_MS);
        now = open_files();
        still = now == count ? still + 1 : 0;
        count = now;
    }
    return count;
}

/* What the library holds; the inline and delivered counts may grow. */
static hws_stats held(const world *w)
{
    hws_stats stats = {.struct_size = sizeof(stats)};

    cr_assert_eq(hws_stats_get(w->context, &stats), HWS_OK);
    return stats;
}

static int32_t code_of(json_t *abi, const char *name)
{
    json_t *error = named(json_object_get(abi, "errors"), name);

    cr_assert_not_null(error, "no error %s", name);
    return (int32_t)json_integer_value(json_object_get(error, "code"));
}

/* 1 if the call went as the vector says. */
static int agrees(json_t *vector, int32_t expected, int32_t got)
{
    const char *name = json_string_value(json_object_get(vector, "name"));
    hws_error error = {.struct_size = sizeof(error)};

    if (got != expected) {
        cr_log_error("%s: %d %s, not %s", name, got, hws_error_name(got), hws_error_name(expected));
        return 0;
    }
    cr_assert_eq(hws_last_error(&error), HWS_OK);
    if (json_is_true(json_object_get(vector, "quiet"))) {
        return 1;
    }
    if (error.code != expected || error.text[0] == '\0' ||
        strlen(error.text) >= sizeof(error.text)) {
        cr_log_error("%s: the last error is %d \"%s\"", name, error.code, error.text);
        return 0;
    }
    return 1;
}

static void run(const char *file)
{
    json_t *abi = load_abi(), *document = load_vectors(file), *vector;
    json_t *vectors = json_object_get(document, "vectors");
    hws_stats before, after;
    size_t i, wrong = 0;
    int files;
    world w;

    world_open(&w);
    before = held(&w);
    files = settled_files();
    json_array_foreach(vectors, i, vector)
    {
        const char *expect = json_string_value(json_object_get(vector, "expect"));
        wrong += !agrees(vector, code_of(abi, expect), call_vector(&w, abi, vector));
    }
    after = held(&w);
    cr_expect_eq(after.ops_pending, before.ops_pending);
    cr_expect_eq(after.ops_posted, before.ops_posted);
    cr_expect_eq(after.endpoints, before.endpoints);
    cr_expect_eq(settled_files(), files, "files are left open");
    cr_expect_eq(stray_callbacks(), 0, "a callback of a refused call was called");
    world_close(&w);
    cr_log_info("%s: %zu calls, %zu wrong", file, i, wrong);
    cr_expect_gt(i, 30);
    cr_expect_eq(wrong, 0);
    json_decref(document);
    json_decref(abi);
    cr_expect(__lsan_do_recoverable_leak_check == NULL || __lsan_do_recoverable_leak_check() == 0,
              "memory is leaked");
}

Test(conformance, every_function_is_exported)
{
    json_t *abi = load_abi(), *function;
    size_t i;

    json_array_foreach(json_object_get(abi, "functions"), i, function)
    {
        const char *name = json_string_value(json_object_get(function, "name"));
        cr_expect_not_null(find_function(name), "%s", name);
    }
    cr_expect_gt(i, 40);
    json_decref(abi);
}

Test(conformance, ids)
{
    run("ids");
}

Test(conformance, pointers)
{
    run("pointers");
}

Test(conformance, sizes)
{
    run("sizes");
}
