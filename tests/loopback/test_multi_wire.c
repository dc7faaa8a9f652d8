/*
 * Lists and parts of multi-buffer messages as no honest peer sends them: the connection ends in
 * PROTOCOL or the message is taken, nothing else. They are handed to the core as if UCX had
 * received them.
 *
 * INTERNAL TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/inject.h"

#include "hello.h"
#include "multi.h"
#include "progress.h"

#include <stdlib.h>
#include <string.h>

/* A list of three small segments with their data, as hws_multi_send() writes it. */
typedef struct list {
    struct hws__multi_wire wire;
    uint64_t entries[3];
    char data[16];
} list;

static const list good = {.wire = {.tag = 9, .sequence = 1, .total = 12, .count = 3, .flags = 1},
                          .entries = {5, 0, 7},
                          .data = "abcdefghijkl"};
#define GOOD (sizeof(good.wire) + sizeof(good.entries) + 12)

/* The same as a short list, without the empty segment. */
typedef struct short_list {
    struct hws__multi_wire wire;
    uint16_t entries[4];
    char data[16];
} short_list;

static const short_list brief = {
    .wire = {.tag = 9, .sequence = 1, .total = 12, .count = 2, .flags = 3},
    .entries = {5, 7},
    .data = "abcdefghijkl"};
#define BRIEF (sizeof(brief.wire) + sizeof(brief.entries) + 12)

static void inject(t_pair *pair, const void *data, size_t length, uint64_t attr)
{
    t_inject(pair, hws__multi_cb, data, length, attr);
}

/* 1 if the connection ended, in PROTOCOL; 0 if a message was taken, which is received then. */
static int outcome(t_pair *pair)
{
    hws_multi_recv_opts take = {.struct_size = sizeof(take), .flags = HWS_MULTI_LIST};
    hws_id op = 0;
    hws_event event;
    t_seen seen;

    t_pair_idle(pair, 2 * T_MS);
    if (t_record_find(&pair->record[1], HWS_EVENT_DISCONNECTED, 0, 0, &seen)) {
        CHECK_EQ(seen.event.status, HWS_E_PROTOCOL);
        return 1;
    }
    CHECK_OK(hws_multi_recv(pair->endpoint[1], 0, 0, &take, NULL, &op));
    event = WAIT(pair, op);
    CHECK(event.status == HWS_OK || event.status == HWS_E_TOO_BIG);
    if (event.status == HWS_OK) {
        CHECK_OK(hws_close(((const hws_multi_detail *)event.detail)->buffer));
    }
    return 0;
}

/* What a receive of any tag makes of the message that was injected. */
static const hws_multi_detail *received(t_pair *pair, const hws_multi_recv_opts *opts)
{
    hws_id op = 0;

    CHECK_OK(hws_multi_recv(pair->endpoint[1], 0, 0, opts, NULL, &op));
    return WAIT_OK(pair, op).detail;
}

static void *give(void *arg, uint64_t length, uint32_t kind)
{
    ++*(int *)arg;
    CHECK_EQ(kind, HWS_MEMORY_HOST);
    return malloc(length);
}

static void give_back(void *arg, void *memory, uint64_t length)
{
    (void)length;
    --*(int *)arg;
    free(memory);
}

/* A kind of memory that this UCX cannot handle is the sender's affair. */
CASE(memory_of_a_gpu_that_the_sender_claims)
{
    int given = 0;
    hws_multi_recv_opts take = {
        .struct_size = sizeof(take), .alloc = give, .free = give_back, .alloc_arg = &given};
    list forged = good;
    t_pair pair;

    setenv("UCX_TLS", "sysv,cma,self,tcp", 1);
    t_pair_open(&pair, NULL);
    forged.entries[0] |= UINT64_C(1) << HWS__ENTRY_KIND_SHIFT;
    forged.entries[2] |= UINT64_C(2) << HWS__ENTRY_KIND_SHIFT;
    inject(&pair, &forged, GOOD, 0);
    CHECK(memcmp(received(&pair, &take)->segments[2].base, "fghijkl", 7) == 0);
    CHECK_EQ(given, 2);
    t_pair_close(&pair);
    CHECK_EQ(given, 0);
}

/* What came with the list is in host memory, where a receiver may use it in place. */
CASE(memory_of_what_came_with_the_list)
{
    hws_multi_recv_opts list_only = {.struct_size = sizeof(list_only), .flags = HWS_MULTI_LIST};
    const hws_multi_detail *detail;
    list forged = good;
    t_pair pair;

    t_pair_open(&pair, NULL);
    forged.entries[0] |= UINT64_C(1) << HWS__ENTRY_KIND_SHIFT;
    forged.entries[1] |= UINT64_C(1) << HWS__ENTRY_KIND_SHIFT;
    inject(&pair, &forged, GOOD, 0);
    detail = received(&pair, &list_only);
    CHECK_EQ(detail->segments[0].memory_kind, HWS_MEMORY_HOST);
    CHECK(memcmp(detail->segments[0].base, "abcde", 5) == 0);
    CHECK_EQ(detail->segments[1].memory_kind,
             HWS_MEMORY_CUDA); /* of nothing: what the sender says */
    CHECK_OK(hws_close(detail->buffer));
    t_pair_close(&pair);
}

/* As if UCX could handle a GPU's memory. */
static void pretend_cuda(const t_pair *pair)
{
    t_server_of(pair)->worker->context->memory_types |= UINT64_C(1) << HWS_MEMORY_CUDA;
}

