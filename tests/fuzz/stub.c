#include "fuzz/stub.h"
#include "fuzz/fuzz.h"
#include "multi.h"
#include "progress.h"
#include "rest.h"
#include "support/check.h"
#include "ucx_loader.h"

#include <stdlib.h>
#include <string.h>

static struct stub the;
static int descriptors; /* that UCX was not given back */

/* ---- UCX ---- */

static void read_all(const void *buffer, size_t count, const ucp_request_param_t *param)
{
    const ucp_dt_iov_t *v = buffer;

    if (buffer == NULL || count == 0) {
        return;
    }
    if (param->datatype != ucp_dt_make_iov()) {
        (void)fuzz_checksum(buffer, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        (void)fuzz_checksum(v[i].buffer, v[i].length);
    }
}

static ucs_status_ptr_t am_send(ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
                                const void *buffer, size_t count, const ucp_request_param_t *param)
{
    (void)ep, (void)id;
    (void)fuzz_checksum(header, header_length);
    read_all(buffer, count, param);
    return NULL;
}

static void data_release(ucp_worker_h worker, void *data)
{
    (void)worker;
    descriptors--;
    free(data);
}

/* The peer writes all that it announced. */
static ucs_status_ptr_t recv_data(ucp_worker_h worker, void *descriptor, void *buffer, size_t count,
                                  const ucp_request_param_t *param)
{
    const ucp_dt_iov_t *v = buffer;

    if (param->datatype != ucp_dt_make_iov()) {
        memset(buffer, 1, count);
    } else {
        for (size_t i = 0; i < count; i++) {
            memset(v[i].buffer, 1, v[i].length);
        }
    }
    data_release(worker, descriptor);
    return NULL;
}

static ucs_status_t ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *out)
{
    (void)worker, (void)params, (void)out;
    return UCS_ERR_UNREACHABLE;
}

static ucs_status_t address_query(ucp_address_t *address, ucp_worker_address_attr_t *attr)
{
    (void)address;
    attr->worker_uid = 7;
    return UCS_OK;
}

static ucs_status_t ep_query(ucp_ep_h ep, ucp_ep_attr_t *attr)
{
    (void)ep, (void)attr;
    return UCS_ERR_UNSUPPORTED;
}

static const char *status_string(ucs_status_t status)
{
    (void)status;
    return "a status";
}

/* ---- The worker ---- */

static void make_worker(struct hws__worker *w)
{
    struct hws__list *const lists[] = {&w->hot,
                                       &w->ready_ops,
                                       &w->ready,
                                       &w->free_notices,
                                       &w->ops,
                                       &w->kept,
                                       &w->am_pending,
                                       &w->dropped,
                                       &w->free_messages[0],
                                       &w->free_messages[1],
                                       &w->spares,
                                       &w->bundles.list,
                                       &w->multi_pending,
                                       &w->free_multis,
                                       &w->flushing,
                                       &w->uworkers,
                                       &w->waiting,
                                       &w->endpoints,
                                       &w->listeners,
                                       &w->attention};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        hws__list_init(lists[i]);
    }
    hws__scope_init(&w->scope);
    hws__scope_init(&w->multi_scope);
    hws__scope_init(&w->address_scope);
    w->context = &the.context;
    w->multi_bytes_max = UINT64_MAX;
    w->multi_count_max = HWS__MULTI_COUNT;
    w->credit_messages = HWS__CREDIT_MESSAGES;
    w->credit_bytes = HWS__CREDIT_BYTES;
    w->epfd = w->wakefd = w->timerfd = -1;
    hws__pool_init(&w->pool, 0); /* a sanitizer sees what is used after it was given back */
    w->main = &the.uworker;
    w->idle_look = true; /* as if one were due: there is no background thread here */
    hws__obj_publish(&hws__objects, &w->obj);
}

struct stub *stub_get(void)
{
    hws_id any;

    if (the.worker != NULL) {
        return &the;
    }
    CHECK_OK(hws_queue_open(NULL, &any)); /* makes the table of the process */
    hws__ucx.major = 1;
    hws__ucx.minor = 22;
    hws__ucx.version = 1u << 24 | 22u << 16;
    hws__ucx.ucp_am_send_nbx = am_send;
    hws__ucx.ucp_am_data_release = data_release;
    hws__ucx.ucp_am_recv_data_nbx = recv_data;
    hws__ucx.ucp_ep_create = ep_create;
    hws__ucx.ucp_worker_address_query = address_query;
    hws__ucx.ucp_ep_query = ep_query;
    hws__ucx.ucs_status_string = status_string;
    the.context.host = 5;
    the.context.network = 7;
    the.worker = (struct hws__worker *)(void *)hws__obj_alloc(&hws__objects, HWS_KIND_WORKER,
                                                              sizeof *the.worker, 0);
    CHECK(the.worker != NULL);
    make_worker(the.worker);
    the.listener = (struct hws__listener *)(void *)hws__obj_alloc(&hws__objects, HWS_KIND_LISTENER,
                                                                  sizeof *the.listener, 0);
    CHECK(the.listener != NULL);
    the.listener->worker = the.worker;
    the.listener->flags = HWS_LISTENER_EXPLICIT;
    hws__obj_publish(&hws__objects, &the.listener->obj);
    the.uworker.worker = the.worker;
    the.uworker.context = &the.context;
    the.uworker.efd = -1;
    hws__list_init(&the.uworker.held);
    hws__list_init(&the.uworker.fetching);
    hws__list_init(&the.uworker.rkeys);
    hws__list_init(&the.uworker.answers);
    hws__list_init(&the.uworker.hot_link);
    return &the;
}

