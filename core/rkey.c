#include "rkey.h"
#include "error.h"
#include "guard.h"
#include "memory.h"
#include "options.h"
#include "progress.h"
#include "rkey_blob.h"
#include "segment.h"
#include "ucx_find.h"
#include "ucx_loader.h"
#include <string.h>

/* ucp_rkey_compare()'s parameters, which older headers do not declare. */
struct compare_params {
    uint64_t field_mask;
};

int32_t hws_rkey_pack(hws_id memory, uint32_t flags, void *packed, uint64_t size, uint64_t *needed)
{
    struct hws__packed p;
    uint64_t n;
    int32_t r;

    HWS__ENTER();
    if ((flags & ~(uint32_t)HWS_RKEY_RAW) != 0 || (packed == NULL && size != 0)) {
        return hws__fail(HWS_E_INVALID, memory, "flags %#x, or no room", flags);
    }
    if ((r = hws__memory_pack(memory, flags & HWS_RKEY_RAW, &p)) < 0) {
        return r;
    }
    n = flags & HWS_RKEY_RAW ? p.ucx_length : hws__rkey_blob_size(&p);
    if (needed != NULL) {
        *needed = n;
    }
    if (packed == NULL || size < n) {
        r = hws__fail(HWS_E_TOO_BIG, memory, "the packed key has %llu bytes",
                      (unsigned long long)n);
    } else if (flags & HWS_RKEY_RAW) {
        memcpy(packed, p.ucx, n);
    } else {
        hws__rkey_blob_write(&p, packed);
    }
    hws__memory_pack_free(&p);
    return r;
}

/* UCX's part is gone. */
static void destroy(struct hws__rkey *k)
{
    if (k->ucx != NULL) {
        hws__ucx.ucp_rkey_destroy(k->ucx);
        k->ucx = NULL;
        hws__list_remove(&k->of_uworker);
        if (k->pinned && --k->uworker->pinned == 0 && k->uworker->dead) {
            k->worker->dead_count++; /* it has waited for this */
            k->worker->todo = true;
        }
        k->pinned = false;
    }
}

static void forget(struct hws__rkey *k)
{
    destroy(k);
    hws__list_remove(&k->link);
    hws__obj_free(&hws__objects, &k->obj);
}

void hws__rkey_unuse(struct hws__rkey *k)
{
    if (--k->uses != 0) {
        return;
    }
    if (k->closing) {
        forget(k);
    } else if (k->ep->ucx == NULL && !k->pinned) {
        destroy(k);
    }
}

void hws__rkey_close(struct hws__rkey *k)
{
    hws__obj_hide(&k->obj);
    k->closing = true;
    if (k->uses == 0) {
        forget(k);
    }
}

void hws__rkeys_detach(struct hws__endpoint *ep)
{
    for (struct hws__list *n = ep->rkeys.next; n != &ep->rkeys; n = n->next) {
        struct hws__rkey *k = hws__container(n, struct hws__rkey, link);

        if (k->uses == 0 && !k->pinned) {
            destroy(k);
        }
    }
}

void hws__rkeys_forget(struct hws__endpoint *ep)
{
    while (!hws__list_empty(&ep->rkeys)) {
        forget(hws__container(ep->rkeys.next, struct hws__rkey, link));
    }
}

void hws__rkeys_orphan(struct hws__uworker *u)
{
    while (!hws__list_empty(&u->rkeys)) {
        destroy(hws__container(u->rkeys.next, struct hws__rkey, of_uworker));
    }
}

/* The key of another process would reach whatever lies at the same address here. */
static int32_t check_owner(const struct hws__endpoint *ep, const struct hws__rkey_blob *b)
{
    if (ep->peer_pid != 0 && (ep->peer_pid != b->pid || ep->peer_host != b->host)) {
        return hws__fail(HWS_E_INVALID, ep->obj.id,
                         "a remote key of process %llu, the peer is process %llu",
                         (unsigned long long)b->pid, (unsigned long long)ep->peer_pid);
    }
    return HWS_OK;
}

static ucs_status_t pointer(const struct hws__rkey *k, uint64_t address, void **out)
{
    return k->ucx == NULL ? UCS_ERR_UNREACHABLE : hws__ucx.ucp_rkey_ptr(k->ucx, address, out);
}

static void add(struct hws__rkey *k)
{
    hws__list_append(&k->uworker->rkeys, &k->of_uworker);
}

static ucs_status_t unpack_ucx(struct hws__rkey *k, const void *packed)
{
    ucs_status_t s = hws__ucx.ucp_ep_rkey_unpack(k->ep->ucx, packed, &k->ucx);

    if (s != UCS_OK) {
        k->ucx = NULL;
    }
    return s;
}

/* Map the memory; if that cannot be, messages reach it. */
static void map(struct hws__rkey *k, const void *packed)
{
    void *at;

    if (unpack_ucx(k, packed) != UCS_OK) {
        return;
    }
    if (pointer(k, k->base, &at) == UCS_OK) {
        k->way = HWS__WAY_DIRECT;
        k->direct = at;
        add(k);
    } else {
        hws__ucx.ucp_rkey_destroy(k->ucx);
        k->ucx = NULL;
    }
}