/* Small segments that are still at the sender come in one part, which UCX scatters by the processor. */
CASE(gathered_segments_into_memory_of_a_gpu)
{
    static char in[3][30000], out[3][30000];
    hws_multi_recv_opts list_only = {.struct_size = sizeof(list_only), .flags = HWS_MULTI_LIST};
    hws_segment from[3], to[3];
    hws_id send = 0, fetch = 0;
    const hws_multi_detail *detail;
    t_pair pair;

    t_pair_open(&pair, NULL);
    pretend_cuda(&pair);
    for (int i = 0; i < 3; i++) {
        t_fill(out[i], sizeof(out[i]), (uint64_t)i);
        from[i] = (hws_segment){.base = out[i], .length = sizeof(out[i])};
        to[i] = (hws_segment){.base = in[i], .length = sizeof(in[i])};
    }
    CHECK_OK(hws_multi_send(pair.endpoint[0], 9, from, 3, NULL, NULL, &send));
    detail = received(&pair, &list_only);
    CHECK(detail->segments[1].base == NULL);
    to[1].memory_kind = HWS_MEMORY_CUDA;
    CHECK_CODE(hws_multi_fetch(detail->buffer, to, 3, NULL, &fetch), HWS_E_BUFFER_KIND);
    /* The message is still the caller's: it can be fetched elsewhere. */
    to[1].memory_kind = HWS_MEMORY_HOST;
    CHECK_OK(hws_multi_fetch(detail->buffer, to, 3, NULL, &fetch));
    WAIT_OK(&pair, fetch);
    WAIT_OK(&pair, send);
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    t_pair_close(&pair);
}

CASE(whole)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    inject(&pair, &good, GOOD, 0);
    CHECK_EQ(outcome(&pair), 0);
    t_pair_close(&pair);
}

/* Its data is where the message was copied to, not where UCX had it. */
CASE(short_whole)
{
    const hws_multi_detail *detail;
    t_pair pair;

    t_pair_open(&pair, NULL);
    inject(&pair, &brief, BRIEF, 0);
    detail = received(&pair, NULL);
    CHECK_EQ(detail->count, 2);
    CHECK_EQ(detail->segments[1].length, 7);
    CHECK_EQ(detail->segments[1].memory_kind, HWS_MEMORY_HOST);
    CHECK(memcmp(detail->segments[0].base, "abcde", 5) == 0);
    CHECK(memcmp(detail->segments[1].base, "fghijkl", 7) == 0);
    CHECK_OK(hws_close(detail->buffer));
    t_pair_close(&pair);
}

static void short_refused(short_list bad, size_t length)
{
    t_pair pair;

    t_pair_open(&pair, NULL);
    inject(&pair, &bad, length, 0);
    CHECK_EQ(outcome(&pair), 1);
    t_pair_close(&pair);
}

CASE(short_damaged)
{
    short_list bad = brief;

    for (size_t length = sizeof(brief.wire); length < BRIEF; length++) {
        short_refused(brief, length);
    }
    short_refused(brief, BRIEF + 1);
    bad.wire.flags = 2; /* without the data */
    short_refused(bad, BRIEF);
    bad = brief;
    bad.entries[1] = 65535; /* beyond the data */
    short_refused(bad, BRIEF);
    bad = brief;
    bad.entries[1] = 6; /* less than the total */
    short_refused(bad, BRIEF);
    bad = brief;
    bad.wire.count = 1 << 20;
    short_refused(bad, BRIEF);
    bad = (short_list){.wire = {.tag = 9, .sequence = 1, .count = 2, .flags = 3}};
    short_refused(bad, sizeof(bad.wire) + sizeof(bad.entries)); /* of nothing */
}

CASE(truncated)
{
    for (size_t length = 0; length < GOOD; length += length < 56 ? 7 : 1) {
        t_pair pair;

        t_pair_open(&pair, NULL);
        inject(&pair, &good, length, 0);
        CHECK_EQ(outcome(&pair), 1);
        t_pair_close(&pair);
    }
}

CASE(flipped)
{
    int ended = 0;

    for (size_t i = 0; i < sizeof(good.wire) + sizeof(good.entries); i++) {
        list bad = good;
        t_pair pair;

        ((unsigned char *)&bad)[i] ^= (unsigned char)(1u << (i * 5 % 8));
        t_pair_open(&pair, NULL);
        inject(&pair, &bad, GOOD, 0);
        ended += outcome(&pair);
        t_pair_close(&pair);
    }
    CHECK(ended > 20);
}

/* Lengths whose sum wraps around, and a count that only the limit stops. */
CASE(wrapped)
{
    list sum = good, count = good;
    t_pair pair;

    sum.entries[0] = HWS__ENTRY_LENGTH;
    sum.entries[2] = HWS__ENTRY_LENGTH;
    t_pair_open(&pair, NULL);
    inject(&pair, &sum, GOOD, 0);
    CHECK_EQ(outcome(&pair), 1);
    t_pair_close(&pair);
    count.wire.count = UINT32_MAX;
    t_pair_open(&pair, NULL);
    inject(&pair, &count, GOOD, 0);
    CHECK_EQ(outcome(&pair), 1);
    t_pair_close(&pair);
}

/* A part that is no rendezvous, or has no proper header. */
CASE(parts)
{
    struct hws__multi_part header = {.sequence = 1};
    ucp_am_recv_param_t param = {.recv_attr = 0};

    for (size_t length = 0; length <= sizeof(header); length += sizeof(header) / 2) {
        t_pair pair;
        bool nested;

        t_pair_open(&pair, NULL);
        nested = hws__own(t_server_of(&pair)->worker);
        CHECK_EQ(hws__multi_part_cb(t_server_of(&pair)->uworker, &header, length, NULL, 0, &param),
                 UCS_OK);
        hws__disown(t_server_of(&pair)->worker, nested);
        CHECK_EQ(outcome(&pair), 1);
        t_pair_close(&pair);
    }
}

CASES_MAIN
