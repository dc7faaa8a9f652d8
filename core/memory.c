#include "memory.h"
#include "cuda.h"
#include "error.h"
#include "exit.h"
#include "guard.h"
#include "options.h"
#include "segment.h"
#include "ucx_loader.h"
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* LOCK: every memory's fields and the contexts' lists of them; before a context's lock. Held while
 * UCX maps, so that a context cannot end meanwhile. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define ACCESS_ALL 15u

/* The memory of an id, perhaps on its way out, with the lock held. */
static struct hws__memory *find_any(hws_id id, int32_t *error)
{
    struct hws__memory *m = NULL;

    if (hws__id_kind(id) == HWS_KIND_MEMORY) {
        m = hws__obj_find(&hws__objects, id);
    }
    if (m == NULL) {
        *error = hws__id_error(&hws__objects, id, HWS_KIND_MEMORY);
    }
    return m;
}

/* The same, unless it was closed. */
static struct hws__memory *find(hws_id id, int32_t *error)
{
    struct hws__memory *m = find_any(id, error);

    if (m != NULL && m->closing) {
        *error = hws__fail(HWS_E_CLOSING, id, "the memory is being closed");
        return NULL;
    }
    return m;
}

static unsigned protection(uint32_t access)
{
    return (access & HWS_MEM_LOCAL_READ ? UCP_MEM_MAP_PROT_LOCAL_READ : 0u) |
           (access & HWS_MEM_LOCAL_WRITE ? UCP_MEM_MAP_PROT_LOCAL_WRITE : 0u) |
           (access & HWS_MEM_REMOTE_READ ? UCP_MEM_MAP_PROT_REMOTE_READ : 0u) |
           (access & HWS_MEM_REMOTE_WRITE ? UCP_MEM_MAP_PROT_REMOTE_WRITE : 0u);
}

static ucs_status_t map(ucp_context_h ucx, const hws_mem_opts *o, void *address, uint64_t length,
                        bool allocate, ucp_mem_h *out)
{
    ucp_mem_map_params_t p = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                            UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                                            UCP_MEM_MAP_PARAM_FIELD_PROT,
                              .address = address,
                              .length = length,
                              .flags = (allocate ? UCP_MEM_MAP_ALLOCATE : 0u) |
                                       (o->flags & HWS_MEM_NONBLOCK ? UCP_MEM_MAP_NONBLOCK : 0u) |
                                       (o->flags & HWS_MEM_FIXED ? UCP_MEM_MAP_FIXED : 0u),
                              .prot = protection(o->access != 0 ? o->access : ACCESS_ALL),
                              .memory_type = (ucs_memory_type_t)o->memory_kind};
    ucs_status_t s;

    if (address != NULL) {
        p.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
    }
    if (o->memory_kind != HWS_MEMORY_UNKNOWN) {
        p.field_mask |= UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    }
    hws__ucx_begin();
    s = hws__ucx.ucp_mem_map(ucx, &p, out);
    hws__ucx_end();
    return s;
}

static void unmap(struct hws__context *c, ucp_mem_h mem)
{
    hws__ucx_begin();
    hws__ucx.ucp_mem_unmap(hws__context_shm(c), mem);
    hws__ucx_end();
}

/* What UCX made of it. */
static ucs_status_t query(struct hws__memory *m)
{
    ucp_mem_attr_t a = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH |
                                      UCP_MEM_ATTR_FIELD_MEM_TYPE};
    ucs_status_t s = hws__ucx.ucp_mem_query(m->ucx, &a);

    if (s == UCS_OK) {
        if (m->allocated) {
            m->base = a.address;
            m->length = a.length;
            m->segment = hws__segment_of(a.address);
        }
        m->memory_kind = (uint32_t)a.mem_type;
    }
    return s;
}

/* UCX takes the pages of a segment in /dev/shm at once, and the kernel ends processes for those that are not there. */
static bool exceeds_machine(uint64_t length)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 && length / (uint64_t)page >= (uint64_t)pages;
}

static int32_t check(hws_id context, const void *base, uint64_t length, const hws_mem_opts *o,
                     bool allocate)
{
    if (length == 0 || (base == NULL && !allocate) || (uint64_t)(uintptr_t)base + length < length) {
        return hws__fail(HWS_E_INVALID, context, "memory of %llu bytes at %p",
                         (unsigned long long)length, base);
    }
    if ((o->flags & ~(uint32_t)(HWS_MEM_NONBLOCK | HWS_MEM_FIXED)) != 0 ||
        (o->access & ~ACCESS_ALL) != 0 ||
        ((o->flags & HWS_MEM_FIXED) != 0 && (!allocate || o->address == NULL)) ||
        (!allocate && o->address != NULL)) {
        return hws__fail(HWS_E_INVALID, context, "flags %#x, access %#x, address %p", o->flags,
                         o->access, o->address);
    }
    if (allocate && o->memory_kind == HWS_MEMORY_HOST && exceeds_machine(length)) {
        return hws__fail(HWS_E_NO_MEMORY, context, "this machine has less than %llu bytes",
                         (unsigned long long)length);
    }
    return HWS_OK;
}

