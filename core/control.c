/*
 * Messages of Hawser's own on their way.
 */
#include "control.h"
#include "ucx_loader.h"
#include "waddress.h"
#include <stdlib.h>
#include <unistd.h>

/*
 * A message on its way; an address may follow. Sent as a list of one piece: while a connection changes
 * from TCP to shared memory, UCX 1.22 writes what it had taken for a short message of TCP's, up to 8 KiB,
 * into one 128-byte slot of the peer's queue and over those behind it. A list is never sent that way.
 */
struct outgoing {
    ucp_dt_iov_t piece;
    hws_id endpoint; /* that waits for it to be gone; or 0 */
    struct hws__control control;
};

/* UCX has sent it: a hello not before the listener's UCX worker has answered, a welcome not before the connection has
 * changed to shared memory. An error is reported by the endpoint's handler. */
static void given_back(struct outgoing *o, ucs_status_t status)
{
    struct hws__endpoint *ep = status == UCS_OK ? hws__obj_find(&hws__objects, o->endpoint) : NULL;

    if (ep != NULL && ep->server) {
        hws__endpoint_welcomed(ep);
    } else if (ep != NULL) {
        ep->answered = true;
    }
    free(o);
}

/* The last message of this side before the connection is open to the peer, or the first one of a dial. */
static bool is_awaited(enum hws__control_type type, const struct hws__uworker *u)
{
    return type == HWS__CONTROL_HELLO || type == HWS__CONTROL_JOINED ||
           (type == HWS__CONTROL_WELCOME && u == NULL);
}

static void sent(void *request, ucs_status_t status, void *user_data)
{
    given_back(user_data, status);
    hws__ucx.ucp_request_free(request);
}

void hws__control_send_with(struct hws__endpoint *ep, const struct hws__control *c,
                            enum hws__control_type type, struct hws__uworker *u)
{
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                             UCP_OP_ATTR_FIELD_USER_DATA |
                                             UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS,
                             .flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER,
                             .cb.send = sent,
                             .datatype = ucp_dt_make_iov()};
    uint64_t address = 0;
    struct outgoing *o = u != NULL ? hws__address_own(u, sizeof *o, &address) : malloc(sizeof *o);
    struct hws__control *m;
    void *request;

    if (o == NULL || ep->ucx == NULL) {
        free(o);
        if (o == NULL) { /* the peer, or a flush, would wait for what never comes */
            hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for a message of the protocol");
        }
        return;
    }
    hws__bundles_send(&ep->worker->bundles);
    m = &o->control;
    o->piece = (ucp_dt_iov_t){m, sizeof *m};
    *m = *c;
    m->magic = HWS__CONTROL_MAGIC;
    m->type = (uint8_t)type;
    m->protocol = HWS__PROTOCOL;
    m->ucx_minor = (uint8_t)hws__ucx.minor;
    m->flags = (ep->uworker->role != HWS__ISOLATED ? HWS__CONTROL_SHARED : 0) |
               (ep->worker->context->psk != NULL ? HWS__CONTROL_KEY : 0);
    m->host = ep->worker->context->host;
    m->network = ep->worker->context->network;
    m->pid = (uint64_t)getpid();
    m->reason = ep->reason;
    m->multi_bytes_max = ep->worker->multi_bytes_max;
    m->multi_count_max = ep->worker->multi_count_max;
    hws__credit_window(ep->worker, &m->credit_messages, &m->credit_kib);
    o->endpoint = is_awaited(type, u) ? ep->obj.id : 0;
    p.user_data = o;
    request = hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_CONTROL, address != 0 ? o + 1 : NULL,
                                       address, &o->piece, 1, &p);
    if (!UCS_PTR_IS_PTR(request)) {
        given_back(o, UCS_PTR_RAW_STATUS(request));
    }
    hws__uworker_heat(ep->uworker);
}

void hws__control_send(struct hws__endpoint *ep, const struct hws__control *c,
                       enum hws__control_type type)
{
    hws__control_send_with(ep, c, type, NULL);
}

void hws__hello_join(struct hws__endpoint *ep)
{
    struct hws__control c = {0};

    hws__control_send(ep, &c, HWS__CONTROL_JOIN);
}

void hws__flush_send(struct hws__endpoint *ep, uint64_t sequence)
{
    struct hws__control c = {.sequence = sequence};

    hws__control_send(ep, &c, HWS__CONTROL_FLUSH);
}

void hws__multi_refuse_send(struct hws__endpoint *ep, uint64_t sequence, int32_t code)
{
    struct hws__control c = {.sequence = sequence, .code = code};

    hws__control_send(ep, &c, HWS__CONTROL_MULTI_REFUSED);
}

void hws__goodbye(struct hws__endpoint *ep)
{
    struct hws__control c = {0};

    hws__control_send(ep, &c, HWS__CONTROL_GOODBYE);
}

void hws__hello_aborted(struct hws__endpoint *ep)
{
    struct hws__control c = {0};

    hws__control_send(ep, &c, HWS__CONTROL_ABORTED);
}
