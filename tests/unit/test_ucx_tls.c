/* Unit tests of ucx_tls.h. */
#include "ucx_tls.h"

#include <criterion/criterion.h>
#include <string.h>

static void expect(bool (*change)(const char *, char *, size_t), const char *tls, bool some,
                   const char *list)
{
    char out[64] = "";

    cr_assert_eq(change(tls, out, sizeof(out)), some, "%s", tls);
    if (list != NULL) {
        cr_assert_str_eq(out, list);
    }
}
#define check(tls, some, left) expect(hws__tls_without_network, tls, some, left)
#define with_tcp(tls, missing, list) expect(hws__tls_with_tcp, tls, missing, list)

Test(ucx_tls, networks_are_left_out)
{
    check("tcp,sm,self", true, "sm,self");
    check("sysv,cma,rc_x,ud:aux,cuda_copy,cuda_ipc,tcp", true, "sysv,cma,cuda_copy,cuda_ipc");
    check("posix:aux", true, "posix:aux");
    check(",,sysv,", true, "sysv");
    check("^posix", true, "^posix,tcp");
    check("all", true, "^tcp");
}

Test(ucx_tls, tcp_is_added_where_no_network_is_left)
{
    with_tcp("sm", true, "sm,tcp");
    with_tcp("sysv,self,cuda_copy", true, "sysv,self,cuda_copy,tcp");
    with_tcp("^tcp", true, "all");
    with_tcp("^rc,tcp,posix", true, "^rc,posix");
    with_tcp("tcp", false, NULL);
    with_tcp("all", false, NULL);
    with_tcp("sysv,rc_x", false, NULL);
    with_tcp("self,ud:aux", false, NULL);
    with_tcp("^posix", false, NULL);
    with_tcp("sysv,another", false, NULL); /* which may be a network */
    with_tcp("", false, NULL);
}

Test(ucx_tls, a_transport_is_found_in_a_list)
{
    cr_expect(hws__tls_names("all", "self"));
    cr_expect(hws__tls_names("self", "self"));
    cr_expect(hws__tls_names("sysv,self:aux,tcp", "self"));
    cr_expect(hws__tls_names("^posix,tcp", "self"));
    cr_expect_not(hws__tls_names("", "self"));
    cr_expect_not(hws__tls_names("sm,tcp", "self"));
    cr_expect_not(hws__tls_names("selfish,sel", "self"));
    cr_expect_not(hws__tls_names("^posix,self", "self"));
}

Test(ucx_tls, nothing_may_be_left)
{
    check("", false, "");
    check("tcp", false, "");
    check("tcp,self,cma", false, "self,cma"); /* which copies, but carries no messages */
    check("smb,sysvx", false, "");
}

Test(ucx_tls, a_list_that_is_too_long_is_refused)
{
    char tls[256] = "", out[64];

    for (int i = 0; i < 20; i++) {
        strcat(tls, "sysv,posix,");
    }
    cr_assert_not(hws__tls_without_network(tls, out, sizeof(out)));
    memset(tls + 1, 'x', 100);
    tls[0] = '^';
    cr_assert_not(hws__tls_without_network(tls, out, sizeof(out)));
}
