/* Unit tests of options.c: structures of other versions of the header. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <string.h>

#include "options.h"

struct small {
    uint32_t struct_size;
    uint32_t a;
};

struct ours {
    uint32_t struct_size;
    uint32_t a;
    uint64_t b;
};

struct big {
    struct ours ours;
    uint64_t c;
    uint64_t d;
};

static int32_t take(struct ours *ours, const void *theirs)
{
    memset(ours, 0xa5, sizeof *ours);
    return hws__options(ours, sizeof *ours, theirs, "test");
}

static void check_error(int32_t code, const char *part)
{
    hws_error e = {.struct_size = sizeof e};

    cr_assert_eq(hws_last_error(&e), HWS_OK);
    cr_assert_eq(e.code, code);
    cr_assert_neq(strstr(e.text, part), NULL, "%s", e.text);
}

Test(options, null_is_all_defaults)
{
    struct ours o;

    cr_assert_eq(take(&o, NULL), HWS_OK);
    cr_assert(o.a == 0 && o.b == 0);
}

Test(options, the_same_size)
{
    struct ours o, theirs = {.struct_size = sizeof theirs, .a = 1, .b = 2};

    cr_assert_eq(take(&o, &theirs), HWS_OK);
    cr_assert(o.a == 1 && o.b == 2);
}

Test(options, an_older_caller_gets_defaults_for_the_rest)
{
    struct small theirs = {.struct_size = sizeof theirs, .a = 1};
    struct ours o;

    cr_assert_eq(take(&o, &theirs), HWS_OK);
    cr_assert(o.a == 1 && o.b == 0);
}

Test(options, only_the_size)
{
    uint32_t theirs = sizeof theirs;
    struct ours o;

    cr_assert_eq(take(&o, &theirs), HWS_OK);
    cr_assert(o.a == 0 && o.b == 0);
}

Test(options, no_size_and_sizes_that_cannot_be)
{
    const uint32_t sizes[] = {0, 1, 3, 65537, UINT32_MAX};
    struct ours o, theirs = {.a = 1};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        theirs.struct_size = sizes[i];
        cr_assert_eq(take(&o, &theirs), HWS_E_INVALID);
        check_error(HWS_E_INVALID, "test");
    }
}

Test(options, a_newer_caller_whose_tail_is_zero)
{
    struct big theirs = {.ours = {.struct_size = sizeof theirs, .a = 1, .b = 2}};
    struct ours o;

    cr_assert_eq(take(&o, &theirs), HWS_OK);
    cr_assert(o.a == 1 && o.b == 2);
}

/* Whatever byte is set: the caller asks for something that this library cannot do. */
Test(options, a_newer_caller_whose_tail_is_set)
{
    for (size_t i = offsetof(struct big, c); i < sizeof(struct big); i++) {
        struct big theirs = {.ours = {.struct_size = sizeof theirs, .a = 1}};
        struct ours o;

        ((unsigned char *)&theirs)[i] = 1;
        cr_assert_eq(take(&o, &theirs), HWS_E_NEWER, "byte %zu", i);
        check_error(HWS_E_NEWER, "test");
    }
}

Test(options, the_biggest_size_is_read_to_its_end)
{
    static unsigned char theirs[65536];
    const uint32_t size = sizeof theirs;
    struct ours o;

    memcpy(theirs, &size, sizeof size);
    cr_assert_eq(take(&o, theirs), HWS_OK);
    theirs[sizeof theirs - 1] = 1;
    cr_assert_eq(take(&o, theirs), HWS_E_NEWER);
}

Test(options, fill_the_same_size)
{
    struct ours o = {.a = 1, .b = 2}, theirs = {.struct_size = sizeof theirs};

    cr_assert_eq(hws__fill(&theirs, &o, sizeof o, "test"), HWS_OK);
    cr_assert_eq(theirs.struct_size, sizeof theirs, "the size stays the caller's");
    cr_assert(theirs.a == 1 && theirs.b == 2);
}

Test(options, fill_writes_no_byte_behind_an_older_caller)
{
    struct {
        struct small small;
        uint64_t behind;
    } theirs = {.small = {.struct_size = sizeof(struct small)}, .behind = UINT64_MAX};
    struct ours o = {.a = 1, .b = 2};

    cr_assert_eq(hws__fill(&theirs, &o, sizeof o, "test"), HWS_OK);
    cr_assert_eq(theirs.small.a, 1);
    cr_assert_eq(theirs.behind, UINT64_MAX);
}

Test(options, fill_clears_what_a_newer_caller_knows)
{
    struct big theirs = {.ours = {.struct_size = sizeof theirs}, .c = 3, .d = 4};
    struct ours o = {.a = 1, .b = 2};

    cr_assert_eq(hws__fill(&theirs, &o, sizeof o, "test"), HWS_OK);
    cr_assert_eq(theirs.ours.struct_size, sizeof theirs);
    cr_assert(theirs.ours.a == 1 && theirs.ours.b == 2 && theirs.c == 0 && theirs.d == 0);
}

Test(options, fill_into_nothing)
{
    struct ours o = {0}, theirs = {.struct_size = 0};

    cr_assert_eq(hws__fill(NULL, &o, sizeof o, "test"), HWS_E_INVALID);
    check_error(HWS_E_INVALID, "null");
    cr_assert_eq(hws__fill(&theirs, &o, sizeof o, "test"), HWS_E_INVALID);
    theirs.struct_size = 70000;
    cr_assert_eq(hws__fill(&theirs, &o, sizeof o, "test"), HWS_E_INVALID);
}
