/*
 * The program `hawser`: one subcommand a file.
 */
#include "tool.h"

#include <stdio.h>
#include <string.h>

static const tool_command commands[] = {
    {"info", "what is loaded: versions, which UCX and why, transports and devices", tool_info},
    {"perf", "how fast it is: called as ucx_perftest is, and compares itself with it", tool_perf},
    {"stats", "what the workers of a running process have counted", tool_stats},
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static void usage(FILE *out)
{
    fputs("Usage: hawser COMMAND [OPTIONS]\n\nCommands:\n", out);
    for (size_t i = 0; i < COMMANDS; i++) {
        fprintf(out, "  %-6s  %s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n  --help     this text; `hawser COMMAND --help` tells more\n"
          "  --version  the version of the library\n",
          out);
}

static int version(void)
{
    uint32_t v = hws_version();

    printf("hawser %u.%u.%u (ABI %u)\n", v >> 16, v >> 8 & 0xff, v & 0xff, hws_abi_version());
    return TOOL_OK;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        usage(stdout);
        return TOOL_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        return version();
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    tool_error("unknown command '%s'; see `hawser --help`", argv[1]);
    return TOOL_USAGE;
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);

    /* Who reads it would take what was lost for all there is. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == TOOL_OK) {
        tool_error("the output could not be written");
        code = TOOL_FAILED;
    }
    return code;
}
