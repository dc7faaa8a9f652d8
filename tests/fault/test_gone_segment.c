/*
 * A sender attaches the segments of its peer when it first meets them, which may be after the peer
 * has freed them: that ends in an error. Found by the number of a descriptor, which another file has
 * by then, they would be that file, and the sender would write into it or die of SIGBUS.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MESSAGES 60 /* unexpected, so that the receiver's pool grows */
#define SIZE 4000   /* each takes a buffer of the pool */
#define FILES 200   /* as many as the receiver has closed, and more */
#define PAGE 4096   /* a file shorter than a segment */

static int files[FILES];

static void send_all(t_pair *pair)
{
    static const char data[SIZE];
    hws_id op;

    for (int i = 0; i < MESSAGES; i++) {
        if (hws_tag_send(pair->endpoint[0], data, SIZE, 5, NULL, &op) < 0) {
            return;
        }
    }
}

static void reuse_descriptors(void)
{
    for (int i = 0; i < FILES; i++) {
        files[i] = memfd_create("reused", 0);
        CHECK(files[i] >= 0);
        CHECK(ftruncate(files[i], PAGE) == 0);
    }
}

static void check_untouched(void)
{
    static const char nothing[PAGE];
    char found[PAGE];

    for (int i = 0; i < FILES; i++) {
        CHECK(pread(files[i], found, PAGE, 0) == PAGE);
        CHECK(memcmp(found, nothing, PAGE) == 0);
        close(files[i]);
    }
}

CASE(a_sender_meets_a_segment_that_is_gone)
{
    t_pair_opts opts = {.mode = HWS_PROGRESS_MANUAL};
    t_pair pair;

    t_pair_open(&pair, &opts);
    CHECK(t_endpoint_info(pair.endpoint[0]).transports & HWS_TRANSPORT_SHM);
    send_all(&pair);
    t_pair_idle(&pair, 100 * T_MS);
    CHECK_OK(hws_abort(pair.endpoint[1]));
    for (uint64_t start = t_now(); t_now() - start < 300 * T_MS;) {
        hws_worker_progress(pair.worker[1]); /* the sender hears nothing of it */
    }
    reuse_descriptors();
    send_all(&pair);
    UNTIL(&pair, t_record_kinds(&pair.record[0], HWS_EVENT_DISCONNECTED, pair.endpoint[0]) == 1);
    check_untouched();
    t_pair_close(&pair);
}

CASES_MAIN