/* Find out an unknown kind; of memory that CUDA knows, keep the CUDA context it is registered in. */
static int32_t look(const struct hws__context *c, hws_id context, struct hws__memory *m,
                    hws_mem_opts *o)
{
    bool known = false;
    int32_t r;

    if (o->memory_kind == HWS_MEMORY_UNKNOWN && !m->allocated &&
        (r = hws__cuda_kind(context, m->base, &o->memory_kind, &known)) < 0) {
        return r;
    }
    if ((r = hws__cuda_usable(c, context, o->memory_kind)) < 0) {
        return r;
    }
    if (known || o->memory_kind == HWS_MEMORY_CUDA || o->memory_kind == HWS_MEMORY_CUDA_MANAGED) {
        m->cuda = hws__cuda_current();
    }
    return HWS_OK;
}

/* Map into the context and list it there, with the lock held. */
static int32_t add(hws_id context, struct hws__memory *m, hws_mem_opts *o)
{
    struct hws__context *c;
    ucs_status_t s;
    int32_t r = HWS_OK;

    if ((c = hws__context_find(context, &r)) == NULL) {
        return r;
    }
    if (atomic_load(&c->closing) != 0) {
        return hws__fail(HWS_E_CLOSING, context, "the context is being closed");
    }
    if ((r = look(c, context, m, o)) < 0) {
        return r;
    }
    s = map(hws__context_shm(c), o, m->allocated ? o->address : m->base, m->length, m->allocated,
            &m->ucx);
    if (s == UCS_OK && (s = query(m)) != UCS_OK) {
        unmap(c, m->ucx);
    }
    if (s != UCS_OK) {
        return hws__fail_ucx(s, context, "%s %llu bytes: %s",
                             m->allocated ? "cannot allocate" : "cannot register",
                             (unsigned long long)m->length, hws__ucx.ucs_status_string(s));
    }
    m->context = c;
    m->access = o->access != 0 ? o->access : ACCESS_ALL;
    if (getrandom(&m->key, sizeof m->key, 0) != (ssize_t)sizeof m->key) {
        m->key = (uint64_t)(uintptr_t)m ^ m->obj.generation;
    }
    hws__list_append(&c->memories, &m->link);
    hws__cuda_adopt(c, m->cuda, true);
    return HWS_OK;
}

