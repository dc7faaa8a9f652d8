/*
 * The handshake of each side, and what becomes of the messages of Hawser's own that follow it (see hello.h).
 */
#include "control.h"
#include "host.h"
#include "listener.h"
#include "multi.h"
#include "rma.h"
#include "ucx_loader.h"
#include "upgrade.h"
#include "waddress.h"
#include <string.h>

/* How long a client that was refused may take to leave. */
#define REFUSED_NS UINT64_C(1000000000)

uint64_t hws__client_id(bool tcp_only)
{
    return (uint64_t)HWS__CLIENT_MAGIC << 48 | (uint64_t)HWS__PROTOCOL << 44 |
           (uint64_t)(tcp_only ? HWS__CLIENT_TCP_ONLY : 0) << 40 |
           (uint64_t)((uint32_t)hws__ucx.minor & 255u) << 32 | (hws__host_hash() & UINT32_MAX);
}

struct hws__client hws__client_parse(uint64_t id)
{
    return (struct hws__client){
        .known = id >> 48 == HWS__CLIENT_MAGIC,
        .same_protocol = (id >> 44 & 15) == HWS__PROTOCOL,
        .tcp_only = (id >> 40 & HWS__CLIENT_TCP_ONLY) != 0,
        .same_ucx = (id >> 32 & 255) == ((uint32_t)hws__ucx.minor & 255u),
        .same_host = (uint32_t)id == (hws__host_hash() & UINT32_MAX),
    };
}

void hws__hello_start(struct hws__endpoint *ep)
{
    struct hws__uworker *u = ep->reason == HWS_REASON_ADDRESS ? ep->uworker : ep->upgrade.offer;
    struct hws__control c = {.sequence = ep->number};

    ep->hello_seen = false; /* an earlier dial of the same endpoint may have come as far */
    if (ep->worker->context->psk != NULL) {
        hws__auth_nonce(ep->nonce);
    }
    memcpy(c.nonce, ep->nonce, sizeof c.nonce);
    hws__control_send_with(ep, &c, HWS__CONTROL_HELLO, u);
}

void hws__hello_welcome_upgrade(struct hws__endpoint *ep, struct hws__uworker *u)
{
    const struct hws__context *x = ep->worker->context;
    struct hws__control c = {0};

    if (x->psk != NULL && !ep->raw) {
        hws__auth_prove(x->psk, x->psk_length, 's', ep->peer_nonce, ep->nonce, c.proof);
    }
    hws__control_send_with(ep, &c, HWS__CONTROL_WELCOME, u);
}

/* Data would go by TCP, which the user left out. Who was accepted already hears of it when it opens. */
static bool refuse_unwanted(struct hws__endpoint *ep)
{
    if (!ep->worker->context->no_network || ep->accepted) {
        return false;
    }
    if (hws__endpoint_lanes(ep) && !hws__endpoint_unwanted(ep)) {
        return false;
    }
    if (!ep->failed) {
        hws__hello_refuse(ep, HWS_E_UNREACHABLE);
    }
    return true;
}

void hws__hello_welcome(struct hws__endpoint *ep)
{
    if (hws__upgrade_decide(ep) || refuse_unwanted(ep)) {
        return;
    }
    hws__hello_welcome_upgrade(ep, NULL);
    if (!ep->failed) {
        hws__endpoint_opened(ep);
    }
}

void hws__hello_refuse(struct hws__endpoint *ep, int32_t code)
{
    struct hws__control c = {.code = code};

    hws__control_send(ep, &c, HWS__CONTROL_REFUSED);
    ep->silent = hws__endpoint_unheard(ep);
    ep->refused = ep->closing = ep->told = true;
    ep->phase = HWS__PHASE_GOODBYE;
    hws__endpoint_deadline(ep, REFUSED_NS);
}

/* The peer is who it must be: let it in, or ask the application. */
static void admit(struct hws__endpoint *ep)
{
    struct hws__listener *l = hws__listener_of(ep);
    hws_event e = {.kind = HWS_EVENT_REQUEST, .source = ep->obj.id, .op = ep->listener};

    if (l != NULL && (l->flags & HWS_LISTENER_EXPLICIT)) {
        hws__endpoint_addresses(ep);
        ep->phase = HWS__PHASE_REQUEST;
        ep->deadline = 0;
        hws__emit(ep->worker, &l->sink, &e, NULL);
        return;
    }
    hws__hello_welcome(ep);
}

static void refuse_auth(struct hws__endpoint *ep)
{
    struct hws__listener *l = hws__listener_of(ep);

    if (l != NULL) {
        l->bad_auth++;
    }
    hws__hello_refuse(ep, HWS_E_AUTH);
}

/* The address behind a message. */
struct tail {
    const void *address;
    uint64_t length;
};

