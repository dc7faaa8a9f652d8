#include "options.h"
#include "error.h"
#include <string.h>

/* The size that a structure says it has; false: it cannot be one. */
static bool size_of(const void *theirs, uint32_t *given)
{
    memcpy(given, theirs, sizeof *given);
    return *given >= sizeof *given && *given <= 65536;
}

int32_t hws__options(void *ours, size_t size, const void *theirs, const char *what)
{
    const unsigned char *p = theirs;
    uint32_t given;

    memset(ours, 0, size);
    if (theirs == NULL) {
        return HWS_OK;
    }
    if (!size_of(theirs, &given)) {
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

bool hws__copy_out(void *theirs, const void *ours, size_t size)
{
    uint32_t given;

    if (theirs == NULL || !size_of(theirs, &given)) {
        return false;
    }
    if (given > size) {
        memset((char *)theirs + size, 0, given - size);
    }
    memcpy((char *)theirs + sizeof given, (const char *)ours + sizeof given,
           (given < size ? given : size) - sizeof given);
    return true;
}

static int32_t unfit(const char *what)
{
    return hws__fail(HWS_E_INVALID, 0, "%s: out is null, or its struct_size no size", what);
}

int32_t hws__fill(void *theirs, const void *ours, size_t size, const char *what)
{
    return hws__copy_out(theirs, ours, size) ? HWS_OK : unfit(what);
}

int32_t hws__fillable(const void *theirs, const char *what)
{
    uint32_t given;

    return theirs != NULL && size_of(theirs, &given) ? HWS_OK : unfit(what);
}
