/*
 * Credits: the windows of both sides, and what is common to sender and receiver: messages about credits, and the end.
 */
#include "credit_wire.h"
#include "cuda.h"
#include "hello.h"
#include "ucx_loader.h"
#include <stdlib.h>
#include <string.h>

void hws__credit_init(struct hws__credit *c)
{
    for (uint32_t i = 0; i < HWS__CREDIT_SORTS; i++) {
        c->out[i].messages = c->out[i].bytes = HWS__CREDIT_MUCH;
        c->in[i].messages_next = c->in[i].bytes_next = UINT64_MAX;
        hws__list_init(&c->out[i].waiting);
    }
}

void hws__credit_window(const struct hws__worker *w, uint32_t *messages, uint32_t *kib)
{
    *messages = w->credit_messages;
    *kib = (uint32_t)(w->credit_bytes >> 10);
}

void hws__credit_open(struct hws__endpoint *ep, uint32_t messages, uint32_t kib)
{
    for (uint32_t i = 0; i < HWS__CREDIT_SORTS; i++) {
        struct hws__credit_out *out = &ep->credit.out[i];

        out->messages = out->bytes = HWS__CREDIT_MUCH;
        if (messages != 0) {
            out->limit_messages = messages;
            out->limit_bytes = out->window_bytes = (uint64_t)kib << 10;
            out->messages = i != HWS__CREDIT_STREAM ? (int64_t)messages : HWS__CREDIT_MUCH;
            out->bytes = (int64_t)out->window_bytes;
        }
        hws__credit_set_next(ep->worker, &ep->credit.in[i]);
    }
}

static void sent(void *request, ucs_status_t status, void *user_data)
{
    (void)status; /* an error of the endpoint is reported by its handler */
    free(user_data);
    hws__ucx.ucp_request_free(request);
}

void hws__credit_tell(struct hws__endpoint *ep, enum hws__say say, uint32_t sort, uint64_t a,
                      uint64_t b)
{
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                             UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
                             .flags = UCP_AM_SEND_FLAG_EAGER | ep->send_flags,
                             .cb.send = sent};
    struct hws__credit_wire *m;

    if (ep->ucx == NULL || ep->failed) {
        return;
    }
    if (say == HWS__SAY_ASK || say == HWS__SAY_NONE || say == HWS__SAY_CLEAR) {
        hws__bundles_send(&ep->worker->bundles); /* what waits is behind it */
    }
    if ((m = malloc(sizeof *m)) == NULL) {
        /* The peer would wait for ever. */
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for a message about credits");
        return;
    }
    *m = (struct hws__credit_wire){.say = (uint8_t)say, .sort = (uint8_t)sort, .a = a, .b = b};
    p.user_data = m;
    if (!UCS_PTR_IS_PTR(
            hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_CREDIT, m, sizeof *m, NULL, 0, &p))) {
        free(m);
    }
    hws__uworker_heat(ep->uworker);
}

void hws__credit_end(struct hws__endpoint *ep, int32_t status)
{
    for (uint32_t i = 0; i < HWS__CREDIT_SORTS; i++) {
        struct hws__list *waiting = &ep->credit.out[i].waiting;

        for (struct hws__list *n = waiting->next, *next; n != waiting; n = next) {
            struct hws__op *op = hws__container(n, struct hws__op, match);

            next = n->next;
            if (op->stage == HWS__STAGE_CREDIT) { /* else UCX has a part of it, and ends it */
                hws__op_finish(op, status);
            }
        }
        if (i != HWS__CREDIT_STREAM) {
            hws__credit_on_clear(ep, i, true);
        }
    }
    hws__cuda_wait_end(ep, status);
}

static void dispatch(struct hws__endpoint *ep, const struct hws__credit_wire *m)
{
    switch (m->say) {
    case HWS__SAY_LIMIT:
        hws__credit_on_limit(ep, m->sort, m->a, m->b);
        break;
    case HWS__SAY_ASK:
        hws__credit_on_ask(ep, m->sort, m->a);
        break;
    case HWS__SAY_LISTEN:
        hws__credit_on_listen(ep, m->sort);
        break;
    case HWS__SAY_WANT:
        hws__credit_on_want(ep, m->sort, m->a, m->b);
        break;
    case HWS__SAY_NONE:
        hws__credit_on_none(ep, m->sort, m->a);
        break;
    case HWS__SAY_RECALL:
        hws__credit_on_recall(ep, m->sort, m->a, m->b);
        break;
    case HWS__SAY_CLEAR:
        hws__credit_on_clear(ep, m->sort, false);
        break;
    case HWS__SAY_LONG:
        hws__gap_told(ep, m->a);
        break;
    default:
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a message about credits of unknown type %u",
                           m->say);
    }
}

ucs_status_t hws__credit_cb(void *arg, const void *header, size_t header_length, void *data,
                            size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    struct hws__endpoint *ep = hws__am_sender(u, param);
    struct hws__credit_wire m;

    (void)data;
    if (ep == NULL || !ep->hello_done || ep->failed) {
        return UCS_OK;
    }
    if (header_length == sizeof m) {
        memcpy(&m, header, sizeof m);
    }
    if (header_length != sizeof m || length != 0 || m.sort >= HWS__CREDIT_SORTS ||
        (m.sort == HWS__CREDIT_STREAM && m.say != HWS__SAY_LIMIT)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a damaged message about credits");
        return UCS_OK;
    }
    dispatch(ep, &m);
    return UCS_OK;
}