/* Find the way to the memory; UCX's status if there is none. */
static ucs_status_t choose(struct hws__rkey *k, const struct hws__rkey_blob *b)
{
    const struct hws__endpoint *ep = k->ep;
    const bool near = (ep->transports & HWS_TRANSPORT_SHM) != 0;
    const void *held = near ? hws__segment_hold(b->segment) : NULL;
    ucs_status_t s = UCS_OK;

    k->way = ep->raw || (ep->transports & HWS_TRANSPORT_RDMA) ? HWS__WAY_UCX : HWS__WAY_MESSAGES;
    if (near && b->segment != 0 && held == NULL) {
        /* Several versions of UCX (1.13, 1.17, 1.18) crash on the key of a segment that is gone. */
        s = k->way == HWS__WAY_UCX ? UCS_ERR_UNREACHABLE : UCS_OK;
    } else if (k->way == HWS__WAY_UCX) {
        if ((s = unpack_ucx(k, b->ucx)) == UCS_OK) {
            add(k);
        }
    } else if (held != NULL && k->memory_kind == HWS_MEMORY_HOST) {
        map(k, b->ucx);
    }
    if (held != NULL) {
        hws__segment_release(held);
    }
    return s;
}

/* Under ownership, with an endpoint that is open. */
static int32_t unpack(struct hws__endpoint *ep, const struct hws__rkey_blob *b, hws_id *out)
{
    struct hws__rkey *k;
    ucs_status_t s;

    k = (struct hws__rkey *)(void *)hws__obj_alloc(&hws__objects, HWS_KIND_RKEY, sizeof *k,
                                                   HWS__KEEP(struct hws__rkey, link));
    if (k == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, ep->obj.id, "remote key");
    }
    k->worker = ep->worker;
    k->uworker = ep->uworker;
    k->ep = ep;
    k->base = b->base;
    k->length = b->length;
    k->memory = b->memory;
    k->key = b->key;
    k->memory_kind = b->memory_kind;
    hws__list_init(&k->of_uworker);
    if ((s = choose(k, b)) != UCS_OK) {
        hws__obj_free(&hws__objects, &k->obj);
        return hws__fail_ucx(s, ep->obj.id, "cannot unpack the key: %s",
                             hws__ucx.ucs_status_string(s));
    }
    hws__list_append(&ep->rkeys, &k->link);
    *out = hws__obj_publish(&hws__objects, &k->obj);
    return HWS_OK;
}

static int32_t unpack_checked(struct hws__endpoint *ep, const struct hws__rkey_blob *b, hws_id *out)
{
    int32_t r;

    if ((ep->worker->context->features & (HWS_FEATURE_RMA | HWS_FEATURE_ATOMIC)) == 0) {
        return hws__fail(HWS_E_UNSUPPORTED, ep->obj.id,
                         "the context has neither HWS_FEATURE_RMA nor HWS_FEATURE_ATOMIC");
    }
    if (ep->raw && !ep->worker->context->ucx_rma) {
        return hws__fail(HWS_E_UNSUPPORTED, ep->obj.id,
                         "a raw endpoint needs a context with HWS_FEATURE_UCX_RMA");
    }
    if (hws__endpoint_check(ep) < 0) {
        return hws__endpoint_refuse(ep, ep->obj.id);
    }
    if ((r = check_owner(ep, b)) < 0) {
        return r;
    }
    return unpack(ep, b, out);
}

int32_t hws_rkey_unpack(hws_id endpoint, const void *packed, uint64_t length, uint32_t flags,
                        hws_id *out)
{
    struct hws__rkey_blob b = {.length = UINT64_MAX, .ucx = packed};
    struct hws__endpoint *ep;
    struct hws__worker *w;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((ep = hws__endpoint_find(endpoint, &r)) == NULL) {
        return r;
    }
    if (out == NULL || packed == NULL || length == 0 || (flags & ~(uint32_t)HWS_RKEY_RAW) != 0) {
        return hws__fail(HWS_E_INVALID, endpoint, "flags %#x, or nothing to unpack", flags);
    }
    if ((flags & HWS_RKEY_RAW) != 0 && !ep->raw) {
        return hws__fail(HWS_E_INVALID, endpoint, "HWS_RKEY_RAW is for raw endpoints");
    }
    if ((flags & HWS_RKEY_RAW) == 0 &&
        (r = hws__rkey_blob_read(packed, length, endpoint, &b)) < 0) {
        return r;
    }
    w = ep->worker; /* once: the endpoint's memory may become another's until it is owned */
    if ((r = hws__own_call(w, endpoint, &nested)) < 0) {
        return r;
    }
    r = atomic_load(&ep->obj.id) == endpoint
            ? unpack_checked(ep, &b, out)
            : hws__id_error(&hws__objects, endpoint, HWS_KIND_ENDPOINT);
    hws__disown(w, nested);
    return r;
}

/* The key of an id, whatever became of its endpoint. */
static struct hws__rkey *find(hws_id id, int32_t *error)
{
    struct hws__rkey *k = NULL;

