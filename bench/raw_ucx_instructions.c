/*
 * What instructions.c does, on UCX itself: a UCX worker connected to its own address, with peer error handling;
 * with "pair", two UCX workers, as usual endpoints have.
 * Links UCX, as raw_ucx_pause.c does.
 *
 *     raw_ucx_instructions [tag|callback|am] [COUNT] [pair]        (tag and callback are the same here)
 */
#include <ucp/api/ucp.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG 9
#define AM_ID 5
/* More messages than UCX workers without work are swept for: those that only began the connection rest then. */
#define WARM_UP 20000

struct test {
    ucp_context_h context;
    ucp_worker_h left, right; /* left sends, right receives */
    ucp_ep_h ep;
    uint64_t out, in, arrived;
};

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *arg)
{
    struct test *t = arg;

    (void)info;
    t->arrived += status == UCS_OK;
    ucp_request_free(request);
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    (void)status;
    (void)arg;
    ucp_request_free(request);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param)
{
    struct test *t = arg;

    (void)header;
    (void)header_length;
    (void)data;
    (void)length;
    (void)param;
    t->arrived++;
    return UCS_OK;
}

static void await(struct test *t, uint64_t before)
{
    while (t->arrived == before) {
        ucp_worker_progress(t->right);
        if (t->left != t->right) {
            ucp_worker_progress(t->left);
        }
    }
}

static void tag(struct test *t)
{
    const ucp_request_param_t receive = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                         UCP_OP_ATTR_FIELD_USER_DATA |
                                                         UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                         .cb.recv = on_received,
                                         .user_data = t,
                                         .memory_type = UCS_MEMORY_TYPE_HOST};
    const ucp_request_param_t send = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                      UCP_OP_ATTR_FIELD_USER_DATA |
                                                      UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                      .cb.send = on_sent,
                                      .user_data = t,
                                      .memory_type = UCS_MEMORY_TYPE_HOST};
    uint64_t before = t->arrived;
    ucs_status_ptr_t r;

    r = ucp_tag_recv_nbx(t->right, &t->in, sizeof t->in, TAG, UINT64_MAX, &receive);
    if (UCS_PTR_IS_ERR(ucp_tag_send_nbx(t->ep, &t->out, sizeof t->out, TAG, &send))) {
        exit(1);
    }
    if (r == NULL) {
        t->arrived++;
    }
    await(t, before);
}

static void am(struct test *t)
{
    const ucp_request_param_t send = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                      UCP_OP_ATTR_FIELD_USER_DATA |
                                                      UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                      .cb.send = on_sent,
                                      .user_data = t,
                                      .memory_type = UCS_MEMORY_TYPE_HOST};
    uint64_t before = t->arrived;

    if (UCS_PTR_IS_ERR(ucp_am_send_nbx(t->ep, AM_ID, NULL, 0, &t->out, sizeof t->out, &send))) {
        exit(1);
    }
    await(t, before);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    fprintf(stderr, "endpoint: %s\n", ucs_status_string(status));
}

static void open_workers(struct test *t, bool pair)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM | UCP_FEATURE_WAKEUP,
        .mt_workers_shared = 1};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};

    check(ucp_init(&params, NULL, &t->context), "ucp_init");
    check(ucp_worker_create(t->context, &worker, &t->left), "ucp_worker_create");
    t->right = t->left;
    if (pair) {
        check(ucp_worker_create(t->context, &worker, &t->right), "ucp_worker_create");
    }
}

/* By address, as ucx_perftest does: no listener, so nothing but shared memory makes progress. */
static void connect_workers(struct test *t)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {on_error, NULL}};
    ucp_address_t *address;
    size_t length;

    check(ucp_worker_get_address(t->right, &address, &length), "ucp_worker_get_address");
    params.address = address;
    check(ucp_ep_create(t->left, &params, &t->ep), "ucp_ep_create");
    ucp_worker_release_address(t->right, address);
}

static void set_handler(struct test *t)
{
    ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                  UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                  UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                    .id = AM_ID,
                                    .cb = on_message,
                                    .arg = t};

    check(ucp_worker_set_am_recv_handler(t->right, &param), "ucp_worker_set_am_recv_handler");
}

void measured(struct test *t, void (*one)(struct test *), uint64_t count);

__attribute__((noinline)) void measured(struct test *t, void (*one)(struct test *), uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        one(t);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "tag";
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
    void (*one)(struct test *) = strcmp(what, "am") == 0 ? am : tag;
    struct test t = {0};

    open_workers(&t, argc > 3);
    set_handler(&t);
    connect_workers(&t);
    for (uint64_t i = 0; i < WARM_UP; i++) {
        one(&t);
    }
    measured(&t, one, count);
    printf("{\"what\": \"%s\", \"count\": %llu}\n", what, (unsigned long long)count);
    return 0; /* the process ends, and with it everything of UCX */
}
