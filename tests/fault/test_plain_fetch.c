/*
 * A worker is closed while it fetches an active message of a peer that knows its plain address only, and sends no more.
 * UCX: both TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/address.h"
#include "support/pair.h"

#include <stdlib.h>

enum { SIZE = 32 << 20, AM = 7 };

static int told;
static int32_t status;

static void on_am(void *arg, const hws_event *event)
{
    (void)arg;
    told++;
    status = event->status;
}

/* After so many steps of both sides. */
static void closed_after(int steps)
{
    hws_am_opts am = {.struct_size = sizeof am, .sink = {.callback = on_am}};
    unsigned char *out = t_alloc(SIZE);
    hws_id there, op = 0;
    t_address address;
    t_pair pair;

    told = 0;
    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_am_handler(pair.worker[1], AM, &am));
    address = t_address_of(pair.worker[1], 0);
    there = t_address_dial(&pair, 0, &address, 0);
    CHECK_OK(hws_am_send(there, AM, NULL, 0, out, SIZE, NULL, &op));
    for (int i = 0; i < steps; i++) {
        t_pair_step(&pair);
    }
    CHECK_OK(hws_close_wait(pair.worker[1], t_patience()));
    CHECK(told <= 1);
    CHECK(told == 0 || status == HWS_OK || status == HWS_E_CANCELED);
    CHECK_OK(hws_abort(there));
    CHECK_OK(hws_close_wait(pair.worker[0], t_patience()));
    CHECK_OK(hws_close_wait(pair.context, t_patience()));
    t_record_free(&pair.record[0]);
    t_record_free(&pair.record[1]);
    free(out);
}

CASE(in_the_midst_of_a_message)
{
    if (t_sanitized()) {
        SKIP("the address sanitizer calls a leak what UCX 1.13.1 leaves behind");
    }
    setenv("UCX_TLS", "tcp,self", 1);
    for (int steps = 5; steps <= 640; steps *= 2) {
        closed_after(steps);
    }
}

CASES_MAIN
