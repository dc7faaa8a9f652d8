/*
 * Remote memory access as the owner of the memory sees it, and the answers.
 *
 * Nothing here trusts the peer: every message names memory by id and key, and hws__memory_reach()
 * says whether it may be touched.
 */
#include "cuda.h"
#include "error.h"
#include "memory.h"
#include "progress.h"
#include "rma.h"
#include "room.h"
#include <string.h>

/* The same on both widths. */
#define ATOMIC_DO(name, type)                                                     \
    static type name(_Atomic type *at, uint32_t action, type value, type compare) \
    {                                                                             \
        switch (action) {                                                         \
        case HWS_ATOMIC_ADD:                                                      \
            return atomic_fetch_add(at, value);                                   \
        case HWS_ATOMIC_AND:                                                      \
            return atomic_fetch_and(at, value);                                   \
        case HWS_ATOMIC_OR:                                                       \
            return atomic_fetch_or(at, value);                                    \
        case HWS_ATOMIC_XOR:                                                      \
            return atomic_fetch_xor(at, value);                                   \
        case HWS_ATOMIC_SWAP:                                                     \
            return atomic_exchange(at, value);                                    \
        default:                                                                  \
            atomic_compare_exchange_strong(at, &compare, value);                  \
            return compare;                                                       \
        }                                                                         \
    }

ATOMIC_DO(do32, uint32_t)
ATOMIC_DO(do64, uint64_t)

uint64_t hws__atomic_do(void *at, uint32_t action, uint32_t size, uint64_t value, uint64_t compare)
{
    return size == 4 ? do32(at, action, (uint32_t)value, (uint32_t)compare)
                     : do64(at, action, value, compare);
}

static void violation(struct hws__endpoint *ep, const char *what)
{
    hws__endpoint_fail(ep, HWS_E_PROTOCOL, "the peer %s memory that it may not reach", what);
}

static void notify(struct hws__endpoint *ep, const struct hws__rma_msg *m)
{
    hws_event e = {
        .kind = HWS_EVENT_NOTIFY, .source = ep->obj.id, .length = m->length, .tag = m->value};

    hws__emit(ep->worker, &ep->sink, &e, NULL);
}

static void on_put(struct hws__endpoint *ep, const struct hws__rma_msg *m, const void *data,
                   uint64_t length)
{
    struct hws__memory *at;
    int32_t r;

    if (length != 0) {
        at = hws__memory_reach(ep->worker->context, m->memory, m->key, m->address, length,
                               HWS_MEM_REMOTE_WRITE);
        if (at == NULL) {
            violation(ep, "wrote to");
            return;
        }
        r = hws__room_fill(
            ep->worker->context,
            (struct hws__room){(char *)at->base + (m->address - (uint64_t)(uintptr_t)at->base),
                               length, 0, at->memory_kind},
            data, length);
        hws__memory_unuse(at);
        if (r < 0) {
            hws__endpoint_fail(ep, r, "what the peer has put could not be copied");
            return;
        }
    }
    ep->traffic.in[HWS_TRAFFIC_PUT].count += (m->flags & HWS__RMA_LAST) != 0;
    ep->traffic.in[HWS_TRAFFIC_PUT].bytes += length;
    if (m->flags & HWS__RMA_NOTIFY) {
        notify(ep, m);
    }
}

static void on_get(struct hws__endpoint *ep, const struct hws__rma_msg *m)
{
    struct hws__memory *at = hws__memory_reach(ep->worker->context, m->memory, m->key, m->address,
                                               m->length, HWS_MEM_REMOTE_READ);
    struct hws__rma_job *job;

    if (at == NULL || m->length == 0) {
        violation(ep, "read");
    } else if ((job = hws__rma_answer(ep, m, HWS__RMA_DATA)) != NULL) {
        job->memory = at;
        job->memory_kind = at->memory_kind;
        job->one =
            (hws_iov){(char *)at->base + (m->address - (uint64_t)(uintptr_t)at->base), m->length};
        job->pieces = &job->one;
        job->length = m->length;
        hws__flow_add(&ep->traffic.in[HWS_TRAFFIC_GET], m->length);
        hws__rma_answer_queue(job);
        return;
    }
    if (at != NULL) {
        hws__memory_unuse(at);
    }
}

