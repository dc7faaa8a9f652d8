#include "waddress.h"
#include "blob.h"
#include "dial.h"
#include "error.h"
#include "guard.h"
#include "hello.h"
#include "host.h"
#include "log.h"
#include "options.h"
#include "progress.h"
#include "ucx_loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An address of UCX has some 100 bytes a device. */
#define OWN_MAX 8192u

static int kind_of(uint32_t flags)
{
    return flags & HWS_ADDRESS_HELLO                  ? HWS__ADDRESSED_HELLO
           : flags & HWS_ADDRESS_UNSAFE_SHARED_MEMORY ? HWS__ADDRESSED_SHM
                                                      : HWS__ADDRESSED_PLAIN;
}

/* Put a new UCX worker under its owner, unless another thread was faster. Owner only. */
static int32_t install(struct hws__worker *w, hws_id id, int kind, struct hws__uworker *u)
{
    int32_t r = HWS_OK;

    if (atomic_load(&w->obj.id) != id || w->closing || w->addressed[kind] != NULL) {
        hws__uworker_destroy(u);
        return w->addressed[kind] != NULL && atomic_load(&w->obj.id) == id
                   ? HWS_OK
                   : hws__fail(HWS_E_CLOSING, id, "the worker is closing");
    }
    u->raw = kind < HWS__ADDRESSED_HELLO;
    if ((r = hws__uworker_adopt(w, u)) < 0) {
        hws__list_remove(&u->link);
        hws__uworker_destroy(u);
        return r;
    }
    hws__acceptors_note(u);
    if (kind != HWS__ADDRESSED_DIALS) {
        hws__gate_join_acceptors(u);
    }
    w->addressed[kind] = u;
    w->raw_count += u->raw;
    return HWS_OK;
}

static bool is_missing(const struct hws__worker *w, hws_id id, int kind)
{
    return atomic_load(&w->obj.id) == id && w->addressed[kind] == NULL && !w->closing;
}

/* Make the UCX worker of a kind, without the ownership that it is begun and left with. */
static int32_t make(struct hws__worker *w, hws_id id, int kind, bool *nested)
{
    struct hws__context *c = w->context;
    hws_error e = {.struct_size = sizeof e};
    struct hws__uworker *u;
    int32_t r;

    if (!hws__context_hold(c)) {
        return hws__fail(HWS_E_CLOSING, id, "the context is closing");
    }
    hws__disown(w, *nested);
    u = kind == HWS__ADDRESSED_SHM
            ? hws__uworker_create(c, HWS__ADDRESS_SHM, hws__context_own(c))
            : hws__uworker_create_tcp(c, HWS__ADDRESS, kind < HWS__ADDRESSED_HELLO);
    r = hws__own_call(w, id, nested);
    if (r == HWS_OK && u != NULL) {
        r = install(w, id, kind, u);
    } else if (u != NULL) {
        hws__uworker_destroy(u);
    } else if (r == HWS_OK) {
        hws_last_error(&e);
        r = e.code;
    }
    hws__context_let_go(c);
    return r;
}

/* The UCX worker of a kind of addresses, made if needed; returns with the worker owned. */
static struct hws__uworker *addressed(struct hws__worker *w, hws_id id, int kind, bool *nested,
                                      int32_t *error)
{
    if ((*error = hws__own_call(w, id, nested)) < 0) {
        return NULL;
    }
    if (atomic_load(&w->obj.id) == id && w->addressed[kind] != NULL &&
        hws__acceptors_lost(w->addressed[kind])) {
        w->addressed[kind] = NULL; /* it stays for those who are connected already */
    }
    if (is_missing(w, id, kind) && (*error = make(w, id, kind, nested)) < 0) {
        return NULL;
    }
    if (atomic_load(&w->obj.id) != id || w->closing || w->addressed[kind] == NULL) {
        *error = hws__fail(HWS_E_CLOSING, id, "the worker is closing");
        return NULL;
    }
    return w->addressed[kind];
}

