#include "hello.h"
#include "auth.h"
#include "error.h"
#include "host.h"
#include "listener.h"
#include "log.h"
#include "multi.h"
#include "progress.h"
#include "rma.h"
#include "ucx_loader.h"
#include "upgrade.h"
#include "waddress.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x31525748u /* "HWR1", little endian */
#define REFUSED_NS UINT64_C(1000000000)

enum type {
    HELLO = 1,
    CHALLENGE,
    PROOF,
    WELCOME,
    REFUSED,
    GOODBYE,
    GOODBYE_ACK,
    FLUSH,
    FLUSH_ACK,
    MULTI_REFUSED,
    JOIN,
    JOINED,
    ABORTED
};

#define FLAG_SHARED 1u /* my UCX worker serves several endpoints: send REPLY along */
#define FLAG_KEY 2u    /* I have a pre-shared key */

/** Every message of Hawser's own: little endian, 128 bytes. */
struct control {
    uint32_t magic;
    uint8_t type, protocol, flags, ucx_minor;
    int32_t code;
    uint32_t reason; /* HWS_REASON_* of the sender */
    uint64_t host, pid;
    uint64_t sequence; /* of a flush, a multi-buffer message, or a dial: see pairing.h */
    unsigned char nonce[HWS__NONCE], proof[HWS__PROOF];
    uint64_t multi_bytes_max; /* the sender takes multi-buffer messages up to here */
    uint32_t multi_count_max;
    uint32_t network;         /* the sender's network namespace */
    uint32_t credit_messages; /* what the sender lets wait, of each sort; 0: no limit */
    uint32_t credit_kib;
};

_Static_assert(sizeof(struct control) == 128, "the wire format");

/* Byte swapping is not needed where Hawser runs; this is what the format relies on. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian machines only");

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

/*
 * A message on its way; an address may follow. Sent as a list of one piece: while a connection changes
 * from TCP to shared memory, UCX 1.22 writes what it had taken for a short message of TCP's, up to 8 KiB,
 * into one 128-byte slot of the peer's queue and over those behind it. A list is never sent that way.
 */
struct outgoing {
    ucp_dt_iov_t piece;
    hws_id endpoint; /* of a hello */
    struct control control;
};

/* The address behind a message. */
struct tail {
    const void *address;
    uint64_t length;
};

/* A hello came back: UCX sends nothing before the listener's UCX worker has answered. An error is reported by the
 * endpoint's handler. */
static void given_back(struct outgoing *o, ucs_status_t status)
{
    struct hws__endpoint *ep = status == UCS_OK ? hws__obj_find(&hws__objects, o->endpoint) : NULL;

    if (ep != NULL) {
        ep->answered = true;
    }
    free(o);
}

static void sent(void *request, ucs_status_t status, void *user_data)
{
    given_back(user_data, status);
    hws__ucx.ucp_request_free(request);
}

/* Send one, with the address of a UCX worker (or null); what is lost by a failing endpoint is no loss. */
static void send_with(struct hws__endpoint *ep, struct control *c, enum type type,
                      struct hws__uworker *u)
{
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                             UCP_OP_ATTR_FIELD_USER_DATA |
                                             UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS,
                             .flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER,
                             .cb.send = sent,
                             .datatype = ucp_dt_make_iov()};
    uint64_t address = 0;
    struct outgoing *o = u != NULL ? hws__address_own(u, sizeof *o, &address) : malloc(sizeof *o);
    struct control *m;
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
    m->magic = MAGIC;
    m->type = (uint8_t)type;
    m->protocol = HWS__PROTOCOL;
    m->ucx_minor = (uint8_t)hws__ucx.minor;
    m->flags = (ep->uworker->role != HWS__ISOLATED ? FLAG_SHARED : 0) |
               (ep->worker->context->psk != NULL ? FLAG_KEY : 0);
    m->host = ep->worker->context->host;
    m->network = ep->worker->context->network;
    m->pid = (uint64_t)getpid();
    m->reason = ep->reason;
    m->multi_bytes_max = ep->worker->multi_bytes_max;
    m->multi_count_max = ep->worker->multi_count_max;
    hws__credit_window(ep->worker, &m->credit_messages, &m->credit_kib);
    o->endpoint = type == HELLO ? ep->obj.id : 0;
    p.user_data = o;
    request = hws__ucx.ucp_am_send_nbx(ep->ucx, HWS__AM_CONTROL, address != 0 ? o + 1 : NULL,
                                       address, &o->piece, 1, &p);
    if (!UCS_PTR_IS_PTR(request)) {
        given_back(o, UCS_PTR_RAW_STATUS(request));
    }
    hws__uworker_heat(ep->uworker);
}

static void send_control(struct hws__endpoint *ep, struct control *c, enum type type)
{
    send_with(ep, c, type, NULL);
}

void hws__hello_start(struct hws__endpoint *ep)
{
    struct hws__uworker *u = ep->reason == HWS_REASON_ADDRESS ? ep->uworker : ep->upgrade.offer;
    struct control c = {.sequence = ep->number};

    ep->hello_seen = false; /* an earlier dial of the same endpoint may have come as far */
    if (ep->worker->context->psk != NULL) {
        hws__auth_nonce(ep->nonce);
    }
    memcpy(c.nonce, ep->nonce, sizeof c.nonce);
    send_with(ep, &c, HELLO, u);
}