static void on_hello(struct hws__endpoint *ep, const struct hws__control *m,
                     const struct tail *tail)
{
    struct hws__context *c = ep->worker->context;
    struct hws__control answer = {0};

    if (!ep->server || ep->phase != HWS__PHASE_HELLO || ep->hello_seen) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a second hello");
        return;
    }
    ep->hello_seen = true;
    if (ep->reason == HWS_REASON_CAP && m->reason <= HWS_REASON_SHM_FAILED) {
        ep->reason = m->reason; /* only the dialler knows why it came by TCP */
    }
    if (tail->length != 0 && ep->uworker->role <= HWS__TCP) {
        hws__upgrade_offered(ep, m->host == c->host, tail->address, tail->length);
    }
    memcpy(ep->peer_nonce, m->nonce, sizeof ep->peer_nonce);
    if ((c->psk != NULL) != ((m->flags & HWS__CONTROL_KEY) != 0)) {
        refuse_auth(ep);
        return;
    }
    if (c->psk == NULL) {
        admit(ep);
        return;
    }
    hws__auth_nonce(ep->nonce);
    memcpy(answer.nonce, ep->nonce, sizeof answer.nonce);
    hws__control_send(ep, &answer, HWS__CONTROL_CHALLENGE);
}

static void on_challenge(struct hws__endpoint *ep, const struct hws__control *m)
{
    struct hws__context *c = ep->worker->context;
    struct hws__control answer = {0};

    if (ep->server || ep->phase != HWS__PHASE_HELLO || c->psk == NULL || ep->hello_seen) {
        hws__endpoint_fail(ep, HWS_E_AUTH, "the listener wants a key");
        return;
    }
    ep->hello_seen = true;
    memcpy(ep->peer_nonce, m->nonce, sizeof ep->peer_nonce);
    hws__auth_prove(c->psk, c->psk_length, 'c', ep->nonce, m->nonce, answer.proof);
    hws__control_send(ep, &answer, HWS__CONTROL_PROOF);
}

static void on_proof(struct hws__endpoint *ep, const struct hws__control *m)
{
    struct hws__context *c = ep->worker->context;

    if (!ep->server || ep->phase != HWS__PHASE_HELLO || !ep->hello_seen || c->psk == NULL) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a proof that was not asked for");
    } else if (hws__auth_verify(c->psk, c->psk_length, 'c', ep->peer_nonce, ep->nonce, m->proof)) {
        admit(ep);
    } else {
        refuse_auth(ep);
    }
}

static void on_welcome(struct hws__endpoint *ep, const struct hws__control *m,
                       const struct tail *tail)
{
    bool offered = ep->upgrade.offer != NULL;
    struct hws__context *c = ep->worker->context;

    if (ep->server || ep->phase != HWS__PHASE_HELLO) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a welcome that was not asked for");
    } else if (c->psk != NULL &&
               (!ep->hello_seen || !hws__auth_verify(c->psk, c->psk_length, 's', ep->nonce,
                                                     ep->peer_nonce, m->proof))) {
        hws__endpoint_fail(ep, HWS_E_AUTH, "the listener has another key, or none");
    } else if (!offered || !hws__upgrade_welcome(ep, tail->address, tail->length)) {
        if ((offered || ep->reason == HWS_REASON_CAP) && m->reason <= HWS_REASON_SHM_FAILED) {
            ep->reason = m->reason; /* the listener knows why it did not take the first way */
        }
        hws__endpoint_opened(ep);
    }
}

/* By shared memory: the first message of the client there, or the answer to it. */
static void on_join(struct hws__endpoint *ep, enum hws__control_type type)
{
    struct hws__control c = {0};

    if (ep->upgrade.line == NULL || ep->phase != HWS__PHASE_HELLO ||
        ep->server != (type == HWS__CONTROL_JOIN)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a join that was not asked for");
        return;
    }
    if (ep->server) {
        hws__control_send(ep, &c, HWS__CONTROL_JOINED);
    }
    if (!ep->failed) {
        hws__endpoint_opened(ep);
    }
}

static void on_goodbye(struct hws__endpoint *ep)
{
    struct hws__control c = {0};

    hws__control_send(ep, &c, HWS__CONTROL_GOODBYE_ACK);
    hws__stream_keep(ep);
    ep->peer_closed = true;
    ep->acked = true; /* both may say goodbye at once */
    ep->open = false;
    hws__endpoint_attend(ep);
}

/* The code of a refusal: a peer can mean these, whatever number it sends. */
static int32_t refusal(int32_t code)
{
    switch (code) {
    case HWS_E_AUTH:
    case HWS_E_PEER_VERSION:
    case HWS_E_PROTOCOL:
    case HWS_E_CLOSING:
    case HWS_E_ISOLATED_CAP:
    case HWS_E_UNREACHABLE:
        return code;
    default:
        return HWS_E_REJECTED;
    }
}

