#include "options.h"
#include "error.h"
#include <string.h>

int32_t hws__options(void *ours, size_t size, const void *theirs, const char *what)
{
    const unsigned char *p = theirs;
    uint32_t given;

    memset(ours, 0, size);
    if (theirs == NULL) {
        return HWS_OK;
    }
    memcpy(&given, theirs, sizeof given);
    if (given < sizeof given || given > 65536) {
        return hws__fail(HWS_E_INVALID, 0, "struct_size %u of the %s options", given, what);
    }
    for (size_t i = size; i < given; i++) {
        if (p[i] != 0) {
            return hws__fail(HWS_E_NEWER, 0, "%s options: byte %zu is set, known are %zu", what, i,
                             size);
        }
    }
    memcpy(ours, theirs, given < size ? given : size);
    return HWS_OK;
}

int32_t hws__fill(void *theirs, const void *ours, size_t size, const char *what)
{
    uint32_t given;

    if (theirs == NULL) {
        return hws__fail(HWS_E_INVALID, 0, "%s: out is null", what);
    }
    memcpy(&given, theirs, sizeof given);
    if (given < sizeof given || given > 65536) {
        return hws__fail(HWS_E_INVALID, 0, "struct_size %u of the %s", given, what);
    }
    if (given > size) {
        memset((char *)theirs + size, 0, given - size);
    }
    memcpy((char *)theirs + sizeof given, (const char *)ours + sizeof given,
           (given < size ? given : size) - sizeof given);
    return HWS_OK;
}