static int32_t open_memory(hws_id context, void *base, uint64_t length, const hws_mem_opts *opts,
                           bool allocate, hws_id *out)
{
    struct hws__memory *m;
    hws_mem_opts o;
    int32_t r;

    if (out == NULL) {
        return hws__fail(HWS_E_INVALID, context, "out is null");
    }
    if (hws__context_find(context, &r) == NULL ||
        (r = hws__options(&o, sizeof o, opts, "memory")) < 0 ||
        (r = check(context, base, length, &o, allocate)) < 0) {
        return r;
    }
    m = (struct hws__memory *)(void *)hws__obj_alloc(&hws__objects, HWS_KIND_MEMORY, sizeof *m, 0);
    if (m == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, context, "memory");
    }
    m->base = base;
    m->length = length;
    m->allocated = allocate;
    m->cuda = NULL;
    m->segment = 0;
    hws__list_init(&m->link);
    pthread_mutex_lock(&lock);
    if ((r = add(context, m, &o)) == HWS_OK) {
        *out = hws__obj_publish(&hws__objects, &m->obj);
    } else {
        hws__obj_free(&hws__objects, &m->obj);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

int32_t hws_mem_register(hws_id context, void *base, uint64_t length, const hws_mem_opts *opts,
                         hws_id *out)
{
    HWS__ENTER();
    return open_memory(context, base, length, opts, false, out);
}

int32_t hws_mem_alloc(hws_id context, uint64_t length, const hws_mem_opts *opts, hws_id *out)
{
    HWS__ENTER();
    return open_memory(context, NULL, length, opts, true, out);
}

int32_t hws_mem_query(hws_id memory, hws_mem_info *out)
{
    hws_mem_info i = {0};
    struct hws__memory *m;
    int32_t r = HWS_OK;

    HWS__ENTER();
    pthread_mutex_lock(&lock);
    if ((m = find_any(memory, &r)) != NULL) {
        i.memory_kind = m->memory_kind;
        i.base = m->base;
        i.length = m->length;
        i.allocated = m->allocated;
        i.uses = m->uses;
    }
    pthread_mutex_unlock(&lock);
    return m == NULL ? r : hws__fill(out, &i, sizeof i, "memory info");
}

static int32_t advise(struct hws__memory *m, uint64_t offset, uint64_t length, uint32_t advice)
{
    ucp_mem_advise_params_t p = {
        .field_mask = UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS | UCP_MEM_ADVISE_PARAM_FIELD_LENGTH |
                      UCP_MEM_ADVISE_PARAM_FIELD_ADVICE,
        .address = (char *)m->base + offset,
        .length = length,
        .advice = advice == HWS_MEM_ADVISE_WILLNEED ? UCP_MADV_WILLNEED : UCP_MADV_NORMAL};
    ucs_status_t s;

    if (offset > m->length || length > m->length - offset || length == 0 ||
        advice > HWS_MEM_ADVISE_WILLNEED) {
        return hws__fail(HWS_E_INVALID, m->obj.id, "advice %u for %llu bytes at %llu of %llu",
                         advice, (unsigned long long)length, (unsigned long long)offset,
                         (unsigned long long)m->length);
    }
    s = hws__ucx.ucp_mem_advise(hws__context_shm(m->context), m->ucx, &p);
    return s == UCS_OK ? HWS_OK
                       : hws__fail_ucx(s, m->obj.id, "advice: %s", hws__ucx.ucs_status_string(s));
}

int32_t hws_mem_advise(hws_id memory, uint64_t offset, uint64_t length, uint32_t advice)
{
    struct hws__memory *m;
    int32_t r = HWS_OK;

    HWS__ENTER();
    pthread_mutex_lock(&lock);
    if ((m = find(memory, &r)) != NULL) {
        r = advise(m, offset, length, advice);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

/* Progress needs the CUDA context of what is left, with the lock held. */
static void choose_cuda(struct hws__context *c)
{
    void *cuda = NULL;

    for (struct hws__list *n = c->memories.next; n != &c->memories; n = n->next) {
        void *its = hws__container(n, struct hws__memory, link)->cuda;

        cuda = its != NULL ? its : cuda;
    }
    atomic_store(&c->cuda, cuda);
}

/* Unmap and forget, with the lock held. */
static void release(struct hws__memory *m)
{
    bool pushed = hws__cuda_push(m->cuda);

    hws__list_remove(&m->link);
    unmap(m->context, m->ucx);
    hws__cuda_pop(pushed);
    if (m->cuda != NULL) {
        choose_cuda(m->context);
    }
    hws__obj_free(&hws__objects, &m->obj);
}

struct hws__memory *hws__memory_use(hws_id id, int32_t *error)
{
    struct hws__memory *m;

    pthread_mutex_lock(&lock);
    if ((m = find(id, error)) != NULL) {
        m->uses++;
    }
    pthread_mutex_unlock(&lock);
    return m;
}

void hws__memory_unuse(struct hws__memory *m)
{
    pthread_mutex_lock(&lock);
    if (--m->uses == 0 && m->closing) {
        release(m);
    }
    pthread_mutex_unlock(&lock);
}

int32_t hws__memory_close(hws_id id)
{
    struct hws__memory *m;
    int32_t r = HWS_OK;

    pthread_mutex_lock(&lock);
    if ((m = find_any(id, &r)) != NULL) {
        m->closing = true;
        if (m->uses == 0) {
            release(m);
        }
    }
    pthread_mutex_unlock(&lock);
    return r;
}

void hws__memory_end(struct hws__context *c)
{
    pthread_mutex_lock(&lock);
    while (!hws__list_empty(&c->memories)) {
        release(hws__container(c->memories.next, struct hws__memory, link));
    }
    pthread_mutex_unlock(&lock);
}

struct hws__memory *hws__memory_reach(const struct hws__context *c, hws_id id, uint64_t key,
                                      uint64_t address, uint64_t length, uint32_t access)
{
    struct hws__memory *m = NULL;
    uint64_t base;

    if (hws__id_kind(id) != HWS_KIND_MEMORY) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    if ((m = hws__obj_find(&hws__objects, id)) != NULL) {
        base = (uint64_t)(uintptr_t)m->base;
        if (m->context != c || m->key != key || m->closing || (m->access & access) != access ||
            address - base > m->length || length > m->length - (address - base)) {
            m = NULL;
        } else {
            m->uses++;
        }
    }
    pthread_mutex_unlock(&lock);
    return m;
}

static int32_t pack(struct hws__memory *m, struct hws__packed *out)
{
    ucs_status_t s =
        hws__ucx.ucp_rkey_pack(hws__context_shm(m->context), m->ucx, &out->ucx, &out->ucx_length);

    out->memory = m->obj.id;
    out->key = m->key;
    out->segment = m->segment;
    out->base = (uint64_t)(uintptr_t)m->base;
    out->length = m->length;
    out->memory_kind = m->memory_kind;
    return s == UCS_OK ? HWS_OK
                       : hws__fail_ucx(s, m->obj.id, "cannot pack the key: %s",
                                       hws__ucx.ucs_status_string(s));
}

int32_t hws__memory_pack(hws_id id, bool raw, struct hws__packed *out)
{
    struct hws__memory *m;
    int32_t r = HWS_OK;

    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&lock);
    if ((m = find(id, &r)) != NULL) {
        r = raw && !m->context->ucx_rma
                ? hws__fail(HWS_E_UNSUPPORTED, id,
                            "a raw key needs a context with HWS_FEATURE_UCX_RMA")
                : pack(m, out);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

void hws__memory_pack_free(struct hws__packed *p)
{
    if (p->ucx != NULL) {
        hws__ucx.ucp_rkey_buffer_release(p->ucx);
    }
}