/* UCX's bytes, or a blob around them. Owner only. */
static int32_t write_address(struct hws__uworker *u, uint32_t flags, const hws_blob_item *items,
                             uint32_t count, void *to, uint64_t size, uint64_t *needed)
{
    ucp_worker_attr_t a = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS};
    ucp_worker_address_attr_t id = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};
    ucs_status_t s = hws__ucx.ucp_worker_query(u->ucx, &a);
    struct hws__blob b = {.flags = flags,
                          .ucx_major = (uint32_t)hws__ucx.major,
                          .ucx_minor = (uint32_t)hws__ucx.minor};
    uint64_t bytes = a.address_length;
    int32_t r = HWS_OK;

    if (s != UCS_OK || (s = hws__ucx.ucp_worker_address_query(a.address, &id)) != UCS_OK) {
        return hws__fail_ucx(s, 0, "worker address: %s", hws__ucx.ucs_status_string(s));
    }
    b.worker = id.worker_uid;
    b.address = a.address;
    b.address_length = a.address_length;
    if ((flags & HWS_ADDRESS_PLAIN) == 0) {
        bytes = hws__blob_bytes(a.address_length, items, count);
    }
    if (needed != NULL) {
        *needed = bytes;
    }
    if (size < bytes) {
        r = size != 0 ? hws__fail(HWS_E_TOO_BIG, 0, "the address has %llu bytes",
                                  (unsigned long long)bytes)
                      : HWS_OK;
    } else if (flags & HWS_ADDRESS_PLAIN) {
        memcpy(to, a.address, a.address_length);
    } else {
        hws__blob_write(to, &b, items, count);
    }
    hws__ucx.ucp_worker_release_address(u->ucx, a.address);
    return r;
}

void *hws__address_own(struct hws__uworker *u, uint64_t room, uint64_t *length)
{
    ucp_worker_attr_t a = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS};
    struct hws__blob b = {.ucx_major = (uint32_t)hws__ucx.major,
                          .ucx_minor = (uint32_t)hws__ucx.minor};
    char *memory;

    if (hws__ucx.ucp_worker_query(u->ucx, &a) != UCS_OK) {
        return NULL;
    }
    b.address = a.address;
    b.address_length = a.address_length;
    *length = hws__blob_bytes(a.address_length, NULL, 0);
    if ((memory = malloc(room + *length)) != NULL) {
        hws__blob_write(memory + room, &b, NULL, 0);
    }
    hws__ucx.ucp_worker_release_address(u->ucx, a.address);
    return memory;
}

void *hws__address_peer(const void *blob, uint64_t length)
{
    struct hws__blob b;
    void *memory = NULL;

    if (length <= OWN_MAX && hws__blob_read(blob, length, &b) == HWS_OK &&
        b.ucx_major == (uint32_t)hws__ucx.major && b.ucx_minor == (uint32_t)hws__ucx.minor &&
        (memory = malloc(b.address_length)) != NULL) {
        memcpy(memory, b.address, b.address_length);
    }
    return memory;
}

static int32_t pack(hws_id worker, uint32_t flags, const hws_blob_item *items, uint32_t count,
                    void *to, uint64_t size, uint64_t *needed)
{
    struct hws__worker *w;
    struct hws__uworker *u;
    int32_t r = HWS_OK;
    bool nested;

    if ((w = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    if ((flags &
         ~(uint32_t)(HWS_ADDRESS_HELLO | HWS_ADDRESS_PLAIN | HWS_ADDRESS_UNSAFE_SHARED_MEMORY)) ||
        ((flags & HWS_ADDRESS_HELLO) && flags != HWS_ADDRESS_HELLO)) {
        return hws__fail(HWS_E_INVALID, worker, "flags %#x", flags);
    }
    if ((to == NULL && size != 0) || (items == NULL && count != 0)) {
        return hws__fail(HWS_E_INVALID, worker, "a null pointer");
    }
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].length >= UINT64_C(1) << 40 || (items[i].data == NULL && items[i].length)) {
            return hws__fail(HWS_E_INVALID, worker, "item %u", i);
        }
    }
    u = addressed(w, worker, kind_of(flags), &nested, &r);
    if (u != NULL) {
        r = write_address(u, flags, items, count, to, size, needed);
    }
    hws__disown(w, nested);
    return r;
}

int32_t hws_worker_address(hws_id worker, uint32_t flags, void *address, uint64_t size,
                           uint64_t *needed)
{
    HWS__ENTER();
    return pack(worker, flags, NULL, 0, address, size, needed);
}

int32_t hws_blob_pack(hws_id worker, uint32_t flags, const hws_blob_item *items, uint32_t count,
                      void *blob, uint64_t size, uint64_t *needed)
{
    HWS__ENTER();
    if (flags & HWS_ADDRESS_PLAIN) {
        return hws__fail(HWS_E_INVALID, worker, "a blob is not plain");
    }
    return pack(worker, flags, items, count, blob, size, needed);
}

