/*
 * Blobs: one piece of bytes with an address and keys, keys by themselves, and bytes that are damaged. TIMEOUT: 120
 */
#include "support/cases.h"
#include "support/address.h"
#include "support/remote.h"

#include <stdlib.h>
#include <string.h>

CASE(blobs)
{
    static const hws_blob_item items[] = {{7, "remote key", 10}, {8, NULL, 0}, {9, "x", 1}};
    hws_address_info info = {.struct_size = sizeof(info)}, alone = info, other = info;
    hws_blob_item item;
    t_address blob = {0}, a, b;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    CHECK_OK(hws_blob_pack(pair.worker[1], 0, items, 3, NULL, 0, &blob.length));
    CHECK_OK(hws_blob_pack(pair.worker[1], 0, items, 3, blob.data, sizeof(blob.data), NULL));
    CHECK_OK(hws_address_query(blob.data, blob.length, &info));
    CHECK_EQ(info.items, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(hws_blob_item_get(blob.data, blob.length, i, &item));
        CHECK_EQ(item.key, items[i].key);
        CHECK_EQ(item.length, items[i].length);
        CHECK(item.length == 0 || memcmp(item.data, items[i].data, item.length) == 0);
    }
    CHECK_CODE(hws_blob_item_get(blob.data, blob.length, 3, &item), HWS_E_NOT_FOUND);
    a = t_address_of(pair.worker[1], 0);
    b = t_address_of(pair.worker[0], 0);
    CHECK_OK(hws_address_query(a.data, a.length, &alone));
    CHECK_OK(hws_address_query(b.data, b.length, &other));
    CHECK(info.worker == alone.worker);
    CHECK(info.worker != other.worker);
    CHECK(alone.text[0] != '\0');
    t_address_exchange(&pair, t_address_dial(&pair, 0, &blob, 0), pair.worker[1], 1);
    t_pair_close(&pair);
}

/* One blob is all that a peer needs: it connects by it and writes to memory whose key is inside. */
CASE(a_blob_with_keys)
{
    t_pair_opts opts = {.features = T_RMA_FEATURES};
    t_remote memory[2];
    hws_blob_item items[2], item;
    t_address blob = {0};
    hws_id client, rkey[2], op = 0;
    t_pair pair;
    t_seen seen;

    t_pair_open(&pair, &opts);
    for (uint64_t i = 0; i < 2; i++) {
        t_remote_open(&memory[i], &pair, 1, (int)i, 4096);
        items[i].key = 100 + i;
        items[i].data = t_pack(memory[i].memory, &items[i].length);
    }
    CHECK_OK(hws_blob_pack(pair.worker[1], HWS_ADDRESS_HELLO, items, 2, blob.data,
                           sizeof(blob.data), &blob.length));
    client = t_address_dial(&pair, 0, &blob, 0);
    UNTIL(&pair, t_record_find(&pair.record[1], HWS_EVENT_ACCEPTED, 0, 1, &seen));
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(hws_blob_item_get(blob.data, blob.length, i, &item));
        CHECK_EQ(item.key, 100 + i);
        CHECK_OK(hws_rkey_unpack(client, item.data, item.length, 0, &rkey[i]));
        CHECK_OK(hws_put(rkey[i], memory[i].address + 8, "by a blob", 10, NULL, &op));
        WAIT_OK(&pair, op);
    }
    CHECK_OK(hws_flush(client, NULL, &op));
    WAIT_OK(&pair, op);
    for (uint64_t i = 0; i < 2; i++) {
        CHECK_STR(memory[i].base + 8, "by a blob");
        t_remote_close(&memory[i]);
        free((void *)(uintptr_t)items[i].data);
    }
    t_pair_close(&pair);
}

/* Whatever is wrong with the bytes: refused, never a crash. */
CASE(damaged)
{
    hws_address_info info = {.struct_size = sizeof(info)};
    hws_id endpoint = 0, op = 0;
    uint64_t random = 1;
    t_address good, bad;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    good = t_address_of(pair.worker[1], 0);
    for (uint64_t i = 0; i < good.length; i++) {
        bad = good;
        bad.data[i] ^= (unsigned char)(1u << (i % 8));
        CHECK_CODE(hws_address_query(bad.data, bad.length, &info), HWS_E_INVALID);
        CHECK_CODE(
            hws_connect_address(pair.worker[0], bad.data, bad.length, NULL, NULL, &endpoint, &op),
            HWS_E_INVALID);
        CHECK_CODE(hws_address_query(good.data, i, &info), HWS_E_INVALID);
    }
    CHECK_CODE(hws_address_query(good.data, good.length + 8, &info), HWS_E_INVALID);
    for (int i = 0; i < 1000; i++) {
        for (unsigned k = 0; k < 256; k++) {
            bad.data[k] = (unsigned char)t_random(&random);
        }
        CHECK_CODE(hws_address_query(bad.data, t_random(&random) % 256, &info), HWS_E_INVALID);
    }
    CHECK_CODE(hws_address_query(NULL, 0, &info), HWS_E_INVALID);
    CHECK_CODE(hws_connect_address(pair.worker[0], NULL, 0, NULL, NULL, &endpoint, &op),
               HWS_E_INVALID);
    CHECK_CODE(hws_worker_address(pair.worker[0], 64, NULL, 0, NULL), HWS_E_INVALID);
    CHECK_CODE(
        hws_worker_address(pair.worker[0], HWS_ADDRESS_HELLO | HWS_ADDRESS_PLAIN, NULL, 0, NULL),
        HWS_E_INVALID);
    t_pair_close(&pair);
}

CASE(keys)
{
    static const unsigned char key[32] = "thirty-two bytes of a shared key";
    hws_context_opts opts = {.struct_size = sizeof(opts), .psk = key, .psk_length = 32};
    hws_id context = 0, worker = 0, endpoint = 0, op = 0;
    t_address b;
    t_pair pair;

    t_pair_listen(&pair, NULL);
    if (hws_context_open(&opts, &context) == HWS_E_NO_SODIUM) {
        SKIP("this build has no pre-shared keys");
    }
    CHECK_OK(hws_worker_open(context, NULL, &worker));
    b = t_address_of(pair.worker[1], HWS_ADDRESS_HELLO);
    CHECK_OK(hws_connect_address(worker, b.data, b.length, NULL, NULL, &endpoint, &op));
    UNTIL(&pair, hws_wait(op, 0, NULL) != HWS_E_TIMED_OUT || hws_worker_progress(worker) < 0);
    CHECK_EQ(t_endpoint_info(endpoint).status, HWS_E_AUTH);
    CHECK_EQ(t_record_kinds(&pair.record[1], HWS_EVENT_ACCEPTED, 0), 0);
    CHECK_OK(hws_close(context));
    UNTIL(&pair, hws_close_wait(context, T_MS) != HWS_E_TIMED_OUT);
    t_pair_close(&pair);
}

CASES_MAIN
