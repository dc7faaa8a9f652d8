/* Unit tests of address.c. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "address.h"
#include "support/check.h"

/* The text of the first address, "" if there is none. */
static const char *text(const char *host, uint16_t port)
{
    static char out[64];
    struct sockaddr_storage *list = NULL;
    uint32_t n = hws__address_resolve(host, port, true, false, &list);

    out[0] = '\0';
    if (n != 0) {
        hws__address_text(&list[0], out, sizeof out);
        cr_assert_eq(hws__address_port(&list[0]), port);
        free(list);
    }
    return out;
}

Test(address, version_4)
{
    cr_assert_str_eq(text("127.0.0.1", 5), "127.0.0.1:5");
    cr_assert_str_eq(text("0.0.0.0", 0), "0.0.0.0:0");
    cr_assert_str_eq(text("255.255.255.255", 65535), "255.255.255.255:65535");
}

Test(address, version_6)
{
    cr_assert_str_eq(text("::1", 5), "[::1]:5");
    cr_assert_str_eq(text("::", 65535), "[::]:65535");
    cr_assert_str_eq(text("2001:DB8:0:0:0:0:0:1", 443), "[2001:db8::1]:443");
    cr_assert_str_eq(text("::ffff:1.2.3.4", 1), "[::ffff:1.2.3.4]:1");
}

static const char *for_ucx(const char *host)
{
    static char out[INET6_ADDRSTRLEN];
    struct sockaddr_storage *list = NULL, to;

    cr_assert_eq(hws__address_resolve(host, 7, true, false, &list), 1);
    to = hws__address_for_ucx(&list[0]);
    cr_assert_eq(hws__address_port(&to), 7);
    hws__address_host(&to, out, sizeof out);
    free(list);
    return out;
}

Test(address, one_loopback_address_stands_for_all)
{
    cr_assert_str_eq(for_ucx("127.0.0.1"), "127.0.0.1");
    cr_assert_str_eq(for_ucx("127.255.0.9"), "127.0.0.1");
    cr_assert_str_eq(for_ucx("128.0.0.2"), "128.0.0.2");
    cr_assert_str_eq(for_ucx("10.127.0.0"), "10.127.0.0");
    cr_assert_str_eq(for_ucx("::1"), "::1");
    cr_assert_str_eq(for_ucx("::ffff:127.0.0.2"), "::ffff:127.0.0.2");
}

static struct sockaddr_storage address(const char *host, uint16_t port)
{
    struct sockaddr_storage *list = NULL, a;

    cr_assert_eq(hws__address_resolve(host, port, true, false, &list), 1);
    a = list[0];
    free(list);
    return a;
}

Test(address, same_host_and_same_port)
{
    struct sockaddr_storage a = address("10.1.2.3", 5), other = address("10.1.2.4", 5);
    struct sockaddr_storage b = address("2001:db8::1", 5), mapped = address("::ffff:10.1.2.3", 5);
    struct sockaddr_storage next = address("10.1.2.3", 6), none = {.ss_family = AF_UNIX};

    cr_assert(hws__address_same(&a, &a) && hws__address_same(&b, &b));
    cr_assert(hws__address_same_host(&a, &next) && !hws__address_same(&a, &next));
    cr_assert(!hws__address_same_host(&a, &other) && !hws__address_same(&a, &mapped));
    other = address("2001:db8::2", 5);
    cr_assert(!hws__address_same(&b, &other) && !hws__address_same_host(&a, &b));
    cr_assert(!hws__address_same_host(&none, &none));
}

Test(address, lengths_fit_the_family)
{
    struct sockaddr_storage a = {.ss_family = AF_INET};

    cr_assert_eq(hws__address_length(&a), sizeof(struct sockaddr_in));
    a.ss_family = AF_INET6;
    cr_assert_eq(hws__address_length(&a), sizeof(struct sockaddr_in6));
}

Test(address, what_is_no_address)
{
    const char *const garbage[] = {"",          " ",        "localhost", "256.0.0.1",
                                   "1.2.3.4.5", "::1::",    "[::1]",     "127.0.0.1:80",
                                   "1.2.3.4 ",  "12345::g", "\xff\xfe",  "-"};

    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        cr_assert_str_eq(text(garbage[i], 1), "", "\"%s\"", garbage[i]);
    }
}