static bool dials(const struct hws__endpoint *ep, uint64_t whom)
{
    return ep->address_kind == HWS__ADDRESSED_DIALS && ep->dialled == whom &&
           ep->phase == HWS__PHASE_HELLO && !ep->failed && !ep->closing;
}

/* Whether somebody else dials it: hellos that overtake each other would come out of turn (pairing.h). */
static bool is_dialled(struct hws__worker *w, uint64_t whom)
{
    for (struct hws__list *n = w->endpoints.next; n != &w->endpoints; n = n->next) {
        if (dials(hws__container(n, struct hws__endpoint, link), whom)) {
            return true;
        }
    }
    return false;
}

static void start(struct hws__endpoint *ep)
{
    struct hws__worker *w = ep->worker;
    struct hws__uworker *u = w->addressed[ep->address_kind];

    if (u == NULL) {
        hws__endpoint_fail(ep, HWS_E_CLOSING, "the worker is closing");
    } else if (ep->address_kind == HWS__ADDRESSED_DIALS && is_dialled(w, ep->dialled)) {
        ep->phase = HWS__PHASE_WAITING;
        ep->awaits_turn = true;
        hws__list_append(&w->dials, &ep->wait_link);
    } else {
        hws__dial_address(ep, u, ep->worker_address);
    }
}

void hws__address_turn(struct hws__endpoint *ep)
{
    struct hws__list *turns = &ep->worker->dials;

    if (ep->awaits_turn) {
        ep->awaits_turn = false;
        hws__list_remove(&ep->wait_link);
    }
    for (struct hws__list *n = turns->next; n != turns; n = n->next) {
        struct hws__endpoint *next = hws__container(n, struct hws__endpoint, wait_link);

        if (next->dialled == ep->dialled) {
            hws__endpoint_attend(next);
            return;
        }
    }
}

/* What the bytes are: a blob, or UCX's own for a plain UCX program. */
static int32_t read_address(struct hws__endpoint *ep, const void *address, uint64_t length,
                            uint32_t flags)
{
    struct hws__blob b = {.address = address, .address_length = length};
    int32_t r = hws__blob_read(address, length, &b);

    if (r < 0 && ((flags & HWS_ENDPOINT_RAW) == 0 || address == NULL || length == 0)) {
        return r;
    }
    if (r == HWS_OK &&
        (b.ucx_major != (uint32_t)hws__ucx.major || b.ucx_minor != (uint32_t)hws__ucx.minor)) {
        return hws__fail(HWS_E_PEER_VERSION, ep->worker->obj.id,
                         "the address is of UCX %u.%u, this is %d.%d", b.ucx_major, b.ucx_minor,
                         hws__ucx.major, hws__ucx.minor);
    }
    if ((b.flags & HWS_ADDRESS_HELLO) && (flags & HWS_ENDPOINT_RAW)) {
        return hws__fail(HWS_E_INVALID, ep->worker->obj.id, "this address has a hello");
    }
    if ((ep->worker_address = malloc(b.address_length)) == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, ep->worker->obj.id, "address");
    }
    memcpy(ep->worker_address, b.address, b.address_length);
    ep->raw = (b.flags & HWS_ADDRESS_HELLO) == 0;
    ep->address_kind = ep->raw ? kind_of(b.flags) : HWS__ADDRESSED_DIALS;
    ep->dialled = b.worker;
    ep->lazy = flags & HWS_ENDPOINT_LAZY;
    if (ep->lazy && !ep->raw) {
        return hws__fail(HWS_E_INVALID, ep->worker->obj.id, "this address has a hello to wait for");
    }
    return HWS_OK;
}

