/*
 * What the running UCX can: told by its version, with the version that can where it cannot.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <stdio.h>
#include <string.h>

static const struct {
    uint32_t feature, minor; /* of UCX 1 */
} since[] = {{HWS_CAN_COPY_HEADER, 14},  {HWS_CAN_IPV6, 14},     {HWS_CAN_EXPORTED_MEMORY, 14},
             {HWS_CAN_RKEY_COMPARE, 16}, {HWS_CAN_FAILOVER, 21}, {HWS_CAN_SGL_PUT, 22}};

CASE(follows_the_version)
{
    hws_library_info info = {.struct_size = sizeof info};
    hws_error error = {.struct_size = sizeof error};
    char text[32];

    CHECK_OK(hws_library_open(NULL, &info));
    CHECK_EQ(info.ucx_major, 1);
    for (size_t i = 0; i < sizeof since / sizeof *since; i++) {
        if (info.ucx_minor >= since[i].minor) {
            CHECK_OK(hws_query_feature(since[i].feature));
            continue;
        }
        CHECK_CODE(hws_query_feature(since[i].feature), HWS_E_UNSUPPORTED);
        CHECK_OK(hws_last_error(&error));
        snprintf(text, sizeof text, "needs 1.%u,", since[i].minor);
        CHECK(strstr(error.text, "not supported by this UCX") != NULL);
        CHECK(strstr(error.text, text) != NULL);
    }
    CHECK_CODE(hws_query_feature(0), HWS_E_INVALID);
    CHECK_CODE(hws_query_feature(99), HWS_E_INVALID);
}

CASE(keys_are_what_the_library_info_says)
{
    hws_library_info info = {.struct_size = sizeof info};

    CHECK_OK(hws_library_open(NULL, &info));
    CHECK_CODE(hws_query_feature(HWS_CAN_PSK), info.has_sodium ? HWS_OK : HWS_E_UNSUPPORTED);
}

/* What the processor would copy is refused before it does. No GPU is needed: the kind is what the caller says. */
CASE(memory_of_a_gpu_is_refused_where_the_processor_copies)
{
    hws_am_opts handler = {.struct_size = sizeof handler, .memory_kind = HWS_MEMORY_CUDA};
    hws_op_opts opts = {.struct_size = sizeof opts, .memory_kind = HWS_MEMORY_CUDA};
    hws_id op = 0, message = 0;
    uint64_t value = 7, in = 0;
    t_pair pair;

    t_pair_open(&pair, NULL);
    CHECK_CODE(hws_tag_recv(pair.endpoint[1], &in, 8, 1, UINT64_MAX, &opts, &op),
               HWS_E_BUFFER_KIND);
    CHECK_OK(hws_tag_send(pair.endpoint[0], &value, 8, 1, NULL, &op));
    WAIT_OK(&pair, op);
    UNTIL(&pair, hws_tag_probe(pair.endpoint[1], 1, UINT64_MAX, NULL, &message) == HWS_OK);
    CHECK_CODE(hws_message_recv(message, &in, 8, &opts, &op), HWS_E_BUFFER_KIND);
    CHECK_OK(hws_message_recv(message, &in, 8, NULL, &op));
    WAIT_OK(&pair, op);
    CHECK_EQ(in, 7);
    handler.sink.callback = t_record_event;
    CHECK_CODE(hws_am_handler(pair.worker[1], 1, &handler), HWS_E_BUFFER_KIND);
    t_pair_close(&pair);
}

CASES_MAIN