Test(address, another_family_has_no_text)
{
    struct sockaddr_storage a = {.ss_family = AF_UNIX};
    char out[64] = "x";

    hws__address_text(&a, out, sizeof out);
    cr_assert_str_eq(out, "");
    hws__address_host(&a, out, sizeof out);
    cr_assert_str_eq(out, "");
    a.ss_family = AF_UNSPEC;
    hws__address_text(&a, out, sizeof out);
    cr_assert_str_eq(out, "");
}

Test(address, a_small_room_is_not_overrun)
{
    struct sockaddr_storage *list = NULL;
    char out[16];

    cr_assert_eq(
        hws__address_resolve("2001:db8:1111:2222:3333:4444:5555:6666", 65535, true, false, &list),
        1);
    for (size_t size = 1; size < sizeof out; size++) {
        memset(out, '#', sizeof out);
        hws__address_host(&list[0], out, size);
        cr_assert_lt(strnlen(out, sizeof out), size);
        cr_assert_eq(out[size], '#');
        memset(out, '#', sizeof out);
        hws__address_text(&list[0], out, size);
        cr_assert_lt(strnlen(out, sizeof out), size);
        cr_assert_eq(out[size], '#');
    }
    free(list);
}

Test(address, names_resolve_unless_only_numbers_are_wanted)
{
    struct sockaddr_storage *list = NULL;
    uint32_t n = hws__address_resolve("localhost", 80, false, false, &list);

    cr_assert(n >= 1 && n <= 32);
    for (uint32_t i = 0; i < n; i++) {
        cr_assert(list[i].ss_family == AF_INET || list[i].ss_family == AF_INET6);
        cr_assert_eq(hws__address_port(&list[i]), 80);
    }
    free(list);
    cr_assert_eq(hws__address_resolve("localhost", 80, true, false, &list), 0);
}

/* What is taken for an address comes out as text that means the same address. */
Test(address, random_text_never_crashes_and_what_is_taken_makes_the_round_trip)
{
    static const char letters[] = "0123456789abcdef.:.:.:%x[] ";
    uint64_t state = 7;
    int taken = 0;

    for (int round = 0; round < 200000; round++) {
        struct sockaddr_storage *list = NULL, *again = NULL;
        char host[24], back[64];
        size_t length = 1 + t_random(&state) % (sizeof host - 1);

        for (size_t i = 0; i < length; i++) {
            host[i] = letters[t_random(&state) % (sizeof letters - 1)];
        }
        host[length] = '\0';
        if (strchr(host, '%') != NULL || hws__address_resolve(host, 9, true, false, &list) == 0) {
            continue;
        }
        taken++;
        hws__address_host(&list[0], back, sizeof back);
        cr_assert_eq(hws__address_resolve(back, 9, true, false, &again), 1, "%s: %s", host, back);
        cr_assert_eq(memcmp(&list[0], &again[0], hws__address_length(&list[0])), 0, "%s", host);
        free(list);
        free(again);
    }
    cr_assert_gt(taken, 100);
}

Test(address, any_bytes_of_an_address_have_a_text)
{
    uint64_t state = 11;

    for (int round = 0; round < 100000; round++) {
        struct sockaddr_storage a, *back = NULL;
        char host[64], out[64];

        for (size_t i = 0; i < sizeof a; i++) {
            ((unsigned char *)&a)[i] = (unsigned char)t_random(&state);
        }
        if (round % 3 != 0) {
            a.ss_family = round % 3 == 1 ? AF_INET : AF_INET6;
        }
        hws__address_text(&a, out, sizeof out);
        hws__address_host(&a, host, sizeof host);
        if (a.ss_family == AF_INET || a.ss_family == AF_INET6) {
            cr_assert_gt(strlen(out), strlen(host));
            cr_assert_eq(hws__address_resolve(host, hws__address_port(&a), true, false, &back), 1);
            free(back);
        }
    }
}
