/*
 * What a call returns that found no memory is what the last error says.
 *
 * INTERNAL
 * WRAP: malloc calloc realloc aligned_alloc strdup
 * WITH: failing.c
 */
#include "fault/failing.h"
#include "support/cases.h"
#include "support/pair.h"

#include <stdatomic.h>

CASE(address)
{
    hws_error error = {.struct_size = sizeof error};
    static char address[16384];
    uint64_t length = 0;
    int failed = 0;
    t_pair pair;

    t_pair_open(&pair, NULL);
    for (int n = 1; n <= 8; n++) {
        int32_t code;

        atomic_store(&failing_countdown, n);
        code = hws_worker_address(pair.worker[0], 0, address, sizeof address, &length);
        atomic_store(&failing_countdown, 0);
        if (code < 0) {
            failed++;
            CHECK_OK(hws_last_error(&error));
            CHECK_EQ(code, error.code);
        }
    }
    CHECK(failed > 0);
    t_pair_close(&pair);
}

CASES_MAIN
