#include "tool.h"

#include <stdio.h>

void tool_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("hawser: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

int tool_failed(int32_t code, const char *what)
{
    hws_error error = {.struct_size = sizeof error};

    /* The result of an operation is no failure of a call on this thread: its code tells all. */
    if (hws_last_error(&error) == HWS_OK && error.code == code && error.text[0] != '\0') {
        tool_error("%s: %s (%s)", what, error.text, hws_error_name(code));
    } else {
        tool_error("%s: %s (%s)", what, hws_error_text(code), hws_error_name(code));
    }
    return TOOL_FAILED;
}