struct hws__endpoint *stub_connect(struct stub *s, bool server)
{
    struct hws__endpoint *ep = hws__endpoint_new(s->worker);

    CHECK(ep != NULL);
    hws__obj_publish(&hws__objects, &ep->obj);
    ep->uworker = &s->uworker;
    ep->ucx = (ucp_ep_h)(void *)s; /* anything that is not null */
    ep->server = server;
    ep->listener = server ? s->listener->obj.id : 0;
    ep->phase = HWS__PHASE_HELLO;
    s->uworker.role = HWS__ISOLATED;
    s->uworker.only = ep;
    return ep;
}

struct hws__endpoint *stub_open(struct stub *s)
{
    struct hws__endpoint *ep = stub_connect(s, true);

    ep->phase = HWS__PHASE_OPEN;
    ep->open = ep->hello_done = true;
    return ep;
}

void stub_swept(struct stub *s)
{
    bool nested = hws__own(s->worker);

    hws__messages_drop(s->worker);
    (void)hws__multi_step(s->worker);
    (void)hws__deliver(s->worker);
    hws__disown(s->worker, nested);
}

static void drop_messages(struct hws__scope *of_endpoint)
{
    struct hws__list *arrived = &of_endpoint->arrived;

    while (!hws__list_empty(arrived)) {
        hws__message_release(hws__container(arrived->next, struct hws__message, order_ep));
    }
}

void stub_forget(struct stub *s, struct hws__endpoint *ep)
{
    struct hws__worker *w = s->worker;
    bool nested = hws__own(w);

    hws__multi_lost(ep);
    hws__endpoint_end_matching(ep, HWS_E_CONNECTION_RESET);
    for (struct hws__list *n = w->ops.next, *next; n != &w->ops; n = next) {
        struct hws__op *op = hws__container(n, struct hws__op, link);

        next = n->next;
        if (op->stage == HWS__STAGE_MATCHING) {
            hws__op_finish(op, HWS_E_CANCELED);
        }
    }
    hws__disown(w, nested);
    stub_swept(s);
    hws__rests_drop(ep);
    drop_messages(&ep->scope);
    drop_messages(&ep->multi_scope);
    while (!hws__list_empty(&w->kept)) {
        hws__message_release(hws__container(w->kept.next, struct hws__message, kept));
    }
    CHECK_EQ(ep->op_count, 0);
    CHECK(hws__list_empty(&w->ops));
    CHECK_EQ(w->pending_ucx, 0);
    CHECK(hws__list_empty(&s->uworker.held));
    CHECK_EQ(descriptors, 0);
    ep->in_attention = false;
    hws__uworker_set_deaf(&s->uworker, false);
    hws__endpoint_forget(ep);
    s->uworker.only = NULL;
}

void stub_arrives(struct stub *s, stub_handler handler, const void *header, size_t header_length,
                  const void *data, size_t length, uint64_t attr)
{
    ucp_am_recv_param_t param = {.recv_attr = attr};
    size_t here = attr & UCP_AM_RECV_ATTR_FLAG_RNDV ? 0 : length;
    void *h = malloc(header_length != 0 ? header_length : 1);
    void *d = malloc(here != 0 ? here : 1);
    bool nested = hws__own(s->worker);
    ucs_status_t status;

    CHECK(h != NULL && d != NULL);
    if (header_length != 0) {
        memcpy(h, header, header_length);
    }
    if (here != 0) {
        memcpy(d, data, here);
    }
    descriptors++;
    status = handler(&s->uworker, header_length != 0 ? h : NULL, header_length, d, length, &param);
    CHECK(status == UCS_OK || (status == UCS_INPROGRESS && attr != 0));
    if (status == UCS_OK) { /* else the core gives it back */
        descriptors--;
        free(d);
    }
    free(h);
    hws__disown(s->worker, nested);
}

/* ---- The input ---- */

const unsigned char *input_bytes(struct input *in, size_t *length)
{
    const unsigned char *at = in->at;

    *length = *length < in->left ? *length : in->left;
    in->at += *length;
    in->left -= *length;
    return at;
}

unsigned input_byte(struct input *in)
{
    size_t one = 1;
    const unsigned char *at = input_bytes(in, &one);

    return one != 0 ? *at : 0;
}

size_t input_size(struct input *in)
{
    size_t low = input_byte(in);

    return low | (size_t)input_byte(in) << 8;
}