    if (hws__id_kind(id) == HWS_KIND_RKEY) {
        k = hws__obj_find(&hws__objects, id);
    }
    if (k == NULL) {
        *error = hws__id_error(&hws__objects, id, HWS_KIND_RKEY);
    }
    return k;
}

struct hws__rkey *hws__rkey_ready(hws_id id, int32_t *error)
{
    struct hws__rkey *k = find(id, error);

    if (k == NULL) {
        return NULL;
    }
    if (__builtin_expect((!k->ep->open && k->ep->credit.resumed == NULL) ||
                             (k->ucx == NULL && k->way != HWS__WAY_MESSAGES),
                         0)) {
        *error = hws__endpoint_refuse(k->ep, id);
        return NULL;
    }
    return k;
}

int32_t hws__rkey_bounds(const struct hws__rkey *k, uint64_t address, uint64_t length)
{
    if (__builtin_expect(
            address - k->base <= k->length && length <= k->length - (address - k->base), 1)) {
        return HWS_OK;
    }
    return hws__fail(HWS_E_INVALID, k->obj.id,
                     "%llu bytes at %#llx; the key's memory is %llu bytes at %#llx",
                     (unsigned long long)length, (unsigned long long)address,
                     (unsigned long long)k->length, (unsigned long long)k->base);
}

/* Own the worker of a key that is still there; null with `*error` set if not. */
static struct hws__rkey *own(hws_id id, bool *nested, int32_t *error)
{
    struct hws__rkey *k = find(id, error);
    struct hws__worker *w;

    if (k == NULL) {
        return NULL;
    }
    w = k->worker;
    if ((*error = hws__own_call(w, id, nested)) < 0) {
        return NULL;
    }
    if (atomic_load(&k->obj.id) == id) {
        return k;
    }
    hws__disown(w, *nested);
    *error = hws__id_error(&hws__objects, id, HWS_KIND_RKEY);
    return NULL;
}

int32_t hws_rkey_query(hws_id rkey, hws_rkey_info *out)
{
    hws_rkey_info i = {0};
    struct hws__rkey *k;
    void *direct;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((k = own(rkey, &nested, &r)) == NULL) {
        return r;
    }
    i.memory_kind = k->memory_kind;
    i.base = k->base;
    i.length = k->length;
    i.endpoint = atomic_load(&k->ep->obj.id);
    i.direct = pointer(k, k->base, &direct) == UCS_OK;
    hws__disown(k->worker, nested);
    return hws__fill(out, &i, sizeof i, "remote key info");
}

int32_t hws_rkey_ptr(hws_id rkey, uint64_t address, void **out)
{
    struct hws__worker *w;
    struct hws__rkey *k;
    ucs_status_t s;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((k = own(rkey, &nested, &r)) == NULL) {
        return r;
    }
    w = k->worker;
    if (out == NULL) {
        r = hws__fail(HWS_E_INVALID, rkey, "out is null");
    } else if ((r = hws__rkey_bounds(k, address, 0)) == HWS_OK &&
               (s = pointer(k, address, out)) != UCS_OK) {
        r = hws__fail_ucx(UCS_ERR_UNREACHABLE, rkey, "the memory is not shared: %s",
                          hws__ucx.ucs_status_string(s));
    } else if (r == HWS_OK && !k->pinned) {
        k->pinned = true;
        k->uworker->pinned++;
    }
    hws__disown(w, nested);
    return r;
}

static int32_t order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* A raw key has no names but UCX's. (Two mappings of one memory are different to it.) */
static int32_t order_ucx(const struct hws__rkey *a, const struct hws__rkey *b)
{
    struct compare_params p = {0};
    int result = 0;

    if (a == b || a->way != HWS__WAY_UCX || a->ucx == NULL || b->ucx == NULL ||
        hws__ucx.ucp_rkey_compare == NULL ||
        hws__ucx.ucp_rkey_compare(a->ep->uworker->ucx, a->ucx, b->ucx, &p, &result) != UCS_OK) {
        return 0;
    }
    return result;
}

static int32_t compare(const struct hws__rkey *a, const struct hws__rkey *b)
{
    int32_t r = order((uint64_t)(uintptr_t)a->ep, (uint64_t)(uintptr_t)b->ep);

    r = r != 0 ? r : order(a->memory, b->memory);
    r = r != 0 ? r : order(a->key, b->key);
    r = r != 0 ? r : order(a->base, b->base);
    r = r != 0 ? r : order(a->length, b->length);
    r = r != 0 ? r : order(a->memory_kind, b->memory_kind);
    return r != 0 ? r : order_ucx(a, b);
}

int32_t hws_rkey_compare(hws_id a, hws_id b, int32_t *result)
{
    struct hws__rkey *x, *y;
    struct hws__worker *w;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((x = own(a, &nested, &r)) == NULL) {
        return r;
    }
    w = x->worker;
    if ((y = find(b, &r)) != NULL && (result == NULL || y->worker != w)) {
        r = hws__fail(HWS_E_INVALID, b, "keys of different workers, or result is null");
    } else if (y != NULL) {
        *result = compare(x, y);
    }
    hws__disown(w, nested);
    return r;
}
