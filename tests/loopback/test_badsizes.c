/*
 * Structures of programs built against an older or a newer header: what their sizes leave out or add.
 */
#include "support/cases.h"
#include "support/pair.h"

#include <string.h>

static char buffer[64];

/* Room for any structure of the library and a tail. */
union sized {
    uint32_t struct_size;
    hws_context_opts context;
    hws_worker_opts worker;
    hws_listener_opts listener;
    hws_endpoint_opts endpoint;
    hws_op_opts op;
    hws_queue_opts queue;
    hws_am_opts am;
    char bytes[4096];
};

static t_pair sizes_pair;

static int32_t with_context(void *opts)
{
    hws_id out = 0;
    int32_t code = hws_context_open(opts, &out);

    return code < 0 ? code : hws_close_wait(out, t_patience());
}

static int32_t with_worker(void *opts)
{
    hws_id out = 0;
    int32_t code = hws_worker_open(sizes_pair.context, opts, &out);

    return code < 0 ? code : hws_close_wait(out, t_patience());
}

static int32_t with_listener(void *opts)
{
    hws_id out = 0;
    int32_t code = hws_listen(sizes_pair.worker[1], "127.0.0.1", 0, opts, &out);

    return code < 0 ? code : hws_close_wait(out, t_patience());
}

static int32_t with_endpoint(void *opts)
{
    hws_id out = 0, op = 0;
    int32_t code =
        hws_connect(sizes_pair.worker[0], "127.0.0.1", t_closed_port(), opts, NULL, &out, &op);

    if (code == HWS_OK) {
        (void)WAIT(&sizes_pair, op);
        code = hws_close_wait(out, t_patience());
    }
    return code == HWS_E_STALE ? HWS_OK : code;
}

static int32_t with_op(void *opts)
{
    hws_id op = 0;
    int32_t code = hws_tag_recv(sizes_pair.endpoint[1], buffer, 8, 1, 1, opts, &op);

    if (code == HWS_OK) {
        CHECK_OK(hws_cancel(op));
        (void)WAIT(&sizes_pair, op);
    }
    return code;
}

static int32_t with_queue(void *opts)
{
    hws_id out = 0;
    int32_t code = hws_queue_open(opts, &out);

    return code < 0 ? code : hws_close(out);
}

static int32_t with_am(void *opts)
{
    return hws_am_handler(sizes_pair.worker[1], 1, opts);
}

static int32_t with_library_info(void *out)
{
    return hws_library_open(NULL, out);
}

static int32_t with_listener_info(void *out)
{
    return hws_listener_query(sizes_pair.listener, out);
}

static int32_t with_endpoint_info(void *out)
{
    return hws_endpoint_query(sizes_pair.endpoint[1], out);
}

static int32_t with_stats(void *out)
{
    return hws_stats_get(sizes_pair.context, out);
}

static int32_t with_message_info(void *out)
{
    return hws_tag_probe(sizes_pair.endpoint[1], 77, UINT64_MAX, out, NULL);
}

CASE(sizes_of_option_structures)
{
    static const struct {
        uint32_t size;
        int32_t (*run)(void *opts);
    } kinds[] = {
        {sizeof(hws_context_opts), with_context},
        {sizeof(hws_worker_opts), with_worker},
        {sizeof(hws_listener_opts), with_listener},
        {sizeof(hws_endpoint_opts), with_endpoint},
        {sizeof(hws_op_opts), with_op},
        {sizeof(hws_queue_opts), with_queue},
        {sizeof(hws_am_opts), with_am},
    };

    t_pair_open(&sizes_pair, NULL);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        union sized opts;
        uint32_t size = kinds[i].size;
        memset(&opts, 0, sizeof(opts));
        CHECK_CODE(kinds[i].run(&opts), HWS_E_INVALID); /* no size */
        opts.struct_size = 3;
        CHECK_CODE(kinds[i].run(&opts), HWS_E_INVALID); /* does not hold itself */
        opts.struct_size = UINT32_MAX;
        CHECK_CODE(kinds[i].run(&opts), HWS_E_INVALID); /* absurd: must not be read */
        opts.struct_size = size;
        CHECK_OK(kinds[i].run(&opts));
        opts.struct_size = 4; /* an older program: what is missing has its default */
        CHECK_OK(kinds[i].run(&opts));
        opts.struct_size = size + 64; /* a newer program that asks for nothing new */
        CHECK_OK(kinds[i].run(&opts));
        opts.bytes[size + 63] = 1; /* and one that does */
        CHECK_CODE(kinds[i].run(&opts), HWS_E_NEWER);
        opts.bytes[size + 63] = 0;
        opts.bytes[size] = 1;
        CHECK_CODE(kinds[i].run(&opts), HWS_E_NEWER);
        opts.struct_size = size; /* behind the end: not looked at */
        CHECK_OK(kinds[i].run(&opts));
    }
    t_pair_close(&sizes_pair);
}

CASE(sizes_of_result_structures)
{
    static const struct {
        uint32_t size;
        int32_t (*run)(void *out);
    } kinds[] = {
        {sizeof(hws_library_info), with_library_info},
        {sizeof(hws_listener_info), with_listener_info},
        {sizeof(hws_endpoint_info), with_endpoint_info},
        {sizeof(hws_stats), with_stats},
        {sizeof(hws_message_info), with_message_info},
    };
    hws_op_opts detached = {.struct_size = sizeof(detached), .flags = HWS_OP_DETACHED};

    t_pair_open(&sizes_pair, NULL);
    CHECK_OK(hws_tag_send(sizes_pair.endpoint[0], "message", 8, 77, &detached, NULL));
    UNTIL(&sizes_pair, hws_tag_probe(sizes_pair.endpoint[1], 77, UINT64_MAX, NULL, NULL) == HWS_OK);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        static union sized out, full;
        uint32_t size = kinds[i].size;
        memset(&out, 0x7f, sizeof(out));
        memset(&full, 0x7f, sizeof(full));
        out.struct_size = 0;
        CHECK_CODE(kinds[i].run(&out), HWS_E_INVALID);
        out.struct_size = 2;
        CHECK_CODE(kinds[i].run(&out), HWS_E_INVALID);
        CHECK_EQ(out.bytes[4], 0x7f);
        full.struct_size = size;
        CHECK_OK(kinds[i].run(&full));
        CHECK_EQ(full.struct_size, size);
        CHECK_EQ(full.bytes[size], 0x7f); /* nothing behind what was offered */
        out.struct_size = 12;             /* an older program */
        CHECK_OK(kinds[i].run(&out));
        CHECK_EQ(out.struct_size, 12);
        CHECK_EQ(out.bytes[12], 0x7f);
        memset(&out, 0x7f, sizeof(out));
        out.struct_size = size + 32; /* a newer one: what is not known is zero */
        CHECK_OK(kinds[i].run(&out));
        for (uint32_t j = size; j < size + 32; j++) {
            CHECK_EQ(out.bytes[j], 0);
        }
        CHECK_EQ(out.bytes[size + 32], 0x7f);
    }
    t_pair_close(&sizes_pair);
}

CASES_MAIN