int32_t hws_connect_address(hws_id worker, const void *address, uint64_t length,
                            const hws_endpoint_opts *endpoint_opts, const hws_op_opts *opts,
                            hws_id *out, hws_id *op)
{
    struct hws__worker *w;
    struct hws__endpoint *ep;
    hws_endpoint_opts o;
    hws_op_opts checked;
    bool nested;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((w = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    if (out == NULL || (r = hws__options(&o, sizeof o, endpoint_opts, "endpoint")) < 0 ||
        (r = hws__options(&checked, sizeof checked, opts, "operation")) < 0) {
        return r < 0 ? r : hws__fail(HWS_E_INVALID, worker, "out is null");
    }
    if (o.flags & ~(uint32_t)(HWS_ENDPOINT_RAW | HWS_ENDPOINT_LAZY) || o.local_address != NULL) {
        return hws__fail(HWS_E_INVALID, worker, "flags %#x, or a local address", o.flags);
    }
    if ((ep = hws__endpoint_new(w)) == NULL) {
        return hws__fail(hws__obj_missing(&hws__objects), worker, "no endpoint is free");
    }
    ep->tcp = ep->tcp_only = true;
    ep->reason = HWS_REASON_ADDRESS;
    snprintf(ep->host, sizeof ep->host, "worker address");
    if ((r = read_address(ep, address, length, o.flags)) < 0 ||
        (r = hws__endpoint_options(ep, &o)) < 0) {
        hws__endpoint_forget(ep);
        return r;
    }
    if (addressed(w, worker, ep->address_kind, &nested, &r) == NULL) {
        hws__disown(w, nested);
        hws__endpoint_forget(ep);
        return r;
    }
    hws__disown(w, nested);
    return hws__connect_post(ep, start, opts, out, op);
}

/* An endpoint for a peer that dials; nobody but its deadline has heard of it. */
static struct hws__endpoint *answering(struct hws__worker *w)
{
    struct hws__endpoint *ep = hws__endpoint_new(w);

    if (ep == NULL) {
        return NULL;
    }
    ep->server = true;
    ep->by_address = true;
    ep->address_kind = HWS__ADDRESSED_HELLO;
    ep->reason = HWS_REASON_ADDRESS;
    ep->sink = w->sink;
    ep->phase = HWS__PHASE_WAITING;
    return ep;
}

static void publish(struct hws__endpoint *ep)
{
    struct hws__worker *w = ep->worker;

    hws__obj_publish(&hws__objects, &ep->obj);
    hws__list_append(&w->endpoints, &ep->link);
    HWS__COUNT(w, endpoints, 1);
    hws__endpoint_deadline(ep, HWS__HELLO_NS);
}

void hws__address_hello(struct hws__uworker *u, const void *address, uint64_t length,
                        uint64_t number, const void *hello, uint64_t hello_length)
{
    struct hws__worker *w = u->worker;
    struct hws__endpoint *ep;

    w->gates_due = 0; /* it took a descriptor */
    w->tick = HWS__TICK;
    if (w->closing || length == 0 || (ep = answering(w)) == NULL) {
        return;
    }
    ep->number = number;
    if ((ep->worker_address = hws__address_peer(address, length)) == NULL ||
        (ep->first_hello = malloc(hello_length)) == NULL) {
        hws__endpoint_forget(ep);
        return;
    }
    memcpy(ep->first_hello, hello, hello_length);
    publish(ep);
    hws__endpoint_attend(ep);
}

/* So many dials in a row a peer may have given up, if so many descriptors are left. */
#define GIVEN_UP 1024u
#define ENOUGH_FDS 128

/*
 * For a dial that was given up. It stays for the time of a hello: with UCX 1.22 one that is closed at once takes the
 * next endpoint to that peer along in some cases.
 */
static bool skip_dial(struct hws__uworker *u, const void *address)
{
    struct hws__endpoint *ep = hws__fd_room(ENOUGH_FDS) ? answering(u->worker) : NULL;

    if (ep == NULL) {
        return false;
    }
    publish(ep);
    hws__dial_address(ep, u, address);
    return !ep->failed;
}

/* Have the next endpoint of UCX be the one that is paired with the peer's dial. False: it is none of them. */
static bool await_turn(const struct hws__endpoint *ep, struct hws__uworker *u)
{
    const uint64_t *made;

    while ((made = hws__pairing(u, ep->worker_address)) != NULL) {
        if (ep->number - *made >= GIVEN_UP) { /* also where it is below */
            return false;
        }
        if (ep->number == *made) {
            return true;
        }
        if (!skip_dial(u, ep->worker_address)) {
            return false;
        }
    }
    return false;
}

static void answer(struct hws__endpoint *ep)
{
    struct hws__uworker *u = ep->worker->addressed[ep->address_kind];
    void *hello = ep->first_hello;

    ep->first_hello = NULL;
    if (u != NULL && !await_turn(ep, u)) {
        hws__endpoint_fail(ep, HWS_E_PROTOCOL, "the dial was given up, or is one of too many");
    } else {
        start(ep);
    }
    if (!ep->failed) {
        hws__hello_resume(ep, hello);
    }
    free(hello);
}

void hws__address_step(struct hws__endpoint *ep)
{
    if (ep->first_hello != NULL) {
        answer(ep);
    } else if (!is_dialled(ep->worker, ep->dialled)) {
        ep->awaits_turn = false;
        hws__list_remove(&ep->wait_link);
        start(ep);
    }
}
