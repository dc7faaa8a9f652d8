/*
 * Atomic operations on a peer's memory.
 */
#include "cuda.h"
#include "error.h"
#include "guard.h"
#include "rma.h"
#include "ucx_loader.h"
#include <string.h>

#define ACTION 255u

static bool fetches(uint32_t action)
{
    return action >= HWS_ATOMIC_FETCH || action == HWS_ATOMIC_SWAP || action == HWS_ATOMIC_CSWAP;
}

/* ---- by UCX ---- */

/** In hws__op.rma while UCX works on it, so that nothing of the caller's is touched too late. */
struct amo {
    uint64_t operand, reply;
    uint32_t size;
    bool fetch;
};

static struct amo *amo_of(struct hws__op *op)
{
    return (struct amo *)(void *)op->rma;
}

static ucp_atomic_op_t opcode(uint32_t action)
{
    static const ucp_atomic_op_t codes[] = {
        [HWS_ATOMIC_ADD] = UCP_ATOMIC_OP_ADD,   [HWS_ATOMIC_AND] = UCP_ATOMIC_OP_AND,
        [HWS_ATOMIC_OR] = UCP_ATOMIC_OP_OR,     [HWS_ATOMIC_XOR] = UCP_ATOMIC_OP_XOR,
        [HWS_ATOMIC_SWAP] = UCP_ATOMIC_OP_SWAP, [HWS_ATOMIC_CSWAP] = UCP_ATOMIC_OP_CSWAP};

    return codes[action & ACTION];
}

/* The old value, where the caller wants it. */
static uint64_t take(const struct amo *a, void *result)
{
    if (result != NULL) {
        memcpy(result, &a->reply, a->size);
    }
    return a->size == 4 ? (uint32_t)a->reply : a->reply;
}

static void amo_done(void *request, ucs_status_t status, void *user_data)
{
    struct hws__op *op = user_data;
    const struct amo *a = amo_of(op);

    if (!hws__uworker_destroying && status == UCS_OK && a->fetch && op->stage == HWS__STAGE_UCX) {
        op->done_tag = take(a, op->buffer);
    }
    hws__rma_done(request, status, op);
}

/* UCX compares with the operand and swaps in what the reply holds before. */
static void prepare(const struct hws__post *p, struct amo *a)
{
    bool cswap = (p->am_id & ACTION) == HWS_ATOMIC_CSWAP;

    a->operand = cswap ? p->tag : p->operand;
    a->reply = cswap ? p->operand : 0;
    a->size = (uint32_t)p->done_length;
    a->fetch = fetches(p->am_id);
}

int32_t hws__rma_ucx_atomic(struct hws__post *p, struct hws__rkey *k)
{
    ucp_request_param_t param;
    struct hws__op *op;
    struct amo *a;
    int32_t r;

    if ((op = hws__op_next(p)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    a = amo_of(op);
    prepare(p, a);
    hws__op_param(p, op, &param);
    param.cb.send = amo_done;
    param.datatype = ucp_dt_make_contig(a->size);
    if (a->fetch) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.reply_buffer = &a->reply;
    }
    r = hws__rma_posted(p, op, k,
                        hws__ucx.ucp_atomic_op_nbx(k->ep->ucx, opcode(p->am_id), &a->operand, 1,
                                                   p->mask, k->ucx, &param));
    if (r == HWS_OK) {
        op->done_length = a->size;
    } else if (r == HWS_DONE && a->fetch && p->done_status == HWS_OK) {
        p->done_tag = take(a, p->buffer);
    }
    return r;
}

/* ---- at once, and by messages ---- */

static int32_t direct(struct hws__post *p, struct hws__rkey *k)
{
    uint64_t old;

    if (!hws__post_can_tell(p)) {
        return HWS_E_TOO_MANY;
    }
    old = hws__atomic_do(k->direct + (p->mask - k->base), p->am_id & ACTION,
                         (uint32_t)p->done_length, p->operand, p->tag);
    if (fetches(p->am_id)) {
        p->done_tag = old;
        if (p->buffer != NULL) {
            memcpy(p->buffer, &old, p->done_length);
        }
    }
    return HWS_DONE;
}

static int32_t message(struct hws__post *p, struct hws__rkey *k)
{
    struct hws__rma_job *job;

    if (hws__cuda_is(k->memory_kind)) {
        return hws__fail(HWS_E_BUFFER_KIND, p->rkey,
                         "the peer's processor cannot change its GPU's memory");
    }
    if ((job = hws__rma_job_of(p, k, HWS__RMA_ATOMIC)) == NULL) {
        return HWS_E_TOO_MANY;
    }
    job->msg.action = (uint8_t)(p->am_id & ACTION);
    job->msg.size = (uint8_t)p->done_length;
    job->msg.flags = fetches(p->am_id) ? HWS__RMA_FETCH : 0;
    job->msg.value = p->operand;
    job->msg.compare = p->tag;
    return hws__rma_job_post(p, job);
}

static int32_t atomic_run(struct hws__post *p)
{
    struct hws__rkey *k;
    int32_t r;

    if ((k = hws__rma_key(p, HWS_FEATURE_ATOMIC, p->done_length, &r)) == NULL) {
        return r;
    }
    if (hws__rma_direct(k, HWS_MEMORY_HOST)) {
        r = direct(p, k);
    } else {
        r = k->way == HWS__WAY_UCX ? hws__rma_ucx_atomic(p, k) : message(p, k);
    }
    k->ep->traffic.out[HWS_TRAFFIC_ATOMIC].count += r >= 0;
    return r;
}

int32_t hws_atomic(hws_id rkey, uint64_t address, uint32_t action, uint32_t size, uint64_t value,
                   uint64_t compare, void *result, const hws_op_opts *opts, hws_id *op)
{
    struct hws__post p;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if (!hws__rma_init(&p, atomic_run, HWS_EVENT_ATOMIC, rkey, address, result, 0, &r)) {
        return r;
    }
    p.operand = value;
    p.tag = compare;
    p.am_id = action;
    p.done_length = size;
    if ((action & ~(uint32_t)HWS_ATOMIC_FETCH) > HWS_ATOMIC_CSWAP || (size != 4 && size != 8)) {
        return hws__fail(HWS_E_INVALID, rkey, "atomic action %u on %u bytes", action, size);
    }
    if (address % size != 0) {
        return hws__fail(HWS_E_INVALID, rkey, "address %#llx is not a multiple of %u",
                         (unsigned long long)address, size);
    }
    return hws__post(&p, opts, op);
}
