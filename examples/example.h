/*
 * What the examples in C share: how they fail, how they read a port, how they end.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <hawser.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* Leave with the library's own words if a call failed. */
static inline int32_t check(int32_t code, const char *what)
{
    if (code < 0) {
        hws_error error = {.struct_size = sizeof error};

        hws_last_error(&error);
        fprintf(stderr, "%s: %s (%s)\n", what,
                error.code == code ? error.text : hws_error_text(code), hws_error_name(code));
        exit(1);
    }
    return code;
}

/* A port in decimal. Whatever else is given ends the program: atoi() would make a port of anything. */
static inline uint16_t port_of(const char *text)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);

    if (!isdigit((unsigned char)text[0]) || *end != '\0' || port > UINT16_MAX) {
        fprintf(stderr, "PORT is a number from 0 to 65535, not \"%s\"\n", text);
        exit(2);
    }
    return (uint16_t)port;
}

/* What was printed is only now written, perhaps; a disk may be full, or nobody reads the pipe. */
static inline void finish_output(void)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("writing the output");
        exit(1);
    }
}

#endif
