/*
 * What the subcommands of the program `hawser` share.
 */
#ifndef HAWSER_TOOL_H
#define HAWSER_TOOL_H

#include <hawser.h>

#include <stdarg.h>

/* Exit codes: 0 it worked, 1 it failed, 2 the command line is wrong. */
#define TOOL_OK 0
#define TOOL_FAILED 1
#define TOOL_USAGE 2

/** One subcommand: what it is called, what the help says, what runs. argv[0] is its name. */
typedef struct tool_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} tool_command;

int tool_perf(int argc, char **argv);
int tool_info(int argc, char **argv);
int tool_stats(int argc, char **argv);

/** Print "hawser: ..." to standard error. */
void tool_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/**
 * Print why a call of the library failed: `what`, then the library's own words if the failure was
 * on this thread, else the text of the code. Returns TOOL_FAILED, to be handed on.
 */
int tool_failed(int32_t code, const char *what);

#endif
