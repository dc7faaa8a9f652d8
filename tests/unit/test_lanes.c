/* Unit tests of lanes.c on recorded output of ucp_ep_print_info. */
#include <criterion/criterion.h>
#include <string.h>

#include "lanes.h"

static const char shm_1_13[] =
    "#\n# UCP endpoint \n#\n#               peer: <no debug data>\n"
    "#                 lane[0]: cm rdmacm\n"
    "#                 lane[1]:  3:posix/memory.0 md[2]          -> md[2]/posix/sysdev[255] amo#0 "
    "am am_bw#0 keepalive\n"
    "#                 lane[2]:  1:tcp/lo.0 md[1]                -> md[1]/tcp/sysdev[255] "
    "rma_bw#0 wireup\n"
    "#                 lane[3]:  2:tcp/eth0.0 md[1]              -> md[1]/tcp/sysdev[255] rma_bw#1\n"
    "#\n#                tag_send: 0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)\n";

static const char tcp_1_22[] =
    "# UCP endpoint \n#                 lane[0]: cm tcp\n"
    "#                 lane[1]:  2:tcp/lo.0 md[1]                -> md[1]/tcp/sysdev[255] seg "
    "4294967295 rma_bw#0 am wireup\n"
    "#                 lane[2]:  1:tcp/eth0.100.0 md[1]          -> md[1]/tcp/sysdev[255] seg "
    "4294967295 rma_bw#1\n"
    "# +-----------+------+\n# |   0..92   | eager short | posix/memory |\n";

static int32_t parse(const char *text, char *buf, size_t cap, unsigned *flags)
{
    return hws__lanes_parse(text, buf, cap, flags);
}

Test(lanes, shared_memory_and_tcp)
{
    char buf[128];
    unsigned flags;

    cr_assert_eq(parse(shm_1_13, buf, sizeof(buf), &flags), (int32_t)strlen(buf));
    cr_assert_str_eq(buf, "posix/memory,tcp/lo,tcp/eth0");
    cr_assert_eq(flags, HWS__LANE_SHM | HWS__LANE_TCP | HWS__LANE_DATA_SHM);
}

Test(lanes, tcp_only_and_a_device_with_a_dot)
{
    char buf[128];
    unsigned flags;

    parse(tcp_1_22, buf, sizeof(buf), &flags);
    cr_assert_str_eq(buf, "tcp/lo,tcp/eth0.100");
    cr_assert_eq(flags, HWS__LANE_TCP);
}

Test(lanes, copy_only_shared_memory_is_not_for_messages)
{
    char buf[128];
    unsigned flags;

    parse("# lane[0]: 4:cma/memory.0 md[3] -> md[3]/cma/sysdev[255] rma_bw#0\n"
          "# lane[1]: 4:cma/memory.0 md[3] -> md[3]/cma/sysdev[255] rma_bw#1\n",
          buf, sizeof(buf), &flags);
    cr_assert_str_eq(buf, "cma/memory");
    cr_assert_eq(flags, HWS__LANE_SHM);
}

Test(lanes, every_kind)
{
    static const struct {
        const char *name;
        unsigned flag;
    } kinds[] = {
        {"sysv/memory", HWS__LANE_SHM},       {"xpmem/memory", HWS__LANE_SHM},
        {"knem/memory", HWS__LANE_SHM},       {"self/memory", HWS__LANE_SELF},
        {"rc_mlx5/mlx5_0:1", HWS__LANE_RDMA}, {"ud_verbs/mlx5_0:1", HWS__LANE_RDMA},
        {"dc_mlx5/mlx5_0:1", HWS__LANE_RDMA}, {"cuda_ipc/cuda", HWS__LANE_CUDA},
        {"gdr_copy/cuda", HWS__LANE_CUDA},    {"newthing/x", HWS__LANE_OTHER},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char text[128], buf[128];
        unsigned flags;

        snprintf(text, sizeof(text), "lane[0]: 7:%s.0 md[1] -> x", kinds[i].name);
        parse(text, buf, sizeof(buf), &flags);
        cr_expect_str_eq(buf, kinds[i].name);
        cr_expect_eq(flags, kinds[i].flag, "%s", kinds[i].name);
    }
}

Test(lanes, strange_lines_are_passed_over)
{
    static const char *const texts[] = {
        "",
        "\n\n\n",
        "lane[",
        "lane[0]",
        "lane[0]:",
        "lane[x]: 1:tcp/lo.0",
        "lane[0]: cm tcp",
        "lane[0]: 1:",
        "lane[0]: <unconnected>",
        "\xff\xfe lane[0]: \x01",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char buf[16] = "?";
        unsigned flags = 99;

        cr_expect_eq(parse(texts[i], buf, sizeof(buf), &flags), 0);
        cr_expect_str_eq(buf, "");
        cr_expect_eq(flags, 0);
    }
}

Test(lanes, a_long_line_is_cut_not_overrun)
{
    char text[4000], buf[64];
    unsigned flags;

    memset(text, 'x', sizeof(text));
    memcpy(text, "lane[0]: 1:", 11);
    text[sizeof(text) - 1] = '\0';
    cr_assert_geq(parse(text, buf, sizeof(buf), &flags), 0);
    cr_assert_lt(strlen(buf), sizeof(buf));
}

Test(lanes, a_small_buffer_gets_a_terminated_part_and_the_length)
{
    char buf[6];

    cr_assert_eq(parse(shm_1_13, buf, sizeof(buf), NULL), 28);
    cr_assert_str_eq(buf, "posix");
    cr_assert_geq(parse(shm_1_13, NULL, 0, NULL), 28);
}