static void on_atomic(struct hws__endpoint *ep, const struct hws__rma_msg *m)
{
    struct hws__memory *at;
    struct hws__rma_job *job;
    uint64_t old;

    at = (m->size != 4 && m->size != 8) || m->address % m->size != 0 || m->action > HWS_ATOMIC_CSWAP
             ? NULL
             : hws__memory_reach(ep->worker->context, m->memory, m->key, m->address, m->size,
                                 HWS_MEM_REMOTE_READ | HWS_MEM_REMOTE_WRITE);
    if (at == NULL || hws__cuda_is(at->memory_kind)) {
        violation(ep, "changed");
        if (at != NULL) {
            hws__memory_unuse(at);
        }
        return;
    }
    old = hws__atomic_do((char *)at->base + (m->address - (uint64_t)(uintptr_t)at->base), m->action,
                         m->size, m->value, m->compare);
    hws__memory_unuse(at);
    ep->traffic.in[HWS_TRAFFIC_ATOMIC].count++;
    if ((m->flags & HWS__RMA_FETCH) == 0) {
        return;
    }
    if ((job = hws__rma_answer(ep, m, HWS__RMA_VALUE)) != NULL) {
        job->msg.value = old;
        hws__rma_answer_queue(job);
    }
}

/* The operation that an answer is for, if it still waits: it may have been cancelled. */
static struct hws__op *asked(const struct hws__endpoint *ep, const struct hws__rma_msg *m,
                             uint32_t kind)
{
    struct hws__op *op =
        hws__id_kind(m->op) == HWS_KIND_OP ? hws__op_find_open(ep->worker, m->op) : NULL;

    return op != NULL && op->ep == ep && op->kind == kind && op->mask == HWS__RMA_ASKED &&
                   (op->stage == HWS__STAGE_OWN || op->stage == HWS__STAGE_UCX)
               ? op
               : NULL;
}

static void answered(struct hws__op *op)
{
    if (op->job != NULL) {
        op->job->answered = true; /* ends when UCX has given the question back */
    } else {
        hws__op_finish(op, op->wanted != 0 ? op->wanted : HWS_OK);
    }
}

static void on_data(struct hws__endpoint *ep, const struct hws__rma_msg *m, void *data,
                    uint64_t length)
{
    struct hws__op *op = asked(ep, m, HWS_EVENT_GET);
    uint64_t at = m->address;
    int32_t r;

    if (m->value == 0) {
        hws__rma_answer_came(ep);
    }
    if (op == NULL) {
        return;
    }
    if (at != op->done_length || at > op->tag || length > op->tag - at) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "an answer of the wrong length");
        return;
    }
    op->done_length += length;
    r = hws__room_copy(ep->worker->context,
                       (struct hws__room){op->buffer, op->length, op->flags, op->memory_kind}, at,
                       data, length, false);
    if (r < 0) {
        hws__endpoint_fail(ep, r, "what was got could not be copied");
    } else if (op->done_length == op->tag) {
        answered(op);
    }
}

static void on_value(struct hws__endpoint *ep, const struct hws__rma_msg *m)
{
    struct hws__op *op = asked(ep, m, HWS_EVENT_ATOMIC);

    hws__rma_answer_came(ep);
    if (op == NULL) {
        return;
    }
    op->done_tag = m->value;
    if (op->buffer != NULL) {
        memcpy(op->buffer, &m->value, op->done_length);
    }
    answered(op);
}

static bool served(const struct hws__endpoint *ep, const struct hws__rma_msg *m)
{
    uint64_t need = m->type == HWS__RMA_ATOMIC ? HWS_FEATURE_ATOMIC : HWS_FEATURE_RMA;

    return m->type >= HWS__RMA_DATA || (ep->worker->context->features & need) != 0;
}

ucs_status_t hws__rma_cb(void *arg, const void *header, size_t header_length, void *data,
                         size_t length, const ucp_am_recv_param_t *param)
{
    struct hws__uworker *u = arg;
    struct hws__endpoint *ep = hws__am_sender(u, param);
    struct hws__rma_msg m;

    if (ep == NULL || !ep->hello_done || ep->failed) {
        return UCS_OK;
    }
    if (header_length != sizeof m || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "remote memory access of an unknown form");
        return UCS_OK;
    }
    memcpy(&m, header, sizeof m);
    if (!served(ep, &m)) {
        violation(ep, "asked for");
        return UCS_OK;
    }
    switch (m.type) {
    case HWS__RMA_PUT:
        on_put(ep, &m, data, length);
        break;
    case HWS__RMA_GET:
        on_get(ep, &m);
        break;
    case HWS__RMA_ATOMIC:
        on_atomic(ep, &m);
        break;
    case HWS__RMA_DATA:
        on_data(ep, &m, data, length);
        break;
    case HWS__RMA_VALUE:
        on_value(ep, &m);
        break;
    default:
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "remote memory access of unknown type %u", m.type);
    }
    return UCS_OK;
}