void hws__hello_welcome_upgrade(struct hws__endpoint *ep, struct hws__uworker *u)
{
    const struct hws__context *x = ep->worker->context;
    struct control c = {0};

    if (x->psk != NULL && !ep->raw) {
        hws__auth_prove(x->psk, x->psk_length, 's', ep->peer_nonce, ep->nonce, c.proof);
    }
    send_with(ep, &c, WELCOME, u);
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

void hws__hello_join(struct hws__endpoint *ep)
{
    struct control c = {0};

    send_control(ep, &c, JOIN);
}

void hws__hello_refuse(struct hws__endpoint *ep, int32_t code)
{
    struct control c = {.code = code};

    send_control(ep, &c, REFUSED);
    ep->silent = ep->phase != HWS__PHASE_REQUEST && !ep->accepted;
    ep->refused = ep->closing = ep->told = true;
    ep->phase = HWS__PHASE_GOODBYE;
    hws__endpoint_deadline(ep, REFUSED_NS);
}

void hws__flush_send(struct hws__endpoint *ep, uint64_t sequence)
{
    struct control c = {.sequence = sequence};

    send_control(ep, &c, FLUSH);
}

void hws__multi_refuse_send(struct hws__endpoint *ep, uint64_t sequence, int32_t code)
{
    struct control c = {.sequence = sequence, .code = code};

    send_control(ep, &c, MULTI_REFUSED);
}

void hws__goodbye(struct hws__endpoint *ep)
{
    struct control c = {0};

    send_control(ep, &c, GOODBYE);
}

void hws__hello_aborted(struct hws__endpoint *ep)
{
    struct control c = {0};

    send_control(ep, &c, ABORTED);
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

static void on_hello(struct hws__endpoint *ep, const struct control *m, const struct tail *tail)
{
    struct hws__context *c = ep->worker->context;
    struct control answer = {0};

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
    if ((c->psk != NULL) != ((m->flags & FLAG_KEY) != 0)) {
        refuse_auth(ep);
        return;
    }
    if (c->psk == NULL) {
        admit(ep);
        return;
    }
    hws__auth_nonce(ep->nonce);
    memcpy(answer.nonce, ep->nonce, sizeof answer.nonce);
    send_control(ep, &answer, CHALLENGE);
}

static void on_challenge(struct hws__endpoint *ep, const struct control *m)
{
    struct hws__context *c = ep->worker->context;
    struct control answer = {0};

    if (ep->server || ep->phase != HWS__PHASE_HELLO || c->psk == NULL || ep->hello_seen) {
        hws__endpoint_fail(ep, HWS_E_AUTH, "the listener wants a key");
        return;
    }
    ep->hello_seen = true;
    memcpy(ep->peer_nonce, m->nonce, sizeof ep->peer_nonce);
    hws__auth_prove(c->psk, c->psk_length, 'c', ep->nonce, m->nonce, answer.proof);
    send_control(ep, &answer, PROOF);
}

static void on_proof(struct hws__endpoint *ep, const struct control *m)
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

static void on_welcome(struct hws__endpoint *ep, const struct control *m, const struct tail *tail)
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
        ep->reason = offered && m->reason <= HWS_REASON_SHM_FAILED ? m->reason : ep->reason;
        hws__endpoint_opened(ep);
    }
}

/* By shared memory: the first message of the client there, or the answer to it. */
static void on_join(struct hws__endpoint *ep, enum type type)
{
    struct control c = {0};

    if (ep->upgrade.line == NULL || ep->phase != HWS__PHASE_HELLO || ep->server != (type == JOIN)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "a join that was not asked for");
        return;
    }
    if (ep->server) {
        send_control(ep, &c, JOINED);
    }
    if (!ep->failed) {
        hws__endpoint_opened(ep);
    }
}

static void on_goodbye(struct hws__endpoint *ep)
{
    struct control c = {0};

    send_control(ep, &c, GOODBYE_ACK);
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

static void dispatch(struct hws__endpoint *ep, const struct control *m, const struct tail *tail)
{
    switch (m->type) {
    case HELLO:
        on_hello(ep, m, tail);
        break;
    case CHALLENGE:
        on_challenge(ep, m);
        break;
    case PROOF:
        on_proof(ep, m);
        break;
    case WELCOME:
        on_welcome(ep, m, tail);
        break;
    case REFUSED:
        on_refused(ep, refusal(m->code));
        break;
    case GOODBYE:
        if (ep->hello_done) {
            on_goodbye(ep);
        }
        break;
    case FLUSH:
        if (ep->hello_done) {
            struct control c = {.sequence = m->sequence};

            send_control(ep, &c, FLUSH_ACK);
        }
        break;
    case FLUSH_ACK:
        ep->flush_acked = m->sequence > ep->flush_acked ? m->sequence : ep->flush_acked;
        hws__rma_acked(ep);
        ep->worker->todo = true;
        break;
    case MULTI_REFUSED:
        hws__multi_refused(ep, m->sequence, multi_refusal(m->code));
        break;
    case JOIN:
    case JOINED:
        on_join(ep, m->type);
        break;
    case GOODBYE_ACK:
        ep->acked = true;
        hws__endpoint_attend(ep);
        break;
    case ABORTED:
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

static bool is_control(struct control *m, const void *data, size_t length, uint64_t attr)
{
    if (length != sizeof *m || (attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        return false;
    }
    memcpy(m, data, sizeof *m);
    return m->magic == MAGIC && m->protocol == HWS__PROTOCOL;
}

static void take(struct hws__endpoint *ep, const struct control *m, const struct tail *tail)
{
    const struct hws__context *c = ep->worker->context;

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
    ep->send_flags = m->flags & FLAG_SHARED ? UCP_AM_SEND_FLAG_REPLY : 0;
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
    struct control m;

    if (ep == NULL && u->role == HWS__ADDRESS && is_control(&m, data, length, param->recv_attr) &&
        m.type == HELLO) {
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