static void on_refused(struct hws__endpoint *ep, int32_t code)
{
    if (ep->server || ep->phase != HWS__PHASE_HELLO) {
        return;
    }
    if (code == HWS_E_UNREACHABLE) {
        hws__endpoint_fail_unwanted(ep);
    } else {
        hws__endpoint_fail(ep, code, "%s", hws_error_text(code));
    }
}

/* The same of a multi-buffer message. */
static int32_t multi_refusal(int32_t code)
{
    return code == HWS_E_NO_MEMORY || code == HWS_E_ALLOCATOR ? code : HWS_E_TOO_BIG;
}

static void dispatch(struct hws__endpoint *ep, const struct hws__control *m,
                     const struct tail *tail)
{
    switch (m->type) {
    case HWS__CONTROL_HELLO:
        on_hello(ep, m, tail);
        break;
    case HWS__CONTROL_CHALLENGE:
        on_challenge(ep, m);
        break;
    case HWS__CONTROL_PROOF:
        on_proof(ep, m);
        break;
    case HWS__CONTROL_WELCOME:
        on_welcome(ep, m, tail);
        break;
    case HWS__CONTROL_REFUSED:
        on_refused(ep, refusal(m->code));
        break;
    case HWS__CONTROL_GOODBYE:
        if (ep->hello_done) {
            on_goodbye(ep);
        }
        break;
    case HWS__CONTROL_FLUSH:
        if (ep->hello_done) {
            struct hws__control c = {.sequence = m->sequence};

            hws__control_send(ep, &c, HWS__CONTROL_FLUSH_ACK);
        }
        break;
    case HWS__CONTROL_FLUSH_ACK:
        ep->flush_acked = m->sequence > ep->flush_acked ? m->sequence : ep->flush_acked;
        hws__rma_acked(ep);
        ep->worker->todo = true;
        break;
    case HWS__CONTROL_MULTI_REFUSED:
        hws__multi_refused(ep, m->sequence, multi_refusal(m->code));
        break;
    case HWS__CONTROL_JOIN:
    case HWS__CONTROL_JOINED:
        on_join(ep, m->type);
        break;
    case HWS__CONTROL_GOODBYE_ACK:
        ep->acked = true;
        hws__endpoint_attend(ep);
        break;
    case HWS__CONTROL_ABORTED:
        if (ep->hello_done) {
            hws__endpoint_fail(ep, HWS_E_CONNECTION_RESET, "the peer has aborted the connection");
        }
        break;
    default:
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a message of unknown type %u", m->type);
    }
}

/* A peer that does not speak the protocol is counted and cut. */
static void stranger(struct hws__endpoint *ep)
{
    struct hws__listener *l = hws__listener_of(ep);

    if (l != NULL && !ep->hello_done) {
        l->strangers++;
    }
    hws__endpoint_fail(ep, HWS_E_PROTOCOL, "the peer does not speak this protocol");
}

static bool is_control(struct hws__control *m, const void *data, size_t length, uint64_t attr)
{
    if (length != sizeof *m || (attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        return false;
    }
    memcpy(m, data, sizeof *m);
    return m->magic == HWS__CONTROL_MAGIC && m->protocol == HWS__PROTOCOL;
}

static void take(struct hws__endpoint *ep, const struct hws__control *m, const struct tail *tail)
{
    const struct hws__context *c = ep->worker->context;

    hws__endpoint_heard(ep);
    ep->peer_host = m->host;
    ep->peer_pid = m->pid;
    if (ep->uworker->role == HWS__ISOLATED) {
        hws__uworker_set_deaf(ep->uworker, m->host == c->host && m->network != c->network);
    }
    ep->multi_bytes_max = m->multi_bytes_max;
    ep->multi_count_max = m->multi_count_max;
    if (!ep->hello_done) {
        hws__credit_open(ep, m->credit_messages, m->credit_kib);
    }
    ep->send_flags = m->flags & HWS__CONTROL_SHARED ? UCP_AM_SEND_FLAG_REPLY : 0;
    dispatch(ep, m, tail);
}

void hws__hello_resume(struct hws__endpoint *ep, const void *hello)
{
    take(ep, hello, &(struct tail){NULL, 0});
}

ucs_status_t hws__control_cb(void *arg, const void *header, size_t header_length, void *data,
                             size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    struct hws__endpoint *ep = hws__am_sender(u, param);
    struct hws__control m;

    if (ep == NULL && u->role == HWS__ADDRESS && is_control(&m, data, length, param->recv_attr) &&
        m.type == HWS__CONTROL_HELLO) {
        hws__address_hello(u, header, header_length, m.sequence, &m, sizeof m);
        return UCS_OK;
    }
    if (ep == NULL || ep->failed) {
        return UCS_OK;
    }
    if (!is_control(&m, data, length, param->recv_attr)) {
        stranger(ep);
        return UCS_OK;
    }
    take(ep, &m, &(struct tail){header, header_length});
    return UCS_OK;
}
