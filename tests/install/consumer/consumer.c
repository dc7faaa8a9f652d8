/* What a user of the installed library writes; compiled as C and as C++. */
#include <hawser.h>

#include <stdio.h>

int main(void)
{
    uint32_t built = HWS_VERSION_MAJOR << 16 | HWS_VERSION_MINOR << 8 | HWS_VERSION_PATCH;

    if (hws_version() != built) {
        fprintf(stderr, "header says %x, library says %x\n", (unsigned)built,
                (unsigned)hws_version());
        return 1;
    }
    /* An id that never was: a call through the whole library that needs no UCX. */
    return hws_kind(0) < 0 ? 0 : 1;
}
